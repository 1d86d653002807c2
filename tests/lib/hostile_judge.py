# SPDX-License-Identifier: GPL-2.0
"""What RFC 8166 wants a Responder to do with a message: a second opinion, in few lines.

`nothing`: discard it silently, `vers`: RDMA_ERROR with ERR_VERS, `chunk`: with ERR_CHUNK,
`pass`: look at the RPC message and the peer's memory.
"""

import os
import struct

from rpcrdma_header import DONE, ERROR, MSG, NOMSG

#: More than any server takes in at a time.
TOO_LONG = 64 << 20
#: Whether the server speaks Version Two as well: of that a message has four words at least, and on
#: a connection that speaks Version One it is answered with ERR_VERS_MISMATCH.
TWO = os.environ.get("RPCRDMA_VERSION") != "1"


class Bad(Exception):
    """The header makes no sense."""


class Words:
    """XDR, read strictly."""

    def __init__(self, data, at):
        self.data, self.at = data, at

    def word(self):
        """The next word."""
        if self.at + 4 > len(self.data):
            raise Bad("cut")
        self.at += 4
        return struct.unpack_from(">I", self.data, self.at - 4)[0]

    def flag(self):
        """A word that is 0 or 1."""
        word = self.word()
        if word > 1:
            raise Bad("discriminator")
        return word

    def segment(self):
        """A segment; returns its length."""
        _, length, high, low = (self.word() for _ in range(4))
        if ((high << 32) | low) + length >= 1 << 64:
            raise Bad("offset")
        return length

    def chunk(self):
        """A counted array of segments; returns the sum of their lengths."""
        total = 0
        for _ in range(self.word()):
            total += self.segment()
        if total >= 1 << 32:
            raise Bad("length")
        return total


def judge(data):
    """What is to be done with a message."""
    if TWO and len(data) >= 16 and struct.unpack_from(">I", data, 4)[0] == 2:
        return "nothing" if struct.unpack_from(">I", data, 12)[0] == ERROR else "vers"
    # Section 4.5: nothing of a shorter one is to be looked at.
    if len(data) < 28:
        return "nothing"
    xid, vers, _, proc = struct.unpack_from(">IIII", data)
    # Section 4.2.4: only Responders send errors; the number is the same in all versions.
    if proc == ERROR:
        return "nothing"
    if vers != 1:
        return "vers"
    # Section 4.6.2.
    if proc == DONE:
        return "nothing"
    if proc not in (MSG, NOMSG):
        return "chunk"
    words = Words(data, 16)
    try:
        return lists(words, xid, proc)
    except Bad:
        return "chunk"


def lists(words, xid, proc):
    """The same, from the chunk lists on."""
    reads = []
    while words.flag():
        position = words.word()
        if position % 4:
            raise Bad("position")
        reads.append((position, words.segment()))
    if sum(n for _, n in reads) >= TOO_LONG:
        raise Bad("length")
    while words.flag():
        words.chunk()
    reply = words.chunk() if words.flag() else 0
    zero = [n for p, n in reads if p == 0]
    if proc == NOMSG:
        if words.at != len(words.data):
            raise Bad("something behind the header")
        if not reads and reply:
            # It is a Reply.
            return "nothing"
        if not sum(zero):
            raise Bad("no RPC message")
        inline = sum(zero)
    else:
        inline = len(words.data) - words.at
        rpc_xid, direction = words.word(), words.word()
        if direction == 1:
            return "nothing"
        if direction or rpc_xid != xid or zero:
            raise Bad("RPC message")
    # Section 3.4.5: positions are those of the message with everything in it.
    at = total = 0
    last = None
    for position, length in reads:
        if position == 0:
            continue
        if position != last:
            # The chunk before has ended, with its padding.
            at += total + -total % 4
            if position < at or position - at > inline:
                raise Bad("position")
            inline -= position - at
            at, total, last = position, 0, position
        total += length
    return "pass"
