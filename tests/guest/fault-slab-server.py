#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Allocations of the server's transport fail under I/O load: it may drop connections, but no data.
# mode: pair
# server: ours
# slow-end: server
# fabrics: rxe siw
# variants: 4.2@ours-ours 3@ours-ours 4.2@ours-ours-one
# kernels: debug
# soak: only
# timeout: 600 3600
# rounds: 1 20 1 3
"""Allocations below the code of the server's transport module fail, and only those."""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, log, remote, rounds, slowness  # noqa: E402
from faults import Load, connects, fail_sunrpc  # noqa: E402


def failslab(*words):
    """Runs the program of that name in the server guest."""
    return remote("python3 -B tests/lib/failslab.py " + " ".join(map(str, words))).strip()


def client():
    """Fails allocations of connections that are busy, and of new ones."""
    failed = 0
    for n in range(rounds()):
        # Whatever the server drops is sent again: no error is seen.
        with Mount(os.environ["VARIANT"]) as mount, Load(mount) as load:
            before = connects(mount)
            failslab("arm", 10, 200)
            time.sleep(3 * slowness())
            # And while connections are accepted.
            fail_sunrpc(40, 5)
            time.sleep(3 * slowness())
            fail_sunrpc(1, 0)
            failslab("disarm")
            missed = 200 - int(failslab("left"))
            failed += missed
            took = load.wait_progress("after the failures")
            log(f"round {n}: {missed} failures with {connects(mount) - before} reconnects, "
                f"progress after {took:.1f} s")
            load.stop()
        # A client that is not known yet.
        for attempt in range(4):
            failslab("arm", 5, 20)
            mount = Mount(os.environ["VARIANT"], where="slab", options="retry=0")
            try:
                mount.mount(ok=None)
            finally:
                failslab("disarm")
            if os.path.ismount(mount.path):
                mount.umount()
            else:
                log(f"mount {attempt} failed, as it may")
    check(failed > 0, "no allocation failed")


main(client)
