# SPDX-License-Identifier: GPL-2.0
"""A Reply of the hostile server, before it goes, and how a case gets to spoil it."""

import struct

from common import Gone
from rpcrdma_header import encode

#: Every case by name.
CASES = {}


class Case:
    """One case: what to do to which Reply, and what to expect."""

    def __init__(self, run, procedure, expect):
        self.run, self.procedure, self.expect = run, procedure, expect
        self.text = run.__doc__


def case(procedure, expect="any"):
    """Enters a function into `CASES`."""
    def enter(function):
        CASES[function.__name__] = Case(function, procedure, expect)
        return function
    return enter


class Reply:
    """A Version One Reply whose every field can be changed before it goes."""

    #: A message above this does not fit the client's Receive, before any
    #: private data says otherwise (RFC 8166, 3.3.2).
    INLINE = 1024

    def __init__(self, connection, call, answer):
        self.connection, self.call, self.answer = connection, call, answer
        self.xid, self.vers, self.credit, self.proc = call.xid, 1, 32, 0
        self.reads, self.writes, self.reply = [], [], None
        self.body = None

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
        if len(self.body) + self.header_size() > self.INLINE and self.call.reply:
            self.reply, _ = self.connection.fill(self.call.reply, self.body)
            self.proc, self.body = 1, b""
        return self

    def header_size(self):
        """Octets of the header with the present lists."""
        return 28 + sum(8 + 16 * len(c) for c in self.writes)

    def header(self):
        """The transport header."""
        return encode(self.xid, self.proc, self.vers, self.credit, self.reads, self.writes,
                      self.reply)

    def message(self):
        """The whole message."""
        self.prepare()
        return self.header() + self.body

    def send(self, data=None, invalidate=None):
        """Sends the message, or `data` in its place."""
        self.connection.credits.append(self.credit)
        self.connection.send_message(self.message() if data is None else data, invalidate)

    def raw_error(self, code, rest=b"", xid=None):
        """An RDMA_ERROR message."""
        self.send(struct.pack(">IIIII", self.xid if xid is None else xid, 1, self.credit, 4, code)
                  + rest)

    def note(self, text):
        """Something for the client's test to look at."""
        self.connection.server.notes.append(text)

    def refused(self, action):
        """Whether an RDMA operation on the client's memory is refused, which it should be."""
        try:
            action()
            # Under iWARP a Write is complete when TCP has it; that it was refused
            # shows when the client ends the connection.
            if not self.connection.in_order():
                raise Gone("the client has ended the connection")
        except Gone:
            self.note("refused")
            raise
        self.note("accepted")
