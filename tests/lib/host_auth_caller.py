# SPDX-License-Identifier: GPL-2.0
"""The example of host authentication (rust/proto/auth), from its description, in user space."""

import hmac
import os
import struct
import time

from common import Gone, watchdog
from hostile_caller import XIDS
from hostile_two_caller import TwoCaller
from rpc_message import null_rpc
from rpcrdma2_header import CONNPROP_FINAL, CONNPROP_MIDDLE, HOST_AUTH, call, properties

LABEL = b"rpcrdma example of host authentication with a shared key, 1"
HELLO, CHALLENGE, RESPONSE = 1, 2, 3
#: What the server says to whom it refuses.
REFUSAL = b"RPRX\0\0\0\0"


def item(data):
    """A variable-length item of XDR."""
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def token(kind, body=b"", fill=0):
    """A token of one kind."""
    body = struct.pack(">I", kind) + body + bytes(fill)
    return b"RPRX" + struct.pack(">I", len(body)) + body


class Prover:
    """One client connection and what it says about itself."""

    def __init__(self, key, **how):
        self.key, self.nonce = key, os.urandom(32)
        self.connection = TwoCaller(**how)
        #: What the server has said that is not part of a token yet.
        self.heard = b""

    def proof(self, role, server_nonce, client=None, server=None):
        """The MAC of one end."""
        signed = b"".join(item(data) for data in (
            LABEL, role, self.nonce, server_nonce,
            (client or os.environ["OWN_ADDR"]).encode(),
            (server or os.environ["PEER_ADDR"]).encode()))
        return hmac.digest(self.key, signed, "sha256")

    def tell(self, material=None, last=False, politely=True):
        """Sends one CONNPROP message."""
        values = [] if material is None else [(HOST_AUTH, item(material))]
        message = properties(self.connection.credit(), values, last=last)
        post = self.connection.post_politely if politely else self.connection.post_message
        post(message)

    def tell_in_pieces(self, material, size, last=False):
        """Sends material in several messages."""
        for at in range(0, len(material), size):
            self.tell(material[at:at + size], last and at + size >= len(material))

    def hear(self, limit=10):
        """The next token of the server; nothing if it says that there are no more. Raises `Gone`."""
        deadline = time.monotonic() + limit * watchdog()
        while True:
            while self.connection.answers:
                header = self.connection.answers.pop(0).header
                if header.htype not in (CONNPROP_MIDDLE, CONNPROP_FINAL):
                    continue
                for which, value in header.properties:
                    if which == HOST_AUTH:
                        self.heard += value[4:4 + struct.unpack_from(">I", value)[0]]
                if len(self.heard) >= 8:
                    length = 8 + struct.unpack_from(">I", self.heard, 4)[0]
                    if len(self.heard) >= length:
                        out, self.heard = self.heard[:length], self.heard[length:]
                        return out
                if header.htype == CONNPROP_FINAL:
                    return None
            if time.monotonic() > deadline:
                raise TimeoutError("the server says nothing")
            try:
                self.connection.take()
            except Gone:
                # What has arrived before counts.
                if not self.connection.answers:
                    raise
            time.sleep(0.0005)

    def challenged(self, size=None, fill=0):
        """Says hello; returns the server's nonce and its proof."""
        hello = token(HELLO, self.nonce, fill)
        self.tell_in_pieces(hello, size or len(hello))
        challenge = self.hear()
        assert challenge[:4] == b"RPRX" and challenge[8:12] == struct.pack(">I", CHALLENGE), challenge
        return challenge[12:44], challenge[44:76]

    def null(self):
        """Whether a NULL Call is answered."""
        try:
            return self.connection.null()
        except Gone:
            return False

    def call_at_once(self):
        """A Call without all that; whether it is answered."""
        try:
            xid = next(XIDS)
            self.connection.post_message(call(xid, self.connection.credit(), null_rpc(xid)))
            return self.connection.answer(xid, 3) is not None
        except Gone:
            return False

    def outcome(self):
        """How it ends: `accepted`, `refused` with the server's word for it, `lost` without."""
        try:
            said = self.hear()
            while said and said[8:12] == struct.pack(">I", CHALLENGE):
                said = self.hear()
        except Gone:
            return "lost"
        if said == REFUSAL:
            return "answers a refused client" if self.null() else "refused"
        return "accepted" if said is None and self.null() else f"a surprise: {said}"

    def close(self):
        """Ends it."""
        self.connection.close()
