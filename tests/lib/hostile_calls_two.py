# SPDX-License-Identifier: GPL-2.0
"""Cases of the hostile client in Version Two (draft-ietf-nfsv4-rpcrdma-version-two-07)."""

import os
import random
import struct
import time

from case import broken_credits
from common import (Gone, Pause, digest, log, pattern, remote, slow, slowness, soak,
                    watchdog)
from hostile_attack import FILE, FILE_SIZE, contents
from hostile_caller import ARENA, CHUNKS, XIDS
from hostile_calls_data import CANARY, SCRATCH, untouched, used
from hostile_qp import MR, WINDOWS
from hostile_two_caller import TwoCaller
from nfs_server import EXPORT
from rpc_message import (GARBAGE_ARGS, compound, getattr_, null_call, null_rpc, read, read_result, rpc_call,
                         to_file, write)
from rpcrdma2_header import (BAD_PROPVAL, BAD_XDR, CALL_MIDDLE, ERROR, GRANT, INVAL_CONT, INVAL_HTYPE,
                             READ_CHUNKS, RECEIVE_SIZE, REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE,
                             REPLY_RESOURCE, SEGMENT_COUNT, SEGMENTS, SYSTEM,
                             VERS_MISMATCH, WRITE_CHUNKS, WRITE_RESOURCE, call, call_external, error,
                             middle, prefix, properties, reply)

#: Every case by name, in the order in which they are run.
CASES = {}
#: A handle that nobody has given out.
FOREIGN = 0xDEADBE00


def case(function):
    """Enters a function into `CASES`."""
    CASES[function.__name__] = function
    return function


def opened(**how):
    """A connection that has exchanged properties."""
    return TwoCaller(**how).open()


def finish(t, label, connection, xid, allowed, alive=True):
    """What became of the message with an XID: compares it with what is `allowed`.

    A NULL Call follows, which has to be answered if the connection is to be `alive`.
    """
    answer, outcome = None, "nothing"
    try:
        if not connection.null(20):
            outcome = "a stall"
        deadline = time.monotonic() + (10 if "nothing" not in allowed else 0.05) * slowness()
        pause = Pause()
        while outcome == "nothing":
            answer = next((a for a in connection.answers if a.xid == xid), None)
            if answer or time.monotonic() > deadline:
                break
            connection.take()
            pause()
        if answer:
            if answer.kind.startswith("error"):
                # What is answered with an error is discarded: no Reply follows.
                connection.null(20)
            # A GRANT has the transaction ID zero, as properties do.
            outcome = ", ".join(a.kind for a in connection.answers if a.xid == xid and a.kind != "grant")
    except Gone as x:
        answer = next((a for a in connection.answers if a.xid == xid), None)
        outcome = f"{answer.kind}, lost" if answer else "lost"
        if alive and "lost" not in allowed:
            log(f"  {label}: lost: {x}")
    t.compare(label, outcome, allowed)
    for text in connection.wrong:
        t.problem(f"{label}: {text}")
    return answer


def attempt(t, label, make, allowed, connection=None):
    """Sends the messages that `make` makes of a connection and an XID; see `finish`."""
    own = connection is None
    connection = connection or opened()
    xid = next(XIDS)
    messages = make(connection, xid)
    answer = None
    try:
        connection.widen(len(messages) + 1)
        for message in messages:
            connection.post_message(message)
        answer = finish(t, label, connection, xid, allowed)
    except Gone as x:
        if "lost" not in allowed:
            t.problem(f"{label}: lost: {x}")
    if own:
        connection.close()
    return answer


#: Connections that stall, while the other cases go on: by what they do, with what is to become of them.
STALLED: dict = {}


@case
def begin_to_stall(t):
    """Sequences that do not go on, Replies that are not let out; see `stalled`."""
    count = 3 if slow() else 12
    STALLED.clear()
    STALLED["begun"] = time.monotonic()
    held = STALLED["held"] = []
    for _ in range(count):
        connection = opened()
        xid = next(XIDS)
        connection.post_politely(middle(xid, connection.credit(), CALL_MIDDLE, (36 << 10) - 8,
                                        struct.pack(">II", xid, 0)))
        held.append(connection)
    middles = TwoCaller()
    middles.post_message(properties(40, last=False))
    held.append(middles)
    # Calls whose Replies are never let out: none at all, or one part of several. It takes a minute to be seen.
    none, one = opened(), opened()
    xid = next(XIDS)
    none.post_politely(call(xid, 0, null_rpc(xid)))
    xid = next(XIDS)
    one.post_politely(call(xid, one.received + 1, compound(xid, *to_file(*FILE), read(8, 20_000))))
    STALLED["starving"] = (("nothing", none), ("one part", one))


def stalled(t):
    """What has stalled has ended by now, or is about to."""
    if not STALLED:
        begin_to_stall(t)
    begun, held = STALLED["begun"], STALLED["held"]
    ended = sum(connection.lost(45) for connection in held)
    log(f"  {ended} of {len(held)} have ended within {time.monotonic() - begun:.1f} s")
    if ended != len(held):
        t.problem(f"{len(held) - ended} of {len(held)} connections go on")
    for label, connection in STALLED["starving"]:
        # What says nothing for a minute is taken for stuck.
        for _ in range(10):
            if connection.lost(9):
                break
            log(f"  {time.monotonic() - begun:.1f} s")
        else:
            t.problem(f"a connection that lets {label} out goes on")
        log(f"  one that lets {label} out has ended within {time.monotonic() - begun:.1f} s")
    for connection in (*held, *(connection for _, connection in STALLED["starving"])):
        connection.close()
    STALLED.clear()


def earlier_messages():
    """Messages of the draft of 2016, for a server that does not speak it.

    Its client is told to go on in Version One, and may do what it likes.
    """
    return (*((f"procedure {n} of 2016", lambda x, n=n: prefix(x, 40, n) + bytes(20), {"error 1"}) for n in (0, 1)),
            ("an OPTIONAL of 2016", lambda x: prefix(x, 40, GRANT) + bytes(12), {"error 1"}))


@case
def first_messages(t):
    """A first message of every kind."""
    null = lambda x: call(x, 40, null_rpc(x))  # noqa: E731
    segment = (FOREIGN, 64, 0)
    for label, make, allowed in (
            ("a Call", null, {"reply"}),
            ("a GRANT", lambda x: prefix(x, 40, GRANT), {"nothing"}),
            ("an error", lambda x: error(x, 40, SYSTEM), {"nothing"}),
            ("a Reply", lambda x: reply(x, 40, struct.pack(">II", x, 1)), {"nothing"}),
            ("no properties", lambda x: properties(40, xid=x), {"nothing"}),
            ("a Call with a lie", lambda x: call(x, 40, null_rpc(x ^ 0x1000000)), {f"error {BAD_XDR}"}),
            ("a Call without an end", lambda x: call(x, 40, b""), {f"error {BAD_XDR}"}),
            ("a Call chunk of a stranger", lambda x: call_external(x, 40, [segment]), {"lost"}),
            *((f"{n} octets", lambda x, n=n: null(x)[:n], {"nothing"}) for n in (0, 4, 12, 15)),
            *((f"version {n}", lambda x, n=n: prefix(x, 40, 10, vers=n) + bytes(40), {"error 1"})
              for n in (0, 3, 0xFFFFFFFF)),
            *((f"header type {n}", lambda x, n=n: prefix(x, 40, n) + bytes(20),
               {f"error {INVAL_HTYPE}, lost", "lost"}) for n in (2, 3, 14, 0xFFFFFFFF)),
            *(() if os.environ.get("SERVER_2016") else earlier_messages())):
        connection = TwoCaller()
        xid = next(XIDS)
        try:
            connection.post_message(make(xid))
            # Nothing was told about credits if that was not Version Two.
            if connection.room() < 1:
                connection.limit = 2
            if "version" in label or "octets" in label:
                # Answers to another version carry it.
                wait = 0.2 if allowed == {"nothing"} else 10 * slowness()
                deadline = time.monotonic() + wait
                while time.monotonic() < deadline and not connection.arrived:
                    connection.poll()
                other = [Header for Header in connection.arrived]
                connection.arrived.clear()
                connection.received += len(other)
                got = {f"error {struct.unpack_from('>I', d, 16)[0]}" for d in other if len(d) >= 20}
                if (got or {"nothing"}) != allowed:
                    t.problem(f"{label}: {got}")
                if not connection.null():
                    t.problem(f"{label}: no answer afterwards")
            else:
                finish(t, label, connection, xid, allowed)
        except Gone as x:
            if "lost" not in allowed:
                t.problem(f"{label}: lost: {x}")
        connection.close()


@case
def calls_first(t):
    """Calls before anything else, one more than may be sent: the server tells its properties, and answers."""
    for _ in range(5 if slow() else 30):
        connection = TwoCaller()
        xids = [next(XIDS), next(XIDS)]
        try:
            connection.send_many([call(xid, 40, null_rpc(xid)) for xid in xids])
            connection.sent += len(xids)
            kinds = []
            for xid in xids:
                answer = connection.answer(xid, 10)
                kinds.append(answer.kind if answer else "nothing")
            if kinds != ["reply"] * 2 or not any(a.kind == "properties" for a in connection.answers):
                t.problem(f"Calls first: {kinds}, {[a.kind for a in connection.answers]}")
        except Gone as x:
            t.problem(f"Calls first: lost: {x}")
        connection.close()


@case
def dropped(t):
    """Calls that the server's RPC layer drops, all credits of them: credits come all the same.

    What is in the Call chunk is an RPC Reply, which only that layer finds out.
    """
    connection = opened()
    try:
        for _ in range(5):
            connection.take()
            room = connection.room()
            messages = []
            for n in range(room):
                xid = next(XIDS)
                place = CHUNKS + 64 * n
                connection.arena.write(struct.pack(">II", xid, 1) + bytes(32), 40, place)
                messages.append(call_external(xid, connection.credit(),
                                              [connection.segment(40, place)]))
            connection.send_many(messages)
            connection.sent += room
            connection.wait_room(room // 2 + 1, 5)
        if not connection.null():
            t.problem("dropped Calls: no answer afterwards")
    except Gone as x:
        t.problem(f"dropped Calls: {x}")
    connection.close()


@case
def version_one_after_all(t):
    """A Version One client on the same listener, which then sends Version Two."""
    connection = TwoCaller()
    xid = next(XIDS)
    connection.send_message(null_call(xid))
    deadline = time.monotonic() + 10 * watchdog()
    while not connection.arrived and time.monotonic() < deadline:
        connection.poll()
    if not connection.arrived or connection.arrived.pop()[4:8] != b"\0\0\0\1":
        t.problem("no answer in Version One")
    connection.send_message(properties(40, xid=7))
    while not connection.arrived and time.monotonic() < deadline:
        connection.poll()
    got = connection.arrived.pop() if connection.arrived else b""
    if got[4:8] + got[12:20] != struct.pack(">III", 2, ERROR, VERS_MISMATCH):
        t.problem(f"answered with {got.hex()}")
    # Nothing counts them, so there is an end to them.
    flood = [prefix(7, 40, kind) for kind in (GRANT, ERROR)] * 150
    lose(t, "a flood of Version Two", connection, lambda: connection.send_many(flood))


@case
def property_sets(t):
    """Property sets of all kinds, as the first message."""
    for label, values, tail, allowed in (
            ("none", [], b"", {"properties"}),
            ("unknown ones", [(n, bytes(30)) for n in range(50, 80)], b"", {"properties"}),
            ("twice", [(RECEIVE_SIZE, 8192), (RECEIVE_SIZE, 4096)], b"", {"properties"}),
            ("empty ones", [(n, b"") for n in range(1, 7)], b"", {"properties"}),
            ("much host authentication", [(6, struct.pack(">I", 2000) + bytes(2000))], b"",
             {"properties"}),
            ("three octets", [(RECEIVE_SIZE, bytes(3))], b"", {f"error {BAD_PROPVAL}"}),
            ("eight octets", [(RECEIVE_SIZE, bytes(8))], b"", {f"error {BAD_PROPVAL}"}),
            ("host authentication that lies", [(6, struct.pack(">I", 2000))], b"",
             {f"error {BAD_PROPVAL}"}),
            ("something behind", [], bytes(8), {f"error {BAD_XDR}"})):
        connection = TwoCaller()
        try:
            connection.post_message(properties(connection.credit(), values, xid=9) + tail)
            finish(t, label, connection, 9 if "error" in "".join(allowed) else 0, allowed)
        except Gone as x:
            t.problem(f"{label}: lost: {x}")
        connection.close()
    for label, words, wrong in (("a count that lies", (5,), BAD_XDR), ("no end", (0xFFFFFFFF,), BAD_XDR),
                                ("no count", (), BAD_XDR),
                                ("a length that lies", (1, 2, 0xFFFFFFFF), BAD_PROPVAL)):
        connection = TwoCaller()
        try:
            data = prefix(9, connection.credit(), 7) + struct.pack(f">{len(words)}I", *words)
            connection.post_message(data)
            finish(t, label, connection, 9, {f"error {wrong}"})
        except Gone as x:
            t.problem(f"{label}: lost: {x}")
        connection.close()


@case
def smallest_peer(t):
    """A client that can receive next to nothing: its Replies are errors, or it is cut off."""
    for size in (0, 1, 16, 64, 0xFFFFFFFF):
        connection = TwoCaller()
        try:
            connection.open([(n, size) for n in range(1, 5)])
            xid = next(XIDS)
            connection.post_politely(call(xid, connection.credit(), null_rpc(xid)))
            answer = connection.answer(xid, 5)
            log(f"  all of {size}: {answer.kind if answer else 'nothing'}")
        except Gone as x:
            log(f"  all of {size}: {x}")
        connection.close()
        t.well()


@case
def property_floods(t):
    """CONNPROP messages without an end, with and without regard to credits."""
    connection = TwoCaller()
    for _ in range(200):
        connection.post_politely(properties(connection.credit(), [(77, bytes(900))], last=False))
    connection.post_politely(properties(connection.credit()))
    if not connection.null():
        t.problem("no answer after many properties")
    for last in (True, False) * 10:
        connection.post_politely(properties(connection.credit(), [(1, 100)], last=last, xid=5))
    if not connection.null():
        t.problem("no answer after properties that came too late")
    errors = [a.kind for a in connection.answers if a.xid == 5]
    if errors != [f"error {INVAL_CONT}"] * 20:
        t.problem(f"properties that came too late: {errors}")
    connection.close()
    connection = TwoCaller()
    flood = [properties(40, [(77, bytes(900))], last=False)] * 300
    lose(t, "a flood of properties", connection, lambda: connection.send_many(flood))


def lose(t, label, connection, act):
    """Does something that has to end the connection, and no other one."""
    t.well()
    with broken_credits():
        try:
            act()
            if not connection.lost(20):
                t.problem(f"{label}: the connection goes on")
        except Gone as x:
            log(f"  {label}: {x}")
        connection.close()
        t.well()


@case
def continued(t):
    """Calls in parts: NULL, and a WRITE of 20,000 octets; a READ whose Reply comes in parts."""
    attempt(t, "NULL in parts", lambda c, x: c.in_parts(x, null_rpc(x), 24), {"reply"})
    connection = opened()
    data = pattern("in parts", 20_000)

    def writing(c, xid):
        return c.in_parts(xid, compound(xid, *to_file(*SCRATCH), write(0, len(data))) + data)

    attempt(t, "WRITE in parts", writing, {"reply"}, connection)
    got = remote(f"head -c {len(data)} {EXPORT}/hostile-scratch | sha256sum").split()[0]
    if got != digest(data):
        t.problem("other data were written")

    def reading(c, xid):
        return [call(xid, c.credit(), compound(xid, *to_file(*FILE), read(8, 20_000)))]

    answer = attempt(t, "READ in parts", reading, {"reply"}, connection)
    if answer and contents(8, 20_000) not in answer.rpc:
        t.problem("other data were read")
    connection.close()


@case
def side_by_side(t):
    """Replies in parts and others, all at once: nothing comes between two parts (4.1)."""
    connection = opened()
    try:
        connection.widen(8)
        xids = [next(XIDS) for _ in range(8)]
        rpcs = [compound(xid, *to_file(*FILE), read(8 * n, 20_000)) if n % 2 else null_rpc(xid)
                for n, xid in enumerate(xids)]
        connection.send_many([call(xid, connection.credit(), rpc) for xid, rpc in zip(xids, rpcs)])
        connection.sent += len(xids)
        for n, xid in enumerate(xids):
            answer = connection.answer(xid, 20)
            if answer is None or answer.kind != "reply":
                t.problem(f"Call {n}: {answer.kind if answer else 'no answer'}")
            elif n % 2 and contents(8 * n, 20_000) not in answer.rpc:
                t.problem(f"Call {n}: other data were read")
    except Gone as x:
        t.problem(f"lost: {x}")
    for text in connection.wrong:
        t.problem(text)
    connection.close()


@case
def parts_without_credits(t):
    """A Reply in parts finds a credit for one of them: none is sent, and a GRANT that is due is (4.1, 4.2.1)."""
    connection = opened()
    try:
        xid = next(XIDS)
        connection.post_politely(call(xid, connection.received + 1, compound(xid, *to_file(*FILE), read(8, 20_000))))
        # All that the server allows is used up, and its Reply brings no credits.
        deadline = time.monotonic() + 20 * watchdog()
        pause = Pause()
        while not any(answer.kind == "grant" for answer in connection.answers):
            if time.monotonic() > deadline:
                raise Gone("no GRANT while a Reply waits")
            if connection.room():
                connection.post_message(prefix(0, connection.received + 1, GRANT))
            pause()
            connection.take()
        if connection.parts or any(answer.xid == xid for answer in connection.answers):
            t.problem("a part for which there is a credit, but not for the others")
        connection.post_politely(prefix(0, connection.credit(), GRANT), 5)
        answer = connection.answer(xid, 10)
        if answer is None or answer.kind != "reply" or contents(8, 20_000) not in answer.rpc:
            t.problem(f"{answer.kind if answer else 'no answer'}, or other data")
    except Gone as x:
        t.problem(f"lost: {x}")
    for text in connection.wrong:
        t.problem(text)
    connection.close()


@case
def chunks(t):
    """READs into Write chunks: returned as they were offered, filled in their order, without padding."""
    connection = opened()
    a = CHUNKS + 4096
    for label, count, chunk in (
            ("exact", 4096, [(a, 4096)]),
            ("odd", 20_001, [(a, 20_001)]),
            ("odd, with room behind", 20_001, [(a, 20_200)]),
            ("in odd parts", 20_003, [(a, 7001), (a + 8192, 0), (a + 9001, 9000), (a + 20_000, 9000)])):
        connection.arena.write(CANARY * (ARENA - CHUNKS), ARENA - CHUNKS, CHUNKS)
        offered = [connection.segment(n, at) for at, n in chunk]
        answer = attempt(t, label, lambda c, x, offered=offered, count=count: [
            call(x, c.credit(), compound(x, *to_file(*FILE), read(8, count)), writes=[offered])],
            {"reply"}, connection)
        if not answer or answer.kind != "reply":
            continue
        # Sections 4.5.2.1 and 4.5.2.4.
        if answer.header.writes != [used(offered, count)]:
            t.problem(f"{label}: returned as {answer.header.writes}, offered {offered}")
        filled = [n for _, n, _ in used(offered, count)]
        if b"".join(connection.get(n, at) for n, (at, _) in zip(filled, chunk)) != contents(8, count):
            t.problem(f"{label}: other data were read")
        end = CHUNKS
        for at, n in sorted((at, n) for n, (at, _) in zip(filled, chunk)):
            untouched(t, connection, label, end, at)
            end = at + n
        untouched(t, connection, label, end, ARENA)
        status, rest = read_result(answer.accepted()[1])
        if status or len(rest) != 8:
            t.problem(f"{label}: status {status}, {len(rest) - 8} octets behind the length")
    connection.close()


@case
def reply_chunks(t):
    """A Reply that could go in parts goes into the Reply chunk if there is one (6.6.3); errors say what is needed."""
    connection = opened()

    def reading(count, **offer):
        return lambda c, x: [call(x, c.credit(), compound(x, *to_file(*FILE), read(0, count)), **offer)]

    for label, count, room, htype in (("a long Reply, and a chunk", 20_000, 24_000, REPLY_EXTERNAL),
                                      ("a long Reply without one", 20_000, 0, REPLY_INLINE),
                                      ("a short Reply, and a chunk", 1000, 24_000, REPLY_INLINE)):
        offer = {"reply": [connection.segment(room, CHUNKS)]} if room else {}
        answer = attempt(t, label, reading(count, **offer), {"reply"}, connection)
        if not answer or answer.kind != "reply":
            continue
        rpc = answer.rpc
        if answer.header.htype == REPLY_EXTERNAL:
            (_, length, _), = answer.header.reply
            rpc = connection.get(length, CHUNKS)
        if answer.header.htype != htype or contents(0, count) not in rpc:
            t.problem(f"{label}: header type {answer.header.htype}, {len(rpc)} octets")
        # Section 6.3.8: that of the RPC message is that of the header.
        if struct.unpack_from(">II", rpc) != (answer.xid, 1):
            t.problem(f"{label}: RPC message {rpc[:8].hex()} in the Reply to {answer.xid:#x}")

    # Sections 7.3.4 and 7.3.5: what is said to be needed is, and is enough.
    answer = attempt(t, "a Write chunk that is too short", reading(20_001, writes=[
        [connection.segment(9000), connection.segment(9000)]]), {f"error {WRITE_RESOURCE}"}, connection)
    if answer and tuple(answer.header.error) != (WRITE_RESOURCE, 1, 20_001):
        t.problem(f"a Write chunk that is too short: {answer.header.error}")
    answer = attempt(t, "no Reply chunk", reading(100_000), {f"error {REPLY_RESOURCE}"}, connection)
    needed = answer.header.error[1] if answer and answer.header.error else 0
    if not 100_000 < needed < 101_000:
        t.problem(f"no Reply chunk: {needed} octets are needed")
    for room, allowed in ((needed - 4, f"error {REPLY_RESOURCE}"), (needed, "reply")):
        offer = [connection.segment(room, CHUNKS)]
        again = attempt(t, f"a Reply chunk of {room}", reading(100_000, reply=offer), {allowed}, connection)
        if again and again.header.error and again.header.error[1] != needed:
            t.problem(f"{room} octets: now {again.header.error[1]} are needed, not {needed}")
    connection.close()


@case
def call_chunks_with_reads(t):
    """WRITEs in Call chunks, the data of which are in Read chunks of their own (6.6.3)."""
    connection = opened()
    data = pattern("both chunks", 9001)
    for label, cuts in (("one segment", (0, 9001)), ("three segments", (0, 1, 4000, 9001))):
        remote(f"rm -f {EXPORT}/hostile-scratch; touch {EXPORT}/hostile-scratch; chmod 666 {EXPORT}/hostile-scratch")

        def make(c, x, cuts=cuts):
            rpc = compound(x, *to_file(*SCRATCH), write(0, len(data)), getattr_())
            # The data come where the count of them ends, before the next operation.
            position = len(compound(x, *to_file(*SCRATCH), write(0, len(data))))
            c.put(rpc, CHUNKS)
            c.put(data, CHUNKS + 8192)
            half = position // 2
            body = [c.segment(half, CHUNKS), c.segment(len(rpc) - half, CHUNKS + half)]
            reads = [(position, *c.segment(end - begin, CHUNKS + 8192 + begin))
                     for begin, end in zip(cuts, cuts[1:])]
            return [call_external(x, c.credit(), body, reads=reads)]

        answer = attempt(t, label, make, {"reply"}, connection)
        if answer and answer.kind == "reply" and answer.accepted()[0]:
            t.problem(f"{label}: accept status {answer.accepted()[0]}")
        got = remote(f"sha256sum < {EXPORT}/hostile-scratch").split()[0]
        if got != digest(data):
            t.problem(f"{label}: other data were written")
    one = connection.segment(8, CHUNKS)
    connection.put(null_rpc(0), CHUNKS)
    for label, reads in (("a position beyond the Call chunk", [(4000, *one)]),
                         ("positions that go back", [(16, *one), (8, *one)]),
                         ("more than a Call can be", [(16, one[0], 2 << 20, one[2]), (20, one[0], 2 << 20, one[2])])):
        attempt(t, label, lambda c, x, reads=reads: [call_external(
            x, c.credit(), [c.segment(40, CHUNKS)], reads=reads)],
            {f"error {BAD_XDR}", f"error {SYSTEM}"}, connection)
    connection.close()


def lied(change):
    """The parts of a NULL Call in which the octets that remain are changed."""
    def make(c, xid):
        parts = c.in_parts(xid, null_rpc(xid), 24)
        for i, message in enumerate(parts[:-1]):
            rest = struct.unpack_from(">I", message, 16)[0]
            parts[i] = (message[:16] + struct.pack(">I", change(i, rest) & 0xFFFFFFFF)
                        + message[20:])
        return parts
    return make


@case
def remaining(t):
    """Lies about the octets that remain: an error for the Call, and nothing else."""
    connection = opened()
    for label, change in (("more", lambda i, n: n + 4), ("less", lambda i, n: n - 4),
                          ("changes", lambda i, n: n + 4 * (i == 1)), ("odd", lambda i, n: n + 1),
                          ("none", lambda i, n: 0), ("three", lambda i, n: 3),
                          ("all", lambda i, n: -1), ("half", lambda i, n: 0x7FFFFFFF),
                          ("long", lambda i, n: 65536 - 24 * i),
                          ("fits", lambda i, n: (36 << 10) - 24 * (i + 1))):
        attempt(t, label, lied(change), {f"error {INVAL_CONT}"}, connection)
    connection.close()


@case
def parts_in_disorder(t):
    """Parts that are missing, too many, or in another order."""
    connection = opened()
    wrong = {f"error {INVAL_CONT}"}
    for label, order in (("a part is missing", (0, 2, 3)), ("a part comes twice", (0, 1, 1, 2, 3)),
                         ("turned", (0, 2, 1, 3)), ("only the first and the last", (0, 3))):
        attempt(t, label, lambda c, x, order=order:
                [c.in_parts(x, null_rpc(x), 20)[i] for i in order], wrong, connection)
    # What has no beginning of a Call is none.
    for count in (1, 2):
        attempt(t, f"only the last {count}", lambda c, x, count=count:
                c.in_parts(x, null_rpc(x), 20)[-count:], {f"error {BAD_XDR}"}, connection)
    attempt(t, "an empty part", lambda c, x: [c.in_parts(x, null_rpc(x), 24)[0],
                                              middle(x, c.credit(), CALL_MIDDLE, 400, b"")],
            wrong | {f"error {BAD_XDR}"}, connection)
    connection.close()


@case
def interrupted(t):
    """Messages between the parts of a Call: they are errors, and the Call goes on or the connection ends."""
    other = 0x1000000

    def between(make):
        def messages(c, xid):
            parts = c.in_parts(xid, null_rpc(xid), 24)
            return [parts[0], make(c, xid), *parts[1:]]
        return messages

    # The Call goes on; what has come between is answered by its own transaction ID, and dropped.
    for label, make, own in (
            ("a GRANT", lambda c, x: prefix(0, c.credit(), GRANT), lambda x: 0),
            ("properties", lambda c, x: properties(c.credit(), [(1, 50)]), lambda x: 0),
            ("another Call", lambda c, x: call(x ^ other, c.credit(), null_rpc(x ^ other)),
             lambda x: x ^ other),
            ("a part of another", lambda c, x: middle(x ^ other, c.credit(), CALL_MIDDLE, 400,
                                                      struct.pack(">II", x ^ other, 0)),
             lambda x: x ^ other)):
        connection = opened()
        answer = attempt(t, label, between(make), {"reply"}, connection)
        if answer:
            connection.null(20)
            told = [a.kind for a in connection.answers if a.xid == own(answer.xid) and a.kind != "grant"
                    and a.kind != "properties"]
            if told != [f"error {INVAL_CONT}"]:
                t.problem(f"{label}: answered with {told}")
        connection.close()
    for label, make, allowed in (
            ("a Call chunk", lambda c, x: call_external(x, c.credit(), [(FOREIGN, 64, 0)]),
             {f"error {INVAL_CONT}, reply"}),
            ("a Reply", lambda c, x: reply(x, c.credit(), struct.pack(">II", x, 1)), {"lost"}),
            ("a part of a Reply", lambda c, x: middle(x, c.credit(), REPLY_MIDDLE, 400,
                                                      struct.pack(">II", x, 1)), {"lost"}),
            ("an error", lambda c, x: error(x, c.credit(), SYSTEM), {"lost"}),
            ("another version", lambda c, x: prefix(x, c.credit(), 10, vers=9), {"error 1, reply"}),
            ("an unknown type", lambda c, x: prefix(x, c.credit(), 99),
             {f"error {INVAL_HTYPE}, reply"})):
        attempt(t, label, between(make), allowed)


@case
def garbage_args(t):
    """Arguments that the upper layer cannot parse, in a header that is right: a Reply says so (7.2)."""
    connection = opened()
    answer = attempt(t, "GETATTR of no file handle", lambda c, x: [call(x, c.credit(), rpc_call(
        x, 3, 1, struct.pack(">I", 0xFFFFFFFF) + bytes(64)))], {"reply"}, connection)
    if answer and (answer.header.htype, answer.accepted()[0]) != (REPLY_INLINE, GARBAGE_ARGS):
        t.problem(f"GETATTR of no file handle: {answer.header.htype}, accept status {answer.accepted()[0]}")
    if not connection.null():
        t.problem("no answers any more")
    connection.close()


@case
def credits_of_ours(t):
    """Lies about what the server may send: it waits, and goes on when it may."""
    for label, value in (("none", lambda c: 0), ("behind", lambda c: c.received - 1000),
                         ("just used", lambda c: c.received),
                         ("2^31 ahead", lambda c: c.received + 0x80000000)):
        connection = opened()
        try:
            xids = [next(XIDS) for _ in range(2)]
            for xid in xids:
                connection.wait_room(1)
                connection.post_message(call(xid, value(connection), null_rpc(xid)))
            time.sleep(0.3)
            connection.take()
            # Section 4.2.1.
            if any(answer.xid in xids for answer in connection.answers):
                t.problem(f"{label}: a Reply for which there is no credit")
            connection.post_politely(prefix(0, connection.credit(), GRANT), 5)
            for xid in xids:
                answer = connection.answer(xid, 10)
                if answer is None or answer.kind != "reply":
                    t.problem(f"{label}: {answer.kind if answer else 'no answer'}")
        except Gone as x:
            t.problem(f"{label}: lost: {x}")
        connection.close()
    attempt(t, "2^31 - 2 ahead", lambda c, x: [call(x, c.received + 0x7FFFFFFE, null_rpc(x))],
            {"reply"})


@case
def answers_not_let_out(t):
    """Bad messages whose errors must not be sent: there is an end to what is kept."""
    connection = opened()
    bad = [prefix(next(XIDS), 0, 99) for _ in range(40)]
    lose(t, "errors that must wait", connection, lambda: connection.send_many(bad))


@case
def overruns(t):
    """More messages than the server allows, of every kind."""
    for label, make in (("Calls", lambda x: call(x, 40, null_rpc(x))),
                        ("GRANTs", lambda x: prefix(0, 40, GRANT)),
                        ("parts", lambda x: middle(x, 40, CALL_MIDDLE, 400, struct.pack(">II", x, 0))),
                        ("runts", lambda x: bytes(8))):
        connection = opened()
        flood = [make(next(XIDS)) for _ in range(400)]
        lose(t, label, connection, lambda: connection.send_many(flood))


@case
def grant_storm(t):
    """GRANTs as fast as the server lets them: it does not answer each, and others go on."""
    connection = opened()
    begun, sent = time.monotonic(), 0
    before = connection.received
    while time.monotonic() - begun < 4 and sent < 5000:
        connection.take()
        if connection.room() < 2:
            time.sleep(0.0005)
            continue
        connection.post_message(prefix(0, connection.credit(), GRANT))
        sent += 1
    answered = connection.received - before
    log(f"  {sent} GRANTs, {answered} messages of the server's")
    if answered > sent:
        t.problem(f"{sent} GRANTs made the server send {answered} messages")
    if not connection.null():
        t.problem("no answer afterwards")
    connection.close()


@case
def handles(t):
    """A handle to be invalidated that is not in the header: it is left alone."""
    connection = opened()
    for handle in (FOREIGN, 1, 0xFFFFFFFF, connection.arena.rkey):
        attempt(t, f"NULL and {handle:#x}",
                lambda c, x, handle=handle: [call(x, c.credit(), null_rpc(x), inv=handle)],
                {"reply"}, connection)
    chunk = [connection.segment(4096, CHUNKS)]
    for handle in (FOREIGN, chunk[0][0] ^ 1):
        connection.arena.write(bytes(4096), 4096, CHUNKS)
        attempt(t, f"READ and {handle:#x}",
                lambda c, x, handle=handle: [
                    call(x, c.credit(), compound(x, *to_file(*FILE), read(0, 4096)), inv=handle,
                         writes=[chunk])], {"reply"}, connection)
        if connection.get(4096) != contents(0, 4096):
            t.problem("other data were read")
    connection.close()


@case
def invalidation(t):
    """A Reply invalidates the handle that its Call has named, and nothing else; an error invalidates nothing (6.5)."""
    if os.environ["FABRIC"] != "rxe":
        # There are no memory windows.
        return
    connection = opened()
    memory = MR(connection.memory.pd, 16 << 10, WINDOWS)
    connection.kept.append(memory)
    reading = lambda x: compound(x, *to_file(*FILE), read(0, 4096))  # noqa: E731
    for label, length, positions, named, allowed in (
            ("one chunk", 4096, (), 0, "reply"),
            ("the first of two", 4096, (), 0, "reply"),
            # It is named, though the Reply does not need it.
            ("the second of two", 4096, (), 1, "reply"),
            ("none of two", 4096, (), None, "reply"),
            ("too short a chunk", 100, (), 0, f"error {WRITE_RESOURCE}"),
            ("a position beyond the Call", 4096, (4000,), 0, f"error {BAD_XDR}"),
            ("17 Read chunks", 4096, range(8, 212, 12), 0, f"error {READ_CHUNKS}")):
        windows = [connection.window(memory, 0, length)]
        offer = {"writes": [windows]}
        if "two" in label:
            windows = [*windows, connection.window(memory, 8192, 8192)]
            offer["reply"] = windows[1:]
        offer["reads"] = [(position, *connection.segment(8, CHUNKS)) for position in positions]
        key = windows[named][0] if named is not None else 0
        memory.write(bytes(4096), 4096, 0)
        connection.invalidated.clear()
        answer = attempt(t, label, lambda c, x, key=key, offer=offer: [
            call(x, c.credit(), reading(x), inv=key, **offer)], {allowed}, connection)
        keys = list(connection.invalidated)
        if not connection.has_invalidated(*([key] if key and allowed == "reply" else [])):
            t.problem(f"{label}: {[f'{k:#x}' for k in keys]} invalidated, not {key:#x}")
        if answer and answer.kind == "reply" and memory.read(4096, 0) != contents(0, 4096):
            t.problem(f"{label}: other data were read")
    connection.close()


@case
def limits(t):
    """More chunks, or longer ones, than the server has told; too little room for a Reply.

    With the error comes what would have been enough.
    """
    connection = opened()
    answers = {}
    one = connection.segment(8, CHUNKS)
    getting = compound(0, *to_file(*FILE), getattr_())[4:]
    reading = lambda x, n: compound(x, *to_file(*FILE), read(0, n))  # noqa: E731
    for label, make, allowed in (
            ("17 Read chunks", lambda c, x: call(x, c.credit(), null_rpc(x), reads=[
                (8 + 12 * i, *one) for i in range(17)]), {f"error {READ_CHUNKS}"}),
            ("17 Write chunks", lambda c, x: call(x, c.credit(), struct.pack(">I", x) + getting,
                                                  writes=[[one]] * 17), {f"error {WRITE_CHUNKS}"}),
            ("a segment of 3 MiB", lambda c, x: call(
                x, c.credit(), reading(x, 100), writes=[[(one[0], 3 << 20, one[2])]]),
             {f"error {SYSTEM}"}),
            ("segments without end", lambda c, x: prefix(x, c.credit(), 10) + struct.pack(
                ">IIII", 0, 0, 1, 0xFFFFFFFF), {"error 8", f"error {BAD_XDR}"}),
            ("too short a Write chunk", lambda c, x: call(
                x, c.credit(), reading(x, 4096), writes=[[connection.segment(4000)]]),
             {f"error {WRITE_RESOURCE}"}),
            ("too short a second Write chunk", lambda c, x: call(
                x, c.credit(), compound(x, *to_file(*FILE), read(0, 4096), read(4096, 3000)),
                writes=[[connection.segment(4096)], [connection.segment(2999, CHUNKS + 4096)]]),
             {f"error {WRITE_RESOURCE}"}),
            ("too short a chunk behind that of nothing", lambda c, x: call(
                x, c.credit(), compound(x, *to_file(*FILE), read(FILE_SIZE, 8), read(4096, 3000)),
                writes=[[connection.segment(4096)], [connection.segment(2999, CHUNKS + 4096)]]),
             {f"error {WRITE_RESOURCE}"}),
            ("no room for 64 KiB", lambda c, x: call(x, c.credit(), reading(x, 65536)),
             {f"error {REPLY_RESOURCE}"}),
            ("too short a Reply chunk", lambda c, x: call(
                x, c.credit(), reading(x, 65536), reply=[connection.segment(1000)]),
             {f"error {REPLY_RESOURCE}"}),
            ("a Reply chunk that is long enough", lambda c, x: call(
                x, c.credit(), reading(x, 65536), reply=[connection.segment(70_000)]), {"reply"}),
            ("a Read chunk of the RPC's beginning", lambda c, x: call(
                x, c.credit(), null_rpc(x), reads=[(0, *one)]), {f"error {BAD_XDR}"}),
            ("positions that go back", lambda c, x: call(
                x, c.credit(), null_rpc(x), reads=[(16, *one), (8, *one)]), {f"error {BAD_XDR}"}),
            ("a position beyond the Call", lambda c, x: call(
                x, c.credit(), null_rpc(x), reads=[(4000, *one)]), {f"error {BAD_XDR}"}),
            ("no Call chunk", lambda c, x: call_external(x, c.credit(), []), {f"error {BAD_XDR}"}),
            ("another Call in the chunk", lambda c, x: call_external(x, c.credit(), [one]),
             {f"error {BAD_XDR}"})):
        answers[label] = attempt(t, label, lambda c, x, make=make: [make(c, x)], allowed, connection)
    connection.close()
    placed = answers["a Reply chunk that is long enough"]
    whole = sum(length for _, length, _ in placed.header.reply or ()) if placed else 0
    if whole <= 65536:
        t.problem(f"a Reply of 64 KiB was placed in {whole} octets")
    for label, *words in (("17 Read chunks", READ_CHUNKS, 16), ("17 Write chunks", WRITE_CHUNKS, 16),
                          ("too short a Write chunk", WRITE_RESOURCE, 1, 4096),
                          ("too short a second Write chunk", WRITE_RESOURCE, 2, 3000),
                          ("too short a chunk behind that of nothing", WRITE_RESOURCE, 2, 3000),
                          ("no room for 64 KiB", REPLY_RESOURCE, whole),
                          ("too short a Reply chunk", REPLY_RESOURCE, whole)):
        told = answers[label] and answers[label].header.error
        if told != tuple(words):
            t.problem(f"{label}: error {told}, not {words}")
    for label, make in (("a Read chunk of a stranger", lambda c, x: call(
            x, c.credit(), null_rpc(x), reads=[(16, FOREIGN, 64, 0)])),
                        ("a Write chunk of a stranger", lambda c, x: call(
                            x, c.credit(), reading(x, 4096), writes=[[(FOREIGN, 4096, 0)]]))):
        attempt(t, label, lambda c, x, make=make: [make(c, x)], {"lost", "reply, lost"})


@case
def many_segments(t):
    """As many Read segments as the server says that it takes (5.2.4), and more: SEGMENTS with that number (7.3.3)."""
    connection = opened()
    told = next(struct.unpack(">I", value)[0] for answer in connection.answers
                for which, value in answer.header.properties if which == SEGMENT_COUNT)
    log(f"  the server takes {told} segments")
    size = len(null_rpc(0))
    for count in sorted({1, 2, 16, told - 1, told, told + 1, told + 40, 256, 257, 300}):
        if not count:
            continue
        # What a peer may do that knows nothing of the server (5.2.4).
        due = "reply" if count <= max(told, 16) else f"error {SEGMENTS}"
        answer = attempt(t, f"{count} Read segments", lambda c, x, count=count: [
            call(x, c.credit(), null_rpc(x), reads=[
                (size, *c.segment(4, CHUNKS + 64 * i)) for i in range(count)])], {due}, connection)
        if answer and due != "reply" and tuple(answer.header.error) != (SEGMENTS, told):
            t.problem(f"{count} Read segments: {answer.header.error}, not {told}")
    # In some of them more than a memory region holds.
    long = 1 << 20
    lengths = [long - 4096, *[4096] * (told - 1)]
    attempt(t, f"{told} Read segments, one of them long", lambda c, x: [
        call(x, c.credit(), null_rpc(x), reads=[
            (size, *c.segment(n, CHUNKS)) for n in lengths[:200]])], {"reply", f"error {BAD_XDR}"}, connection)
    connection.close()


@case
def system_error(t):
    """What is answered with SYSTEM was not done, in one message or in several (7.4.1)."""
    connection = opened()
    remote(f"printf before > {EXPORT}/hostile-scratch")
    one = connection.segment(8, CHUNKS)
    chunk = [[(one[0], 3 << 20, one[2])]]
    for label, data in (("in one message", b"after, once"), ("in parts", b"after, again" + bytes(6000))):
        def make(c, x, data=data):
            padded = data + bytes(-len(data) % 4)
            rpc = compound(x, *to_file(*SCRATCH), write(0, len(data))) + padded
            messages, left = [], rpc
            while len(call(x, 0, left, writes=chunk)) > 4096:
                messages.append(middle(x, c.credit(), CALL_MIDDLE, len(left) - 4000, left[:4000]))
                left = left[4000:]
            return [*messages, call(x, c.credit(), left, writes=chunk)]

        attempt(t, label, make, {f"error {SYSTEM}"}, connection)
        got = remote(f"head -c 6 {EXPORT}/hostile-scratch")
        if got != "before":
            t.problem(f"{label}: the file was written: {got!r}")
    connection.close()


@case
def replies(t):
    """Replies and errors that nobody asked for."""
    connection = opened()
    for label, make in (
            ("a Reply", lambda c, x: [reply(x, c.credit(), struct.pack(">IIIIII", x, 1, 0, 0, 0, 0))]),
            ("a Reply in parts", lambda c, x: [
                middle(x, c.credit(), REPLY_MIDDLE, 8, struct.pack(">IIII", x, 1, 0, 0)),
                reply(x, c.credit(), bytes(8))]),
            *((f"error {n}", lambda c, x, n=n: [error(x, c.credit(), n, 1, 1)])
              for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 77, 100))):
        attempt(t, label, make, {"nothing"}, connection)
    connection.close()
    for label, make in (
            ("a Reply of another", lambda c, x: [reply(x, c.credit(), struct.pack(">II", x ^ 7, 1))]),
            ("a Reply that is a Call", lambda c, x: [reply(x, c.credit(), struct.pack(">II", x, 0))]),
            ("a Reply without an end", lambda c, x: [reply(x, c.credit(), b"")]),
            ("an error without a code", lambda c, x: [prefix(x, c.credit(), ERROR)])):
        attempt(t, label, make, {"lost"})


@case
def mutations(t):
    """Good messages with a word of their header changed: an answer, silence, or the connection's end."""
    chance = random.Random(7)
    values = (0, 1, 2, 3, 4, 16, 17, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
    seen = {}
    connection = None
    for i in range(60 if slow() or not soak() else 300):
        try:
            connection = connection or opened()
            xid = next(XIDS)
            one = connection.segment(64, CHUNKS)
            message = bytearray(chance.choice((
                lambda: call(xid, connection.credit(), null_rpc(xid), writes=[[one]], reply=[one]),
                lambda: call(xid, connection.credit(), null_rpc(xid), reads=[(16, *one)]),
                lambda: call_external(xid, connection.credit(), [one], reply=[one]),
                lambda: middle(xid, connection.credit(), CALL_MIDDLE, 400, struct.pack(">II", xid, 0)),
                lambda: reply(xid, connection.credit(), struct.pack(">II", xid, 1), [[one]]),
                lambda: error(xid, connection.credit(), 9, 1, 100),
                lambda: properties(connection.credit(), [(1, 4096), (6, bytes(8))])))())
            # Not the credit value, with which the server could not answer.
            places = [n for n in range(4, min(len(message), 80) - 3, 4) if n != 8]
            struct.pack_into(">I", message, chance.choice(places), chance.choice(values))
            connection.post_politely(bytes(message))
            deadline = time.monotonic() + 0.02
            while time.monotonic() < deadline:
                connection.take()
            outcome = next((a.kind for a in connection.answers if a.xid == xid), "nothing")
            # A sequence may have begun: it is given up by a new connection.
            if outcome == "nothing":
                connection.close()
                connection = None
        except Gone:
            outcome, connection = "lost", None
        seen[outcome] = seen.get(outcome, 0) + 1
        if i % 50 == 49:
            t.well()
    log(f"  {seen}")
    for outcome in seen:
        if outcome.startswith(("a ", "header")):
            t.problem(outcome)
    if connection:
        connection.close()
