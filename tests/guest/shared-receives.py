#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# own_receive_queues: from so many connections on the next ones share Receives; what one does then, and what it may not.
# mode: pair
# fabrics: rxe
# server: ours
# variants: one two
# soak-smoke: uml-kasan uml-lockdep
# soak-smoke-variants: one two
# timeout: 180 600
"""A queue that connections share has a fixed number of Receives, whatever clients were promised.

Nothing is judged by a clock: a client that breaks its credits is disconnected, and so is the one that holds most
when the Receives run out; a mount beside them is not.
"""

import contextlib
import functools
import os
import sys

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, children, log, remote, wait_for, xprt_stats  # noqa: E402
from server_credits import (FIRST, MOST, all_share, connections, is_shared, own_queues, restart, set_memory,  # noqa: E402
                            show, use_all)

#: Receives of the smallest queue, which 1 MiB for all Receives is enough for.
DEPTH = 64
#: Clients that each hold what they are granted at first, but for one message: more than the buffers of such a queue.
STUCK = 60
#: Calls of a client that has four credits.
MANY = 48


def client():
    """Each of them with its own queue."""
    restart()
    threshold()
    all_share()
    with Mount("4.2") as mount:
        grows(mount)
        # pyverbs frees its objects in no safe order, so not in this process.
        children(functools.partial(overrun, mount), limit=120)
    wait_for("end of the connections", 30, lambda: not connections())
    if versions.wanted() != "1":
        set_memory(1)
        with Mount("4.2") as mount:
            children(functools.partial(floor, mount), limit=120)


def threshold():
    """The first connections of a device have queues of their own, the next ones share one."""
    own_queues(1)
    with Mount("4.2") as mount:
        first, = connections()
        check(not is_shared(first), "the first one shares")
        for _ in range(2):
            with Mount("3", where="m1") as other:
                second, = connections() - {first}
                check(is_shared(second), "the second one does not share")
                use_all(other)
            wait_for("end of a connection", 30, lambda: connections() == {first})
        use_all(mount)
    wait_for("end of the connections", 30, lambda: not connections())
    # The first client has gone.
    with Mount("4.2"):
        check(not is_shared(), "the only one shares")
    wait_for("end of the connections", 30, lambda: not connections())


def grows(mount):
    """Credits grow with use, and the queue has no more Receives for that."""
    check(is_shared(), "Receives of its own")
    before = show("receives")
    check(show("credits")["granted"] < MOST // 2, "most credits at once")
    # The queue itself takes a part of the memory, and so of the credits.
    wait_for("most credits", 60, lambda: use_all(mount) or show("credits")["granted"] >= MOST * 3 // 4)
    after = show("receives")
    log(f"{before}, {after}")
    check(after["queue_depth"] == before["queue_depth"], "another depth")
    check(after["held"] == 0 and after["queue_overtaken"] == 0, f"{after}")
    check(after["queue_depth"] - 16 < after["queue_available"] <= after["queue_depth"], f"{after}")


def overrun(mount):
    """A client with many more Calls than credits is disconnected, and the mount is not."""
    from common import Gone
    from hostile_caller import Caller, XIDS
    from rpc_message import null_call, null_rpc
    from hostile_two_caller import TwoCaller
    from rpcrdma2_header import call

    mounted, = connections()
    one = versions.wanted() == "1"
    caller = Caller() if one else TwoCaller().open()
    check(caller.null() and is_shared((connections() - {mounted}).pop()), "not a client that shares")
    chunk = (len(null_rpc(0)), *caller.segment(4096))
    try:
        for _ in range(20):
            xids = [next(XIDS) for _ in range(MANY)]
            # A chunk keeps each Call at the server for a moment.
            caller.send_many([null_call(xid, reads=[chunk]) if one
                              else call(xid, caller.credit(), null_rpc(xid), reads=[chunk]) for xid in xids])
            caller.take()
        raise AssertionError(f"{MANY} Calls with {FIRST} credits are served")
    except Gone as x:
        log(f"disconnected: {x}")
    caller.close()
    wait_for("end of a connection", 30, lambda: connections() == {mounted})
    use_all(mount)
    check(xprt_stats(mount.path)["connect_count"] == 1, "the mount had to connect again")
    check(show("counters", mounted)["refused"] == 0, "the mount was blamed")
    receives = show("receives", mounted)
    check(receives["held"] == 0 and receives["queue_spare"] > 0, f"{receives}")


def floor(mount):
    """Clients hold all that they may and take no Replies: one after the other ends, and the mount does not."""
    from common import Gone
    from hostile_caller import XIDS
    from hostile_two_caller import TwoConnection
    from rpc_message import null_rpc
    from rpcrdma2_header import call

    class Stuck(TwoConnection):
        """It lets the server send its properties, and nothing else."""

        def credit(self):
            return 1

    mounted, = connections()
    check(is_shared(mounted) and show("receives", mounted)["queue_depth"] == DEPTH, f"{show('receives', mounted)}")
    callers = []
    while len(callers) < STUCK and not any(caller.given_up() for caller in callers):
        with contextlib.suppress(Gone):
            caller = Stuck()
            callers.append(caller)
            caller.open()
            for xid in [next(XIDS) for _ in range(caller.room())]:
                caller.post_message(call(xid, caller.credit(), null_rpc(xid)))
    wait_for("the first to be ended", 60, lambda: any(caller.given_up() for caller in callers))
    said = remote("dmesg | grep 'out of shared Receives' | tail -1")
    log(f"{said.strip()}; {show('receives', mounted)}")
    check("disconnecting the client that holds most" in said, f"{said}")
    # One Call at a time, so that the others hold more.
    for _ in range(10):
        os.statvfs(mount.path)
    check(xprt_stats(mount.path)["connect_count"] == 1, "the mount had to connect again")
    check(not all(caller.given_up() for caller in callers), "all were ended")
    for caller in callers:
        caller.close()
    wait_for("end of the others", 60, lambda: connections() == {mounted})
    use_all(mount)
    receives = show("receives", mounted)
    log(f"afterwards: {receives}")
    check(receives["queue_available"] + receives["queue_spare"] >= DEPTH, "Receives are missing")


main(client, rnr="Receives are shared")
