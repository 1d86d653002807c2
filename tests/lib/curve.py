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
import traceback

import jobs
import results
from common import Failure, fabric, log, run
from profiling import ADAPTER, ON_HARDWARE, TRANSPORT, Profile, Symbols

ROW = "4 KiB READ"


def point(side, connections, profile):
    """One point of a curve."""
    with jobs.mounted(connections):
        counted = jobs.counted(ROW, profile)

    def of(parts, which=counted.parts):
        return sum(which[part] for part in parts) / jobs.OPERATIONS

    spinning = sum(n for name, n in counted.functions.items() if "lock_slowpath" in name)
    slow = sum(n for (group, part), n in counted.calls.items()
               if group == "slow locks" and part not in ADAPTER)
    found = {"module": side, "cpus": os.cpu_count(), "connections": connections,
             "executed": of(counted.parts), "without device": of(ON_HARDWARE), "own": of([TRANSPORT]),
             "busiest CPU": max(of(ON_HARDWARE, cpu) for cpu in counted.cpus),
             "each CPU": [of(ON_HARDWARE, cpu) for cpu in counted.cpus],
             "locks that were taken": slow / jobs.OPERATIONS, "spinning": spinning / jobs.OPERATIONS}
    log(", ".join(f"{k} {v:.0f}" if isinstance(v, float) else f"{k} {v}"
                  for k, v in found.items() if k != "each CPU"))
    return found


def turn(side, numbers, profile):
    """All points of one module."""
    with jobs.inserted(side):
        profile.symbols.modules_changed()
        return [point(side, number, profile) for number in numbers]


def main():
    """Measures all modules in turn."""
    for module in ("nfs", "nfsv4", "nfsd", "rdma_cm", "ib_core"):
        run("modprobe", "-q", module)
    profile = Profile(Symbols())
    numbers = [int(word) for word in (os.environ.get("CONNECTIONS") or "1 2 4 8 16").split()]
    sides = (os.environ.get("MODULES") or "stock ours two").split()
    points = [each for side in sides for each in turn(side, numbers, profile)]
    results.keep("curve", fabric=fabric(), row=ROW, jobs=jobs.JOBS, modules=sides, points=points)


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError, subprocess.SubprocessError):
        traceback.print_exc()
        sys.exit(1)
