#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A client that is out of reach: its connection ends when the server has something to send to it.
# mode: pair
# server: ours
# fabrics: rxe
# kernels: uml
# soak-smoke: uml-sanitize
# light: yes
# timeout: 200 400
"""Nobody tells the server that the client has gone, and what is idle it leaves alone.

It notices when a Call to the client, which holds a delegation, is not acknowledged. Over siw that
is the business of TCP, which tries for a quarter of an hour.
"""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import check, children, log, remote, watchdog, wait_for  # noqa: E402
from nfs_server import EXPORT  # noqa: E402

#: How often a device sends something again before it gives up. To rxe seven times are for ever.
RETRY = 3
#: How long the server may be about it, in seconds.
LIMIT = 40


def reach(possible):
    """Whether the server's frames for this guest's IPv6 address come here."""
    where = "$PEER_MAC" if possible else "02:00:00:00:00:77"
    remote(f"ip -6 neigh replace $PEER_ADDR6 lladdr {where} nud permanent dev $NETDEV")


def left():
    """How many connections the server has with that address."""
    own = os.environ["OWN_ADDR6"]
    text = remote("cat /sys/kernel/debug/rpcrdma/server/*/state", ok=None)
    return text.splitlines().count(f"address: {own}")


def vanish():
    """Two clients, one of each version, that can't be reached for a while, and then for good."""
    from hostile_caller import Caller, XIDS
    from hostile_calls_callback import delegated
    from hostile_two_caller import TwoCaller
    from nfs41_session import Session
    from rpcrdma2_header import REVERSE

    friend = Caller()
    check(friend.null(), "no answer to a NULL Call")
    # Over IPv6, so that they alone are cut off.
    four, os.environ["PEER_ADDR"] = os.environ["PEER_ADDR"], os.environ["PEER_ADDR6"]
    clients = [Caller(retry=RETRY), TwoCaller(retry=RETRY).open([(REVERSE, 1)])]
    os.environ["PEER_ADDR"] = four
    sessions = [Session(connection, XIDS) for connection in clients]
    check(left() == len(clients), f"{left()} connections")
    try:
        reach(False)
        time.sleep(3)
        reach(True)
        check(left() == len(clients), "an idle connection has ended")
        # They are answered again.
        files = [delegated(session) for session in sessions]
        check(all(files), "no delegation is granted")
        reach(False)
        began = time.monotonic()
        for file in files:
            remote(f"exec 3<>{EXPORT}/{file} && touch /run/{file}.opened", wait=False)
        slowest = 0
        while left():
            check(time.monotonic() - began < LIMIT * watchdog(), f"{left()} connections go on")
            asked = time.monotonic()
            check(friend.null(20), "another client gets no answers")
            slowest = max(slowest, time.monotonic() - asked)
            time.sleep(0.1)
        log(f"ended within {time.monotonic() - began:.1f} s; the slowest NULL Call of another "
            f"client took {slowest:.3f} s")
        check(slowest < 3 * watchdog(), "another client had to wait")
    finally:
        reach(True)
    # nfsd takes the delegations away when their leases have expired.
    for file in files:
        wait_for(f"who wants to write to {file}", 60,
                 lambda file=file: remote(f"ls /run/{file}.opened", ok=(0, 2)).startswith("/run"))
    check(friend.null(), "no answer to a NULL Call afterwards")
    for connection in (friend, *clients):
        connection.close()


def client():
    """pyverbs frees its objects in no safe order, so not in this process."""
    remote("mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")
    children(vanish, limit=150)


main(client)
