# SPDX-License-Identifier: GPL-2.0
"""The strict RDMA device of `tests/kmod/hca`: what it counts, and its complaints."""

import os

#: Where its figures are, one directory for each device.
DEBUGFS = "/sys/kernel/debug/hca"


def path(name, device=None):
    """A file of a device, or of this guest's."""
    return f"{DEBUGFS}/{device or os.environ['RDMADEV']}/{name}"


def figures(name, device=None):
    """A file of `name value` lines."""
    with open(path(name, device), encoding="ascii") as f:
        return {key: int(value) for key, value in (line.split() for line in f)}


def counters(device=None):
    """What has been posted, moved, polled and so on."""
    return figures("counters", device)


def complaints(device=None):
    """The rules that were broken, and how often."""
    return {rule: n for rule, n in figures("complaints", device).items() if n}


def reset(name="counters", device=None):
    """Sets all figures of a file to zero."""
    with open(path(name, device), "w", encoding="ascii") as f:
        f.write("0")


def arm(kind, action, number):
    """The `number`-th event of a kind from now goes wrong, see `tests/kmod/hca/fault.c`."""
    with open(path("fault"), "w", encoding="ascii") as f:
        f.write(f"{kind} {action} {number}")


def disarm():
    """Nothing goes wrong from now on. Returns whether what was armed has happened."""
    arm("send", "none", 0)
    return bool(fault()["fired"])


def fault():
    """Whether what was armed has happened, as `fired`, and how many events of each kind there were."""
    return figures("fault")
