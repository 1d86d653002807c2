# SPDX-License-Identifier: GPL-2.0
"""Cases of the hostile client: too much, too long, never, and endings of all kinds."""

import os
import socket
import subprocess
import sys
import time

import pyverbs.enums as e
from pyverbs.wr import SGE, SendWR

from case import broken_credits
from common import Gone, NFS_PORT, check, fabric, log, queue_pairs, slow, slowness, soak, watchdog
from hostile_attack import FILE, case
from hostile_caller import CHUNKS, Caller, XIDS
from rpc_message import compound, null_call, read, to_file
from rpcrdma_header import encode

#: A handle that nobody has given out.
FOREIGN = 0xDEADBE00


@case
def credits_ignored(t):
    """Many more Calls than credits: they are answered, or the connection ends. Other connections do not."""
    count = 1000 if soak() else 250
    for make in (lambda: null_call(next(XIDS)),
                 lambda: null_call(next(XIDS), vers=7),
                 lambda: bytes(20)):
        t.well()
        with broken_credits():
            connection = Caller()
            try:
                connection.send_many([make() for _ in range(count)])
                log(f"  {count} were taken")
            except Gone as x:
                log(f"  lost: {x}")
            connection.close()
            t.well()


def without_receives(t, label, make, count):
    """Sends Calls on a connection that receives nothing, and watches the others."""
    connection = Caller(receives=0)
    sent = 0
    try:
        for _ in range(count):
            connection.send_message(make(connection))
            sent += 1
    except Gone as x:
        log(f"  {label}: lost after {sent}: {x}")
    began = time.monotonic()
    worst = 0
    while time.monotonic() - began < (2 if soak() else 1) * (2 if slow() else 1):
        worst = max(worst, t.well())
        time.sleep(0.1)
    log(f"  {label}: {sent} Calls; another connection has to wait for {worst:.2f} s")
    return connection


def read_in_parts(connection):
    """A READ whose Reply takes hundreds of work requests."""
    xid = next(XIDS)
    chunk = [connection.segment(16, CHUNKS + 64 * i) for i in range(230)]
    return encode(xid, writes=[chunk]) + compound(xid, *to_file(*FILE), read(0, 3600))


def read_all(connection):
    """A READ of 512 KiB."""
    xid = next(XIDS)
    return (encode(xid, writes=[[connection.segment(1 << 19, CHUNKS)]])
            + compound(xid, *to_file(*FILE), read(0, 1 << 19)))


@case
def replies_not_received(t):
    """Calls whose Replies are never received: nobody else waits for them."""
    with broken_credits():
        held = [without_receives(t, label, make, count if soak() else count // 10) for label, make, count in (
            ("NULL", lambda c: null_call(next(XIDS)), 200),
            ("errors", lambda c: null_call(next(XIDS), vers=9), 200),
            ("READ in parts", read_in_parts, 60),
            ("long READ", read_all, 60))]
        t.well()
        for connection in held:
            connection.close()


@case
def half_open(t):
    """Connections that are never completed, or never used, or whose QP is gone."""
    incomplete = [Caller(complete=False) for _ in range(5)]
    silent = [Caller() for _ in range(5)]
    for connection in silent[:3]:
        connection.qp.close()
    t.well()
    if fabric() == "siw":
        # What listens there speaks MPA over TCP.
        address = (os.environ["PEER_ADDR"], NFS_PORT)
        for data in (b"", b"GET / HTTP/1.0\r\n\r\n", bytes(4096), b"MPA ID Req Frame"):
            with socket.create_connection(address, timeout=20 * watchdog()) as s:
                s.sendall(data)
                t.well()
    for connection in incomplete + silent:
        connection.close()


@case
def gone_at_once(t):
    """Forty connections at once, or a hundred, of processes that are killed."""
    each = 25 if soak() and not slow() else 10
    for how in ("request", "answer", "call"):
        # They have no Receives for what is answered.
        with broken_credits():
            doomed = [subprocess.Popen([sys.executable, "-B", "tests/lib/hostile_doomed.py",
                                        str(each), how], stdout=subprocess.PIPE, text=True)
                      for _ in range(4)]
            for process in doomed:
                out = process.communicate(timeout=60 * watchdog())[0].strip()
                check(process.returncode == -9, f"the doomed process ended otherwise: {out}")
                log(f"  {how}: {out}")
            t.well()


@case
def endings(t):
    """Connections that end with Calls under way, in every manner."""
    for n in range(12):
        connection = Caller()
        connection.earn(16)
        messages = [(null_call(next(XIDS)), read_in_parts(connection), read_all(connection))[i % 3]
                    for i in range(20)]
        connection.send_many(messages[:4 + n])
        if n % 4 == 1:
            connection.qp.close()
        elif n % 4 == 2:
            connection.arena.close()
        elif n % 4 == 3:
            try:
                connection.modify(e.IBV_QPS_ERR)
            except Exception as x:  # noqa: BLE001 - the QP may be there already
                log(f"  {x}")
        connection.close()


@case
def memory_of_server(t):
    """RDMA Read and Write of the server's memory, by handles that are guessed: it has none.

    The server hears of it from its device alone: nothing that it has posted completes. Its end of the
    connection goes at once, not when the client has gone.
    """
    t.well()
    before = queue_pairs()
    for handle in (0, 1, FOREIGN, 0x100, 0x1100, 0xFFFFFFFF):
        for read_it in (False, True):
            connection = Caller()
            connection.patience = 2 * slowness()
            try:
                if read_it:
                    connection.rdma_read(handle, 0x1000, 4096)
                    refused = False
                else:
                    connection.rdma_write(handle, 0x1000, b"\xEE" * 4096)
                    refused = not connection.in_order()
            except Gone:
                refused = True
            if not refused:
                t.problem(f"{'read' if read_it else 'written'} by handle {handle:#x}")
            deadline = time.monotonic() + 5 * watchdog()
            while (left := queue_pairs()) > before and time.monotonic() < deadline:
                time.sleep(0.1)
            if left > before:
                t.problem(f"{'Read' if read_it else 'Write'} by handle {handle:#x}: the server has "
                          "kept the connection")
            connection.close()


@case
def invalidations(t):
    """Send With Invalidate of handles that the server never gave out."""
    for handle in (0, 1, FOREIGN, 0x100, 0xFFFFFFFF):
        connection = Caller()
        try:
            connection.send_message(null_call(next(XIDS)), invalidate=handle)
            # Only Replies take handles away: RFC 8166, 3.3.2.
            if connection.null(within=1) or not connection.lost():
                t.problem(f"handle {handle:#x}: the connection was not ended")
        except Gone:
            pass
        connection.close()
        t.well()


@case
def immediate(t):
    """Sends and RDMA Writes with immediate data, which no client sends. The latter bring no message."""
    if fabric() == "siw":
        return
    connection = t.current()
    xid = next(XIDS)
    for opcode, length, survives in ((e.IBV_WR_SEND_WITH_IMM, None, True),
                                     (e.IBV_WR_RDMA_WRITE_WITH_IMM, 0, False)):
        data = null_call(xid)
        connection.arena.write(data, len(data), 0)
        size = len(data) if length is None else length
        sge = SGE(connection.arena.buf, size, connection.arena.lkey)
        wr = SendWR(wr_id=connection.new_id(), opcode=opcode, num_sge=1, sg=[sge],
                    send_flags=e.IBV_SEND_SIGNALED, imm_data=0x12345678)
        if length is not None:
            wr.set_wr_rdma(0, 0)
        connection.answers.clear()
        try:
            connection.post(wr)
            lost = not survives and connection.lost()
        except Gone:
            lost = True
        if not survives:
            if not lost:
                t.problem(f"opcode {opcode}: the connection was not ended")
            t.drop()
            return
        if lost:
            t.problem(f"opcode {opcode}: the connection was ended")
            t.drop()
            return
        alive = t.alive()
        got = [a.kind for a in connection.answers if a.xid == xid] or ["nothing"]
        if not alive or got != ["reply"]:
            t.problem(f"opcode {opcode}: {got}, connection {'alive' if alive else 'lost'}")
        xid = next(XIDS)
