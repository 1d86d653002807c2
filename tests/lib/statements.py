# SPDX-License-Identifier: GPL-2.0
"""Every statement of the drafts and of RFC 8167 with MUST, MUST NOT, SHOULD and the like has a row in
the conformance lists, or stands under *Not in the table* with a reason.

`statements.txt` names the statements: section, number within the section, keyword, and the beginning of
the requirement of the row, or `-`. With a directory of the texts as argument (see draft_texts.py) these
are compared with the words that are found in the texts.
"""

import pathlib
import re
import sys

import draft_texts

LIST = pathlib.Path(__file__).with_name("statements.txt")
#: The page that shows how many there are.
PAGE = "Documentation/protocol/conformance.rst"
#: The list that has the rows of a document, and what the sections have in front there.
DOCUMENTS = {
    "draft-ietf-nfsv4-rpcrdma-version-two-07": ("conformance.rst", ""),
    "draft-cel-nfsv4-rpcrdma-version-two-01": ("conformance-2016.rst", "B "),
    "draft-dnoveck-nfsv4-rpcrdma-xcharext-03": ("conformance-2016.rst", "X "),
    "draft-cel-nfsv4-rpcrdma-bidirection-00": ("conformance-one.rst", "C "),
    "draft-ietf-nfsv4-rpcrdma-bidirection-00": ("conformance-one.rst", "D "),
    "rfc8167": ("conformance-one.rst", ""),
}
#: The chapter of a list that has the rows, where it has several.
CHAPTERS = {"rfc8167": "RFC 8167"}
#: Where a section of RFC 8167 is named among what is not in the table.
NAMES = {"rfc8167": "RFC 8167, "}
#: The words of RFC 2119 that bind. In quotation marks they are defined. REQUIRES is a quotation of another document.
KEYWORD = re.compile(r'(?<!")\b((?:MUST|SHALL|SHOULD)(?: NOT)?|REQUIRED|(?:NOT )?RECOMMENDED)\b(?!")')
#: The licence of the XDR has one of them.
LICENCE = re.compile(r"IN NO (?:///)? ?\* ?EVENT SHALL")


def rows(path, chapter):
    """(SECTION, REQUIREMENT) of each row of a list, or of a chapter of it; and the text behind *Not in the table*."""
    text = pathlib.Path(path).read_text()
    text, _, rest = text.partition("\nNot in the table\n")
    if chapter:
        # The text of each chapter is behind its heading.
        parts = re.split(r"^(\S.*)\n=+\n", text, flags=re.MULTILINE)
        text = next(body for head, body in zip(parts[1::2], parts[2::2]) if head.startswith(chapter))
    found = re.findall(r"^   \* - (\S.*)\n     - (\S.*(?:\n       .*)*)", text, re.MULTILINE)
    return [(section, draft_texts.words(requirement)) for section, requirement in found], draft_texts.words(rest)


def sections(text, prefix):
    """The sections that the first column of a row names."""
    out = []
    for part in text.split(", "):
        part = part.removeprefix(prefix).strip()
        if begun := re.fullmatch(r"(.*\.)(\d+) to (?:.*\.)?(\d+)", part):
            out += [f"{begun[1]}{n}" for n in range(int(begun[2]), int(begun[3]) + 1)]
        else:
            out.append(part)
    return out


def load():
    """The list: (SECTION, NUMBER, KEYWORD, ROW) by document."""
    found, document = {}, None
    for line in LIST.read_text().splitlines():
        if head := re.fullmatch(r"\[(.*)\]", line):
            document = found.setdefault(head[1], [])
        elif line and not line.startswith("#"):
            section, number, keyword, row = re.fullmatch(r"(\S+) (\d+) ([A-Z ]+): (.*)", line).groups()
            document.append((section, int(number), keyword, row))
    return found


def statements(texts):
    """(SECTION, NUMBER, KEYWORD) of what a document says."""
    out = []
    for section, text in texts.items():
        text = draft_texts.words(text)
        if 'key words "MUST"' in text:
            continue
        words = [found[1] for found in KEYWORD.finditer(LICENCE.sub("", text))]
        out += [(section, number, word) for number, word in enumerate(words, 1)]
    return out


def check(document, listed, directory):
    """What is wrong with the statements of a document, and how many there are with a row and without."""
    path, prefix = DOCUMENTS[document]
    table, rest = rows(f"Documentation/protocol/{path}", CHAPTERS.get(document))
    wrong, named = [], 0
    for section, number, keyword, row in listed:
        where = f"{document} {section}, {keyword} {number}"
        if row == "-":
            named += 1
            name = NAMES.get(document, prefix) + section
            if not re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.]\d)", rest):
                wrong.append(f"{where}: not named under Not in the table")
        else:
            count = sum(requirement.startswith(row) and section in sections(names, prefix)
                        for names, requirement in table)
            if count != 1:
                wrong.append(f"{where}: {count} rows begin with {row}")
    if directory:
        found = statements(draft_texts.load(draft_texts.find(directory, document)))
        ours = [one[:3] for one in listed]
        wrong += [f"{document} says {one}, and the list does not" for one in found if one not in ours]
        wrong += [f"{document} does not say {one}" for one in ours if one not in found]
    print(f"{document}: {len(listed)} statements, {len(listed) - named} with a row, {named} not in the table")
    # The page shows the same.
    title = document.replace("rfc", "RFC ")
    shown = re.search(rf"^{title} +(\d+) +(\d+) +(\d+)$", pathlib.Path(PAGE).read_text(), re.MULTILINE)
    counts = (len(listed), len(listed) - named, named)
    if not shown or tuple(map(int, shown.groups())) != counts:
        wrong.append(f"{PAGE} does not show {counts} for {title}")
    return wrong


def main(directory):
    """Checks all documents."""
    wrong = []
    found = load()
    for document in DOCUMENTS:
        wrong += check(document, found.get(document, []), directory)
        if not found.get(document):
            wrong.append(f"{document} is missing")
    for text in wrong:
        print(text)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
