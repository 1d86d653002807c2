# SPDX-License-Identifier: GPL-2.0
"""Which places of our module are reached, in a build of it that counts them (`tests/kmod/cover`).

A *place* is a basic block that the compiler has marked, by the offset of its mark in the module's text.
A *hit* is a place and the class of how often it was reached, as the file of `cover.ko` has it.
"""

import array
import collections
import os
import re
import subprocess

from common import check, run

COUNTERS = "/sys/kernel/debug/cover/places"
#: The call that marks a place. Its relocation is that of the four octets before the return address.
MARK = "__sanitizer_cov_trace_pc"
#: Octets that are read at once: more than there can be.
ALL = 1 << 20
#: Rooms whose code a peer's messages go through.
PEERS = ("proto", "link", "responder", "requester", "endpoint", "server", "client", "rdma", "sunrpc")

#: `end` is `client` or `server` where the code was compiled for that end only, else nothing.
Place = collections.namedtuple("Place", "room function file line end")


def load():
    """Inserts what counts, and the module that is counted in."""
    directory = os.path.dirname(os.environ["MODULE_KO"])
    check(os.path.exists(f"{directory}/cover.ko"), "this build of the module does not count")
    run("insmod", f"{directory}/cover.ko")
    for name in run("modinfo", "-F", "depends", os.environ["MODULE_KO"], quiet=True).strip().split(","):
        if name and name != "cover":
            run("modprobe", name)
    run("insmod", os.environ["MODULE_KO"])


class Counters:
    """What `cover.ko` counts."""

    def __init__(self):
        self.fd = os.open(COUNTERS, os.O_RDWR)

    def clear(self):
        """Begins again."""
        os.write(self.fd, b"0")

    def hits(self):
        """The hits since then, as a set."""
        return set(array.array("I", os.pread(self.fd, ALL, 0)))


def output(*argv, text=""):
    """What a command says, given some text."""
    return subprocess.run(argv, input=text, stdout=subprocess.PIPE, check=True, text=True).stdout


def marks(module):
    """The offsets of all places in the text of a module."""
    found, inside = [], False
    for line in output("readelf", "-rW", module).splitlines():
        if line.startswith("Relocation section"):
            inside = "'.rela.text'" in line
        elif inside and MARK in line:
            found.append(int(line.split()[0], 16) + 4)
    check(found, "the module has no places to be counted")
    return found


def functions(module):
    """The functions in the text of a module: offset, length and name, in their order."""
    sections = re.findall(r"^ *\[ *(\d+)\] \.text ", output("readelf", "-SW", module), re.M)
    found = []
    for line in output("readelf", "-sW", module).splitlines():
        words = line.split()
        if len(words) >= 8 and words[3] == "FUNC" and words[6] in sections:
            found.append((int(words[1], 16), int(words[2], 0), words[7]))
    names = output("llvm-cxxfilt", text="\n".join(f[2] for f in found)).splitlines()
    return sorted((at, length, name) for (at, length, _), name in zip(found, names))


def plain(name):
    """A function's name without generic arguments and hashes."""
    before = None
    while before != name:
        before, name = name, re.sub(r"<[^<>]*>", "", name)
    return re.sub(r"\[[0-9a-f]+\]|\{closure#\d+\}|::h[0-9a-f]{16}$", "", name).strip(":")


class Places:
    """All places of the module, and whose they are."""

    def __init__(self, module=None):
        module = module or os.environ["MODULE_KO"]
        sources = os.path.dirname(os.path.dirname(module)) + "/rust/"
        offsets = marks(module)
        # Behind a call the line may be another one already.
        text = output("llvm-symbolizer", f"--obj={module}", "--inlines", "--demangle",
                      text="".join(f"{at - 5:#x}\n" for at in offsets))
        outer = iter(functions(module))
        self.places, here = {}, next(outer)
        for at, block in zip(offsets, text.split("\n\n")):
            following = None
            while at > here[0] + here[1] and (following := next(outer, None)):
                here = following
            lines = block.strip().splitlines()
            frames = list(zip(lines[::2], lines[1::2]))
            # The symbolizer names the outermost by whatever symbol has this offset in any section.
            frames[-1] = (here[2], frames[-1][1])
            self.places[at] = self.placed(frames, sources)

    @staticmethod
    def placed(frames, sources):
        """Whose a place is, given its frames, the innermost first: that of the innermost function of ours."""
        ends = set(re.findall(r"rpcrdma_main::(client|server)::", " ".join(name for name, _ in frames)))
        end = ends.pop() if len(ends) == 1 else ""
        for i, (_, where) in enumerate(frames):
            if where.startswith(sources):
                file, line = where[len(sources):].split(":")[:2]
                room = file.partition("/")[0] if "/" in file else "main"
                # A closure has the name of what it is in.
                names = [plain(name) for name, _ in frames[i:] if not name.startswith("{closure")]
                name = names[0] if names else plain(frames[-1][0])
                return Place(room, name.removeprefix("rpcrdma_main::"), file, int(line), end)
        # What the compiler makes where a value ends, and takes from other crates, is that of the type.
        for name, _ in frames:
            if own := re.search(r"rpcrdma_main::(\w+)::", name):
                return Place(own[1], "what ends with its values", "", 0, end)
        return Place("others", plain(frames[-1][0]), "", 0, end)

    def of(self, end):
        """The places that there are at one end: all but those that were compiled for the other."""
        other = {"client": "server", "server": "client"}[end]
        return {at: place for at, place in self.places.items() if place.end != other}

    @staticmethod
    def table(places, reached):
        """Lines that say for each room how many of its places were reached, and how many of its lines of
        source have one such place at least: generic code has places for each type."""
        there, got = collections.defaultdict(set), collections.defaultdict(set)
        for at, place in places.items():
            for room in (place.room, "all"):
                for what in (at, (place.file, place.line)):
                    there[room, type(what)].add(what)
                    if at in reached:
                        got[room, type(what)].add(what)
        rooms = sorted({room for room, _ in there}, key=lambda room: (room == "all", room))
        out = [f"{'room':12} {'places':>7} {'reached':>8} {'%':>6} {'lines':>7} {'reached':>8} {'%':>6}"]
        for room in rooms:
            line = f"{room:12}"
            for kind in (int, tuple):
                all_of, some = len(there[room, kind]), len(got[room, kind])
                line += f" {all_of:7,} {some:8,} {100 * some / all_of:6.1f}"
            out.append(line)
        return out

    @staticmethod
    def unreached(places, reached, rooms=PEERS):
        """Lines that say which functions of some rooms have lines of source that were not reached."""
        found = {}
        for at, place in places.items():
            if place.room in rooms and place.file:
                entry = found.setdefault((place.file, place.function), [set(), set()])
                entry[at in reached].add(place.line)
        out = []
        for (file, function), (missing, got) in sorted(found.items()):
            if lines := sorted(missing - got):
                some = "lines" if got else "all lines"
                out.append(f"{file}: {function}: {some} {' '.join(map(str, lines))}")
        return out
