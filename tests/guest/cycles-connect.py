#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Clients that connect and go, in every way to go: nothing of the server stays.
# mode: pair
# server: ours
# client: none
# fabrics: rxe
# soak-fabrics: rxe siw
# kernels: uml
# soak-smoke: uml-sanitize
# memory: 1536M
# timeout: 120 1800
# rounds: 1 10
"""A hundred connections in each round, one after the other, from user space, in both versions."""

import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Gone, check, log, queue_pairs, rounds, wait_for  # noqa: E402
from memory import check_memories, server_memory, shown  # noqa: E402

#: Connections of each round.
CONNECTIONS = 100


def one(caller, what):
    """A connection of Version One that does nothing, one Call, or one Call whose Reply it does not wait for."""
    from hostile_caller import XIDS
    from rpc_message import null_call
    if what == 1:
        check(caller.null(), "a NULL Call is not answered")
    elif what == 2:
        caller.send_message(null_call(next(XIDS)))


def two(caller, what):
    """One of Version Two that only tells its properties, waits for the server's, does a Call, or leaves one or a part."""
    from hostile_caller import XIDS
    from rpc_message import null_rpc
    from rpcrdma2_header import CALL_MIDDLE, call, middle, properties
    if what == 0:
        caller.post_message(properties(caller.credit()))
        return
    caller.open()
    xid = next(XIDS)
    if what == 2:
        check(caller.null(), "a NULL Call is not answered")
    elif what == 3:
        caller.post_politely(call(xid, caller.credit(), null_rpc(xid)))
    elif what == 4:
        caller.post_politely(middle(xid, caller.credit(), CALL_MIDDLE, 1000, null_rpc(xid)[:8]))


def cycle(memory, count):
    """Connections of both versions, in turn."""
    from hostile_caller import Caller
    from hostile_two_caller import TwoCaller
    for n in range(count):
        caller = (TwoCaller if n % 2 else Caller)(receives=8, memory=memory)
        try:
            if n % 2:
                two(caller, n // 2 % 5)
            else:
                one(caller, n // 2 % 3)
        except Gone as x:
            check(False, f"the server has ended a connection: {x}")
        caller.close()
    wait_for("the end of the connections", 60, lambda: queue_pairs() == 0, 0.5)


def client():
    """All rounds; the memory after them is the memory before."""
    from hostile_caller import Caller
    # All of them use the memory of the first, which stays registered.
    first = Caller(receives=4)
    memory = first.memory
    first.close()
    cycle(memory, CONNECTIONS // 2)
    before = server_memory()
    for n in range(rounds()):
        cycle(memory, CONNECTIONS)
        log(f"round {n}: {CONNECTIONS} connections")
    after = server_memory()
    count = rounds() * CONNECTIONS
    print(shown(before, before, after, count), flush=True)
    check_memories({"server": before}, {"server": after})


main(client)
