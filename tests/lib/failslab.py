# SPDX-License-Identifier: GPL-2.0
"""failslab, narrowed by its stack trace filter to the transport module.

Also a program, for the guest of the other end: `failslab.py arm PERCENT TIMES`, `disarm`, `left`.
"""

import os
import sys

from common import check, read, write

BASE = "/sys/kernel/debug/failslab"


def text_range():
    """Where the module's code is."""
    sections = "/sys/module/rpcrdma/sections"
    start = int(read(f"{sections}/.text"), 16)
    size = int(read("/sys/module/rpcrdma/coresize"))
    return start, start + size


def arm(probability, times):
    """Lets allocations below the module's code fail, with a probability in percent."""
    check(os.path.exists(f"{BASE}/require-start"), "failslab cannot be narrowed to a module")
    start, end = text_range()
    write(f"{BASE}/require-start", hex(start))
    write(f"{BASE}/require-end", hex(end))
    write(f"{BASE}/stacktrace-depth", "32")
    for name, value in (("ignore-gfp-wait", "N"), ("cache-filter", "N"), ("verbose", "0"),
                        ("task-filter", "N"), ("interval", "1"), ("times", str(times)),
                        ("probability", str(probability))):
        write(f"{BASE}/{name}", value)


def disarm():
    """No more failures."""
    write(f"{BASE}/probability", "0")


def left():
    """How many of the `times` have not been used up."""
    return int(read(f"{BASE}/times"))


if __name__ == "__main__":
    print(globals()[sys.argv[1]](*map(int, sys.argv[2:])))
