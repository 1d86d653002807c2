# SPDX-License-Identifier: GPL-2.0
"""Keeps a client of `tools/conform client` busy with one operation after the other."""

import os
import time

from common import Failure
from hostile_operations import OPERATIONS, attempt


def is_mounted(directory):
    """Whether there is a mount, whatever its server says."""
    with open("/proc/self/mounts", encoding="utf-8") as f:
        return any(line.split()[1] == os.path.abspath(directory) for line in f)


def main(directory):
    """Does all operations in turn until the directory is no mount any more, or the program is killed."""
    while is_mounted(directory):
        for operation in OPERATIONS.values():
            try:
                outcome, took = attempt(operation, directory)
            except Failure as x:
                outcome, took = str(x), 0
            if outcome != "ok":
                print(f"{operation.__name__}: {outcome} after {took:.1f} s", flush=True)
        time.sleep(0.02)
    return 0
