#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A client that answers no RDMA Reads, which take memory regions: no thread of the server waits for it.
# mode: pair
# server: ours
# fabrics: siw
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep
# timeout: 120 300
"""Calls of one client want more memory regions than there are, and the client is out of reach meanwhile.

Other clients are served. When the client is back, all its Calls are answered.
"""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import check, children, log, remote, watchdog  # noqa: E402

#: Memory regions that a connection has for its Reads, and how many the first Call takes. Each of
#: the others wants more than are left, so it does not get as far as the Send Queue, which is full.
REGIONS, FIRST = 68, 60
EACH = REGIONS - FIRST + 1


def call(connection, segments):
    """A NULL Call that is followed by data, in that many segments; and its transaction ID."""
    from hostile_caller import CHUNKS, XIDS
    from rpc_message import null_rpc
    from rpcrdma_header import encode

    xid = next(XIDS)
    rpc = null_rpc(xid)
    reads = [(len(rpc), *connection.segment(4, CHUNKS + 64 * i)) for i in range(segments)]
    return encode(xid, reads=reads) + rpc, xid


def attack():
    """Takes the regions, and then asks for more than there are from every thread of the service."""
    from hostile_caller import Caller

    friend = Caller()
    check(friend.null(), "no answer to a NULL Call")
    # Over IPv6, so that it alone is cut off.
    four, os.environ["PEER_ADDR"] = os.environ["PEER_ADDR"], os.environ["PEER_ADDR6"]
    hostile = Caller()
    os.environ["PEER_ADDR"] = four
    threads = int(remote("cat /proc/fs/nfsd/threads"))
    # For all of its Calls at once.
    hostile.earn(threads + 5)
    message, xid = call(hostile, FIRST)
    answer = hostile.call(message, xid)
    check(answer and answer.kind == "reply", f"{FIRST} segments alone: {answer and answer.kind}")
    messages = [call(hostile, n) for n in [FIRST] + [EACH] * (threads + 4)]
    own = os.environ["OWN_ADDR6"]
    remote(f"ip -6 neigh replace {own} lladdr 02:00:00:00:00:77 nud permanent dev $NETDEV")
    try:
        at = 0
        for message, _ in messages:
            hostile.qp.post_send(hostile.send_request(message, at=at))
            at += len(message)
        time.sleep(1)
        slowest = 0
        for _ in range(20):
            began = time.monotonic()
            check(friend.null(60), "another client gets no answers")
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.1)
        log(f"the slowest NULL Call of another client took {slowest:.3f} s")
        check(slowest < 3 * watchdog(), "other clients had to wait")
        hostile.take()
        check(not hostile.answers[1:], "the Reads were answered")
        counters = remote("cat /sys/kernel/debug/rpcrdma/server/*/counters")
        waited = [int(line.split()[-1]) for line in counters.splitlines() if "out_of_regions" in line]
        log(f"Calls that waited for regions: {waited}")
        check(max(waited) > 0, "no Call had to wait for regions")
    finally:
        remote(f"ip -6 neigh del {own} dev $NETDEV")
    for number, (_, xid) in enumerate(messages):
        answer = hostile.answer(xid, 60)
        check(answer and answer.kind == "reply", f"Call {number}: {answer and answer.kind}")
    for connection in (hostile, friend):
        connection.close()


def client():
    """pyverbs frees its objects in no safe order, so not in this process."""
    remote("mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")
    children(attack, limit=110)


main(client)
