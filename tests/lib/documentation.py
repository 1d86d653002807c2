# SPDX-License-Identifier: GPL-2.0
"""Compares the pages with the tree and with the code; prints what differs.

- Links in Markdown files, and paths of files in all pages, lead to something.
- Sysctls, module parameters, files and values in debugfs, trace events and log lines of the code
  are those of the reference pages, with the defaults and ranges that the code has.
"""

import glob
import os
import re
import sys

ADMIN = "Documentation/admin"
WRONG = []


def wrong(text):
    """Notes a difference."""
    WRONG.append(text)


def read(path):
    """The text of a file."""
    with open(path, encoding="utf-8") as f:
        return f.read()


def same(what, code, page, path):
    """Both sets have to be equal."""
    for name in sorted(code - page):
        wrong(f"{path}: lacks {what} {name}")
    for name in sorted(page - code):
        wrong(f"{path}: {what} {name} is not in the code")


def pages():
    """All pages."""
    return [p for p in glob.glob("**/*.rst", recursive=True) + glob.glob("**/*.md", recursive=True)
            if not p.startswith(("deb/", "htmldocs/"))]


# ---- links and paths ------------------------------------------------------

#: A file of the tree in running text: with one of these ends, and no pattern or option in it.
NAME = re.compile(r"``([\w./-]+\.(?:rs|py|sh|rst|md|json|lua|dot|txt|conf))``|\b(Documentation/[\w./-]+\.\w+)")
#: The directories that names are relative to.
ROOTS = ("", "rust/", "rust/proto/", "tests/", "tests/lib/", "tests/guest/", "tests/vectors/", "tools/",
         "tools/src/", "tools/src/standard/", "tools/guest.d/", "Documentation/")
#: Names in pages that are not files of the tree: the kernel's and packages' own files, examples.
FOREIGN = re.compile(r"^(?:/|Documentation/process/|Documentation/x\.rst|NAME\.|bindings_generated\.rs$"
                     r"|device-report\.txt$|ofed_uninstall\.sh$|report\.txt$)")


def anchors(path):
    """What a heading of a Markdown file is called in a link."""
    return {re.sub(r"[^\w -]", "", h.lower()).strip().replace(" ", "-")
            for h in re.findall(r"^#+ (.*)$", read(path), re.M)}


def check_links():
    """Links and paths."""
    for page in pages():
        text, here = read(page), os.path.dirname(page)
        if page.endswith(".md"):
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"https?:", target):
                    continue
                path, _, anchor = target.partition("#")
                path = os.path.normpath(os.path.join(here, path)) if path else page
                if not os.path.exists(path):
                    wrong(f"{page}: dead link {target}")
                elif anchor and path.endswith(".md") and anchor not in anchors(path):
                    wrong(f"{page}: no heading for {target}")
        for found in NAME.finditer(text):
            name = found[1] or found[2].rstrip(".")
            if FOREIGN.match(name) or any(os.path.exists(root + name) for root in (here + "/", *ROOTS)):
                continue
            if page.startswith("Documentation/upstream/"):
                continue
            wrong(f"{page}: there is no {name}")


# ---- parameters -----------------------------------------------------------

def integer(text, source):
    """The value of an expression of C, such as 1 << 20, or of a name in a file."""
    text = text.strip()
    if re.fullmatch(r"\w*[a-z_]\w*", text):
        found = re.search(rf"unsigned int {text}(?: = ([^;]*))?;", source)
        return integer(found[1] or "0", source) if found else None
    left, *right = re.split(r"<<", text)
    return int(left, 0) << int(right[0], 0) if right else int(left, 0)


def rows(page, columns):
    """Rows of all simple tables whose first cell is a literal: name -> further cells."""
    found = {}
    for line in read(page).splitlines():
        row = re.match(r"``(\w+)``\s\s+(.*)$", line)
        if row:
            found.setdefault(row[1], re.split(r"\s\s+", row[2].strip())[:columns])
    return found


def check_sysctls():
    """The sysctls, with their defaults and ranges."""
    page = f"{ADMIN}/parameters.rst"
    table, code = rows(page, 2), set()
    for path in ("rust/sys/sysctl.c", "rust/sys/svc_sysctl.c"):
        source = read(path)
        for name, variable, least, most in re.findall(
                r'RPCRDMA_TUNABLE\("(\w+)", (\w+),\s*(\w+), (\w+)\)', source):
            code.add(name)
            if name not in table:
                continue
            default, values = table[name][:2]
            value = integer(variable, source)
            if default != "by memory" and int(default) != value:
                wrong(f"{page}: the default of {name} is {value}, not {default}")
            bounds = f"{integer(least, source)} to {integer(most, source)}"
            if values != bounds:
                wrong(f"{page}: {name} is {bounds}, not {values}")
    return code


def check_parameters():
    """The module parameters: their names, and the defaults that modinfo shows."""
    page = f"{ADMIN}/parameters.rst"
    code = {}
    for path in glob.glob("rust/sys/*.c"):
        for name, text in re.findall(r'MODULE_PARM_DESC\((\w+),\s*"((?:[^"]|"\s*")*)"\)', read(path)):
            code[name] = text
    for name, body in re.findall(r"(\w+): \w+ \{\s*default: \d+,\s*description: \"([^\"]*)\"",
                                 read("rust/rpcrdma_main.rs")):
        code[name] = body
    table = rows(page, 1)
    for name, text in code.items():
        default = re.search(r"\((?:default:? )([^)]*)\)$", text) or re.search(r"default ([^)]*)\)$", text)
        if not default:
            wrong(f"the description of {name} has no default: {text}")
        elif name in table and default[1] != table[name][0] and not (
                default[1].endswith("memory") and table[name][0] == "by memory"):
            wrong(f"{page}: the default of {name} is {default[1]}, not {table[name][0]}")
    same("parameter", set(code) | check_sysctls(), set(table), page)
    manual = "debian/rpcrdma.4"
    named = read(manual).partition("PARAMETERS")[2].partition(".SH")[0]
    same("parameter", set(code), set(re.findall(r"\b[a-z]+_\w+", re.sub(r"(?m)^[^.].*$", "", named))), manual)


# ---- debugfs, trace events ------------------------------------------------

def literals(page):
    """All that is in double backquotes on a page."""
    return set(re.findall(r"``([^`]+)``", read(page)))


def check_debugfs():
    """The names of files and values."""
    page, code = f"{ADMIN}/debugfs.rst", set()
    for path in glob.glob("rust/**/*.rs", recursive=True):
        text = read(path)
        for block in re.findall(r"\blines!\s*\(\s*m,(.*?)\);", text, re.S):
            code |= set(re.findall(r'"([a-z_]+)": ', block))
        for block in re.findall(r"\bfiles!\[(.*?)\]", text, re.S):
            # Behind the arrow is the function that a write calls.
            code |= set(re.findall(r"\w+", re.sub(r"=>\s*\w+", "", block)))
        for block in re.findall(r"^counters! \{(.*?)^\}", text, re.S | re.M):
            code |= set(re.findall(r"^    ([a-z_]+),$", block, re.M))
    for name in sorted(code - literals(page)):
        wrong(f"{page}: lacks {name}")
    named = {n for n in literals(page) if re.fullmatch(r"[a-z]+(_[a-z]+)+", n)}
    for name in sorted(named - code - {"below_1024_ns", "below_2048_ns"}):
        wrong(f"{page}: {name} is not in the code")


def check_events():
    """The names of trace events."""
    source = read("include/trace/events/rpcrdma_rs.h")
    code = set(re.findall(r"TRACE_EVENT\((\w+)", source)) | set(re.findall(r"DEFINE_EVENT\(\w+, (\w+)", source))
    page = f"{ADMIN}/tracing.rst"
    same("event", code, {n for n in literals(page) if n.startswith("rpcrdma_rs_")}, page)


# ---- log lines ------------------------------------------------------------

def strings(text, at):
    """The string literal of Rust or C that begins at or after a place, with its parts joined."""
    begin = text.index('"', at)
    found = re.compile(r'"(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*', re.S).match(text, begin)
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', found[0], re.S))


def log_lines():
    """What the code writes to the log, with … for each value."""
    for path in glob.glob("rust/**/*.rs", recursive=True) + glob.glob("rust/sys/*.c"):
        text = read(path)
        for call in re.finditer(r"\b(?:pr_(?:err|warn|notice|info)(?:_once|_ratelimited)?!?|log_debug!)\((?=[\s\"/])",
                                text):
            if text[:call.start()].rsplit("\n", 1)[-1].lstrip().startswith(("//", "*")):
                continue
            line = strings(text, call.end())
            line = re.sub(r"\\\n\s*", "", line).replace("\\n", "").removeprefix("rpcrdma: ")
            yield re.sub(r"\{[^}]*\}|%p?\w+", "…", line)


def reasons():
    """The reasons that some lines end with."""
    for path in ("rust/proto/auth.rs", "rust/link/sizing.rs"):
        text = read(path)
        body = re.search(r"fn text\(self\).*?\n    \}\n", text, re.S)
        yield from re.findall(r'"([^"]+)"', body[0]) if body else ()


def check_log():
    """The log lines, and the reasons in them."""
    page = f"{ADMIN}/troubleshooting.rst"
    text = read(page)
    section = text[text.index("\nLog lines\n"):]
    entries = set(re.findall(r"^``(.*)``$", section, re.M))
    code = set(log_lines())
    if len(code) < 15:
        wrong(f"only {len(code)} log lines found in the code")
    # Not the module's own.
    udev = re.search(r'^\tsay "(.*)"$', read("packaging/loaded"), re.M)[1]
    same("the log line", code | {udev}, entries, page)
    named = set(re.findall(r"``([^`]+)``", section))
    for reason in reasons():
        if reason not in named:
            wrong(f"{page}: lacks the reason {reason}")


def main():
    """Checks everything."""
    check_links()
    check_parameters()
    check_debugfs()
    check_events()
    check_log()
    print("\n".join(WRONG) or "pages, tree and code agree")
    sys.exit(bool(WRONG))


if __name__ == "__main__":
    main()
