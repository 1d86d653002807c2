# SPDX-License-Identifier: GPL-2.0
"""What `tools/bench --instructions` runs: guest instructions for one operation, stock and ours.

In one guest whose clock counts its instructions (`tools/guest run --icount`): the module is
inserted, an export is served and mounted through it, so that it is at both ends, and the
operations are done; then the other module has its turn. A row's value is the mean over many
operations of one kind, until the system call returns. What client, server, device, file system
and this program execute counts, and all but the transport is the same for both modules.

Options come from the environment: `ROUNDS` (3), how often each module has its turn, and `ROWS`,
a word that the names of the rows to be measured contain.
"""

import os
import statistics
import subprocess
import sys
import traceback

from common import Failure, check, fabric, log, module_refs, run, wait_for
from operations import SIDES, SPAN, rows

MOUNT = "/mnt"
EXPORT = "/srv/export"


def shell(command):
    """Runs what `$GUEST_LIB` has."""
    return run("bash", "-c", f'. "$GUEST_LIB"; {command}', timeout=600)


def turn(side, number):
    """One turn of a module: row -> (instructions, RPCs)."""
    run("insmod", *SIDES[side].arguments())
    shell(f"start_nfs_server; mount_nfs 4.2 {MOUNT} rsize=1048576,wsize=1048576")
    wanted = os.environ.get("ROWS") or ""
    found = {}
    with open(f"{MOUNT}/data", "wb") as f:
        f.write(b"\xA5" * SPAN)
    for name, make in rows(MOUNT, EXPORT, f"{number}{side}", shell):
        # Renamed and removed is what was made before.
        if wanted in name or name in ("create", "rename", "unlink"):
            row = make()
            found[name] = row.measure(MOUNT)
            row.close()
    run("umount", MOUNT)
    shell("stop_nfs_server")
    wait_for("release of the transport", 60, lambda: module_refs() == 0)
    run("rmmod", "rpcrdma")
    return found


def mean(values):
    """Their mean, and how far the farthest is from it."""
    middle = statistics.fmean(values)
    return middle, max(abs(v - middle) for v in values)


def table(found):
    """Prints the table of what was measured: side -> list of turns."""
    print(f"\nInstructions of the guest for one operation: fabric {fabric()}, NFSv4.2, direct I/O, "
          f"the module at both ends (two: ours, in Version Two); {len(found['ours'])} turns each.\n")
    others = [side for side in found if side != "stock"]
    print("| | RPCs | stock | " + " | ".join(f"{o} | ratio" for o in others) + " | spread |\n|---"
          + "|---" * (3 + 2 * len(others)) + "|")
    for name in found["ours"][0]:
        means = {side: mean([turn[name][0] for turn in turns]) for side, turns in found.items()}
        rpcs = " / ".join(f"{statistics.fmean([t[name][1] for t in turns]):.3g}"
                          for turns in found.values())
        stock = means["stock"][0]
        cells = [f"{means[o][0]:,.0f} | {means[o][0] / stock:.4f}" for o in others]
        spread = max(off / value for value, off in means.values())
        print(f"| {name} | {rpcs} | {stock:,.0f} | {' | '.join(cells)} | {100 * spread:.2f} % |")
    print(flush=True)


def main():
    """Measures all sides in turn, and prints the table."""
    for module in ("nfs", "nfsv4", "nfsd", "rdma_cm", "ib_core"):
        run("modprobe", "-q", module)
    found = {side: [] for side in SIDES}
    for number in range(int(os.environ.get("ROUNDS") or 3)):
        for side in (list(found) if number % 2 == 0 else list(found)[::-1]):
            found[side].append(turn(side, number))
            log(f"round {number}, {side}: " +
                ", ".join(f"{k} {v[0]:.0f}" for k, v in found[side][-1].items()))
    table(found)


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError, subprocess.SubprocessError):
        traceback.print_exc()
        sys.exit(1)
