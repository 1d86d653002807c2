# SPDX-License-Identifier: GPL-2.0
"""A client in user space that speaks the draft of 2016 with a server, correctly unless told otherwise."""

import struct
import time

from common import Gone
from hostile_caller import Connection, Refused, XIDS, accepted
from pyverbs.pyverbs_error import PyverbsRDMAError
from rpcrdma2016_words import (ASK, ANSWERED, CALL, ERROR, INLINE, MSG, NOMSG, OPTIONAL, REPLY, TELL, TOLD,
                               is_like, octets, shown)


class Message:
    """A message from the server."""

    def __init__(self, data):
        self.data, self.invalidated = bytes(data), data.invalidated
        self.xid, self.vers, self.credit, self.proc = struct.unpack_from(">IIII", data)

    @property
    def rpc(self):
        """The RPC message of a Reply without chunks, or with one Write chunk in its list."""
        at = 24
        while struct.unpack_from(">I", self.data, at)[0]:
            at += 8 + 16 * struct.unpack_from(">I", self.data, at + 4)[0]
        at += 4
        if struct.unpack_from(">I", self.data, at)[0]:
            at += 4 + 16 * struct.unpack_from(">I", self.data, at + 4)[0]
        return self.data[at + 4:]

    @property
    def kind(self):
        """What it is, as far as an RPC is concerned."""
        if self.proc == ERROR:
            return f"error {struct.unpack_from('>I', self.data, 16)[0]}"
        if self.proc == OPTIONAL:
            return "an OPTIONAL message"
        if self.proc not in (MSG, NOMSG) or struct.unpack_from(">II", self.data, 16) != (1, 0):
            return f"a wrong Reply: {shown(self.data[:32])}"
        return "reply"

    def accepted(self):
        """The accept_stat and the results of a Reply."""
        return accepted(self.rpc)


class EarlierConnection(Connection):
    """A connection that speaks this protocol."""

    def __init__(self, **how):
        super().__init__(**how)
        #: The longest message that the server may send, and what it has done wrong.
        self.longest, self.wrong = INLINE, []
        #: Set when the server may send OPTIONAL messages that answer nothing.
        self.has_told = False

    def take(self):
        """Takes in what has arrived; raises `Gone` if the connection had ended behind that."""
        ended = self.note_end()
        self.poll()
        while self.arrived:
            data = self.arrived.pop(0)
            if len(data) < 20:
                self.wrong.append(f"a message of {len(data)} octets")
                continue
            if len(data) > self.longest:
                self.wrong.append(f"a message of {len(data)} octets, with {self.longest} allowed")
            message = Message(data)
            # draft-ietf-nfsv4-rpcrdma-bidirection-00, 2.1.2, and RFC 8166 in both directions.
            if not 1 <= message.credit <= 1024:
                self.wrong.append(f"{message.credit} credits: {shown(data)}")
            if message.vers == 2 and message.proc not in (MSG, NOMSG, ERROR, OPTIONAL):
                self.wrong.append(f"no message of this protocol: {shown(data)}")
            self.answers.append(message)
        if self.answers:
            self.granted = self.answers[-1].credit
        if ended:
            raise Gone(ended)

    def say(self, text, **names):
        """Sends a message of words; returns its transaction ID."""
        xid = next(XIDS)
        self.send_message(octets(text, xid, names))
        return xid

    def hear(self, xid, limit=10):
        """Waits for the messages with a transaction ID, of which there is one at least; returns the first, or nothing."""
        return self.answer(xid, limit)

    def said(self, xid):
        """All that has come with a transaction ID."""
        self.take()
        return [m for m in self.answers if m.xid == xid]

    def ask(self, text, expected, limit=10, **names):
        """Sends a message and returns whether the answer is the one that is expected, alone."""
        xid = self.say(text, **names)
        answer = self.hear(xid, limit)
        return answer is not None and is_like(answer.data, expected, xid)

    def null(self, limit=10):
        """Does a NULL Call; returns whether it was answered as it should be."""
        return self.ask(CALL, REPLY, limit)

    def barrier(self, limit=10):
        """Waits until all that was sent has been looked at; returns whether that was confirmed."""
        return self.ask(ASK, ANSWERED, limit)

    def open(self, text=TELL):
        """Tells properties and waits for those of the server."""
        xid = self.say(text)
        answer = self.hear(xid)
        if answer is None or not is_like(answer.data, TOLD, xid):
            raise Gone(f"no properties: {answer and shown(answer.data)}")
        self.has_told = True
        return self

    def request(self, xid, rpc, **lists):
        """Sends the Call of an RPC without chunks and waits for its answer."""
        assert not lists
        self.send_message(octets("X 2 20 0 0 0 0 0", xid) + rpc)
        return self.answer(xid, 20)


def EarlierCaller(**how):
    """A new `EarlierConnection`; see `hostile_caller.Caller` for why this may take several attempts."""
    for _ in range(20):
        try:
            return EarlierConnection(**how)
        except PyverbsRDMAError as x:
            if "Errno: 98" not in str(x):
                raise
        time.sleep(0.1)
    raise Refused("no local port")
