#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Calls that can't be sent, amid others: each ends its own RPC, or waits, and the connection stays.
# mode: pair
# server: ours
# client: ours
# fabrics: rxe
# variants: one two
# kernels: uml
# soak-smoke: uml-sanitize
# timeout: 150 600
# rounds: 2 20
"""A task sends what others have queued before it; what is wrong with one Call is no other's concern.

The client's device maps no memory for some of the Calls, for good (`refuse_maps`) or for want of memory
(`starve_maps`), while many tasks write. It takes its time for each Send, so that Calls queue.
"""

import concurrent.futures
import errno
import mmap
import os
import sys

sys.path.insert(0, "tests/lib")
import tap  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, digest, log, pattern, read, remote_call, rounds, slow,  # noqa: E402
                    write, xprt_stats)

PARAMETERS = "/sys/module/rdmatap/parameters"
#: Files that are written at the same time, and octets of one write, so that it goes by a Read chunk.
FILES, STEP = 24, 128 << 10
#: Writes to each file.
STEPS = 8 if slow() else 32
#: How long it takes to post a Send, in microseconds.
SLOW = 400


class File:
    """A file that is written directly, a step at a time."""

    def __init__(self, mount, n):
        self.name = f"unsendable{n}"
        self.fd = os.open(f"{mount.path}/{self.name}", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        self.memory = mmap.mmap(-1, STEP)
        self.data = pattern(f"unsendable {n}", STEP)
        self.memory[:] = self.data
        # Open, with all that a first write needs.
        os.pwrite(self.fd, self.memory, 0)

    def steps(self):
        """Writes all of it; returns how many of the writes failed."""
        failed = 0
        for at in range(STEPS):
            try:
                n = os.pwrite(self.fd, self.memory, at * STEP)
                check(n == STEP, f"{n} octets written")
            except OSError as e:
                check(e.errno == errno.EIO, f"{self.name}: {e}")
                failed += 1
        return failed

    def whole(self):
        """Writes what may be missing; returns length and digest."""
        for at in range(STEPS):
            check(os.pwrite(self.fd, self.memory, at * STEP) == STEP, "short write")
        os.close(self.fd)
        return [STEPS * STEP, digest(self.data * STEPS)]


def storm(files):
    """All files at the same time; how many writes failed."""
    with concurrent.futures.ThreadPoolExecutor(len(files)) as pool:
        return sum(pool.map(File.steps, files))


def left(parameter):
    """How many of the faults are still to come."""
    return int(read(f"{PARAMETERS}/{parameter}"))


def client():
    """As many writes fail as were refused, none for want of memory, all on one connection."""
    tap.insert()
    write(f"{PARAMETERS}/slow_sends", str(SLOW))
    with Mount("4.2") as mount:
        for n in range(rounds()):
            files = [File(mount, i) for i in range(FILES)]
            connects = xprt_stats(mount.path)["connect_count"]
            refused = FILES * STEPS // 8
            write(f"{PARAMETERS}/refuse_maps", str(refused))
            failed = storm(files)
            check(left("refuse_maps") == 0, "not all were refused")
            made = xprt_stats(mount.path)["connect_count"] - connects
            check(made == 0, f"{made} connections were made because of Calls that can't be sent")
            check(failed == refused, f"{failed} writes failed for {refused} that could not be sent")
            starved = FILES * STEPS // 16
            write(f"{PARAMETERS}/starve_maps", str(starved))
            failed = storm(files)
            check(left("starve_maps") == 0, "not all were starved")
            check(failed == 0, f"{failed} writes failed for want of memory")
            made = xprt_stats(mount.path)["connect_count"] - connects
            check(made == 0, f"{made} connections were made for want of memory")
            manifest = {f.name: f.whole() for f in files}
            wrong = remote_call("verify", manifest=manifest)
            check(wrong == [], f"the server has other data: {wrong}")
            log(f"round {n}: {refused} writes refused, {starved} delayed")


main(client)
