# SPDX-License-Identifier: GPL-2.0
"""A Version Two connection in user space that remembers all messages, for comparison with what tshark shows."""

import os
import struct
import time

from common import Gone, check, pattern, watchdog
from hostile_caller import CHUNKS, XIDS
from hostile_two_caller import TwoConnection
from rpc_message import compound, getattr_, null_rpc, read, to_file, write
from rpcrdma2_header import (BAD_PROPVAL, BAD_XDR, CALL_INLINE, GRANT, HOST_AUTH, INVAL_CONT,
                             INVAL_HTYPE, READ_CHUNKS, RECEIVE_SIZE, REPLY_RESOURCE, REVERSE,
                             SEGMENT_COUNT, SEGMENT_SIZE, SEGMENTS, SEND_SIZE, SYSTEM, VERS,
                             VERS_MISMATCH, WRITE_CHUNKS, WRITE_RESOURCE, call, call_external, error,
                             prefix, properties)
from shown import Notes

#: The files that are read and written, from the root of NFSv4, and the length of the first.
FILE, SCRATCH, LENGTH = ("export", "shown"), ("export", "shown-scratch"), 100_000
#: A handle that nobody has given out, so that nobody invalidates it.
FOREIGN = 0xDEADBE00


def data():
    """What the first file holds, and the other one afterwards begins with."""
    return pattern("shown", LENGTH)


def prepare(directory):
    """Makes the files in the export."""
    with open(f"{directory}/{FILE[-1]}", "wb") as f:
        f.write(data())
    with open(f"{directory}/{SCRATCH[-1]}", "wb") as f:
        os.fchmod(f.fileno(), 0o666)


class Recorded(TwoConnection):
    """A connection that remembers its messages, for `shown.Notes`."""

    def __init__(self, **how):
        self.notes = Notes()
        super().__init__(**how)

    def send_request(self, data, *rest, **how):
        """Notes what is sent."""
        self.notes.messages.append((True, bytes(data)))
        return super().send_request(data, *rest, **how)

    def poll(self):
        """Notes what has arrived."""
        before = len(self.arrived)
        n = super().poll()
        self.notes.messages += [(False, bytes(data)) for data in self.arrived[before:]]
        return n


def session():
    """A session with every header type, all kinds of chunks and all errors; returns its connection."""
    c = Recorded()

    def ask(wanted, *parts):
        """Sends the messages of a Call, and looks at the answer."""
        # All parts or none: the server grants nothing in the middle of them.
        c.wait_room(len(parts))
        for part in parts:
            c.post_message(part)
        answer = c.answer(struct.unpack_from(">I", parts[0])[0], 20)
        check(answer is not None and answer.kind == wanted,
              f"{answer and answer.kind} in place of {wanted}")
        return answer

    # A value that is none. Then host authentication of a scheme that nobody knows, an unknown property, and all the
    # others.
    ask(f"error {BAD_PROPVAL}", properties(c.credit(), [(RECEIVE_SIZE, bytes(3))], xid=next(XIDS)))
    c.post_politely(properties(c.credit(), [(77, bytes(range(30)))], last=False))
    c.wait_room(1)
    c.open([(SEND_SIZE, 4096), (RECEIVE_SIZE, 4096), (SEGMENT_SIZE, 1 << 20), (SEGMENT_COUNT, 16),
            (REVERSE, 1), (HOST_AUTH, struct.pack(">I", 5) + b"shown" + bytes(3))])

    def reading(xid, count):
        return compound(xid, *to_file(*FILE), read(8, count))

    def room(length, at=CHUNKS):
        return c.segment(length, at)

    check(c.null(), "a NULL Call is not answered")
    contents = data()
    x = next(XIDS)
    c.notes.read[x] = contents[8:50_009]
    ask("reply", call(x, c.credit(), reading(x, 50_001), inv=FOREIGN,
                      writes=[[room(20_000), room(40_000, CHUNKS + 20_000)]]))
    check(c.get(50_001) == contents[8:50_009], "other data were read")
    # WRITE, whose data are at the end of the Call, and the same in parts.
    x = next(XIDS)
    c.notes.written[x] = contents[:6000]
    rpc = compound(x, *to_file(*SCRATCH), write(0, 6000))
    first, second = c.put(contents[:2000]), c.put(contents[2000:6000], CHUNKS + 4096)
    ask("reply", call(x, c.credit(), rpc, reads=[(len(rpc), *first), (len(rpc), *second)]))
    x = next(XIDS)
    c.notes.written[x] = contents[:9000]
    rpc = compound(x, *to_file(*SCRATCH), write(0, 9000)) + contents[:9000]
    ask("reply", *c.in_parts(x, rpc))
    # Replies in parts and by Reply chunk, a Call by Call chunk.
    x = next(XIDS)
    c.notes.read[x] = contents[8:10_008]
    ask("reply", call(x, c.credit(), reading(x, 10_000)))
    x = next(XIDS)
    c.notes.read[x] = contents[8:60_008]
    ask("reply", call(x, c.credit(), reading(x, 60_000), reply=[room(70_000)]))
    x = next(XIDS)
    c.notes.external[x] = compound(x, *to_file(*FILE), getattr_())
    ask("reply", call_external(x, c.credit(), [c.put(c.notes.external[x])]))
    # Errors.
    one = room(8)
    x = next(XIDS)
    ask(f"error {READ_CHUNKS}", call(x, c.credit(), null_rpc(x),
                                     reads=[(8 + 12 * i, *one) for i in range(17)]))
    x = next(XIDS)
    ask(f"error {WRITE_CHUNKS}", call(x, c.credit(), reading(x, 100), writes=[[one]] * 17))
    x = next(XIDS)
    ask(f"error {WRITE_RESOURCE}", call(x, c.credit(), reading(x, 4096), writes=[[room(4000)]]))
    x = next(XIDS)
    ask(f"error {REPLY_RESOURCE}", call(x, c.credit(), reading(x, 65536), reply=[room(1000)]))
    x = next(XIDS)
    ask(f"error {BAD_XDR}", call(x, c.credit(), null_rpc(x ^ 0x1000000)))
    x = next(XIDS)
    ask(f"error {SYSTEM}", call(x, c.credit(), reading(x, 100), writes=[[(one[0], 3 << 20, one[2])]]))
    x = next(XIDS)
    ask(f"error {INVAL_HTYPE}", prefix(x, c.credit(), 99))
    # The server has no reason for this one.
    c.post_politely(error(next(XIDS), c.credit(), SEGMENTS, 7))
    c.notes.broken = x = next(XIDS)
    # With one part left out they might add up in another reading of the draft.
    parts = c.in_parts(x, null_rpc(x), 16)
    check(len(parts) > 3, f"{len(parts)} parts")
    ask(f"error {INVAL_CONT}", parts[0], parts[-1])
    # A version that nobody speaks: the answer has it too.
    x = next(XIDS)
    ask(f"error {VERS}", prefix(x, 40, CALL_INLINE, vers=9) + bytes(40))
    c.post_politely(prefix(0, c.credit(), GRANT))
    # The server grants when half of its window is used and it has nothing else to send.
    before, deadline = c.received, time.monotonic() + 5 * watchdog()
    while not any(a.kind == "grant" for a in c.answers) and time.monotonic() < deadline:
        c.take()
        # Many at once: TCP puts them into one segment when it may send no more of those.
        for _ in range(min(c.room() - 1, 24) if c.received - before < 200 else 0):
            c.post_message(prefix(0, c.credit(), GRANT))
        time.sleep(0.002)
    check(c.null(), "a NULL Call is not answered")
    # Nor for this one, which may end the connection.
    try:
        c.post_politely(error(next(XIDS), c.credit(), VERS_MISMATCH))
        time.sleep(0.2)
        c.take()
    except Gone:
        pass
    check(not c.wrong, f"wrong messages: {c.wrong}")
    return c
