#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# What an idle connection takes of a server's memory: our server and the stock one in turn.
# mode: pair
# server: ours
# client: none
# fabrics: rxe
# soak-fabrics: rxe siw
# kernels: uml
# memory: 1536M
# timeout: 300 600
# rounds: 1 3
"""Many connections from user space, each of which has done something and then does nothing.

Ours has to take an eighth of what the stock server takes, in Version Two as well, and in the end all of it is back, but for the
completion queues of the device's pool: the kernel keeps them as long as there is the device. Nobody may use
one, then.
"""

import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import check, fabric, log, queue_pairs, remote, remote_call, rounds, wait_for  # noqa: E402
from memory import Memory, server_memory, shown  # noqa: E402

#: Connections at a time.
CONNECTIONS = 200
#: How many octets of a connection may be missing when all are closed: pages that the kernel keeps
#: at hand for each CPU, and slabs that are partly in use.
TOLERANCE = 12 << 10


def used_queues():
    """The completion queues of the server's device that are used, or not the kernel's own."""
    return [line for line in remote("rdma res show cq").splitlines()
            if not ("ib_core" in line and " users 0 " in line)]


def replace_module(which):
    """Has the server go on with another module."""
    remote_call("nfsd_stop")
    # Connections may still be about to end.
    wait_for("removal of the server's module", 60, lambda: remote(
        "rmmod rpcrdma 2>/dev/null; ! grep -q '^rpcrdma ' /proc/modules && echo gone || true"), 0.5)
    remote(f"insmod ${which}_KO")
    remote_call("nfsd_start")


def open_many(memory, count, two=False):
    """Makes connections, each of which has done two Calls, in Version One or in Version Two."""
    from hostile_attack import getattr_, to_file
    from hostile_caller import Caller, XIDS
    from hostile_two_caller import TwoCaller
    from rpc_message import compound
    from rpcrdma_header import encode
    held = []
    for _ in range(count):
        caller = TwoCaller(receives=8, memory=memory).open() if two else Caller(receives=4, memory=memory)
        held.append(caller)
        check(caller.null(), "a NULL Call is not answered")
        # SUNRPC ends connections that have never shown a file handle when there are many.
        xid = next(XIDS)
        rpc = compound(xid, *to_file(), getattr_())
        answer = caller.request(xid, rpc) if two else caller.call(encode(xid) + rpc, xid)
        check(answer and answer.kind == "reply", "GETATTR is not answered")
    return held


def close_all(held):
    """Ends the connections, and waits until the server has forgotten them."""
    for caller in held:
        caller.close()
    wait_for("the end of the connections", 60, lambda: queue_pairs() == 0, 0.5)


def cycle(memory, count, two):
    """What `count` connections take: the memory before, with them, and after."""
    before = server_memory()
    held = open_many(memory, count, two)
    time.sleep(1)
    check(queue_pairs() == count, f"{queue_pairs()} connections in place of {count}")
    for caller in held:
        caller.check_alive()
    during = server_memory()
    close_all(held)
    return before, during, server_memory()


def measure(which, memory, two=False):
    """Prints what a connection takes, and returns it in octets. In Version Two, of the module that is there."""
    if not two:
        log(f"with the module {which}")
        replace_module(which)
    which += " in Version Two" if two else ""
    others = used_queues()
    # What is made only once: slabs, the SRQ's tables, the lines of caches.
    close_all(open_many(memory, 20, two))
    takes, left = [], []
    for _ in range(rounds()):
        before, during, after = cycle(memory, CONNECTIONS, two)
        takes.append((during.used - before.used) // CONNECTIONS)
        pool = after.queues - before.queues
        left.append((after.used - before.used - pool) // CONNECTIONS)
        log(f"{which}: {takes[-1]:,} octets for each of {CONNECTIONS} connections, {left[-1]:,} when they "
            f"are closed, and {pool // CONNECTIONS:,} in the pool")
        print(shown(before, during, after, CONNECTIONS), flush=True)
    check(used_queues() == others, f"completion queues are in use: {used_queues()}")
    return takes, left


def floor(memory, context):
    """What a Queue Pair that holds nothing takes with its CQ, here in this guest."""
    import pyverbs.enums as e
    from pyverbs.cq import CQ
    from pyverbs.qp import QP, QPCap, QPInitAttr
    held = []

    def make(count):
        for _ in range(count):
            cq = CQ(context, 1)
            cap = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
            held.append((cq, QP(memory.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq,
                                                      cap=cap))))

    make(20)
    before = Memory.here()
    make(CONNECTIONS)
    during = Memory.here()
    for cq, qp in held:
        qp.close()
        cq.close()
    return (during.used - before.used) // CONNECTIONS


def client():
    """Measures both, and compares them."""
    from hostile_caller import Caller
    # All of them use the memory of the first, which stays registered.
    first = Caller(receives=4)
    memory = first.memory
    log("the least that a Queue Pair takes")
    least = floor(memory, first.cmid.context)
    first.close()
    results = {which: measure(which, memory) for which in ("STOCK", "OURS")}
    results["TWO"] = measure("OURS", memory, two=True)
    stock, ours, two = (min(results[w][0]) for w in ("STOCK", "OURS", "TWO"))
    log(f"{fabric()}: an idle connection takes {ours:,} octets of our server's memory, {stock:,} of "
        f"the stock server's: {stock / ours:.1f} times as much. In Version Two it takes {two:,}. A Queue Pair without room for "
        f"anything, and its CQ, take {least:,}.")
    check(max(ours, two) * 8 <= stock, "more than an eighth of what the stock server takes")
    worst = max(results["OURS"][1] + results["TWO"][1])
    check(worst <= TOLERANCE, f"{worst} octets of each connection are missing in the end")


main(client)
