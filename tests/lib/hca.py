# SPDX-License-Identifier: GPL-2.0
"""The strict RDMA device of `tests/kmod/hca`: what it counts, and its complaints."""

import os

#: Where its figures are, one directory for each device.
DEBUGFS = "/sys/kernel/debug/hca"


def path(name):
    """A file of the device of this guest."""
    return f"{DEBUGFS}/{os.environ['RDMADEV']}/{name}"


def figures(name):
    """A file of `name value` lines."""
    with open(path(name), encoding="ascii") as f:
        return {key: int(value) for key, value in (line.split() for line in f)}


def counters():
    """What has been posted, moved, polled and so on."""
    return figures("counters")


def complaints():
    """The rules that were broken, and how often."""
    return {rule: n for rule, n in figures("complaints").items() if n}


def reset(name="counters"):
    """Sets all figures of a file to zero."""
    with open(path(name), "w", encoding="ascii") as f:
        f.write("0")
