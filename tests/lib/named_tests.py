# SPDX-License-Identifier: GPL-2.0
"""Prints FILE::NAME of every test in the tree: what runs as a test, and can fail.

- A function with the attribute #[test] in Rust.
- In tests/lib a function that is registered as a case, or that registers cases which differ in a value.
- In tests/guest a function that is reached from what the script passes to main(), and in which there is
  something that fails the script.
"""

import ast
import os
import re
import sys

#: What fails a script when it is called.
FAILING = {"check", "problem", "expect", "expect_eq", "fail", "append", "wait_for"}
#: The name of a test in Rust, right behind its attribute.
RUST = re.compile(r"^[ \t]*#\[test\]\n(?:[ \t]*#\[.*\]\n)*[ \t]*fn ([a-z0-9_]+)\(", re.MULTILINE)


def files(top, ending):
    """All files below `top` that end so."""
    for where, _, names in os.walk(top):
        yield from (os.path.join(where, name) for name in sorted(names) if name.endswith(ending))


def name_of(node):
    """The last name of an expression, without its call."""
    while isinstance(node, ast.Call):
        node = node.func
    return getattr(node, "id", getattr(node, "attr", None))


def can_fail(function):
    """Whether something in a function fails the script."""
    return any(isinstance(node, (ast.Raise, ast.Assert)) or
               (isinstance(node, ast.Call) and name_of(node) in FAILING) for node in ast.walk(function))


def registered(tree):
    """The functions that are registered as cases, or make such and are called for that."""
    called = {name_of(node.value) if isinstance(node, ast.Expr) else None
              for top in tree.body for node in ast.walk(top) if not isinstance(top, ast.FunctionDef)}
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        makes = any(isinstance(part, ast.Call) and isinstance(part.func, ast.Call) and name_of(part) == "case"
                    for part in ast.walk(node))
        if any(name_of(d) == "case" for d in node.decorator_list) or (makes and node.name in called):
            yield node.name


def reached(tree):
    """The functions that run when the script does, and can fail it."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    # What the script does itself, and what its tables name.
    todo = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    found = set()
    while todo:
        for node in ast.walk(todo.pop()):
            if isinstance(node, ast.Name) and node.id in functions and node.id not in found:
                found.add(node.id)
                todo.append(functions[node.id])
    return (name for name in found if can_fail(functions[name]))


def main():
    """Everything, one a line."""
    for top in ("rust", "tools/src"):
        for path in files(top, ".rs"):
            with open(path, encoding="utf-8") as f:
                for name in RUST.findall(f.read()):
                    print(f"{path}::{name}")
    for top, tests in (("tests/lib", registered), ("tests/guest", reached)):
        for path in files(top, ".py"):
            with open(path, encoding="utf-8") as f:
                tree = ast.parse(f.read(), path)
            for name in tests(tree):
                print(f"{path}::{name}")


sys.exit(main())
