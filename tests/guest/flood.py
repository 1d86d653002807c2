#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Peers without credentials that ignore their credits, come again and again: a mount beside them keeps its connection.
# mode: pair
# server: ours
# fabrics: rxe siw hca
# variants: one two unread
# control-variants: one@stock-stock
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep debug
# soak-smoke-fabrics: rxe siw
# soak-smoke-variants: one two unread
# timeout: 90 300
# rounds: 6 60
# soak: only
"""A flood that breaks the connections of those who flood, or waits there, and breaks no other one.

Four processes connect, post 600 Sends at once, drop the connection and come again, for `$ROUNDS`
seconds. In the variant `two` every second of them speaks Version Two. In the variant `unread` they use
the server's Receives up with what is no message: it is too long, or where the fabric has that RDMA
Writes with immediate data. After a while the server has those that it ends wait for their connections,
so that most of its time is for others.

The stock server has Receives for each connection, and ends none: with it the figures are only shown.
"""

import functools
import mmap
import os
import struct
import sys
import time

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import broken_credits, main  # noqa: E402
from common import (Gone, Mount, check, child, children, fabric, figure, log, remote, rnr_counters,  # noqa: E402
                    rounds, slowness, xprt_stats)
from faults import Load, connects  # noqa: E402

VARIANT = os.environ["VARIANT"]
#: Whether the server ends connections of those who ignore their credits.
ENDS = os.environ["PEER_MODULE"] == "ours"
#: How many flood, and how many messages each of them sends on a connection.
FLOODERS, MESSAGES = 4, 600
#: More octets than any Receive has.
TOO_LONG = 64 << 10
#: How long one of them waits, in seconds, for what it has sent.
PATIENCE = 0.3
#: How often a host may offend before the server holds its requests, and how many it lets in then in a
#: second, which are as many as it forgives; see `rust/server/offenders.rs` and `listening.rs`.
FREE, PER_SECOND = 16, 4
#: How long the load is watched beforehand, in seconds.
BEFORE = 3
#: How much of the load is left in a minute of flood. In the first seconds the server still accepts
#: everybody at once, so nothing is promised for these but progress.
LEAST = 0.5


def null_without_credentials(xid):
    """A NULL Call of AUTH_NONE: 40 octets."""
    return struct.pack(">IIIIIIIIII", xid, 0, 2, 100003, 4, 0, 0, 0, 0, 0)


def write_with_immediate(connection):
    """A work request which uses a Receive up and brings nothing."""
    from pyverbs import enums as e
    from pyverbs.wr import SGE, SendWR

    sge = SGE(connection.arena.buf, 0, connection.arena.lkey)
    request = SendWR(wr_id=connection.new_id(), opcode=e.IBV_WR_RDMA_WRITE_WITH_IMM, num_sge=1, sg=[sge],
                     send_flags=e.IBV_SEND_SIGNALED, imm_data=0x12345678)
    request.set_wr_rdma(0, 0)
    return request


def pour(connection, request):
    """Posts the request many times. Returns how many were sent, and whether the server has ended it."""
    from pyverbs.pyverbs_error import PyverbsError

    posted, ended = 0, False
    try:
        for posted in range(1, MESSAGES + 1):  # noqa: B007 - used below
            connection.qp.post_send(request)
        deadline = time.monotonic() + PATIENCE * slowness()
        seen = 0
        while seen < MESSAGES and time.monotonic() < deadline:
            seen += connection.poll()
            connection.check_alive()
            time.sleep(0.001)
    except (Gone, PyverbsError):
        ended = True
    return posted, ended


def flood(number, two, seconds, counts):
    """Comes again and again for so many seconds, and counts how often."""
    import hostile_qp
    from hostile_caller import Caller, Refused
    from hostile_two_caller import TwoCaller
    from pyverbs.pyverbs_error import PyverbsError
    from rpcrdma2_header import call
    from rpcrdma_header import encode

    hostile_qp.SENDS = MESSAGES + 8
    memory, connected, sent, ended, refused = None, 0, 0, 0, 0
    rpc = null_without_credentials(number)
    message = call(number, 1000, rpc) if two else encode(number) + rpc
    writes = VARIANT == "unread" and number % 2 and fabric() != "siw"
    if VARIANT == "unread":
        message += bytes(TOO_LONG)
    what = "RDMA Writes" if writes else f"messages of {len(message)} octets"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            connection = (TwoCaller if two else Caller)(memory=memory)
        except (Refused, PyverbsError):
            refused += 1
            time.sleep(0.01)
            continue
        memory = connection.memory
        request = write_with_immediate(connection) if writes else connection.send_request(message)
        posted, cut = pour(connection, request)
        connection.close()
        connected, sent, ended = connected + 1, sent + posted, ended + cut
        struct.pack_into("I", counts, 4 * number, connected)
    log(f"flooder {number}, version {2 if two else 1}: {connected} connections, {ended} of them ended by the "
        f"server; {sent} {what} posted; {refused} times no connection")
    check(connected > 0, "never connected")
    check(sent >= MESSAGES, "there was no flood")
    # In Version One what comes beyond the Receives of its connection waits there.
    tolerated = VARIANT != "unread" and not two and fabric() != "siw"
    check(ended > 0 or tolerated or not ENDS, "the server has tolerated it")


def watch(load, mount, seconds):
    """Watches the load. Returns its steps and RPCs per second, and the longest time without a step of anybody."""
    began = last = time.monotonic()
    steps = before = sum(load.cell(job)[0] for job in load.pids)
    sends, longest = xprt_stats(mount.path)["sends"], 0
    while (now := time.monotonic()) - began < seconds:
        load.alive()
        done = sum(load.cell(job)[0] for job in load.pids)
        if done > steps:
            steps, last = done, now
        longest = max(longest, now - last)
        time.sleep(0.02)
    rate = (steps - before) / seconds
    return rate, (xprt_stats(mount.path)["sends"] - sends) / seconds, longest


def client():
    """A load on a mount before the flood, while it goes on, and afterwards."""
    # Here, since on a busy machine it takes the flooders longer than the whole flood.
    import hostile_two_caller  # noqa: F401
    seconds = rounds() * (3 if slowness() > 1 else 1)
    with Mount("4.2") as mount, Load(mount, jobs=2) as load:
        former = connects(mount)
        before = watch(load, mount, BEFORE)
        received = int(remote("cat /proc/sys/sunrpc/svc_rdma/rdma_stat_recv"))
        with broken_credits():
            two = [versions.wanted() != "1" and n % 2 for n in range(FLOODERS)]
            counts, began = mmap.mmap(-1, 4 * FLOODERS), time.monotonic()
            flooders = [functools.partial(flood, n, two[n], seconds, counts) for n in range(FLOODERS)]
            pid = child(functools.partial(children, *flooders, limit=seconds + 40), "flooders")
            during = watch(load, mount, seconds)
            _, status = os.waitpid(pid, 0)
            check(status == 0, "the flood")
            connected = sum(struct.unpack_from(f"{FLOODERS}I", counts))
            most = FREE + 3 * FLOODERS + PER_SECOND * (time.monotonic() - began)
        received = int(remote("cat /proc/sys/sunrpc/svc_rdma/rdma_stat_recv")) - received
        took = load.wait_progress("after the flood")
        again = connects(mount) - former
        log(f"{before[0]:.1f} steps, {before[1]:.0f} RPCs per second before, {during[0]:.1f} and "
            f"{during[1]:.0f} meanwhile, longest time without a step {during[2]:.2f} s; progress "
            f"{took:.2f} s after")
        log(f"the server has received {received} messages meanwhile; no Receive: {rnr_counters()[0]}")
        log(f"new connections of the mount: {again}")
        load.stop()
        log(f"{connected} connections of the flooders; {most:.0f} if the server holds all but the first")
        share = during[0] / before[0]
        figure("share of the load that is left", share)
        if not ENDS:
            return
        if VARIANT == "unread":
            # On others those that the flooder itself ends come on top of it.
            check(connected <= most, "the server does not hold them")
        check(again == 0, f"the mount had to connect again {again} times")
        check(during[0] > 0 and during[1] > 0, "the load stood still")
        check(share > LEAST or rounds() < 60, f"{share:.2f} of the load is left")


main(client)
