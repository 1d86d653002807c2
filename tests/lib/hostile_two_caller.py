# SPDX-License-Identifier: GPL-2.0
"""A client in user space that speaks Version Two with a server, correctly unless told otherwise."""

import struct
import time

from common import Gone, Pause, slowness, watchdog
from hostile_caller import Connection, Refused, XIDS, accepted
from pyverbs.pyverbs_error import PyverbsRDMAError
from rpc_message import null_rpc
from rpcrdma2_header import (CALL_MIDDLE, CONNPROP_FINAL, CONNPROP_MIDDLE, ERROR, GRANT, Header,
                             INLINE, REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE, VERS, call, middle,
                             properties)

#: How many messages the server may have on their way to us.
WINDOW = 40
#: Header types of the messages that may invalidate a handle: the last ones of Replies.
REPLIES = [struct.pack(">I", htype) for htype in (REPLY_EXTERNAL, REPLY_INLINE)]


def is_behind(value, count):
    """Whether a credit value is behind another one, or a number of messages."""
    return (value - count) & 0xFFFFFFFF >= 1 << 31


class Answer:
    """A message of Version Two from the server, with all parts of an RPC message."""

    def __init__(self, header, rpc):
        self.header, self.rpc, self.xid = header, rpc, header.xid

    @property
    def kind(self):
        """What it is: `reply`, `denied`, `error N`, `grant`, `properties`; else it is a mistake."""
        htype = self.header.htype
        if htype == ERROR:
            return f"error {self.header.error[0]}"
        if htype == GRANT:
            return "grant" if not self.rpc else "a GRANT with a payload"
        if htype in (CONNPROP_MIDDLE, CONNPROP_FINAL):
            return "properties"
        if htype == REPLY_EXTERNAL:
            return "reply" if not self.rpc else "a REPLY_EXTERNAL with a payload"
        if htype != REPLY_INLINE:
            return f"header type {htype}"
        xid, kind, denied = struct.unpack_from(">III", self.rpc)
        if xid != self.xid or kind != 1:
            return f"a wrong RPC Reply: {self.rpc[:12].hex()}"
        return "denied" if denied else "reply"

    def accepted(self):
        """The accept_stat and the results."""
        return accepted(self.rpc)


class TwoConnection(Connection):
    """A connection that speaks Version Two."""

    def __init__(self, **how):
        super().__init__(**how)
        self.sent = self.received = 0
        #: How many messages may be sent in all, and how many the server may have sent by what it was told.
        self.limit = self.allowed = 1
        #: The parts of a Reply that have come, what the last of them left to come, and its transaction ID.
        self.parts, self.rest, self.begun = b"", None, 0
        #: What the server has done wrong.
        self.wrong = []

    def credit(self):
        """The credit value of the next message."""
        return self.received + WINDOW

    def room(self):
        """How many messages may be sent now."""
        return 0 if is_behind(self.limit, self.sent) else (self.limit - self.sent) & 0xFFFFFFFF

    def send_request(self, data, invalidate=None, at=0):
        """Notes what the server may send from now on. What is too far ahead counts as behind."""
        if len(data) >= 12:
            (value,) = struct.unpack_from(">I", data, 8)
            if not is_behind(value, self.received) and not is_behind(value, self.allowed):
                self.allowed = value
        return super().send_request(data, invalidate, at)

    def take(self):
        """Takes in what has arrived; raises `Gone` if the connection had ended behind that."""
        ended = self.note_end()
        self.poll()
        while self.arrived:
            data = self.arrived.pop(0)
            self.received += 1
            # One may be beyond the limit (4.2.1.1).
            if is_behind(self.allowed + 1, self.received):
                self.wrong.append(f"{self.received} messages, with {self.allowed} allowed")
            # Section 6.5: neither errors nor other control messages, nor Calls.
            if data.invalidated is not None and data[12:16] not in REPLIES:
                self.wrong.append(f"header type {data[12:16].hex()} with an invalidation")
            if len(data) >= 28 and data[12:20] == struct.pack(">II", ERROR, VERS):
                # It has the version of what it is about (section 7), and no credits.
                self.answers.append(Answer(Header(data), b""))
                continue
            if len(data) < 16 or data[4:8] != b"\0\0\0\2":
                self.wrong.append(f"no message of Version Two: {data[:28].hex()}")
                continue
            if len(data) > INLINE:
                self.wrong.append(f"a message of {len(data)} octets")
            header = Header(data)
            # What was promised stays promised. Errors may be those of a server that speaks another version.
            if header.htype != ERROR and is_behind(header.credit, self.limit):
                self.wrong.append(f"the limit goes back from {self.limit} to {header.credit}")
            self.limit = header.credit
            if self.rest is not None and (header.htype not in (REPLY_MIDDLE, REPLY_INLINE)
                                          or header.xid != self.begun):
                self.wrong.append(f"header type {header.htype} of {header.xid:#x} between parts of {self.begun:#x}")
            if header.htype == REPLY_MIDDLE:
                self.begun = header.xid
                if self.rest is not None and self.rest != header.remaining + len(header.rpc):
                    self.wrong.append(f"{header.remaining} octets remain, after {self.rest}")
                self.parts += header.rpc
                self.rest = header.remaining
                continue
            if self.rest not in (None, len(header.rpc)):
                self.wrong.append(f"{len(header.rpc)} octets of {self.rest}")
            rpc, self.parts, self.rest = self.parts + header.rpc, b"", None
            self.answers.append(Answer(header, rpc))
        if ended:
            raise Gone(ended)

    def post_message(self, data):
        """Sends a message, and counts it."""
        self.send_message(data)
        self.sent += 1

    def post_politely(self, data, limit=20):
        """The same, when the server lets it."""
        self.wait_room(1, limit)
        self.post_message(data)

    def wait_room(self, count, limit=20):
        """Waits until so many messages may be sent."""
        deadline = time.monotonic() + limit * watchdog()
        pause = Pause()
        while self.room() < count:
            self.take()
            if time.monotonic() > deadline:
                raise Gone(f"no credits: {self.sent} sent, {self.limit} allowed")
            pause()

    def widen(self, count, seconds=None):
        """Gets a window of so many messages, which grows when all of it is used.

        As in `hostile_caller.Connection.earn`, a chunk keeps each Call at the server for a moment.
        """
        chunk = (len(null_rpc(0)), *self.segment(4096))
        until = time.monotonic() + (seconds * slowness() if seconds else 20 * watchdog())
        while self.room() < count:
            if time.monotonic() > until:
                raise Gone(f"the window does not grow to {count}")
            self.wait_room(1)
            xids = [next(XIDS) for _ in range(self.room())]
            # All at once, or the first would be answered before the last one has arrived.
            self.send_many([call(xid, self.credit(), null_rpc(xid), reads=[chunk]) for xid in xids])
            self.sent += len(xids)
            for xid in xids:
                if self.answer(xid) is None:
                    raise Gone("no answer to a NULL Call")

    def open(self, values=()):
        """Tells properties and waits for those of the server."""
        self.post_message(properties(self.credit(), values))
        deadline = time.monotonic() + 20 * watchdog()
        pause = Pause()
        while not any(a.kind == "properties" for a in self.answers):
            self.take()
            if time.monotonic() > deadline:
                raise Gone("no properties")
            pause()
        return self

    def request(self, xid, rpc, **lists):
        """Sends the Call of an RPC, maybe with chunk lists, and waits for its answer."""
        self.post_politely(call(xid, self.credit(), rpc, **lists))
        return self.answer(xid, 20)

    def null(self, limit=10):
        """Does a NULL Call; returns whether it was answered."""
        xid = next(XIDS)
        self.post_politely(call(xid, self.credit(), null_rpc(xid)))
        answer = self.answer(xid, limit)
        return answer is not None and answer.kind == "reply"

    def in_parts(self, xid, rpc, size=INLINE - 20, **chunks):
        """The messages of a Call that is sent in parts of so many octets."""
        out, at = [], 0
        while len(rpc) - at > size:
            out.append(middle(xid, self.credit(), CALL_MIDDLE, len(rpc) - at - size,
                              rpc[at:at + size]))
            at += size
        return out + [call(xid, self.credit(), rpc[at:], **chunks)]


def TwoCaller(**how):
    """A new `TwoConnection`; see `hostile_caller.Caller` for why this may take several attempts."""
    for _ in range(20):
        try:
            return TwoConnection(**how)
        except PyverbsRDMAError as x:
            if "Errno: 98" not in str(x):
                raise
        time.sleep(0.1)
    raise Refused("no local port")
