# SPDX-License-Identifier: GPL-2.0
"""What `tools/bench --curve` runs: what an operation takes with more connections, on more CPUs.

In one guest over the strict device, under `tools/guest run --icount --profile --cpus N`: each
module in turn is at both ends, with each number of connections (`nconnect`), while several
processes read. The guest's CPUs take turns in one thread of the machine, so a clock says nothing
about them; counted are the instructions of each CPU. The CPU that executes most tells how many
operations there could be at best, if all of them ran at the same time and never waited; the sum
tells what that costs.

Options come from the environment: `MODULES`, what is compared ("stock ours two"), and
`CONNECTIONS` ("1 2 4 8 16").
"""

import os
import subprocess
import sys
import time
import traceback

import results
import tap
from common import (Failure, check, fabric, log, module_refs, rpc_counts, run, wait_for,
                    xprt_stats)
from operations import KIB, SIDES, SPAN
from profiling import ADAPTER, ON_HARDWARE, TRANSPORT, Profile, Symbols

MOUNT = "/mnt"
#: Processes that read, how often each before it counts and then, and how much at a time.
JOBS, WARM, STEPS, SIZE = 16, 8, 64, 4 * KIB
ROW = "4 KiB READ"


def shell(command):
    """Runs what `$GUEST_LIB` has."""
    return run("bash", "-c", f'. "$GUEST_LIB"; {command}', timeout=600)


class Jobs:
    """Processes that wait, read together when they are told to, and wait again."""

    def __init__(self):
        self.pipes = [(os.pipe(), os.pipe()) for _ in range(JOBS)]
        self.pids = []
        for number, ((go, _), (_, done)) in enumerate(self.pipes):
            pid = os.fork()
            if not pid:
                self.job(number, go, done)
            self.pids.append(pid)

    @staticmethod
    def job(number, go, done):
        """What a process does until it is killed."""
        try:
            direct = tap.Direct(f"{MOUNT}/data", SIZE, False)
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
        """Has all of them do so many reads."""
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


def point(side, connections, profile):
    """One point of a curve."""
    unused = module_refs()
    shell(f"mount_nfs 4.2 {MOUNT} rsize=1048576,wsize=1048576,nconnect={connections}")
    with open(f"{MOUNT}/data", "wb") as f:
        f.write(b"\xA5" * SPAN)
    jobs = Jobs()
    jobs.step(WARM)
    # What was closed or freed meanwhile is over.
    time.sleep(1)
    before = rpc_counts(MOUNT)["READ"]
    with profile:
        jobs.step(STEPS)
    counted = profile.counted()
    ops = JOBS * STEPS
    rpcs = rpc_counts(MOUNT)["READ"] - before
    check(rpcs == ops, f"{rpcs} READs instead of {ops}")
    jobs.end()
    transports = xprt_stats(MOUNT, total=False)
    check(len(transports) == connections and all(t["sends"] for t in transports),
          f"not {connections} connections that are used: {transports}")
    run("umount", MOUNT)
    wait_for("release of the connections", 60, lambda: module_refs() == unused)

    def of(parts, which=counted.parts):
        return sum(which[part] for part in parts) / ops

    spinning = sum(n for name, n in counted.functions.items() if "lock_slowpath" in name)
    slow = sum(n for (group, part), n in counted.calls.items()
               if group == "slow locks" and part not in ADAPTER)
    found = {"module": side, "cpus": os.cpu_count(), "connections": connections,
             "executed": of(counted.parts), "on hardware": of(ON_HARDWARE), "own": of([TRANSPORT]),
             "busiest CPU": max(of(ON_HARDWARE, cpu) for cpu in counted.cpus),
             "each CPU": [of(ON_HARDWARE, cpu) for cpu in counted.cpus],
             "locks that were taken": slow / ops, "spinning": spinning / ops}
    log(", ".join(f"{k} {v:.0f}" if isinstance(v, float) else f"{k} {v}"
                  for k, v in found.items() if k != "each CPU"))
    return found


def turn(side, numbers, profile):
    """All points of one module."""
    run("insmod", *SIDES[side].arguments())
    shell("NFSD_THREADS=16 start_nfs_server; sleep 4")
    profile.symbols.modules_changed()
    found = [point(side, number, profile) for number in numbers]
    shell("stop_nfs_server")
    wait_for("release of the transport", 60, lambda: module_refs() == 0)
    run("rmmod", "rpcrdma")
    return found


def main():
    """Measures all modules in turn."""
    for module in ("nfs", "nfsv4", "nfsd", "rdma_cm", "ib_core"):
        run("modprobe", "-q", module)
    profile = Profile(Symbols())
    numbers = [int(word) for word in (os.environ.get("CONNECTIONS") or "1 2 4 8 16").split()]
    sides = (os.environ.get("MODULES") or "stock ours two").split()
    points = [each for side in sides for each in turn(side, numbers, profile)]
    results.keep("curve", fabric=fabric(), row=ROW, jobs=JOBS, modules=sides, points=points)


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError, subprocess.SubprocessError):
        traceback.print_exc()
        sys.exit(1)
