# SPDX-License-Identifier: GPL-2.0
"""Cases of the hostile client: what it answers to the server's Calls (RFC 8167)."""

import itertools
import struct
import time

from common import Gone, log, remote, slowness, watchdog, wait_for
from hostile_attack import FILE, case
from hostile_calls_headers import unsolicited
from hostile_caller import Caller, XIDS
from nfs41_session import Session
from nfs_server import EXPORT
from rpcrdma_header import ERROR, MSG, NOMSG, encode

#: Numbers of files that were not recalled before.
FILES = itertools.count()


@case
def replies_with_backchannel(t):
    """Replies, errors and RDMA_DONE that nobody asked for, where callbacks are possible."""
    # With transaction ids of ours, and with those that the server itself may use for its Calls.
    messages = unsolicited() + unsolicited(iter(range(1 << 31, (1 << 31) + 1000)))
    while messages:
        # More of them on one connection are too many.
        part, messages = messages[:8], messages[8:]
        t.drop()
        Session(t.current(), XIDS)
        t.batch(part)
    t.drop()


@case
def floods_with_backchannel(t):
    """Hundreds of Replies to no Call, where callbacks are possible: the connection ends.

    They take Receives that are others' too, and no credit bounds them. A few at a time, since one that
    finds no Receive ends the connection by itself.
    """
    for label, make in (("Replies", lambda xid: encode(xid) + struct.pack(">IIIIII", xid, 1, 0, 0, 0, 0)),
                        ("errors", lambda xid: struct.pack(">IIIII", xid, 1, 32, ERROR, 2))):
        connection = Caller()
        Session(connection, XIDS)
        try:
            for _ in range(50):
                for _ in range(8):
                    connection.send_message(make(next(XIDS)))
                connection.null()
            t.problem(f"400 {label} to no Call: the connection goes on")
        except Gone as x:
            log(f"  {label}: lost: {x}")
        connection.close()
        t.well()


def reverse_call(connection, limit=None):
    """Waits for a Call of the server's; returns its header, or nothing."""
    # Where none is to come the wait is short.
    deadline = time.monotonic() + (limit * slowness() if limit else 5 * watchdog())
    while time.monotonic() < deadline:
        connection.take()
        for answer in connection.answers:
            if (answer.header.proc == MSG and len(answer.header.rpc) >= 24
                    and struct.unpack_from(">I", answer.header.rpc, 4)[0] == 0):
                connection.answers.remove(answer)
                return answer.header
        time.sleep(0.01)
    return None


def wrong_answers(xid):
    """Answers to a Call of the server's, by what is wrong with them."""
    accepted = struct.pack(">IIIIII", xid, 1, 0, 0, 0, 0)
    segment = (0xDEADBE00, 4096, 0x1000)
    error = struct.pack(">IIII", xid, 1, 1, ERROR)
    return {
        "nothing": [],
        "ERR_CHUNK": [error + struct.pack(">I", 2)],
        "ERR_VERS": [error + struct.pack(">III", 1, 2, 2)],
        "an error without a code": [error],
        "no results": [encode(xid) + accepted],
        "noise": [encode(xid) + accepted + b"\xD2" * 300],
        "a huge verifier": [encode(xid) + accepted[:16] + struct.pack(">I", 0xFFFFFFFC) + bytes(40)],
        "a Write chunk": [encode(xid, writes=[[segment]]) + accepted],
        "a Reply chunk": [encode(xid, NOMSG, reply=[segment])],
        "a Read list": [encode(xid, reads=[(4, *segment)]) + accepted],
        "no credits": [encode(xid, credit=0) + accepted],
        "ten times": [encode(xid) + accepted] * 10,
        "denied": [encode(xid) + struct.pack(">IIIII", xid, 1, 1, 1, 5)],
        "4096 octets": [(encode(xid) + accepted).ljust(4096, b"\0")],
        "cut": [(encode(xid) + accepted)[:36]],
    }


def delegated(session):
    """A file that is delegated; nothing if none is in time.

    What was recalled just now nfsd does not delegate again for a while. It knows such files by some bits of a hash, so
    this may be about another one."""
    for _ in range(3):
        file = f"recalled{next(FILES)}"
        remote(f"echo x > {EXPORT}/{file}")
        # The server looks after its new backchannel in its own time.
        deadline = time.monotonic() + 3 * watchdog()
        while time.monotonic() < deadline:
            if session.open(FILE[:-1], file):
                return file
            time.sleep(0.1)
    return None


def recall_moves(t, first, second, calls):
    """A recall whose connection ends before the answer comes again on the session's other one.

    `calls` waits for a Call of the server's on a connection.
    """
    session = Session(first, XIDS)
    session.bind(second)
    file = delegated(session)
    if file is None:
        t.problem("no delegation is granted")
        return
    opened = f"/run/{file}.opened"
    remote(f"exec 3<>{EXPORT}/{file} && touch {opened}", wait=False)
    deadline = time.monotonic() + 5 * watchdog()
    lost = None
    while lost is None and time.monotonic() < deadline:
        lost = next((c for c in (second, first) if calls(c, 0.05)), None)
    if lost is None:
        t.problem("no delegation is recalled")
        return
    left = first if lost is second else second
    lost.close()
    began = time.monotonic()
    if calls(left, 8) is None:
        t.problem("the recall does not come again")
    log(f"  it came again {time.monotonic() - began:.2f} s after its connection was lost")
    session.caller = left
    session.give_back(FILE[:-1], file)
    wait_for("who wants to write", 10, lambda: remote(f"ls {opened}", ok=(0, 2)).startswith(opened))
    left.close()
    t.well()


@case
def recall_on_another(t):
    """A session with two connections loses the one on which a delegation is recalled."""
    recall_moves(t, Caller(), Caller(), reverse_call)


@case
def recalls(t):
    """A delegation is recalled, and the answer to that is wrong."""
    held = []
    for name in wrong_answers(0):
        connection = Caller()
        held.append(connection)
        file = delegated(Session(connection, XIDS))
        if file is None:
            t.problem(f"{name}: no delegation is granted")
            continue
        # Waits until the delegation is given back or taken away.
        remote(f"exec 3<>{EXPORT}/{file}", wait=False)
        call = reverse_call(connection)
        if call is None:
            t.problem(f"{name}: no delegation is recalled")
            continue
        if call.vers != 1 or not 1 <= call.credit <= 1024:
            t.problem(f"{name}: a wrong Call: {call.data[:28].hex()}")
        if call.rpc[:4] != call.data[:4]:
            t.problem(f"{name}: another transaction ID in the RPC header")
        # The drafts of RFC 8167: RDMA_MSG (see `reverse_call`), and all three lists are empty.
        if call.reads or call.writes or call.reply is not None:
            t.problem(f"{name}: a Call with chunks: {call.data[:64].hex()}")
        outcome = "taken"
        try:
            for message in wrong_answers(call.xid)[name]:
                connection.send_message(message)
            if not connection.null():
                t.problem(f"{name}: no answers any more")
        except Gone:
            outcome = "lost"
        log(f"  {name}: {outcome}")
        t.well()
    for connection in held:
        connection.close()
