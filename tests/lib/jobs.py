# SPDX-License-Identifier: GPL-2.0
"""Processes that read or write at the same time, over several connections of one mount.

Client and server are in one guest, with one module at both ends.
"""

import contextlib
import os
import time
import traceback

import tap
from common import check, module_refs, rpc_counts, run, wait_for, xprt_stats
from operations import KIB, SIDES, SPAN

MOUNT = "/mnt"
#: Processes, how often each does it before it counts and then, and how much at a time.
JOBS, WARM, STEPS, SIZE = 16, 8, 64, 4 * KIB
#: What all of them do then.
OPERATIONS = JOBS * STEPS
#: What they can do, by its name in tables: whether it writes.
ROWS = {"4 KiB READ": False, "4 KiB WRITE": True}


def shell(command):
    """Runs what `$GUEST_LIB` has."""
    return run("bash", "-c", f'. "$GUEST_LIB"; {command}', timeout=600)


def bind(pid, number):
    """Gives a thread one CPU, by its number among its like."""
    os.sched_setaffinity(pid, {number % os.cpu_count()})


class Jobs:
    """Processes that wait, do their steps together when they are told to, and wait again.

    Each has one CPU if they are `bound`.
    """

    def __init__(self, writing, bound):
        self.writing, self.bound = writing, bound
        self.pipes = [(os.pipe(), os.pipe()) for _ in range(JOBS)]
        self.pids = []
        for number, ((go, _), (_, done)) in enumerate(self.pipes):
            pid = os.fork()
            if not pid:
                self.job(number, go, done)
            self.pids.append(pid)

    def job(self, number, go, done):
        """What a process does until it is killed."""
        try:
            if self.bound:
                bind(0, number)
            direct = tap.Direct(f"{MOUNT}/data", SIZE, self.writing)
            at = number * (SPAN // JOBS)
            while steps := int.from_bytes(os.read(go, 2), "little"):
                for i in range(steps):
                    direct.step(at + i * SIZE % (SPAN // JOBS))
                os.write(done, b"!")
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the process must not return
            traceback.print_exc()
            os._exit(1)

    def step(self, steps):
        """Has all of them do so many."""
        for (_, go), _ in self.pipes:
            os.write(go, steps.to_bytes(2, "little"))
        for _, (done, _) in self.pipes:
            check(os.read(done, 1) == b"!", "a process has ended")

    def end(self):
        """Ends them."""
        for (_, go), _ in self.pipes:
            os.write(go, bytes(2))
        for pid in self.pids:
            check(os.waitpid(pid, 0)[1] == 0, "a process has failed")
        for ends in self.pipes:
            for pipe in ends:
                for fd in pipe:
                    os.close(fd)


@contextlib.contextmanager
def inserted(side):
    """A module at both ends, with a server."""
    run("insmod", *SIDES[side].arguments())
    shell("NFSD_THREADS=16 start_nfs_server; sleep 4")
    yield
    shell("stop_nfs_server")
    wait_for("release of the transport", 60, lambda: module_refs() == 0)
    run("rmmod", "rpcrdma")


@contextlib.contextmanager
def mounted(connections):
    """A mount with so many connections, all of which have to be used."""
    unused = module_refs()
    shell(f"mount_nfs 4.2 {MOUNT} rsize=1048576,wsize=1048576,nconnect={connections}")
    with open(f"{MOUNT}/data", "wb") as f:
        f.write(b"\xA5" * SPAN)
    yield
    transports = xprt_stats(MOUNT, total=False)
    check(len(transports) == connections and all(t["sends"] for t in transports),
          f"not {connections} connections that are used: {transports}")
    run("umount", MOUNT)
    wait_for("release of the connections", 60, lambda: module_refs() == unused)


def bind_server():
    """Gives each thread of the server one CPU."""
    for number, pid in enumerate(sorted(map(int, run("pidof", "nfsd").split()))):
        bind(pid, number)


def counted(row, profile, bound=False):
    """What a profile finds while all processes do what a row of `ROWS` does, `OPERATIONS` in all."""
    jobs = Jobs(ROWS[row], bound)
    jobs.step(WARM)
    # What was closed or freed meanwhile is over.
    time.sleep(1)
    procedure = row.split()[-1]
    before = rpc_counts(MOUNT)[procedure]
    with profile:
        jobs.step(STEPS)
    found = profile.counted()
    rpcs = rpc_counts(MOUNT)[procedure] - before
    check(rpcs == OPERATIONS, f"{rpcs} RPCs instead of {OPERATIONS}")
    jobs.end()
    return found
