#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A hostile client in user space beside a well-behaved one: odd headers, chunks, credits, endings.
# mode: pair
# server: ours
# variants: one two 2016
# fabrics: rxe
# soak-fabrics: rxe siw hca
# soak-variants: one two 2016 default
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep debug
# soak-smoke-variants: one two 2016
# timeout: 400 1800
"""The server answers, drops the message or the connection; other clients lose nothing.

The variant `two` does it in Version Two, the variant `2016` in the protocol of 2016."""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Failure, Mount, log, pattern, queue_pairs, remote, remote_call,  # noqa: E402
                    rounds, watchdog, soak)
from nfs_server import EXPORT  # noqa: E402
from faults import Load, connects  # noqa: E402

#: How much unreclaimable slab the server may have more of in the end, in KiB. Much of it is
#: what the load leaves behind.
SLAB = 8192
#: What one connection of the server's may take, in KiB.
CONNECTION = 3072
#: How many lines more may be in the server's log, those of the RDMA device not counted.
LINES = 300
#: How long a well-behaved client may wait for the server, in seconds.
PATIENCE = 15


def slab():
    """Unreclaimable slab of the server guest in KiB, after its caches have been dropped."""
    return int(remote("sync; echo 3 > /proc/sys/vm/drop_caches; sleep 0.5; "
                      "awk '/^SUnreclaim/ {print $2}' /proc/meminfo"))


def log_lines():
    """How many lines the server's log has."""
    return int(remote("dmesg | grep -c -v 'rxe\\|siw\\|drop_caches\\|rpcrdma: connection'"))


def settle(before):
    """Waits until the server has the connections left that it had before; returns how many more.

    When a hundred end at once, the news may be lost: then SUNRPC ends them after some minutes.
    """
    deadline = time.monotonic() + (30 if soak() else 10)
    while (left := queue_pairs() - before) > 0 and time.monotonic() < deadline:
        time.sleep(0.5)
    if left:
        log(f"{left} connections whose end the server has not heard of")
    return left


def client():
    """All cases, or those named in `$CASES`, while a load goes on."""
    with Mount("4.2") as mount, Load(mount, jobs=3 if soak() else 2, pause=0.01) as load:
        # After the processes of the load were made.
        from hostile_calls import Attack, CASES
        if os.environ.get("VARIANT") == "two":
            import hostile_calls_two_compounds  # noqa: F401 - enters its case
            import hostile_calls_two_callback  # noqa: F401 - enters its cases
            import hostile_calls_two_gss  # noqa: F401 - enters its cases
            from hostile_calls_two import CASES
        elif os.environ.get("VARIANT") == "2016":
            from hostile_calls_2016 import CASES
        from hostile_attack import FILE_SIZE
        with open(f"{mount.path}/hostile", "wb") as f:
            f.write(pattern("hostile", FILE_SIZE))
        with open(f"{mount.path}/hostile-scratch", "wb") as f:
            os.fchmod(f.fileno(), 0o666)
        # Takes back what the mount was given for having made them.
        remote(f"cd {EXPORT} && true 3<>hostile && true 3<>hostile-scratch")
        connected, pairs, lines, memory = connects(mount), queue_pairs(), log_lines(), slab()
        wanted = os.environ.get("CASES", "").split() or list(CASES)
        t = Attack(CASES)
        for n in range(rounds()):
            for name in wanted:
                t.run(name)
                load.alive()
            took = load.wait_progress("after the attack")
            log(f"round {n}: progress of the load within {took:.2f} s")
        t.drop()
        if t.friend:
            t.friend.close()
        load.stop()
        left = settle(pairs)
        if times := connects(mount) - connected:
            t.problem(f"the mount had to connect again {times} times")
        more = slab() - memory
        log(f"{len(wanted)} cases; the slowest well-behaved NULL Call took {t.slowest:.2f} s; "
            f"{more} KiB of slab more than before")
        said = log_lines() - lines
        if said > LINES:
            t.problem(f"{said} lines in the server's log:\n" + remote("dmesg | tail -50"))
        if more > SLAB + left * CONNECTION:
            t.problem(f"{more} KiB of unreclaimable slab more than before:\n"
                      + remote("sort -rnk3 /proc/slabinfo | head -20", ok=None))
        if t.slowest > PATIENCE * watchdog():
            t.problem(f"a well-behaved client had to wait for {t.slowest:.0f} s")
    # The others end with the service, whatever they were in the middle of.
    remote_call("nfsd_stop")
    deadline = time.monotonic() + 30 * watchdog()
    while queue_pairs() and time.monotonic() < deadline:
        time.sleep(0.5)
    if queue_pairs():
        t.problem("connections are left when the server has stopped:\n"
                  + remote("rdma res show qp link $RDMADEV; rdma res show cm_id link $RDMADEV"))
    if t.problems:
        raise Failure(f"{len(t.problems)} problems:\n  " + "\n  ".join(t.problems))


#: In Version One nobody is cut off for Calls beyond his credits, which have to wait; the device does not say whose
#: message found no Receive. That the mount keeps its connection is looked at.
ONE = "clients of Version One send more Calls than they have credits for"
main(client, rnr=None if os.environ.get("VARIANT") in ("two", "2016") else ONE)
