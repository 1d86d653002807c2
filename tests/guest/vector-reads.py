#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Both ways in which nfsd makes the data of a READ: pages of the file itself, and copies in its own.
# mode: pair
# server: ours
# fabrics: rxe
# variants: 4.2@ours-ours
# kernels: uml
# soak-fabrics: rxe siw
# soak-smoke: uml-sanitize
# soak-variants: 3@ours-ours 4.2@ours-ours 3@ours-ours-one 4.2@ours-ours-one
# soak-variants: 3@ours-ours-2016 4.2@ours-ours-2016 4.2@stock-ours
# soak-smoke-variants: 4.2@ours-ours
# timeout: 120 300
"""Where it can, nfsd sends pages of the page cache (splice), else it reads into its own (vector):
for krb5i, or when it is told to. Every octet of either is compared."""

import mmap
import os
import random
import sys

sys.path.insert(0, "tests/lib")
from case import Skip, main  # noqa: E402
from common import (TRACING, Mount, Wire, check, drop_caches, log, pattern, remote,  # noqa: E402
                    slow)
from workload_data import sizes  # noqa: E402
from workload_tree import MIB, Tree, compare  # noqa: E402

SWITCH = "/sys/kernel/debug/nfsd/disable-splice-read"
#: What nfsd tells of a READ, by the value of the switch.
EVENTS = {"0": "nfsd_read_splice", "1": "nfsd_read_vector"}


def pieces(tree, name):
    """Direct reads of a file at places and of lengths that are multiples of nothing."""
    rng = random.Random(3)
    data = tree.files[name]
    memory = mmap.mmap(-1, 2 * MIB)
    fd = os.open(tree.path(name), os.O_RDONLY | os.O_DIRECT)
    for _ in range(10 if slow() else 50):
        # The last ones reach across the end.
        size = int(2 ** rng.uniform(0, 20))
        at = rng.randrange(len(data))
        view = memoryview(memory)[7:7 + size]
        view[:] = bytes(size)
        n = os.preadv(fd, [view], at)
        compare(f"{name} at {at}, {size}", view[:n], data[at:at + size])
    os.close(fd)


def seen():
    """How many READs nfsd has made in each way since the last call."""
    text = remote(f"cat {TRACING}/trace; echo > {TRACING}/trace")
    return {switch: text.count(f" {event}: ") for switch, event in EVENTS.items()}


def client():
    """The same files both ways, and then once more in the first."""
    remote(f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}; "
           "mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")
    if "yes" not in remote(f"test ! -e {SWITCH} || echo yes"):
        raise Skip("nfsd of this kernel can't be told how to read")
    for event in EVENTS.values():
        remote(f"echo 1 > {TRACING}/events/nfsd/{event}/enable")
    with Mount(os.environ["VARIANT"]) as mount:
        tree = Tree(mount, "vector")
        for size in sizes():
            tree.put(f"f{size}", pattern(("vector", size), size))
        largest = f"f{max(sizes())}"
        for switch, other in ("10", "01", "10"):
            remote(f"echo {switch} > {SWITCH}")
            seen()
            with Wire("the files", received=sum(sizes())):
                tree.verify()
            drop_caches()
            pieces(tree, largest)
            counts = seen()
            log(f"{EVENTS[switch]}: {counts[switch]}, {EVENTS[other]}: {counts[other]}")
            check(counts[switch] >= len(sizes()) // 2, f"READs were not made like that: {counts}")
            check(counts[other] == 0, f"READs were made in the other way: {counts}")
        remote(f"echo 0 > {SWITCH}")


main(client)
