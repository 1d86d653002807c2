# SPDX-License-Identifier: GPL-2.0
"""What `tools/bench --costs` runs: what device and kernel are asked to do for one RPC.

In one guest, over strict devices of `tests/kmod/hca`, whose counters see each request, completion,
interrupt and mapping: each module in turn is at both ends. Either end has a device of its own, and
the client a network namespace, so that what they cost is told apart. Memory is mapped as where
there are bounce buffers (`dma_model` is `bounce`), if the kernel can have that.

What the kernel does is counted at both ends together, since it is one: locks and allocations by
the calls of their functions, told apart by who calls (`profiling.py`); then, in other steps of the
same row, work items, wakeups and context switches by the kernel's own events. What the device
itself does is left out of all of them.

Options come from the environment: `WANTED`, a word that the names of the rows to be measured contain,
and `MODULES`, which modules there are ("stock ours two").
"""

import os
import re
import subprocess
import sys
import traceback

import hca
import results
from common import (TRACING, Failure, check, log, module_refs, rdmadev, read, rpc_counts, run,
                    wait_for, write)
from operations import SIDES, SPAN, rows
from profiling import ADAPTER, TRANSPORT, Profile, Symbols

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
    "work requests": ("sends", "sends_with_inv", "rdma_reads", "rdma_writes", "registrations",
                      "local_invs"),
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

#: Events of the kernel: a title, which event, and what tells one from another.
EVENTS = {"work items": ("workqueue/workqueue_execute_start", "function.sym"),
          "wakeups": ("sched/sched_wakeup", "comm"),
          "context switches": ("sched/sched_switch", "next_comm")}
#: Whose events do not count: the device's, whose engine runs in a softirq; going idle; and tasks that
#: counting itself wakes.
OTHERS = ("hca_", "ksoftirqd", "swapper", "rcu_", "trigger_")
#: Rows of which is told what the events are about.
TOLD = ("GETATTR", "4 KiB READ", "4 KiB WRITE", "64 KiB READ", "64 KiB WRITE")
#: Calls of functions: a title, their group in `profiling.py`, and whether only our own ones count.
CALLS = {"locks, own": ("locks", True), "locks, all": ("locks", False),
         "allocations, own": ("allocations", True), "allocations, all": ("allocations", False),
         "pages, all": ("pages", False)}
#: The columns for both ends together.
BOTH = (*EVENTS, *CALLS)

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


class Events:
    """A context: counts the kernel's events within it."""

    def __init__(self):
        self.found = {}

    def __enter__(self):
        for event, key in EVENTS.values():
            write(f"{TRACING}/events/{event}/trigger", f"hist:keys={key}:size=4096")

    def __exit__(self, kind, value, traceback):
        for title, (event, key) in EVENTS.items():
            text = read(f"{TRACING}/events/{event}/hist")
            write(f"{TRACING}/events/{event}/trigger", f"!hist:keys={key}:size=4096")
            self.found[title] = self.parsed(text)

    @staticmethod
    def parsed(text):
        """Name -> how often. Workers are one, and so are tasks with a name for each CPU."""
        found = {}
        check(re.search(r"^ +Dropped: 0$", text, re.M), f"the kernel lost events: {text[-200:]}")
        for name, count in re.findall(r"^\{ \w+: +(.*?) *\} hitcount: +(\d+)", text, re.M):
            name = re.sub(r"^\[[0-9a-f]+\] ", "", name)
            name = re.sub(r"[:/].*", "", name)
            if not name.startswith(OTHERS):
                found[name] = found.get(name, 0) + int(count)
        return found


def done(row, first):
    """Does the steps of one batch; returns the RPCs that they took."""
    before = sum(rpc_counts(MOUNT).values())
    for at in range(first, first + row.batch):
        row.step(at)
    rpcs = sum(rpc_counts(MOUNT).values()) - before
    check(rpcs >= row.batch, f"{rpcs} RPCs for {row.batch} steps")
    return rpcs


def cost(row, profile):
    """What one RPC of a row costs: end, or both -> column -> number; and what events were about."""
    for at in range(row.warm):
        row.step(at)
    before = {end: hca.counters(device) for end, device in DEVICES.items()}
    with profile:
        rpcs = done(row, row.warm)
    after = {end: hca.counters(device) for end, device in DEVICES.items()}
    calls = profile.counted().calls
    found = {end: {title: sum(after[end][name] - before[end][name] for name in names) / rpcs
                   for title, names in COLUMNS.items()}
             for end in DEVICES}
    events = Events()
    with events:
        again = done(row, row.warm + row.batch)
    found["both"] = {title: sum(each.values()) / again for title, each in events.found.items()}
    for title, (group, own) in CALLS.items():
        found["both"][title] = sum(n for (g, part), n in calls.items()
                                   if g == group and (part == TRANSPORT if own
                                                      else part not in ADAPTER)) / rpcs
    found["about"] = {title: {name: n / again for name, n in each.items()}
                      for title, each in events.found.items()}
    return found


def turn(side, profile):
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
    profile.symbols.modules_changed()
    # Two batches: in the first one nothing is traced.
    for name, make in rows(MOUNT, EXPORT, side, shell, batches=2):
        if wanted in name or name in ("create", "rename", "unlink"):
            row = make()
            found[name] = cost(row, profile)
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
        for end in DEVICES:
            costs = found[name][end]
            check(not costs["maps"] and not costs["unmaps"], f"{name}: {end}: {costs}")


def tables(found, model):
    """Prints two tables for each end, each of half of the columns, and one for both ends."""
    sides = list(found)
    print(f"\nCosts of one RPC: fabric hca, DMA {model}, NFSv4.2, direct I/O, the module at both "
          f"ends: {' / '.join(sides)} (ours: in Version One, two: in Version Two).")
    titles = list(COLUMNS)
    for end in (*DEVICES, "both"):
        print(f"\nAt the {end}." if end in DEVICES else
              "\nAt both ends together, without the device.")
        for part in (titles[:8], titles[8:]) if end in DEVICES else (BOTH,):
            print("\n| | " + " | ".join(part) + " |\n" + "|---" * (1 + len(part)) + "|")
            for name in found[sides[0]]:
                cells = [" / ".join(number(found[side][name][end][title]) for side in sides)
                         for title in part]
                print(f"| {name} | {' | '.join(cells)} |")
    print()
    about(found)


def about(found):
    """Prints what the events of some rows were about, the most frequent first."""
    for name in (name for name in next(iter(found.values())) if name in TOLD):
        for side, rows_found in found.items():
            for title, each in rows_found[name]["about"].items():
                most = sorted(each, key=each.get, reverse=True)
                print(f"{name}, {side}, {title}: "
                      + ", ".join(f"{n} {number(each[n])}" for n in most if each[n] >= 0.05))
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
    profile = Profile(Symbols())
    for side in (os.environ.get("MODULES") or " ".join(SIDES)).split():
        found[side] = turn(side, profile)
    tables(found, model)
    names = list(next(iter(found.values())))
    results.keep("costs", dma=model, modules=list(found),
                 rows={name: {side: found[side][name] for side in found} for name in names})
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError, subprocess.SubprocessError):
        traceback.print_exc()
        sys.exit(1)
