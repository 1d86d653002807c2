#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A server with two NUMA nodes: the threads of both get Calls, in the proportion of the load.
# mode: pair
# fabrics: hca
# kernels: debian
# qemu: -smp 2,sockets=2 -object memory-backend-ram,id=m0,size=1G -object memory-backend-ram,id=m1,size=1G
# qemu: -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1
# memory: 2G
# variants: two@ours-ours
# soak-variants: two@ours-ours one@ours-ours-one 2016@ours-ours-2016
# control-variants: stock@stock-stock
# timeout: 120 240
"""Each completion vector of the device interrupts a CPU of its own, and each CPU is a node with threads.

A thread gets what is queued on a CPU of its node. Each connection has its completion queues on the next
vector; if all had the same one, the threads of the other node would have nothing to do.
"""

import sys

sys.path.insert(0, "tests/lib")
import hca_device  # noqa: E402
import nfs_server  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, read, write  # noqa: E402
from faults import Load  # noqa: E402

#: Connections of the mount, which its RPCs use in turn.
CONNECTIONS = 4
#: The part of all Calls that each node's threads get at least; a half would be just.
LEAST = 0.3
#: How many Calls are counted.
CALLS = 2000


def server():
    """A device with interrupts for each CPU, and threads for each node."""
    nodes = read("/sys/devices/system/node/online").strip()
    check(nodes == "0-1", f"the nodes of the machine are {nodes}")
    write(f"{hca_device.PARAMETERS}/spread", "Y")
    hca_device.make()
    write("/sys/module/sunrpc/parameters/pool_mode", "pernode")
    nfs_server.main()


def stats():
    """Per node what came for its threads, and how many times one of them was woken."""
    lines = read("/proc/fs/nfsd/pool_stats").splitlines()[1:]
    return [tuple(int(word) for word in line.split()[1:4]) for line in lines]


def client():
    """A load over all connections of a mount."""
    with Mount("4.2", options=f"nconnect={CONNECTIONS}") as mount, Load(mount, jobs=2) as load:
        before = stats()
        check(len(before) == 2, f"{len(before)} pools of threads")
        load.wait_progress("the load", steps=4)
        now = before
        while sum(n[0] - b[0] for n, b in zip(now, before)) < CALLS:
            load.wait_progress("the load", steps=1)
            now = stats()
        packets, _, woken = zip(*([n - b for n, b in zip(*pair)] for pair in zip(now, before)))
        log(f"came: {packets}; threads woken: {woken}")
        for what, counts in (("Calls", packets), ("wakeups", woken)):
            least = min(counts) / sum(counts)
            check(least >= LEAST, f"one node has only {least:.2f} of all {what}: {counts}")
        load.stop()


main(client, server)
