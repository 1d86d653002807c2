# SPDX-License-Identifier: GPL-2.0
"""What `tools/bench --costs` runs: what the device is asked to do for one RPC, stock and ours.

In one guest, over the strict device of `tests/kmod/hca`, whose counters see each request, completion,
interrupt and mapping: each module in turn is at both ends, so both ends are in the figures. Memory
is mapped as where there are bounce buffers (`dma_model` is `bounce`), if the kernel can have that.

Options come from the environment: `WANTED`, a word that the names of the rows to be measured contain,
and `MODULES`, which modules there are ("stock ours two").
"""

import os
import subprocess
import sys
import traceback

import hca
from common import (Failure, check, log, module_refs, netdev, rdmadev, rpc_counts, run,
                    wait_for, write)
from operations import SIDES, SPAN, rows

MOUNT = "/mnt"
EXPORT = "/srv/export"
PARAMETER = "/sys/module/hca/parameters/dma_model"

#: Columns: a title, and the counters that are added up.
COLUMNS = {
    "doorbells": ("doorbells", "recv_doorbells"),
    "Sends": ("sends", "sends_with_inv"),
    "Reads, Writes": ("rdma_reads", "rdma_writes"),
    "registrations": ("registrations",),
    "invalidations": ("local_invs", "remote_invs"),
    "completions": ("completions",),
    "interrupts": ("interrupts",),
    "maps": ("maps",),
    "unmaps": ("unmaps",),
    "syncs": ("syncs_for_cpu", "syncs_for_device"),
    "octets sent": ("send_octets",),
    "octets read, written": ("read_octets", "write_octets"),
    "octets bounced": ("bounced_octets",),
}


def shell(command):
    """Runs what `$GUEST_LIB` has."""
    return run("bash", "-c", f'. "$GUEST_LIB"; {command}', timeout=600)


def cost(row):
    """What one RPC of a row costs, by column, and how many RPCs one step is."""
    for at in range(row.warm):
        row.step(at)
    rpcs = sum(rpc_counts(MOUNT).values())
    before = hca.counters()
    steps = row.batch * row.batches
    for at in range(row.warm, row.warm + steps):
        row.step(at)
    after = hca.counters()
    rpcs = sum(rpc_counts(MOUNT).values()) - rpcs
    check(rpcs >= steps, f"{rpcs} RPCs for {steps} steps")
    found = {title: sum(after[name] - before[name] for name in names) / rpcs
             for title, names in COLUMNS.items()}
    return found, rpcs / steps


def turn(side):
    """One module at both ends: row -> its costs."""
    hca.reset("complaints")
    run("insmod", *SIDES[side].arguments())
    shell(f"start_nfs_server; sleep 4; mount_nfs 4.2 {MOUNT} rsize=1048576,wsize=1048576")
    wanted = os.environ.get("WANTED") or ""
    found = {}
    with open(f"{MOUNT}/data", "wb") as f:
        f.write(b"\xA5" * SPAN)
    for name, make in rows(MOUNT, EXPORT, side, shell, batches=1):
        if wanted in name or name in ("create", "rename", "unlink"):
            row = make()
            found[name] = cost(row)
            row.close()
    run("umount", MOUNT)
    shell("stop_nfs_server")
    wait_for("release of the transport", 60, lambda: module_refs() == 0)
    run("rmmod", "rpcrdma")
    log(f"{side}: {len(found)} rows, complaints {hca.complaints()}")
    check(side == "stock" or not hca.complaints(), "a rule was broken")
    return found


def number(value):
    """A figure as people write it."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}".rstrip("0").rstrip(".")


def tables(found, model):
    """Prints a table for each module's half of the columns."""
    sides = list(found)
    print(f"\nCosts of one RPC, both ends together: fabric hca, DMA {model}, NFSv4.2, direct I/O, "
          f"the module at both ends: {' / '.join(sides)} (ours: in Version One, two: in Version "
          "Two).\n")
    titles = list(COLUMNS)
    for part in (titles[:7], titles[7:]):
        print("| | " + " | ".join(part) + " |\n" + "|---" * (1 + len(part)) + "|")
        for name in found[sides[0]]:
            cells = [" / ".join(number(found[side][name][0][title]) for side in sides)
                     for title in part]
            print(f"| {name} | {' | '.join(cells)} |")
        print()


def main():
    """Makes the device, measures all sides in turn, and prints the tables."""
    for module in ("nfs", "nfsv4", "nfsd", "rdma_cm", "ib_core"):
        run("modprobe", "-q", module)
    # Where offsets change too (`slot`) READDIR of the stock module ends with EIO.
    model = "bounce"
    try:
        write(PARAMETER, model)
    except OSError:
        # The maps, unmaps and syncs of the kernel's own DMA are not counted.
        model = "direct"
    run("rdma", "link", "del", rdmadev())
    run("rdma", "link", "add", rdmadev(), "type", "hca", "netdev", netdev())
    found = {}
    for side in (os.environ.get("MODULES") or " ".join(SIDES)).split():
        found[side] = turn(side)
    tables(found, model)
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError, subprocess.SubprocessError):
        traceback.print_exc()
        sys.exit(1)
