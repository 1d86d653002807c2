# SPDX-License-Identifier: GPL-2.0
"""Prints FILE::NAME of every test in the tree: what runs as a test, and can fail.

What runs:

- In Rust a function with the attribute #[test], unless it is ignored.
- In tests/lib a function that is registered as a case, or that registers cases which differ in a
  value.
- In tests/guest a function that is reached from what the script passes to main().

What can fail has something in it that fails the test, whatever it takes to get there:

- Rust: an assertion (of proptest too), panic!, unreachable!, unwrap or expect. Or it calls a
  function that has, of the same tests, of a file testing.rs, or of tools/src. A `?` is not enough.
- A case of the hostile server: an outcome that is asked for, other than "any", or something that
  the server notes as wrong.
- A case of the hostile client: something that notes a problem, `check`, `raise` or `assert`, or a
  call of a function in tests/lib that has it. That a command fails, or a connection can't be made,
  is none.
- In tests/guest: the same, in the function itself.

An assertion of a constant that is true is none. Each start begins with a test of all this.
"""

import ast
import functools
import os
import re
import sys

# ---- Rust -----------------------------------------------------------------

#: A test: its attributes, and its name.
TEST = re.compile(r"^[ \t]*#\[test\]\n((?:[ \t]*#\[.*\]\n)*)[ \t]*fn ([a-z0-9_]+)\(", re.MULTILINE)
#: Comments, strings and characters.
TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|\bb?r(?P<hashes>\#*)".*?"(?P=hashes)
                      |(?:\bb)?"(?:\\.|[^"\\])*"|(?:\bb)?'(?:\\.[^'\n]*|[^\\'\n])'""",
                  re.DOTALL | re.VERBOSE)
FUNCTION = re.compile(r"\bfn ([a-z0-9_]+)\b")
#: What panics, or ends a property test.
ASSERTION = re.compile(r"\b(?:prop_)?assert(?:_eq|_ne)?!(?!\s*\(\s*true\b)|\b(?:panic|unreachable)!"
                       r"|\.(?:unwrap|expect)(?:_err)?\(")
#: A call: the module that the function is in, if it is there, or the dot before a method.
CALL = re.compile(r"(?:\b([a-z0-9_]+)::|(\.))?\b([a-z_][a-z0-9_]*)(?:::<[^()]*>)?\(")
USE = re.compile(r"\buse ([^;]*);")


def end_of_block(text, at):
    """Where the block ends that begins at the next brace, and where it begins; or nothing."""
    begin = depth = 0
    for found in re.finditer(r"[(){}\[\];]", text[at:]):
        sign = found[0]
        if not begin and not depth and sign in "{;":
            if sign == ";":
                return None
            begin = at + found.start()
        depth += (sign in "({[") - (sign in ")}]")
        if begin and not depth:
            return begin, at + found.end()
    return None


class Rust:
    """What is of interest in a Rust file, or in its tests."""

    def __init__(self, path, text):
        #: The modules that it is in, itself included.
        self.modules = set(re.split(r"[/.]", path)) - {"rs", "mod", "src"}
        #: Whether others may call what is here in order to test something.
        self.helps = path.startswith("tools/") or path.endswith("testing.rs")
        self.tests = [name for how, name in TEST.findall(text) if "#[ignore" not in how]
        text = TEXT.sub('""', text)
        # What fails in what is tested is no assertion.
        if not self.helps and "mod tests {" in text:
            text = text[text.index("mod tests {"):]
        self.used = set(re.findall(r"[a-z_][a-z0-9_]*", " ".join(USE.findall(text))))
        self.functions = {}
        for found in FUNCTION.finditer(text):
            if block := end_of_block(text, found.end()):
                body = text[slice(*block)]
                self.functions[found[1]] = self.functions.get(found[1], "") + body


def failing(rust):
    """(PATH, NAME) of all functions that can fail, of files by path."""
    found = {(path, name) for path, file in rust.items()
             for name, body in file.functions.items() if ASSERTION.search(body)}

    def calls_one(path, file, body):
        for module, method, name in CALL.findall(body):
            if (path, name) in found:
                return True
            if method:
                # Methods of a type are in the files of its module.
                words = file.modules - {"rust", "tools"}
            else:
                words = {module} if module else file.used if name in file.used else set()
            if any(other != path and there.helps and words & there.modules
                   and (other, name) in found for other, there in rust.items()):
                return True
        return False

    while True:
        more = {(path, name) for path, file in rust.items()
                for name, body in file.functions.items()
                if (path, name) not in found and calls_one(path, file, body)}
        if not more:
            return found
        found |= more


# ---- Python ---------------------------------------------------------------

#: Functions of `common` that fail the script, and which argument tells whether they do.
FUNCTIONS = {"check": 0, "wait_for": 2}
#: Methods that note what fails it.
METHODS = {"problem", "wrong", "refused", "expect_silence"}
#: What a case raises where a connection does not work: no opinion of its own.
HARMLESS = {"Gone", "Refused", "Skip"}
LIB = "tests/lib"
#: What registers a case; the latter is for those of the hostile server about the first message.
REGISTERS = {"case", "first"}


def name_of(node):
    """The last name of an expression, without its call."""
    while isinstance(node, ast.Call):
        node = node.func
    return getattr(node, "id", getattr(node, "attr", None))


def is_true(node):
    """Whether an expression is a constant that is true."""
    return isinstance(node, ast.Constant) and bool(node.value)


def fails(node):
    """Whether a node of a function fails the script."""
    if isinstance(node, ast.Raise):
        # On its own it passes on what something else has raised.
        return node.exc is not None and name_of(node.exc) not in HARMLESS
    if isinstance(node, ast.Assert):
        return not is_true(node.test)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        which = FUNCTIONS.get(node.func.id)
        return which is not None and len(node.args) > which and not is_true(node.args[which])
    method = getattr(node.func, "attr", None)
    if method == "append":
        return name_of(node.func.value) == "problems"
    return method in METHODS


@functools.cache
def module(name):
    """A file of tests/lib: its functions, and what it imports."""
    path = f"{LIB}/{name}.py"
    if name == "common" or not os.path.exists(path):
        return {}, {}
    with open(path, encoding="utf-8") as f:
        return parts(ast.parse(f.read(), path))


def parts(tree):
    """The functions of a file, and the modules of names that it imports."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    imports = {alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom)
               for alias in node.names}
    return functions, imports


@functools.cache
def methods():
    """The methods of what a hostile client's case gets that can fail. Each ends with `well`."""
    with open(f"{LIB}/hostile_attack.py", encoding="utf-8") as f:
        attack, = (node for node in ast.parse(f.read()).body
                   if isinstance(node, ast.ClassDef) and node.name == "Attack")
    found, before = set(METHODS), None
    while before != found:
        before = set(found)
        found |= {node.name for node in attack.body if isinstance(node, ast.FunctionDef)
                  and any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
                          and name_of(n.func.value) == "self" and n.func.attr in before
                          for n in ast.walk(node))}
    return found - {"well"}


def can_fail(function, scope=None, seen=()):
    """Whether something in a function fails the script, or, with a scope, in one that it calls."""
    seen = {*seen, function}
    first = function.args.args[0].arg if function.args.args else None
    for node in ast.walk(function):
        if fails(node):
            return True
        if scope is None or not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute):
            if name_of(node.func.value) == first and node.func.attr in methods():
                return True
            continue
        functions, imports = scope
        name = name_of(node)
        there = scope if name in functions else module(imports.get(name))
        helper = there[0].get(name)
        if helper and helper not in seen and can_fail(helper, there, seen):
            return True
    return False


def demands(call):
    """Whether a case of the hostile server is registered with an outcome that it must have."""
    if not isinstance(call, ast.Call) or not call.args:
        return False
    # Cases about the first message concern no procedure.
    which = 0 if name_of(call) == "first" else 1
    outcome = call.args[which] if len(call.args) > which else ast.Constant("any")
    return not (isinstance(outcome, ast.Constant) and outcome.value == "any")


def registered(tree):
    """The functions that are registered as cases, or are called to make such, and can fail."""
    called = {name_of(node.value) for top in tree.body if not isinstance(top, ast.FunctionDef)
              for node in ast.walk(top) if isinstance(node, ast.Expr)}
    scope = parts(tree)
    for node in scope[0].values():
        made = [part.func for part in ast.walk(node)
                if isinstance(part, ast.Call) and isinstance(part.func, ast.Call)
                and name_of(part) in REGISTERS]
        how = [d for d in node.decorator_list if name_of(d) in REGISTERS]
        if not how and not (made and node.name in called):
            continue
        if any(map(demands, how + made)) or can_fail(node, scope):
            yield node.name


def reached(tree):
    """The functions that run when the script does, and can fail it."""
    functions = parts(tree)[0]
    # What the script does itself, and what its tables name.
    todo = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    found = set()
    while todo:
        for node in ast.walk(todo.pop()):
            if isinstance(node, ast.Name) and node.id in functions and node.id not in found:
                found.add(node.id)
                todo.append(functions[node.id])
    return (name for name in found if can_fail(functions[name]))


# ---- A test of the above ---------------------------------------------------

#: Files with tests: those whose name begins with `good` can fail, and no others.
SAMPLES = {
    "rust/sample.rs": r"""
fn tested() { assert!(false); }
mod tests {
    use super::testing::{compares, counts};
    fn helper(n: u32) { assert_eq!(n, 1) }
    fn nothing() -> Result { Ok(()) }
    #[test]
    fn good() { assert!(matches!(tested(), ())); }
    #[test]
    #[allow(unused)]
    fn good_late(x in [0_u8; 2]) { let y: &'a u8 = b'}'; if '"' { return; } prop_assert_ne!(x, y); }
    #[test]
    fn good_error() -> Result { nothing().unwrap_err(); Ok(()) }
    #[test]
    fn good_helper() -> Result { nothing()?; helper(2); Ok(()) }
    #[test]
    fn good_import() { compares::<u32>(2); }
    #[test]
    fn good_path() { testing::compares(2); }
    #[test]
    fn bad_question_mark() -> Result { nothing()?; Ok(()) }
    #[test]
    fn bad_constant() { assert!( true, "always"); }
    #[test]
    fn bad_comment() { // assert!(false);
        /* assert!(false); */ log("assert!(false)", r#"" panic!"#);
    }
    #[test]
    fn bad_tested() { tested(); }
    #[test]
    fn bad_import() { counts(2); }
    #[test]
    fn bad_path() { other::compares(2); }
    #[test]
    #[ignore]
    fn bad_ignored() { assert!(false); }
}
""",
    "rust/testing.rs": "fn compares(n: u32) { assert!(n > 1) }\nfn counts(n: u32) { n + 1 }\n",
    "tests/lib/sample.py": """
from common import check, remote
from hostile_calls_compounds import several
def helper(t): t.problem("x")
@case
def good(t): t.problem("x")
@case
def good_check(t): check(1 + 1 == 3, "x")
@case
def good_helper(t): helper(t)
@case
def good_import(t): several(t, None)
@case
def good_method(t): t.batch([])
@case("GETATTR", "error")
def good_outcome(r): r.send()
@case("GETATTR")
def good_note(r): r.connection.wrong("x")
def good_makes(name, expect):
    case("GETATTR", expect)(print)
good_makes("x", "ok")
def good_makes_first(name):
    first("ok", 2)(print)
good_makes_first("x")
@first("any")
def bad_first(r): r.send()
def helper_alone(t): t.problem("x")
@case
def bad(t):
    try:
        log("x")
    except OSError:
        raise
@case
def bad_command(t): remote("false")
@case
def bad_method(t): t.well()
@case
def bad_constant(t):
    check(True, "x")
    assert 1, "x"
@case("GETATTR", "any")
def bad_outcome(r): raise Gone("x")
@case("GETATTR")
def bad_default(r): problem("x")
def bad_makes(name):
    case("GETATTR", "any")(print)
bad_makes("x")
""",
    "tests/guest/sample.py": """
def good(): check(len("x") == 2, "x")
def good_list(problems): problems.append("x")
def good_wait(): wait_for("x", 5, lambda: False)
def bad_wait(): wait_for("x", 5, True)
def bad(): lines.append(read("x"))
def unused(): check(len("x") == 2, "x")
def client():
    good()
    bad()
    for act in (good_list, good_wait, bad_wait):
        act()
main(client)
""",
}


def all_tests(sources):
    """All that there are in sources, which are given by path."""
    rust = {path: Rust(path, text) for path, text in sources.items() if path.endswith(".rs")}
    found = failing(rust)
    for path, text in sources.items():
        if path in rust:
            names = [name for name in rust[path].tests if (path, name) in found]
        else:
            tree = ast.parse(text, path)
            names = (registered if path.startswith(LIB) else reached)(tree)
        yield from (f"{path}::{name}" for name in names)


def try_out():
    """Ends the program if what can't fail is taken for a test, or the reverse."""
    got = set(all_tests(SAMPLES))
    wanted = {f"{path}::{name}" for path, text in SAMPLES.items()
              for name in re.findall(r"(?:fn|def) (good[a-z_]*)", text)}
    if got != wanted:
        sys.exit(f"{sys.argv[0]} is wrong about {', '.join(sorted(got ^ wanted))}")


def main():
    """Everything, one a line."""
    try_out()
    sources = {}
    for top in ("rust", "tools/src", LIB, "tests/guest"):
        for where, _, names in os.walk(top):
            for name in sorted(names):
                if name.endswith((".rs", ".py")):
                    path = os.path.join(where, name)
                    with open(path, encoding="utf-8") as f:
                        sources[path] = f.read()
    print("\n".join(all_tests(sources)))


main()
