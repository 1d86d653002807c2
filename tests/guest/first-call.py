#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A client may send its first Call as soon as it is accepted, before the server's CM knows that the connection is up.
# mode: pair
# fabrics: siw
# variants: 3@stock-ours
# soak-fabrics: rxe siw
# soak-variants: 3@stock-ours 4.2@ours-ours 4.2@ours-ours-one
# kernels: uml
# timeout: 120 900
# rounds: 40 1000
"""Mounts again and again: the first Call of none has to be sent a second time."""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, log, rounds, watchdog  # noqa: E402

#: In seconds. SUNRPC sends a Call again after 60.
LIMIT = 20


def client():
    """Each mount makes a new connection."""
    longest = 0
    for n in range(rounds()):
        began = time.monotonic()
        with Mount(os.environ["VARIANT"]) as mount:
            os.listdir(mount.path)
        took = time.monotonic() - began
        longest = max(longest, took)
        check(took < LIMIT * watchdog(), f"mount {n} took {took:.1f} s")
    log(f"the longest took {longest:.2f} s")


main(client)
