# SPDX-License-Identifier: GPL-2.0
"""The tables of `tools/bench --atomics`: `atomics_tables.py OUT FILE KO`, KO our module as it was built.

Where a place is in our sources, the module's debugging information tells, if there is any.
"""

import json
import re
import subprocess
import sys

import results

#: What writes less often for one operation is left out of the tables, unless all connections write it.
LEAST = 0.05
#: Functions that are entered when a lock is found taken, and how many of their callers are shown.
SLOW, MOST = re.compile("slowpath|__mutex_lock"), 12
#: The part of the kernel that is the module, see `profiling.py`.
TRANSPORT = "transport"


def output(*command, given=""):
    """What a command prints."""
    return subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True).stdout


def readable(names):
    """Name of a function -> what it is called in its source."""
    names = sorted(names)
    given = "".join(f"{name.split(' [')[0]}\n" for name in names)
    return dict(zip(names, map(short, output("c++filt", given=given).splitlines())))


def bare(path, kept):
    """So many of the last words of a path of Rust, without arguments of types, and traits."""
    while (less := re.sub(r"(::)?<[^<>]*>", "", path)) != path:
        path = less
    return "::".join(path.split(" as ")[0].split("::")[-kept:])


def short(name):
    """A function of Rust as one speaks of it: its type, or its module, and its name."""
    name = re.sub(r"\[[0-9a-f]{8,}\]|\.llvm\.\d+", "", name.split(" [")[0])
    if dropped := re.fullmatch(r"core::ptr::drop_in_place::<(.*)>", name):
        return f"drop of {bare(dropped[1], 1)}"
    if not name.startswith("<"):
        return bare(name, 2)
    depth = ends = 0
    for ends, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">" and name[ends - 1] != "-")
        if not depth:
            break
    return f"{bare(name[1:ends], 1)}::{bare(name[ends + 3:], 2)}"


class Sources:
    """Where in our sources the places of a module are."""

    def __init__(self, ko):
        self.ko = ko
        self.functions = {}
        for line in output("nm", ko).splitlines():
            *address, kind, name = line.split()
            if kind in "tT":
                self.functions.setdefault(name, int(address[0], 16))

    def lines(self, places):
        """(function, offset) -> file and line of ours, or nothing."""
        known = {}
        for function, offset in places:
            name = function.split(" [")[0]
            if name in self.functions:
                known[function, offset] = self.functions[name] + offset
        # Each begins with the address.
        texts = re.split(r"^(0x[0-9a-f]+)\n", output(
            "addr2line", "-a", "-i", "-e", self.ko, "-j", ".text",
            given="".join(f"{at:#x}\n" for at in known.values())), flags=re.M)
        # The innermost that is ours: what is inlined may be the kernel's.
        found = {int(at, 16): re.search(r"/module/[^/]+/rust/(\S+\.rs:\d+)", text)
                 for at, text in zip(texts[1::2], texts[2::2])}
        return {place: found[at][1] if found[at] else "" for place, at in known.items()}


def number(value):
    """A figure as people write it."""
    return f"{value:.3g}" if value else "0"


class Table:
    """What one module does, all rows together."""

    def __init__(self, rows, found, sources):
        self.rows = rows
        every = [place for row in rows for place in found[row]]
        self.names = readable({name for place in every
                               for name in (place["function"], place["via"], *place["variables"])})
        own = {(p["function"], p["offset"]) for p in every if p["part"] == TRANSPORT}
        self.sources = sources.lines(own) if sources else {}
        # The lines of all connections, by number, with a name.
        shared = sorted((place for place in every if place["shared"]),
                        key=lambda place: place["part"] != TRANSPORT)
        # Beside the first ones there are many that are never written.
        variables = {place["busiest"]: ", ".join(self.names[name] for name in place["variables"][:4])
                     for place in shared}
        self.lines = {line: names or f"line {number}"
                      for number, (line, names) in enumerate(variables.items(), 1)}
        #: (part, place, via, atomic, name of its line if all write it) -> row -> places.
        self.places = {}
        for row in rows:
            for place in found[row]:
                key = (place["part"], self.where(place), self.names[place["via"]], place["atomic"],
                       self.lines[place["busiest"]] if place["shared"] else "")
                self.places.setdefault(key, {}).setdefault(row, []).append(place)

    def where(self, place):
        """Where a place is, for people."""
        line = self.sources.get((place["function"], place["offset"]))
        return f"{self.names[place['function']]} ({line})" if line else self.names[place["function"]]

    def per(self, row, wanted):
        """Writes for one operation of the places that are wanted."""
        return sum(place["writes"] for key, found in self.places.items() if wanted(*key)
                   for place in found.get(row, ()))

    def heading(self, title, before, after=()):
        """The first lines of a table."""
        columns = (*before, *self.rows, *after)
        print(f"\n{title}:\n\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")

    def show(self, title, wanted):
        """Prints the places that are wanted."""
        self.heading(title, ("place", "by"), ("lines", "busiest", "CPUs", "of all connections"))
        for key, found in sorted(self.places.items(), key=lambda item: -sum(
                place["writes"] for places in item[1].values() for place in places)):
            per = [sum(p["writes"] for p in found.get(row, ())) for row in self.rows]
            if not wanted(*key) or (not key[4] and max(per) < LEAST):
                continue
            every = [p for places in found.values() for p in places]
            print(f"| {key[1]} | {key[2]} | {' | '.join(map(number, per))} | "
                  f"{max(p['lines'] for p in every)} | {max(p['share'] for p in every):.0%} | "
                  f"{max(p['CPUs'] for p in every)} | {key[4]} |")

    def shared(self, title, wanted):
        """Prints the lines of all connections to which the wanted places write."""
        self.heading(title, ("line",), ("places",))
        for line in self.lines.values():
            keys = [key for key in self.places if key[4] == line and wanted(*key)]
            if keys:
                per = [self.per(row, lambda *key, k=keys: key in k) for row in self.rows]
                places = dict.fromkeys(key[1] for key in keys)
                print(f"| {line} | {' | '.join(map(number, per))} | {', '.join(places)} |")

    def taken(self, title):
        """Prints who has found a lock taken, by what is written then."""
        self.heading(title, ("part", "place"))
        keys = [key for key in self.places if SLOW.search(key[2]) and key[0] != "device"]
        for name in sorted({key[:2] for key in keys}, key=lambda name: -max(
                self.per(row, lambda *key: key in keys and key[:2] == name) for row in self.rows))[:MOST]:
            per = [self.per(row, lambda *key, n=name: key in keys and key[:2] == n) for row in self.rows]
            print(f"| {name[0]} | {name[1]} | {' | '.join(map(number, per))} |")

    def elsewhere(self, title):
        """Prints what other parts write atomically to lines of all connections."""
        self.heading(title, ("part",), ("lines", "most of them by"))
        for part in dict.fromkeys(key[0] for key in self.places if key[0] != TRANSPORT):
            keys = [key for key in self.places if key[0] == part and key[3] and key[4]]
            if not keys:
                continue
            per = [self.per(row, lambda *key, k=keys: key in k) for row in self.rows]
            most = sorted(keys, key=lambda key: -sum(self.per(row, lambda *k, key=key: k == key)
                                                     for row in self.rows))
            print(f"| {part} | {' | '.join(map(number, per))} | {len({key[4] for key in keys})} | "
                  f"{', '.join(dict.fromkeys(key[1] for key in most[:8]))} |")


def is_atomic(part, _where, _via, atomic, _line):
    """Whether a place is the module's, and writes atomically."""
    return part == TRANSPORT and atomic


def is_shared(part, _where, _via, _atomic, line):
    """Whether a place is the module's, and writes to a line of all connections."""
    return part == TRANSPORT and line


def main():
    """Prints the tables of each module."""
    out, path, ko = sys.argv[1:]
    with open(path, encoding="ascii") as f:
        found = json.load(f)
    print(f"\nWrites to lines of a cache for one operation: fabric {found['fabric']}, "
          f"{found['connections']} connections, {found['cpus']} CPUs, {found['jobs']} processes, the "
          "module at both ends. Busiest: the part of a place's writes that goes to one line. CPUs: "
          "how many write that. A line is one of all connections if it gets more of them than two "
          "connections have, and more than one CPU writes it.")
    for module in found["modules"]:
        table = Table(found["rows"], found["places"][module],
                      None if module == "stock" else Sources(ko))
        print(f"\n{module}, the module's own: " + "; ".join(
            f"{row}: {table.per(row, is_atomic):.1f} atomic writes, "
            f"{table.per(row, lambda *key: is_atomic(*key) and is_shared(*key)):.2f} of them and "
            f"{table.per(row, lambda *key: not is_atomic(*key) and is_shared(*key)):.2f} others to lines "
            "of all connections" for row in found["rows"]))
        table.shared(f"{module}, lines of all connections that the module writes", is_shared)
        table.show(f"{module}, atomic writes of the module's own", is_atomic)
        table.elsewhere(f"{module}, atomic writes elsewhere to lines of all connections")
        table.taken(f"{module}, locks that were found taken, by the atomic writes of waiting for them")
    print()
    results.write(out, found)


if __name__ == "__main__":
    main()
