# SPDX-License-Identifier: GPL-2.0
"""The Version One transport header (RFC 8166, section 4), read and written.

Segments are triples (handle, length, offset), those of a Read list have the position in front.
"""

import struct

#: rdma_proc.
MSG, NOMSG, MSGP, DONE, ERROR = range(5)


class Header:
    """A received message: its transport header, and in `rpc` what follows."""

    def __init__(self, data):
        self.data = data
        self.at = 0
        self.xid, self.vers, self.credit, self.proc = self.words(4)
        self.reads, self.writes, self.reply = [], [], None
        #: What an RDMA_ERROR says: the code, and for ERR_VERS the lowest and the highest version.
        self.error = None
        if self.proc == ERROR:
            self.error = self.words((len(data) - self.at) // 4)
            self.rpc = b""
            return
        while self.words(1)[0]:
            position, handle, length = self.words(3)
            self.reads.append((position, handle, length, self.words(2)))
        self.reads = [(p, h, n, (o[0] << 32) | o[1]) for p, h, n, o in self.reads]
        while self.words(1)[0]:
            self.writes.append(self.segments())
        if self.words(1)[0]:
            self.reply = self.segments()
        self.rpc = data[self.at:]

    def words(self, n):
        """The next `n` words of the header."""
        out = struct.unpack_from(f">{n}I", self.data, self.at)
        self.at += 4 * n
        return out

    def segments(self):
        """A counted array of RDMA segments."""
        out = []
        for _ in range(self.words(1)[0]):
            handle, length, high, low = self.words(4)
            out.append((handle, length, (high << 32) | low))
        return out


def encode_segments(chunk):
    """A counted array of RDMA segments."""
    return struct.pack(">I", len(chunk)) + b"".join(
        struct.pack(">IIQ", h, n, o) for h, n, o in chunk)


def encode(xid, proc=MSG, vers=1, credit=32, reads=(), writes=(), reply=None):
    """A header with chunk lists."""
    out = struct.pack(">IIII", xid & 0xFFFFFFFF, vers, credit, proc)
    for position, handle, length, offset in reads:
        out += struct.pack(">IIIIQ", 1, position, handle, length, offset)
    out += struct.pack(">I", 0)
    for chunk in writes:
        out += struct.pack(">I", 1) + encode_segments(chunk)
    out += struct.pack(">I", 0)
    if reply is None:
        return out + struct.pack(">I", 0)
    return out + struct.pack(">I", 1) + encode_segments(reply)
