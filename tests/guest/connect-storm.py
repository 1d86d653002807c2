#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# All clients of a server come back at the same moment: it rejects none of them, and serves them all.
# mode: pair
# server: ours
# client: none
# fabrics: rxe
# kernels: uml
# soak-smoke: uml-kasan
# memory: 2560M
# timeout: 150 600
# rounds: 320 1000
"""`$ROUNDS` connections from user space, for which all asks are sent before the first one is answered.

SUNRPC ends the oldest of more than 64 connections that have not shown a file handle, over any transport. Our
listener has the others wait before it comes to that. Over iWARP each connection has Receives of its own, for
which a guest has too little memory.
"""

import functools
import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import check, children, fabric, log, remote, rounds, slowness, wait_for  # noqa: E402
from memory import server_memory  # noqa: E402

#: Connections of each process.
EACH = 40
#: Appears when all have what they need to ask.
GO = "/run/go"
#: Appear when the clients shall go, and when the server has seen that.
ENOUGH, GONE = "/run/enough", "/run/gone"
#: How long a client tries, in seconds.
PATIENCE = 60


def answered(caller):
    """Whether the server answers a Call that shows a file handle."""
    from hostile_attack import getattr_, to_file
    from hostile_caller import XIDS
    from rpc_message import compound
    from rpcrdma_header import encode

    xid = next(XIDS)
    answer = caller.call(encode(xid) + compound(xid, *to_file(), getattr_()), xid)
    return bool(answer) and answer.kind == "reply"


def come(number):
    """Has `EACH` connections ask at once, and serves each as soon as it is accepted."""
    import hostile_qp
    from common import Gone
    from hostile_caller import Caller, Refused
    from pyverbs.pyverbs_error import PyverbsError

    hostile_qp.SENDS = 8
    memory, waiting = None, []
    for _ in range(EACH):
        waiting.append(Caller(receives=2, memory=memory, asks=False))
        memory = waiting[-1].memory
    write_new(f"/run/ready{number}")
    wait_for("the others", PATIENCE * slowness(), lambda: os.path.exists(GO), 0.01)
    began, served, rejected, ended = time.monotonic(), [], 0, 0
    for caller in waiting:
        caller.call_in()
    while waiting and time.monotonic() - began < PATIENCE * slowness():
        for caller in list(waiting):
            if not caller.events.pending():
                continue
            waiting.remove(caller)
            try:
                caller.establish()
                check(answered(caller), "GETATTR is not answered")
                served.append(caller)
            except Refused as x:
                log(f"{number}: {x}")
                rejected += 1
            except (Gone, PyverbsError):
                ended += 1
                caller.close()
                waiting.append(Caller(receives=2, memory=memory, asks=False))
                waiting[-1].call_in()
        time.sleep(0.001)
    log(f"{number}: {len(served)} served after {time.monotonic() - began:.1f} s, {ended} came twice")
    check(not rejected, f"{rejected} were rejected")
    check(not ended, f"{ended} were accepted and then ended")
    check(not waiting, f"{len(waiting)} have got no answer")
    write_new(f"/run/served{number}")
    wait_for("the end", PATIENCE * 4 * slowness(), lambda: os.path.exists(ENOUGH), 0.05)
    for caller in served:
        check(not caller.given_up(), "the server has ended a connection that was served")
        caller.close()
    # The message that ends a connection is sent again only as long as there is who has sent it.
    wait_for("the server", PATIENCE * slowness(), lambda: os.path.exists(GONE), 0.05)


def write_new(path):
    """Makes an empty file."""
    with open(path, "x", encoding="ascii"):
        pass


def queue_pairs():
    """How many connections the server's device has."""
    return int(remote("rdma res show qp link $RDMADEV | grep -c 'type RC'", ok=(0, 1)))


def conduct(count):
    """Starts the storm when all are ready, and looks at the server."""
    def all_are(what):
        return all(os.path.exists(f"/run/{what}{n}") for n in range(count))

    wait_for("all to be ready", 2 * PATIENCE * slowness(), lambda: all_are("ready"), 0.02)
    before = server_memory()
    began = time.monotonic()
    write_new(GO)
    took = wait_for("all to be served", PATIENCE * slowness(), lambda: all_are("served"), 0.02)
    log(f"{count * EACH} connections are served {time.monotonic() - began:.1f} s after they have asked "
        f"({took:.1f} s)")
    after = server_memory()
    grown = after.used - before.used
    log(f"{fabric()}: {grown >> 20} MiB of the server's memory, {grown // (count * EACH):,} octets for each")
    check(queue_pairs() == count * EACH, f"{queue_pairs()} connections")
    write_new(ENOUGH)
    wait_for("the end of the connections", PATIENCE * slowness(), lambda: queue_pairs() == 0, 0.5)
    write_new(GONE)


def client():
    """As many processes as it takes."""
    count = rounds() // EACH
    children(*(functools.partial(come, n) for n in range(count)), functools.partial(conduct, count),
             limit=6 * PATIENCE)


main(client)
