# SPDX-License-Identifier: GPL-2.0
"""Checks the review comments and proposals of Documentation/protocol/standard.

Each XDR that they show compiles: rpcgen translates it, and a C compiler accepts the result. rpcgen
alone does not notice a type that is missing.

With a directory of the texts as argument (see draft_texts.py), each OLD is in the section that its
item names, and the XDR of the draft compiles with all NEW in place, and not without them.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import draft_texts
from draft_texts import words

PAGES = pathlib.Path("Documentation/protocol/standard")
DRAFT = "draft-ietf-nfsv4-rpcrdma-version-two-07"
#: The number of a section, of an appendix too.
NUMBER = r"(?:\d+|[A-D])(?:\.\d+)*"
#: What rpcgen's headers include, as far as a compiler needs it here.
RPC_H = """
typedef int bool_t; typedef unsigned int u_int; typedef unsigned long long u_quad_t;
typedef struct xdr XDR;
"""
#: Names that the draft defines, for XDR that adds to it.
COMMON = """
typedef unsigned int uint32;
typedef unsigned hyper uint64;
typedef int rpcrdma2_hdr_error;
"""


class Block:
    """A text of an item, OLD or NEW."""

    def __init__(self, kind, sections, everywhere, text):
        #: OLD or NEW.
        self.kind = kind
        #: Where it is.
        self.sections = sections
        #: Whether it is in each of these sections, or in one.
        self.everywhere = everywhere
        self.text = text


def numbers(text):
    """The sections that a heading or label names, with those in between."""
    found = re.findall(rf"(?<![\w.])({NUMBER})(?![\w^])", text)
    if (span := re.search(rf"({NUMBER}) to ({NUMBER})", text)) and "." in span[1]:
        begin, end = span[1].rsplit(".", 1), span[2].rsplit(".", 1)
        found += [f"{begin[0]}.{at}" for at in range(int(begin[1]) + 1, int(end[1]))]
    return found


def blocks(lines):
    """The literal blocks behind a label, which is the line that ends with a double colon."""
    for at, line in enumerate(lines):
        if not re.match(r"(OLD|NEW)\b.*::$", line):
            continue
        text = []
        for more in lines[at + 1:]:
            if more and not more.startswith("   "):
                break
            text.append(more[3:])
        yield line, "\n".join(text).strip("\n")


def items(page):
    """(DOCUMENT, TITLE, BLOCKS) of each item of a page."""
    lines = page.split("\n")
    document, heads = None, []
    for at, line in enumerate(lines[:-1]):
        if re.fullmatch(r"=+", lines[at + 1]) and line:
            document = line.strip()
        elif re.fullmatch(r"-+", lines[at + 1]) and line:
            heads.append((at, document, line))
    heads.append((len(lines), None, ""))
    for (at, document, title), (end, _, _) in zip(heads, heads[1:]):
        # Behind a colon there is no section.
        own = numbers(title.split(":")[0].split(". ", 1)[-1])
        found = []
        for label, text in blocks(lines[at:end]):
            # "and so in" names places where the same is meant, with other names.
            named = numbers(label.split("and so")[0])
            found.append(Block(label[:3], named or own, bool(named) or "twice" in label, text))
        yield document, title, found, lines[at:end]


def is_xdr(text):
    """Whether a block is XDR."""
    return re.search(r"^\s*(typedef|struct|union|const|case)\b.*[;{:]$", text, re.MULTILINE)


def complete(xdr):
    """A definition around what is a part of one."""
    xdr = xdr.rstrip()
    if xdr.lstrip().startswith("case"):
        return COMMON + "union part switch (uint32 which) {\n" + re.sub(
            r"case \w+", "case 1", xdr) + "\n};"
    if xdr.endswith("{"):
        xdr += "\n case 1:\n void;\n default:\n void;\n};"
    has = set(re.findall(r"typedef .* (\w+);|union (\w+)", xdr))
    has = {name for names in has for name in names}
    return "".join(line + "\n" for line in COMMON.strip().split("\n")
                   if line.split()[-1][:-1] not in has) + xdr


def compiles(xdr):
    """What is wrong with an XDR description, or nothing."""
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        (work / "rpc").mkdir()
        (work / "rpc/rpc.h").write_text(RPC_H)
        (work / "text.x").write_text(xdr + "\n")
        done = subprocess.run(["rpcgen", "-h", "text.x"], cwd=work, capture_output=True, text=True)
        if done.returncode or done.stderr:
            return "rpcgen: " + done.stderr.strip()
        (work / "text.c").write_text(done.stdout)
        done = subprocess.run(["cc", "-fsyntax-only", "-w", "-I.", "text.c"], cwd=work,
                              capture_output=True, text=True)
        return "cc: " + done.stderr.strip().split("\n")[0] if done.returncode else ""


def definitions(page):
    """The XDR of a page without OLD and NEW: what a literal block has of definitions.

    In a text for a document a definition is indented more than its lines.
    """
    found = []
    for part in re.findall(r"::\n\n((?:(?:   .*)?\n)+)", page):
        lines = [line[3:] for line in part.split("\n")]
        inside, text = False, []
        for line in lines:
            bare = line.strip()
            begins = re.match(r"(typedef|struct|union|const)\b.*[;{]$", bare)
            if inside or begins:
                text.append(bare)
            if begins:
                inside = bare.endswith("{")
            if bare == "};":
                inside = False
        if text:
            found.append("\n".join(text))
    return found


def old_is_there(documents, document, title, block):
    """The sections of an item in which an OLD is missing."""
    name = DRAFT if document == DRAFT else document.lower().replace(" ", "")
    sections = documents.get(name)
    if sections is None:
        return [f"{title}: no text of {document}"]
    text = words(block.text)
    missing = [number for number in block.sections
               if text not in words(sections.get(number, "").replace("///", ""))]
    if missing and (block.everywhere or len(missing) == len(block.sections)):
        return [f"{title}: OLD is not in {document}, {', '.join(missing)}"]
    return []


def editorial(documents, lines):
    """What is wrong with the OLDs of the editorial items, and how many there are."""
    wrong, count = [], 0
    for item in re.split(r"^- ", "\n".join(lines), flags=re.MULTILINE)[1:]:
        item = words(item)
        head = re.match(rf"(E\d+), ((?:{NUMBER}(?:, )?)+)\. ", item)
        sections = numbers(head[2]) if head else []
        for kind, text in re.findall(r"\b(OLD|NEW): (.*?)(?=\b(?:OLD|NEW): |$)", item):
            for literal in re.findall("``(.*?)``", text) if kind == "OLD" else []:
                count += 1
                wrong += [f"{head[1]}: OLD is not in {number}: {literal}" for number in sections
                          if literal not in words(documents[DRAFT].get(number, ""))]
    return wrong, count


def whole_xdr(documents, changes):
    """What is wrong with the XDR of the draft without the changes, and with them."""
    sections = documents[DRAFT]
    lines = (sections["8.3"] + sections["8.4"]).split("\n")
    xdr = "\n".join(re.sub("^ *///? ?", "", line) for line in lines if line.strip().startswith("///"))
    # With rpcgen's "struct NAME" the rest is what it was written for.
    before = compiles(xdr)
    for old, new in changes:
        pattern = r"\s+".join(re.escape(word) for word in old.split())
        xdr, count = re.subn(pattern, lambda _, new=new: new, xdr)
        if not count and "const uint32" not in old:
            return before, f"not in Sections 8.3 and 8.4: {old}"
    return before, compiles(xdr)


def main(directory):
    """Checks everything and returns how much is wrong."""
    wrong, old, new, changes = [], 0, 0, []
    page = (PAGES / "review-comments.rst").read_text()
    documents = {}
    if directory:
        for name in (DRAFT, "rfc8166", "rfc8267"):
            documents[name] = draft_texts.load(draft_texts.find(directory, name))
    for document, title, found, lines in items(page):
        last = None
        if documents and "Editorial" in title:
            more, count = editorial(documents, lines)
            wrong += more
            print(f"{count} editorial OLDs")
        for block in found:
            if block.kind == "OLD":
                old += 1
                last = block
                if documents:
                    wrong += old_is_there(documents, document, title, block)
                if is_xdr(block.text) and "NEW: nothing" in "\n".join(lines):
                    changes.append((block.text, ""))
            elif is_xdr(block.text) or is_xdr(last.text):
                new += 1
                changes.append((last.text, block.text))
                if problem := compiles(complete(block.text)):
                    wrong.append(f"{title}: NEW does not compile: {problem}")
    for text in definitions((PAGES / "proposals.rst").read_text()):
        new += 1
        if problem := compiles(complete(text)):
            wrong.append(f"proposals.rst: does not compile: {problem}\n{text}")
    print(f"{old} OLDs, {new} texts in XDR")
    # A check that accepts everything would be none.
    if not compiles("struct one { missing two; };") or not compiles("typedef one uint32"):
        wrong.append("the check of XDR accepts what is wrong")
    if documents:
        before, after = whole_xdr(documents, changes)
        print(f"the XDR of the draft as it is: {before}")
        if after or not before:
            wrong.append(f"the XDR of the draft with the changes: {after or 'none is needed'}")
    for text in wrong:
        print(text)
    if old < 45 or new < 8:
        print("texts are missing")
        return 1
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
