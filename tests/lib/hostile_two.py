# SPDX-License-Identifier: GPL-2.0
"""What the hostile server does in Version Two: correct Replies, and what a case gets to spoil."""

import struct
import time

from common import slowness
from rpcrdma2_header import (CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, CONNPROP_FINAL,
                             CONNPROP_MIDDLE, ERROR, GRANT, Header, INLINE, REPLY_MIDDLE,
                             SEGMENT_COUNT, SEGMENT_SIZE, error, middle, prefix, properties, reply,
                             reply_external)

#: How many messages the client may have on their way to us, if a case wants nothing else.
WINDOW = 32
#: Cases about Replies by name, see `hostile_reply`; and those about the first message of a
#: connection, which get the connection and return whether it goes on as a correct one.
CASES, FIRST = {}, {}


class Case:
    """One case: what to do to which Reply, and what to expect."""

    def __init__(self, run, procedure, expect, version=None):
        self.run, self.procedure, self.expect = run, procedure, expect
        #: What is spoken afterwards, of a case about the first message that ends well.
        self.version = version
        self.text = run.__doc__


def case(procedure, expect="any"):
    """Enters a function into `CASES`."""
    def enter(function):
        CASES[function.__name__] = Case(function, procedure, expect)
        return function
    return enter


def first(expect="any", version=None):
    """Enters a function into `FIRST`: the mount works and speaks `version`, or fails with the error `expect`."""
    def enter(function):
        FIRST[function.__name__] = Case(function, "", expect, version)
        return function
    return enter


class Reply:
    """A Version Two Reply whose every field can be changed before it goes."""

    def __init__(self, connection, call, answer):
        self.connection, self.call, self.answer = connection, call, answer
        self.xid, self.writes, self.chunk, self.body = call.xid, [], None, None

    @property
    def credit(self):
        """The credit value that a correct message has now."""
        return self.connection.two.credit()

    def prepare(self):
        """Moves the payload as a correct server would, and fills the fields."""
        if self.body is not None:
            return self
        if self.answer.payload is not None and self.call.writes:
            used, _ = self.connection.fill(self.call.writes[0], self.answer.payload)
            self.writes = [used]
            self.body = self.answer.head
        else:
            self.body = self.answer.inline()
            self.writes = [[(h, 0, o) for h, _, o in chunk] for chunk in self.call.writes]
        if len(reply(0, 0, self.body, self.writes)) > INLINE and self.call.reply:
            self.chunk, _ = self.connection.fill(self.call.reply, self.body)
            self.body = b""
        return self

    def parts(self, size=INLINE - 20):
        """The messages of the Reply: one, or as many as it takes."""
        self.prepare()
        if self.chunk is not None:
            return [reply_external(self.xid, self.credit, self.chunk, self.writes)]
        out, rest = [], self.body
        while len(reply(0, 0, rest, self.writes)) > INLINE or (size < INLINE - 20 and len(rest) > size):
            part, rest = rest[:size & ~3], rest[size & ~3:]
            out.append(middle(self.xid, self.credit, REPLY_MIDDLE, len(rest), part))
        return out + [reply(self.xid, self.credit, rest, self.writes)]

    def send(self, *messages, invalidate=None):
        """Sends the Reply, or `messages` in its place."""
        for message in messages or self.parts():
            self.connection.send_message(message, invalidate)
            self.connection.two.sent += 1

    def error(self, *words, xid=None):
        """Sends an ERROR in place of the Reply."""
        self.send(error(self.xid if xid is None else xid, self.credit, *words))

    def note(self, text):
        """Something for the client's test to look at."""
        self.connection.server.notes.append(text)


class Two:
    """The state of a connection that speaks Version Two."""

    def __init__(self, connection):
        self.connection = connection
        self.received = self.sent = 0
        #: The parts of a Call that have come, and its transaction ID.
        self.parts, self.begun = b"", 0
        #: How many octets of it are to come, as it was said.
        self.rest = None
        #: The longest segment that the client may use, and how many in a header.
        self.segment_size, self.segment_count = 1 << 20, 16
        #: What the client has told in its latest credit value: how many messages we may have sent.
        self.limit = 1
        #: How many messages the client may have on their way to us.
        self.window = WINDOW
        #: From when on no message may come, if it was told so.
        self.silent = None
        #: When a GRANT is due, before which no Call may come, if it was told so.
        self.grant_due = None
        #: The longest message that the client may send, once it was told so, and what answers each Call in place of us.
        self.room, self.watch = INLINE, None
        #: Whether the client was answered in Version Two, which it has to stay with.
        self.spoken = False

    def credit(self):
        """The credit value of the next message."""
        return self.received + self.window

    def tell(self, message):
        """The client has to obey the properties in a message, if there are any in it."""
        try:
            header = Header(message)
        except struct.error:
            return
        told = {which: struct.unpack(">I", value)[0] for which, value in header.properties if len(value) == 4}
        self.segment_size = told.get(SEGMENT_SIZE, self.segment_size)
        self.segment_count = told.get(SEGMENT_COUNT, self.segment_count)

    def expect_silence(self):
        """The client may send nothing any more. What is on its way has a while to arrive."""
        self.silent = time.monotonic() + slowness()

    def put_off(self, seconds):
        """The client may send no Call before a GRANT, which it gets so much later."""
        self.grant_due = time.monotonic() + seconds

    def idle(self):
        """Sends the GRANT that was put off, when it is due."""
        if self.grant_due and time.monotonic() > self.grant_due:
            self.grant_due = None
            self.connection.send_message(prefix(0, self.credit(), GRANT))

    def inspect(self, data, header):
        """Looks for what a Requester must not do in Version Two; no case lets it."""
        wrong = self.connection.wrong
        if self.received == 1:
            # Section 4.3. If there is a second message before our answer, it is on its way.
            if len(data) > 1024:
                wrong(f"a first message of {len(data)} octets")
            time.sleep(0.02)
            self.connection.poll()
            if self.connection.arrived:
                wrong("a second message before ours")
        elif len(data) > self.room:
            # Section 5.2.2.
            wrong(f"a message of {len(data)} octets, not of {self.room}")
        segments = header.chunk + [r[1:] for r in header.reads] + sum(header.writes, header.reply or [])
        if len(segments) > self.segment_count:
            # Section 5.2.4.
            wrong(f"{len(segments)} segments, not {self.segment_count}")
        if any(length > self.segment_size for _, length, _ in segments):
            # Section 5.2.3.
            wrong(f"segments of {[length for _, length, _ in segments]}, not of {self.segment_size}")
        handles = [h for h, _, _ in segments]
        if header.inv and header.inv not in handles:
            # Section 6.5.
            wrong(f"the handle {header.inv:#x} is none of {handles}")
        early = self.grant_due and header.htype in (CALL_INLINE, CALL_MIDDLE, CALL_EXTERNAL)
        if early or (self.silent and time.monotonic() > self.silent):
            wrong(f"header type {header.htype}, for which there is no credit")
        # Section 4.2.1: what was promised stays promised. Errors may be those of a client that speaks another version.
        if header.htype != ERROR and (header.credit - self.limit) & 0xFFFFFFFF >= 1 << 31:
            wrong(f"the limit goes back from {self.limit} to {header.credit}")
        self.limit = header.credit
        if self.parts and (header.htype not in (CALL_MIDDLE, CALL_INLINE) or header.xid != self.begun):
            wrong(f"header type {header.htype} of {header.xid:#x} between parts of {self.begun:#x}")
        if header.htype in (CALL_MIDDLE, CALL_INLINE):
            # Section 6.3.6.
            rest = len(header.rpc) + (header.remaining or 0)
            if self.rest not in (None, rest):
                wrong(f"{rest} octets remained, not {self.rest}")
            self.rest = header.remaining

    def handle(self, data):
        """Handles a message of Version Two."""
        self.received += 1
        header = Header(data)
        self.inspect(data, header)
        server = self.connection.server
        # So begins a client that authenticates itself.
        begun = header.htype == CONNPROP_MIDDLE and server.first
        if header.htype == CONNPROP_FINAL or begun:
            if not self.answer_properties():
                return
        elif header.htype == CALL_MIDDLE:
            self.parts, self.begun = self.parts + header.rpc, header.xid
        elif header.htype in (CALL_INLINE, CALL_EXTERNAL):
            if self.parts:
                server.notes.append("call in parts")
                if header.reads:
                    server.notes.append("call in parts and a read chunk")
            rpc, self.parts = self.parts + header.rpc, b""
            self.call(header, rpc)
        elif header.error:
            server.notes.append(f"error {' '.join(map(str, header.error))}")
        self.renew()

    def answer_properties(self):
        """Answers the client's properties. Returns whether this goes on as a correct connection."""
        server = self.connection.server
        if server.first:
            server.hits += 1
            if not FIRST[server.first].run(self.connection):
                return False
        self.connection.send_message(properties(self.credit()))
        self.sent += 1
        self.spoken = True
        return True

    def renew(self):
        """Sends a GRANT if credits are due."""
        held_back = self.silent or self.grant_due or self.window < 2
        if not held_back and self.received % (self.window // 2) == 0:
            self.connection.send_message(prefix(0, self.credit(), GRANT))

    def call(self, header, rpc):
        """Answers a Call."""
        connection = self.connection
        server = connection.server
        if header.htype == CALL_EXTERNAL:
            rpc = b"".join(connection.rdma_read(h, o, n) for h, n, o in header.chunk)
            server.notes.append("call chunk")
        rpc = bytearray(rpc)
        for position in sorted({r[0] for r in header.reads}):
            payload = b"".join(connection.rdma_read(h, o, n)
                               for p, h, n, o in header.reads if p == position)
            # Sections 4.5.3 and 4.5.3.1: one data item, without padding. Its length is before it.
            before = rpc[max(position - 4, 0):position]
            if before != struct.pack(">I", len(payload)):
                connection.wrong(f"a Read chunk of {len(payload)} octets behind {before.hex()}")
            rpc[position:position] = payload + bytes(-len(payload) % 4)
        if struct.unpack_from(">I", rpc)[0] != header.xid:
            # Sections 6.3.5 and 6.3.6.
            connection.wrong(f"Call {rpc[:4].hex()} in a message of {header.xid:#x}")
            return
        answer = server.nfs.answer(bytes(rpc))
        if answer is None:
            return
        if misfit := answer.misfit(header.writes):
            connection.wrong(misfit)
        name, procedure = server.case
        out = Reply(connection, header, answer)
        if self.watch:
            self.watch(out)
        elif name and answer.procedure == procedure:
            with server.lock:
                server.hits += 1
                CASES[name].run(out)
        else:
            out.send()
