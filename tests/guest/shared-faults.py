#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Disconnects, and the end of the server's device, under I/O load, where a server shares all Receives.
# mode: pair
# fabrics: rxe
# variants: 4.2@ours-ours
# soak-variants: 4.2@ours-ours 3@ours-ours-one
# soak-smoke: uml-kasan uml-lockdep
# timeout: 300 1800
# rounds: 1 20
"""No octet is lost, no RPC hangs, and the queue ends with its last connection."""

import os
import sys

sys.path.insert(0, "tests/lib")
from case import Skip, main  # noqa: E402
from common import Mount, check, log, remote, rounds, wait_for  # noqa: E402
from faults import Load, RECOVERY, connects, fail_sunrpc, fail_sunrpc_left, unchanged_memory  # noqa: E402
from server_credits import all_share, connections, is_shared, show  # noqa: E402


def disconnects(mount, load):
    """SUNRPC's own fault injection cuts the connection again and again."""
    before = connects(mount)
    fail_sunrpc(150, 5)
    wait_for("injected disconnects", 5 * RECOVERY, lambda: not load.alive() and fail_sunrpc_left() == 0)
    fail_sunrpc(1, 0)
    load.wait_progress("after the disconnects")
    check(connects(mount) > before, "no disconnect was seen")


def removal(mount, load):
    """The server's device goes and comes back."""
    before = connects(mount)
    remote("rdma link del $RDMADEV && sleep 1 && rdma link add $RDMADEV type $FABRIC netdev $NETDEV")
    load.wait_progress("server's device back")
    wait_for("reconnect", 60, lambda: connects(mount) > before)


def client():
    """Each round has both."""
    if not os.path.isdir("/sys/kernel/debug/fail_sunrpc"):
        raise Skip("this kernel has no fail_sunrpc")
    all_share()
    vers = os.environ["VARIANT"]
    with unchanged_memory(vers), Mount(vers) as mount, Load(mount) as load:
        for n in range(rounds()):
            disconnects(mount, load)
            removal(mount, load)
            log(f"round {n}: {connects(mount)} connects")
        load.stop()
        # Former ones are at their end.
        wait_for("one connection", 30, lambda: len(connections()) == 1)
        check(is_shared() and show("receives")["queue_connections"] == 1, f"{show('receives')}")


main(client, rnr="Receives are shared")
