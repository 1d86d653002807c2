# SPDX-License-Identifier: GPL-2.0
"""What `tools/bench --atomics` runs: which lines of a cache an operation writes, and whose they are.

In one guest over the strict device, under `tools/guest run --icount --profile --writes`: each
module in turn is at both ends, with 8 connections, while several processes read or write. Counted
are atomic writes, which take the line away from all other CPUs, and the module's other writes; by
the place that does them, and by the line.

A line that all connections write is one that more than one CPU writes, and that gets more of the
writes of a place than two of the connections would account for. A line of a connection, or of a
CPU, is none, nor is memory that is freed and allocated again for another connection, unless it is
always the same. Processes and the server's threads have a CPU each, so lines of a thread are those
of a CPU. What only one connection does, as callbacks, looks as if all did: that is for the reader.

Options come from the environment: `MODULES`, what is compared ("stock ours two").
"""

import bisect
import os
import subprocess
import sys
import traceback

import jobs
import results
from common import Failure, check, fabric, log, run
from profiling import TRANSPORT, Profile, Symbols, group

CONNECTIONS = 8
#: The part of a place's writes that makes a line one of all connections.
SHARED = 2 / CONNECTIONS
#: How often a place has to write at least, for that to be no chance.
LEAST = 4 * CONNECTIONS
#: Octets of a line.
LINE = 64


class Data:
    """Names of the kernel's variables, and of its modules', by address."""

    def __init__(self):
        text = subprocess.run("grep -i ' [bdrv] ' /proc/kallsyms", shell=True, check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        found = (line.split() for line in text.splitlines())
        self.table = sorted((int(address, 16), name) for address, _, name, *_ in found)

    def names(self, line):
        """What begins in a line, or else reaches into it; nothing if it is no variable's."""
        first = bisect.bisect_left(self.table, (line * LINE, ""))
        end = bisect.bisect_left(self.table, (line * LINE + LINE, ""))
        # Variables are small, and memory that was allocated is far away from them.
        if first == end and first and line * LINE - self.table[first - 1][0] < 4096:
            first -= 1
        return [name for _, name in self.table[first:end]]


class Places:
    """Who writes to which lines, in one row."""

    def __init__(self, writes, symbols):
        #: (part, function, offset, function of the instruction, atomic) -> line -> [count, CPUs]
        self.lines = {}
        for atomic, place, instruction, line, count, cpus in writes:
            part, name, offset = symbols.place(place)
            via = symbols.place(instruction)[1]
            key = (part, name, offset, "" if place == instruction else via, atomic)
            each = self.lines.setdefault(key, {}).setdefault(line, [0, 0])
            each[0] += count
            each[1] |= cpus

    def found(self):
        """What is known of each place, those that write most first."""
        result = []
        for (part, name, offset, via, atomic), lines in self.lines.items():
            total = sum(count for count, _ in lines.values())
            busiest = max(lines, key=lambda line: lines[line][0])
            count, cpus = lines[busiest]
            result.append({
                "part": part, "function": name, "offset": offset, "via": via, "atomic": atomic,
                "writes": total / jobs.OPERATIONS, "lines": len(lines), "busiest": busiest,
                "share": count / total, "CPUs": cpus.bit_count(),
                "shared": count > SHARED * total and cpus.bit_count() > 1 and total >= LEAST})
        return sorted(result, key=lambda place: -place["writes"])


def turn(side, profile):
    """What one module does: row -> places."""
    found = {}
    with jobs.inserted(side):
        profile.symbols.modules_changed()
        profile.watch(profile.symbols.watched_writers())
        jobs.bind_server()
        with jobs.mounted(CONNECTIONS):
            data = Data()
            for row in jobs.ROWS:
                places = Places(jobs.counted(row, profile, bound=True).writes, profile.symbols).found()
                check(any(place["part"] == TRANSPORT for place in places), "nothing was counted")
                for place in places:
                    place["variables"] = data.names(place["busiest"]) if place["shared"] else []
                log(f"{side}, {row}: {len(places)} places, "
                    f"{sum(place['writes'] for place in places if place['atomic']):.0f} atomic writes")
                # Of the rest only what is shared is of interest, and what has found a lock taken.
                found[row] = [place for place in places if place["shared"]
                              or (place["atomic"] and (place["part"] == TRANSPORT
                                                       or group(place["via"]) == "slow locks"))]
    return found


def main():
    """Measures all modules in turn."""
    for module in ("nfs", "nfsv4", "nfsd", "rdma_cm", "ib_core"):
        run("modprobe", "-q", module)
    profile = Profile(Symbols())
    sides = (os.environ.get("MODULES") or "stock ours two").split()
    check(os.cpu_count() > 1, "one CPU shares its lines with nobody")
    results.keep("atomics", fabric=fabric(), rows=list(jobs.ROWS), jobs=jobs.JOBS,
                 connections=CONNECTIONS, cpus=os.cpu_count(), modules=sides,
                 places={side: turn(side, profile) for side in sides})


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError, subprocess.SubprocessError):
        traceback.print_exc()
        sys.exit(1)
