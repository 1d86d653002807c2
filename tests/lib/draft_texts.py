# SPDX-License-Identifier: GPL-2.0
"""RFCs and Internet-Drafts as text by section, from a directory that has them.

The texts are not part of this project. A directory that has them is the argument of the scripts
that compare the documentation with them; a document is found by its name at the beginning of the
name of a file, and may be XML (version 3 of the RFC format) or plain text.
"""

import pathlib
import re
import xml.etree.ElementTree as tree

#: A heading in plain text: a number, two spaces or more, and no page number behind the title.
HEADING = re.compile(r"^(?:Appendix )?((?:\d+|[A-Z])(?:\.\d+)*)\.?  ?(?=\S)(?!.*(?:\.\s?){3}.*\d+$)")


def words(text):
    """A text with single blanks and without indentation, to be compared."""
    return " ".join(text.split())


def find(directory, name):
    """The file of a document, or nothing. The source of a draft is preferred to its text."""
    found = [path for path in pathlib.Path(directory).iterdir() if path.name.startswith(name)]
    found.sort(key=lambda path: path.suffix != ".xml")
    return found[0] if found else None


def load(path):
    """The text of each section without that of its subsections, by number."""
    if path.suffix == ".xml":
        return from_xml(path.read_text())
    return from_plain(path.read_text(errors="replace"))


def from_plain(text):
    """The sections of a text with page breaks."""
    lines = []
    for line in text.replace("\r", "").split("\n"):
        page = re.search(r"\[Page \d+\]$", line) or re.match(r"(RFC \d+|Internet-Draft) .*\d{4}$", line)
        if not page and "\f" not in line:
            lines.append(line)
    sections, number = {"": ""}, ""
    for line in lines:
        if found := HEADING.match(line):
            number = found[1]
            sections[number] = ""
        elif not re.match(r"\S", line):
            sections[number] += line + "\n"
    # A sentence that a page break divides has blank lines in it.
    return {number: re.sub(r"\n{4,}", "\n", text) for number, text in sections.items()}


def from_xml(text):
    """The sections of a source, with references as a reader sees them."""
    text = re.sub(r"<!DOCTYPE[^>]*>", "", text).replace("&nbsp;", " ")
    root = tree.fromstring(re.sub(r"<xi:include[^>]*>", "", text, flags=re.DOTALL))
    numbered = {}

    def number(parent, prefix, first):
        for at, section in enumerate(parent.findall("section")):
            own = prefix + (chr(ord("A") + at) if first == "A" else str(at + 1))
            numbered[section.get("anchor")] = own
            section.set("own", own)
            number(section, own + ".", "1")

    number(root.find("middle"), "", "1")
    number(root.find("back"), "", "A")
    sections = {}
    for section in root.iter("section"):
        sections[section.get("own")] = "\n\n".join(
            flat(part, numbered) for part in section if part.tag not in ("section", "name"))
    return sections


def flat(element, numbered):
    """The text of an element."""
    if element.tag == "xref":
        target = element.get("target")
        where = numbered.get(target)
        text = "[" + target + "]" if where is None else where
        if where is not None and element.get("format") != "counter":
            text = ("Appendix " if where[0].isalpha() else "Section ") + where
    else:
        text = element.text or ""
        ends = "\n\n" if element.tag in ("li", "dd", "dt") else ""
        for part in element:
            text += flat(part, numbered) + ends + (part.tail or "")
    return text
