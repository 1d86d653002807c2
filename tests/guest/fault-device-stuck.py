#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The server's RDMA device is removed while its only thread is held up: that waits for no thread.
# mode: pair
# server: ours
# fabrics: rxe siw
# kernels: uml
# soak-smoke: uml-sanitize debug
# soak-smoke-fabrics: rxe
# timeout: 120 300
# rounds: 1 5
# expect: rdma_restrack_clean
"""A Call holds the only thread up, since the program that remembers clients has been stopped.

One connection has that Call, another one is idle. The device goes nevertheless. When the program goes
on, and the device is back, both mounts work.
"""

import functools
import os
import sys

sys.path.insert(0, "tests/lib")
import nfs_server  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, child, log, pattern, remote, rounds, watchdog,  # noqa: E402
                    wait_for)

#: How long the removal may take, in seconds.
LIMIT = 10
#: Where the server says that the device is gone.
GONE = "/run/device-is-gone"


def is_held_up():
    """Whether the server's thread waits for something."""
    return remote("ps axo stat,comm | grep -q '^D.* nfsd$' && echo yes", ok=None).strip() == "yes"


def client():
    """Takes the device away, and brings it back."""
    data = pattern("stuck", 100_000)
    with Mount("3") as mount:
        with open(f"{mount.path}/stuck", "wb") as f:
            f.write(data)
        for n in range(rounds()):
            remote("kill -STOP $(pidof nfsdcld)")
            try:
                other = Mount("4.1", where="m1")
                pid = child(functools.partial(other.mount, 100), "mount")
                wait_for("a thread that is held up", 30, is_held_up)
                remote(f"rm -f {GONE}")
                remote(f"rdma link del $RDMADEV && touch {GONE}", wait=False)
                took = wait_for("removal of the device", LIMIT,
                                lambda: remote(f"ls {GONE}", ok=None).strip() == GONE)
                check(is_held_up(), "the thread was not held up all the time")
            finally:
                remote("kill -CONT $(pidof nfsdcld)")
            log(f"round {n}: the device was gone after {took:.2f} s")
            remote("rdma link add $RDMADEV type $FABRIC netdev $NETDEV")
            _, status = os.waitpid(pid, 0)
            check(status == 0, "the second mount")
            with open(f"{mount.path}/stuck", "rb") as f:
                check(f.read() == data, "other data")
            other.umount(timeout=60 * watchdog())


main(client, server=functools.partial(nfs_server.main, "--threads", "1"))
