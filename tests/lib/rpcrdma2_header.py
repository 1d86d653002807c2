# SPDX-License-Identifier: GPL-2.0
"""The Version Two transport header (draft-ietf-nfsv4-rpcrdma-version-two-07), read and written.

Segments are triples (handle, length, offset), those of a Read list have the position in front.
"""

import struct

from rpcrdma_header import encode_segments

#: rdma_htype.
(ERROR, GRANT, CONNPROP_MIDDLE, CONNPROP_FINAL, CALL_EXTERNAL, CALL_MIDDLE, CALL_INLINE,
 REPLY_EXTERNAL, REPLY_MIDDLE, REPLY_INLINE) = range(4, 14)
#: rdma_err.
(VERS, BAD_XDR, BAD_PROPVAL, INVAL_HTYPE, INVAL_CONT, READ_CHUNKS, WRITE_CHUNKS, SEGMENTS,
 WRITE_RESOURCE, REPLY_RESOURCE, VERS_MISMATCH) = range(1, 12)
SYSTEM = 100
#: Properties.
SEND_SIZE, RECEIVE_SIZE, SEGMENT_SIZE, SEGMENT_COUNT, REVERSE, HOST_AUTH = range(1, 7)
#: The size of messages before anything is agreed.
INLINE = 4096


def prefix(xid, credit, htype, vers=2):
    """What every message begins with."""
    return struct.pack(">IIII", xid & 0xFFFFFFFF, vers, credit & 0xFFFFFFFF, htype)


def read_list(reads):
    """A Read list, or a Call chunk."""
    return b"".join(struct.pack(">IIIIQ", 1, *r) for r in reads) + struct.pack(">I", 0)


def write_list(writes):
    """A Write list."""
    return b"".join(struct.pack(">I", 1) + encode_segments(c) for c in writes) + struct.pack(">I", 0)


def reply_chunk(reply):
    """A Reply chunk, or that there is none."""
    if reply is None:
        return struct.pack(">I", 0)
    return struct.pack(">I", 1) + encode_segments(reply)


def call(xid, credit, rpc, inv=0, reads=(), writes=(), reply=None):
    """CALL_INLINE."""
    return (prefix(xid, credit, CALL_INLINE) + struct.pack(">I", inv) + read_list(reads)
            + write_list(writes) + reply_chunk(reply) + rpc)


def call_external(xid, credit, chunk, inv=0, reads=(), writes=(), reply=None):
    """CALL_EXTERNAL."""
    zero = [(0, *segment) for segment in chunk]
    return (prefix(xid, credit, CALL_EXTERNAL) + struct.pack(">I", inv) + read_list(zero)
            + read_list(reads) + write_list(writes) + reply_chunk(reply))


def middle(xid, credit, htype, remaining, part):
    """CALL_MIDDLE or REPLY_MIDDLE."""
    return prefix(xid, credit, htype) + struct.pack(">I", remaining & 0xFFFFFFFF) + part


def reply(xid, credit, rpc, writes=()):
    """REPLY_INLINE."""
    return prefix(xid, credit, REPLY_INLINE) + write_list(writes) + rpc


def reply_external(xid, credit, chunk, writes=()):
    """REPLY_EXTERNAL."""
    return prefix(xid, credit, REPLY_EXTERNAL) + write_list(writes) + reply_chunk(chunk)


def error(xid, credit, *words):
    """ERROR with a code and what comes with it."""
    return prefix(xid, credit, ERROR) + struct.pack(f">{len(words)}I", *words)


def properties(credit, values=(), last=True, xid=0):
    """CONNPROP_FINAL or CONNPROP_MIDDLE with properties (code, value), values being octets or words."""
    out = prefix(xid, credit, CONNPROP_FINAL if last else CONNPROP_MIDDLE)
    out += struct.pack(">I", len(values))
    for which, value in values:
        value = struct.pack(">I", value) if isinstance(value, int) else value
        out += struct.pack(">II", which, len(value)) + value + bytes(-len(value) % 4)
    return out


class Header:
    """A received message: its transport header, and in `rpc` what follows."""

    def __init__(self, data):
        self.data, self.at = data, 0
        self.xid, self.vers, self.credit, self.htype = self.words(4)
        self.reads, self.writes, self.reply, self.chunk = [], [], None, []
        self.error = self.remaining = None
        self.inv, self.properties = 0, []
        if self.htype == ERROR:
            self.error = self.words((len(data) - self.at) // 4)
        elif self.htype in (CONNPROP_MIDDLE, CONNPROP_FINAL):
            for _ in range(self.words(1)[0]):
                which, length = self.words(2)
                self.properties.append((which, data[self.at:self.at + length]))
                self.at += length + -length % 4
        elif self.htype in (CALL_MIDDLE, REPLY_MIDDLE):
            self.remaining = self.words(1)[0]
        elif self.htype in (CALL_EXTERNAL, CALL_INLINE):
            self.inv = self.words(1)[0]
            if self.htype == CALL_EXTERNAL:
                self.chunk = [r[1:] for r in self.read_list()]
            self.reads = self.read_list()
            self.writes = self.write_list()
            self.reply = self.reply_chunk()
        elif self.htype in (REPLY_EXTERNAL, REPLY_INLINE):
            self.writes = self.write_list()
            if self.htype == REPLY_EXTERNAL:
                self.reply = self.reply_chunk()
        self.rpc = data[self.at:]

    def words(self, n):
        """The next `n` words of the header."""
        out = struct.unpack_from(f">{n}I", self.data, self.at)
        self.at += 4 * n
        return out

    def read_list(self):
        """A Read list."""
        out = []
        while self.words(1)[0]:
            position, handle, length, high, low = self.words(5)
            out.append((position, handle, length, (high << 32) | low))
        return out

    def write_list(self):
        """A Write list."""
        out = []
        while self.words(1)[0]:
            out.append(self.segments())
        return out

    def reply_chunk(self):
        """A Reply chunk, if there is one."""
        return self.segments() if self.words(1)[0] else None

    def segments(self):
        """A counted array of segments."""
        out = []
        for _ in range(self.words(1)[0]):
            handle, length, high, low = self.words(4)
            out.append((handle, length, (high << 32) | low))
        return out
