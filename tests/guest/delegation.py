#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# NFSv4 callbacks over the mount: delegations are granted, and recalled by the server.
# variants-rxe: 4.1@ours-ours-2016
# mode: pair
# fabrics: rxe
# soak-fabrics: rxe siw
# variants: 4.1@ours-ours
# variants-rxe: 4.1 4.1@ours-ours-one
# kernels: uml
# soak-variants: 4.1 4.2 4.1@ours-ours 4.2@ours-ours 4.1@ours-ours-one 4.1@stock-ours
# soak-variants: 4.1@ours-ours-2016 4.2@ours-ours-2016
# smoke: uml-sanitize
# smoke-variants: 4.1@ours-ours
# soak-smoke: uml-sanitize debug
# soak-smoke-variants: 4.1 4.1@ours-ours
# timeout: 300 1800
# rounds: 2 100 1 5
"""The reverse direction: CB_RECALL comes as a Call from the server on the same connection.

When that is lost while a delegation is held, it comes on the next one.
"""

import glob
import os
import sys

sys.path.insert(0, "tests/lib")
import delegations  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, drop_caches, log, remote, rounds, wait_for, write,  # noqa: E402
                    xprt_stats)

#: Whether the server can call the client.
STATE = "grep -h 'callback state' /proc/fs/nfsd/clients/*/info"


def reconnect(mount):
    """Has the connection made anew, and waits until the server can call the client over it."""
    before = xprt_stats(mount.path)["connect_count"]

    def again():
        return xprt_stats(mount.path)["connect_count"] > before

    # So that the lease need not be renewed, for which the client would connect.
    os.statvfs(mount.path)
    # A transport that is given its address drops its connection, and makes another one when it
    # has something to send.
    addresses = glob.glob("/sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/dstaddr")
    check(addresses, "no transport in sysfs")
    for path in addresses:
        write(path, os.environ["PEER_ADDR"])
    wait_for("the loss of the connection", 5, lambda: "DOWN" in remote(STATE) or again())
    # The answer tells the client that the server can't call it.
    wait_for("the way back", 30, lambda: os.statvfs(mount.path) and "UP" in remote(STATE))
    check(again(), "no other connection")


def client():
    """Each round is one recall, and after them there is one over another connection."""
    with Mount(os.environ["VARIANT"]) as mount:
        worst = 0
        delegations.first(mount)
        for n in range(rounds()):
            name, took = delegations.recall(mount, n)
            worst = max(worst, took)
            drop_caches()
            with open(f"{mount.path}/{name}", encoding="ascii") as f:
                check(f.read() == f"changed {n}\n", "the server's change is not seen")
            os.unlink(f"{mount.path}/{name}")
        log(f"{rounds()} recalls, the slowest took {worst:.2f} s")
        stats = xprt_stats(mount.path)
        check(stats["connect_count"] == 1, f"connected {stats['connect_count']} times")
        name, took = delegations.recall(mount, rounds(), lambda: reconnect(mount))
        drop_caches()
        with open(f"{mount.path}/{name}", encoding="ascii") as f:
            check(f.read() == f"changed {rounds()}\n", "the server's change is not seen")
        log(f"the recall over another connection took {took:.2f} s")


main(client)
