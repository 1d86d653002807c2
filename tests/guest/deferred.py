#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Calls that wait for an answer from user space have all Send buffers of their connection, then go on.
# mode: pair
# server: ours
# fabrics: rxe
# kernels: uml
# soak-fabrics: rxe siw
# soak-smoke: uml-sanitize
# timeout: 120 300
"""SUNRPC puts Calls off while mountd does not say whose they are. Others of the connection wait for what they have."""

import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import check, children, log, remote, watchdog  # noqa: E402

#: How many Calls there are. A connection has two Send buffers when there may be no more.
CALLS = 4
TRACING = "/sys/kernel/tracing"


def defer():
    """Calls of a client that the server does not know any more, while mountd is stopped."""
    from hostile_caller import Caller, XIDS
    from rpc_message import compound, getattr_, to_file

    def message():
        xid = next(XIDS)
        return xid, compound(xid, *to_file(), getattr_())

    connection = Caller()
    check(connection.request(*message()), "no answer before")
    remote(f"echo 1 > {TRACING}/events/sunrpc/svc_defer/enable; echo > {TRACING}/trace")
    remote("kill -STOP $(pidof rpc.mountd); echo 1 > /proc/net/rpc/auth.unix.ip/flush")
    try:
        calls = [message() for _ in range(CALLS)]
        from rpcrdma_header import encode
        for xid, rpc in calls:
            connection.send_message(encode(xid) + rpc)
        # SUNRPC's threads wait for five seconds before they put a Call off.
        deadline = time.monotonic() + 20 * watchdog()
        while (deferred := int(remote(f"grep -c svc_defer: {TRACING}/trace", ok=(0, 1)))) < 2:
            check(time.monotonic() < deadline, f"{deferred} Calls were put off")
            time.sleep(0.5)
        time.sleep(1)
        connection.take()
        check(not {x for x, _ in calls} & {a.xid for a in connection.answers}, "an answer already")
    finally:
        remote("kill -CONT $(pidof rpc.mountd)")
    began = time.monotonic()
    for number, (xid, _) in enumerate(calls):
        answer = connection.answer(xid, 20)
        check(answer and answer.kind == "reply", f"Call {number}: {answer and answer.kind}")
    log(f"{deferred} Calls were put off; all had answers {time.monotonic() - began:.2f} s afterwards")
    connection.close()


def client():
    """With as few Send buffers as there can be. pyverbs frees its objects in no safe order."""
    remote("echo 0 > /proc/sys/sunrpc/svc_rdma/send_buffers")
    remote(f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}")
    children(defer, limit=110)


main(client)
