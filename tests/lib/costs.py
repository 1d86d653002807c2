# SPDX-License-Identifier: GPL-2.0
"""What `tools/bench --costs` runs: what the device is asked to do for one RPC, stock and ours.

In one guest, over strict devices of `tests/kmod/hca`, whose counters see each request, completion,
interrupt and mapping: each module in turn is at both ends. Either end has a device of its own, and
the client a network namespace, so that what they cost is told apart. Memory is mapped as where
there are bounce buffers (`dma_model` is `bounce`), if the kernel can have that.

Options come from the environment: `WANTED`, a word that the names of the rows to be measured contain,
and `MODULES`, which modules there are ("stock ours two").
"""

import os
import subprocess
import sys
import traceback

import hca
from common import (Failure, check, log, module_refs, rdmadev, rpc_counts, run, wait_for,
                    write)
from operations import SIDES, SPAN, rows

MOUNT = "/mnt"
EXPORT = "/srv/export"
PARAMETER = "/sys/module/hca/parameters/dma_model"
#: Ends, and their devices.
DEVICES = {"client": "hca1", "server": "hca0"}
#: The network device below, and its address. The client's is in a namespace.
NETWORK = {"client": ("costs1", "10.97.0.1"), "server": ("costs0", "10.97.0.2")}
NAMESPACE = "costs"

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

#: What has neither an argument nor a result beyond the inline threshold of Version Two.
RESIDENT = ("GETATTR", "LOOKUP", "4 KiB READ", "4 KiB WRITE", "8 KiB READ", "8 KiB WRITE")


def shell(command):
    """Runs what `$GUEST_LIB` has."""
    return run("bash", "-c", f'. "$GUEST_LIB"; {command}', timeout=600)


def within(end, *command):
    """Runs a command in the network namespace of an end."""
    enter = ("nsenter", f"--net=/run/netns/{NAMESPACE}") if end == "client" else ()
    return run(*enter, *command)


def make_devices():
    """A device for each end, with a link between them."""
    run("rdma", "link", "del", rdmadev())
    run("ip", "netns", "add", NAMESPACE)
    (client, _), (server, _) = NETWORK["client"], NETWORK["server"]
    run("ip", "link", "add", server, "mtu", "9000", "type", "veth",
        "peer", "name", client, "mtu", "9000")
    run("ip", "link", "set", client, "netns", NAMESPACE)
    for end, (netdev, address) in NETWORK.items():
        within(end, "ip", "link", "set", netdev, "up")
        within(end, "ip", "addr", "add", f"{address}/24", "dev", netdev)
        within(end, "rdma", "link", "add", DEVICES[end], "type", "hca", "netdev", netdev)


def cost(row):
    """What one RPC of a row costs: end -> column -> number."""
    for at in range(row.warm):
        row.step(at)
    rpcs = sum(rpc_counts(MOUNT).values())
    before = {end: hca.counters(device) for end, device in DEVICES.items()}
    steps = row.batch * row.batches
    for at in range(row.warm, row.warm + steps):
        row.step(at)
    after = {end: hca.counters(device) for end, device in DEVICES.items()}
    rpcs = sum(rpc_counts(MOUNT).values()) - rpcs
    check(rpcs >= steps, f"{rpcs} RPCs for {steps} steps")
    return {end: {title: sum(after[end][name] - before[end][name] for name in names) / rpcs
                  for title, names in COLUMNS.items()}
            for end in DEVICES}


def turn(side):
    """One module at both ends: row -> its costs."""
    for device in DEVICES.values():
        hca.reset("complaints", device)
    run("insmod", *SIDES[side].arguments())
    shell("start_nfs_server; sleep 4")
    within("client", "bash", "-c", f'. "$GUEST_LIB"; PEER={NETWORK["server"][1]}; '
           f"mount_nfs 4.2 {MOUNT} rsize=1048576,wsize=1048576")
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
    broken = {end: hca.complaints(device) for end, device in DEVICES.items()}
    log(f"{side}: {len(found)} rows, complaints {broken}")
    check(side == "stock" or not any(broken.values()), "a rule was broken")
    nothing_mapped(side, found)
    return found


def number(value):
    """A figure as people write it."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}".rstrip("0").rstrip(".")


def nothing_mapped(side, found):
    """Fails where Version Two maps memory for what fits into buffers that stay mapped."""
    rows = [name for name in found if name.startswith(RESIDENT)]
    for name in rows if side == "two" else ():
        for end, costs in found[name].items():
            check(not costs["maps"] and not costs["unmaps"], f"{name}: {end}: {costs}")


def tables(found, model):
    """Prints two tables for each end, each of half of the columns."""
    sides = list(found)
    print(f"\nCosts of one RPC: fabric hca, DMA {model}, NFSv4.2, direct I/O, the module at both "
          f"ends: {' / '.join(sides)} (ours: in Version One, two: in Version Two).")
    titles = list(COLUMNS)
    for end in DEVICES:
        print(f"\nAt the {end}.")
        for part in (titles[:7], titles[7:]):
            print("\n| | " + " | ".join(part) + " |\n" + "|---" * (1 + len(part)) + "|")
            for name in found[sides[0]]:
                cells = [" / ".join(number(found[side][name][end][title]) for side in sides)
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
    make_devices()
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
