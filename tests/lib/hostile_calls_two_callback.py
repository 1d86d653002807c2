# SPDX-License-Identifier: GPL-2.0
"""Cases of the hostile client in Version Two: what it answers to the server's Calls."""

import itertools
import struct
import time

import callback_setup
from case import broken_credits
from common import Gone, fabric, log, remote, slowness, watchdog
from hostile_attack import FILE
from hostile_caller import XIDS
from hostile_calls_callback import recall_moves
from hostile_calls_two import case, stalled
from hostile_qp import DEPTH
from hostile_two_caller import TwoCaller
from nfs41_session import Session
from nfs_server import EXPORT
from rpc_message import null_rpc
from rpcrdma2_header import (BAD_XDR, CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, INVAL_HTYPE,
                             READ_CHUNKS, RECEIVE_SIZE, REPLY_MIDDLE, REPLY_RESOURCE, REVERSE,
                             SEGMENTS, SYSTEM, call, error, middle, prefix, reply,
                             reply_external)

#: For how long a server may hold memory for a Call that the client does not take, in seconds.
HELD = 30
#: Wrong answers that end the connection, since nothing else could end the RPC.
FATAL = {"an error without a code", "another transaction", "a lie about the rest", "a part is missing"}
#: Those after which the RPC layer of the server may give the connection up.
ODD = {"a huge verifier"}


def reverse_call(connection, limit=None):
    """Waits for a Call of the server's; returns its header, or nothing."""
    # Where none is to come the wait is short.
    deadline = time.monotonic() + (limit * slowness() if limit else 5 * watchdog())
    while time.monotonic() < deadline:
        connection.take()
        for answer in connection.answers:
            if answer.header.htype == CALL_INLINE:
                connection.answers.remove(answer)
                return answer.header
        time.sleep(0.01)
    return None


def wrong_answers(xid, credit):
    """Answers to a Call of the server's, by what is wrong with them."""
    accepted = struct.pack(">IIIIII", xid, 1, 0, 0, 0, 0)
    segment = (0xDEADBE00, 4096, 0x1000)
    good = reply(xid, credit, accepted)

    def parts(*rests):
        out, at = [], 0
        for rest in rests:
            out.append(middle(xid, credit, REPLY_MIDDLE, rest, accepted[at:at + 8]))
            at += 8
        return out + [reply(xid, credit, accepted[at:])]

    return {
        "nothing": [],
        "BAD_XDR": [error(xid, credit, BAD_XDR)],
        "INVAL_HTYPE": [error(xid, credit, INVAL_HTYPE)],
        "READ_CHUNKS": [error(xid, credit, READ_CHUNKS, 0)],
        "SEGMENTS": [error(xid, credit, SEGMENTS, 1)],
        "REPLY_RESOURCE": [error(xid, credit, REPLY_RESOURCE, 8192)] * 3,
        "SYSTEM": [error(xid, credit, SYSTEM)],
        "an error without a code": [error(xid, credit)],
        "no results": [good],
        "noise": [good + b"\xD2" * 300],
        "a huge verifier": [reply(xid, credit, accepted[:16] + struct.pack(">I", 0xFFFFFFFC)
                                  + bytes(40))],
        "a Write chunk": [reply(xid, credit, accepted, [[segment]])],
        "a Reply chunk": [reply_external(xid, credit, [segment])],
        "in parts": parts(16, 8),
        "a lie about the rest": parts(16, 12),
        "a part is missing": parts(16, 8)[::2],
        "another transaction": [reply(xid, credit, struct.pack(">I", xid ^ 7) + accepted[4:])],
        "no credits": [reply(xid, 0, accepted), prefix(0, credit, 5)],
        "ten times": [good] * 10,
        "denied": [reply(xid, credit, struct.pack(">IIIII", xid, 1, 1, 1, 5))],
        "4096 octets": [good.ljust(4096, b"\0")],
        "a Call with its ID": [call(xid, credit, null_rpc(xid)), good],
    }


def delegated(connection, name, limit):
    """The file of which a delegation is granted within some seconds: the server tries its backchannel first.

    nfsd grants none for half a minute on what was just recalled, and knows that by few bits of a hash
    only: so there are several files to choose from.
    """
    session = Session(connection, XIDS)
    deadline = time.monotonic() + limit * watchdog()
    for attempt in itertools.count():
        file = f"{name}.{attempt // 10}"
        if attempt % 10 == 0:
            remote(f"echo x > {EXPORT}/{file}")
        if session.open(FILE[:-1], file):
            return file
        if time.monotonic() > deadline:
            return None
        time.sleep(0.1)


@case
def recall_on_another(t):
    """A session with two connections loses the one on which a delegation is recalled."""
    recall_moves(t, *(TwoCaller().open([(REVERSE, 1)]) for _ in range(2)), reverse_call)


@case
def recalls(t):
    """A delegation is recalled, and the answer to that is wrong."""
    held = []
    for n, name in enumerate(wrong_answers(0, 0)):
        connection = TwoCaller().open([(REVERSE, 1)])
        held.append(connection)
        file = delegated(connection, f"twice{n}", 8)
        if file is None:
            t.problem(f"{name}: no delegation is granted")
            continue
        # Waits until the delegation is given back or taken away.
        remote(f"exec 3<>{EXPORT}/{file}", wait=False)
        header = reverse_call(connection)
        if header is None:
            t.problem(f"{name}: no delegation is recalled")
            continue
        if header.reads or header.writes or header.reply or header.inv:
            t.problem(f"{name}: a Call with chunks: {header.data[:64].hex()}")
        outcome = "taken"
        try:
            for message in wrong_answers(header.xid, connection.credit())[name]:
                connection.post_politely(message)
            if not connection.null():
                t.problem(f"{name}: no answers any more")
            if name == "a Call with its ID":
                answer = connection.answer(header.xid, 5)
                if answer is None or answer.kind != "reply":
                    t.problem(f"{name}: {answer.kind if answer else 'no answer'}")
        except Gone:
            outcome = "lost"
        if (outcome == "lost") != (name in FATAL) and name not in ODD:
            t.problem(f"{name}: {outcome}")
        for text in connection.wrong:
            t.problem(f"{name}: {text}")
        log(f"  {name}: {outcome}")
        t.well()
    for connection in held:
        connection.close()


def long_call(connection, limit=None):
    """Waits for a Call of the server's that may not fit one message; returns its headers and the RPC message."""
    # Where none is to come the wait is short.
    deadline = time.monotonic() + (limit * slowness() if limit else 5 * watchdog())
    headers, rpc = [], b""
    while time.monotonic() < deadline:
        connection.take()
        for answer in list(connection.answers):
            header = answer.header
            if header.htype not in (CALL_MIDDLE, CALL_INLINE, CALL_EXTERNAL):
                continue
            connection.answers.remove(answer)
            headers.append(header)
            rpc += header.rpc
            if header.htype == CALL_EXTERNAL:
                rpc += b"".join(connection.rdma_read(h, o, n) for h, n, o in header.chunk)
            if header.htype != CALL_MIDDLE:
                return headers, rpc
        time.sleep(0.01)
    return None


@case
def forms(t):
    """A recall that is too long for one message of the client's: in parts, or in a chunk that is invalidated."""
    for n, (level, starved) in enumerate(((2, False), (3, False), (3, True))):
        name = f"level {level}, {'no' if starved else 'enough'} credits"
        connection = TwoCaller().open([(REVERSE, level), (RECEIVE_SIZE, 100)])
        file = delegated(connection, f"forms{n}", 8)
        if file is None:
            t.problem(f"{name}: no delegation is granted")
            continue
        if starved:
            # One message is left, and the Call takes two.
            connection.take()
            last = connection.credit()
            connection.credit = lambda last=last: last
            while (last - connection.received) & 0xFFFFFFFF > 1:
                if not connection.null():
                    t.problem(f"{name}: no answer to a NULL Call")
                    break
        remote(f"exec 3<>{EXPORT}/{file}", wait=False)
        came = long_call(connection)
        if starved:
            del connection.credit
        if came is None:
            t.problem(f"{name}: no delegation is recalled")
            continue
        headers, rpc = came
        last = headers[-1]
        if struct.unpack_from(">III", rpc) != (last.xid, 0, 2) or len(rpc) <= 100:
            t.problem(f"{name}: a wrong Call: {rpc.hex()}")
        if {header.xid for header in headers} != {last.xid}:
            t.problem(f"{name}: parts of {[f'{header.xid:#x}' for header in headers]}")
        types = [header.htype for header in headers]
        if starved:
            if types != [CALL_EXTERNAL] or last.inv not in [s[0] for s in last.chunk]:
                t.problem(f"{name}: header types {types}, handle {last.inv:x}")
            # No address of the server's. A connection has a protection domain of its own.
            if not last.chunk or any(offset >> 32 == 0 for _, _, offset in last.chunk):
                t.problem(f"{name}: offsets that are addresses: {last.chunk}")
        elif len(types) < 2 or types != [CALL_MIDDLE] * (len(types) - 1) + [CALL_INLINE] or last.reads:
            t.problem(f"{name}: header types {types}")
        connection.wait_room(1)
        answer = reply(last.xid, connection.credit(), struct.pack(">IIIIII", last.xid, 1, 0, 0, 0, 0))
        connection.send_message(answer, last.inv or None)
        connection.sent += 1
        if not connection.null():
            t.problem(f"{name}: no answers any more")
        for text in connection.wrong:
            t.problem(f"{name}: {text}")
        log(f"  {name}: header types {types}, {len(rpc)} octets")
        connection.close()
        t.well()


def without_receives(t, name, left):
    """A connection with a delegation, with so many Receives left, no more to come, and one more credit.

    Returns the file too, whose recall takes a chunk, since it is too long for one message.
    """
    connection = TwoCaller().open([(REVERSE, 3), (RECEIVE_SIZE, 100)])
    file = delegated(connection, f"unreceived.{left}", 8)
    if file is None:
        t.problem(f"{name}: no delegation is granted")
    connection.take()
    connection.post_recv = lambda number: None
    last = connection.received + DEPTH - left + 1
    connection.credit = lambda: last
    for _ in range(DEPTH - left):
        if not connection.null():
            t.problem(f"{name}: no answer to a NULL Call")
    return connection, file


def answer_behind(t, name, connection):
    """Answers a recall, without an invalidation, behind a Call whose Reply finds no Receive."""
    came = long_call(connection)
    if came is None or came[0][-1].htype != CALL_EXTERNAL:
        t.problem(f"{name}: no recall in a chunk: {came}")
        return
    xid = came[0][-1].xid
    credit = connection.received + 2
    connection.credit = lambda: credit
    other = next(XIDS)
    connection.post_politely(call(other, credit, null_rpc(other)))
    connection.post_politely(reply(xid, credit, struct.pack(">IIIIII", xid, 1, 0, 0, 0, 0)))


@case
def never_received(t):
    """Clients without Receives do not hold the server: for a recall in a chunk, or a Reply before the answer to it.

    The fence of the chunk is behind a Send, which the device repeats for as long as the client wants. Whoever ends
    the Call waits for the fence.
    """
    held = {}
    with broken_credits():
        for name, left in ("not taken", 0), ("answered", 1):
            connection, file = without_receives(t, name, left)
            remote(f"exec 3<>{EXPORT}/{file}", wait=False)
            if left:
                answer_behind(t, name, connection)
            held[name] = connection
        began, limit = time.monotonic(), HELD * watchdog()
        while held and time.monotonic() - began < limit:
            for name, connection in list(held.items()):
                try:
                    connection.take()
                except Gone:
                    log(f"  {name}: ended after {time.monotonic() - began:.1f} s")
                    connection.close()
                    del held[name]
            time.sleep(0.05)
    for name, connection in held.items():
        t.problem(f"{name}: the server holds the connection after {limit} s")
        connection.close()
    # Over siw the device ends it at once.
    if fabric() != "siw" and int(remote("dmesg | grep -c 'not accepting messages'", ok=(0, 1))) != 2:
        t.problem("it was not the server that has ended the connections for that")
    t.well()


@case
def levels(t):
    """A client that can do nothing in the reverse direction, or something unknown, gets no Calls.

    It is granted delegations nevertheless, as a client that does not answer a recall is: nfsd takes
    them away when the lease has expired. To refuse it the transport for callbacks is no way out, see
    `callback_setup.py`.
    """
    callback_setup.watch(remote)
    for n, values in enumerate(((), ((REVERSE, 0),), ((REVERSE, 9),), ((REVERSE, 0xFFFFFFFF),))):
        connection = TwoCaller().open(values)
        try:
            file = delegated(connection, f"levels{n}", 8)
            if file is None:
                t.problem(f"{values}: no delegation is granted")
            remote(f"exec 3<>{EXPORT}/{file}", wait=False)
            if reverse_call(connection, 0.5):
                t.problem(f"{values}: a Call has come")
            if not connection.null():
                t.problem(f"{values}: no answers any more")
        except Gone as x:
            t.problem(f"{values}: lost: {x}")
        connection.close()
    for line in callback_setup.errors(remote):
        t.problem(f"a transport for callbacks was refused: {line}")
    # Each attempt takes a tenth of the lease, which is at least a second.
    attempts = callback_setup.attempts(remote)
    if attempts > 20 * watchdog():
        t.problem(f"nfsd has called again {attempts} times")


# The last one, when there has been time for it.
case(stalled)
