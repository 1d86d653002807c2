# SPDX-License-Identifier: GPL-2.0
"""What the hostile server can do wrong.

Each case is a function that gets a `Reply`, prepared as a correct server would
send it but not yet sent, and spoils it. Its decorator names the procedure whose
Reply it spoils, and what the client's system call may then do:

`error`  it must fail,
`ok`     it must succeed with the right data,
`any`    it may fail, or succeed with the right data.

Nothing may hang beyond a bound in any of them.
"""

import struct
import time

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
        out = struct.pack(">IIII", self.xid & 0xFFFFFFFF, self.vers, self.credit, self.proc)
        for position, handle, length, offset in self.reads:
            out += struct.pack(">IIIIQ", 1, position, handle, length, offset)
        out += struct.pack(">I", 0)
        for chunk in self.writes:
            out += struct.pack(">I", 1) + self.segments(chunk)
        out += struct.pack(">I", 0)
        if self.reply is None:
            return out + struct.pack(">I", 0)
        return out + struct.pack(">I", 1) + self.segments(self.reply)

    @staticmethod
    def segments(chunk):
        """A counted array of RDMA segments."""
        return struct.pack(">I", len(chunk)) + b"".join(
            struct.pack(">IIQ", h, n, o) for h, n, o in chunk)

    def message(self):
        """The whole message."""
        self.prepare()
        return self.header() + self.body

    def send(self, data=None, invalidate=None):
        """Sends the message, or `data` in its place."""
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
        from hostile_server import Gone
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


# ---- Whole messages -----------------------------------------------------


@case("GETATTR", "ok")
def correct(r):
    """A correct Reply, to see that the server works."""
    r.send()


def runt(length):
    """A case that sends only the first octets of the Reply."""
    def cut(r):
        r.send(r.message()[:length])
    cut.__name__ = f"cut_at_{length}"
    cut.__doc__ = f"Only the first {length} octets of the Reply."
    case("GETATTR", "error")(cut)


for n in (0, 1, 4, 12, 15, 16, 18, 20, 24, 27, 28, 29, 32, 36, 44, 51, 60):
    runt(n)


def version(number):
    """A case with another version number."""
    def other(r):
        r.vers = number
        r.send()
    other.__name__ = f"version_{number}"
    other.__doc__ = f"The Reply claims version {number}."
    case("GETATTR", "error")(other)


for n in (0, 2, 9, 0xFFFFFFFF):
    version(n)


def procedure(number):
    """A case with another header type."""
    def other(r):
        r.prepare().proc = number
        r.send()
    other.__name__ = f"proc_{number}"
    other.__doc__ = f"A Reply with header type {number}."
    case("GETATTR", "error")(other)


for n in (1, 2, 3, 4, 5, 0xFFFFFFFF):
    procedure(n)


@case("GETATTR", "error")
def xid_wrong(r):
    """Another XID in the transport header and in the RPC header."""
    r.prepare().xid ^= 0x5A5A0000
    r.body = struct.pack(">I", r.xid) + r.body[4:]
    r.send()


@case("GETATTR")
def xid_header_differs(r):
    """The transport header's XID is not the RPC header's."""
    r.prepare().xid ^= 0x5A5A0000
    r.send()


@case("GETATTR")
def xid_body_differs(r):
    """The RPC header's XID is not the transport header's."""
    r.prepare()
    r.body = struct.pack(">I", r.xid ^ 0x5A5A0000) + r.body[4:]
    r.send()


@case("GETATTR")
def credits_none(r):
    """A grant of no credits."""
    r.credit = 0
    r.send()


@case("GETATTR", "ok")
def credits_all(r):
    """A grant of 2^32 - 1 credits."""
    r.credit = 0xFFFFFFFF
    r.send()


@case("GETATTR", "ok")
def duplicate(r):
    """The same Reply twice."""
    r.send()
    r.send()


@case("GETATTR")
def duplicate_many(r):
    """The same Reply a hundred times."""
    for _ in range(100):
        r.send()


@case("READ")
def duplicate_read(r):
    """The same Reply twice, for a READ whose regions are gone after the first."""
    r.send()
    r.send()


@case("GETATTR")
def unsolicited(r):
    """Thirty Replies that nobody asked for, then the right one."""
    message = bytearray(r.message())
    for i in range(30):
        struct.pack_into(">I", message, 0, r.xid + 1000 + i)
        struct.pack_into(">I", message, 28, r.xid + 1000 + i)
        r.send(message)
    r.send()


@case("GETATTR")
def yesterday(r):
    """The Reply of the Call before, then the right one."""
    message = r.message()
    before, r.connection.last_reply = r.connection.last_reply, message
    if before:
        r.send(before)
    r.send()


@case("GETATTR", "error")
def oversized(r):
    """A message larger than any Receive buffer the client has offered."""
    r.send(r.message() + bytes(70_000))


@case("GETATTR")
def trailing(r):
    """A hundred octets too many at the end."""
    r.send(r.message() + b"\xA5" * 100)


@case("GETATTR", "error")
def closed(r):
    """No Reply: the connection is closed."""
    from hostile_server import Gone
    raise Gone("as the case wants")


@case("GETATTR", "error")
def silence(_r):
    """No Reply at all."""


@case("GETATTR")
def late(r):
    """The Reply comes after the client has given up waiting."""
    time.sleep(3.5)
    r.send()


@case("GETATTR")
def invalidate_foreign(r):
    """Send With Invalidate of a handle the client never offered."""
    r.send(invalidate=0xDEAD_BE00)


@case("GETATTR")
def invalidate_zero(r):
    """Send With Invalidate of handle 0."""
    r.send(invalidate=0)


# ---- RDMA_ERROR ---------------------------------------------------------


@case("GETATTR", "error")
def error_vers(r):
    """RDMA_ERROR: version not supported, 1 to 1 is."""
    r.raw_error(1, struct.pack(">II", 1, 1))


@case("GETATTR", "error")
def error_vers_2(r):
    """RDMA_ERROR: version not supported, only 2 is."""
    r.raw_error(1, struct.pack(">II", 2, 2))


@case("GETATTR", "error")
def error_vers_cut(r):
    """RDMA_ERROR ERR_VERS without its versions."""
    r.raw_error(1)


@case("GETATTR", "error")
def error_chunk(r):
    """RDMA_ERROR: bad chunks."""
    r.raw_error(2)


@case("READ", "error")
def error_chunk_read(r):
    """RDMA_ERROR: bad chunks, for a READ with registered memory."""
    r.raw_error(2)


@case("WRITE", "error")
def error_chunk_write(r):
    """RDMA_ERROR: bad chunks, for a WRITE with registered memory."""
    r.raw_error(2)


@case("GETATTR", "error")
def error_unknown(r):
    """RDMA_ERROR with an unknown code."""
    r.raw_error(77)


@case("GETATTR", "error")
def error_cut(r):
    """RDMA_ERROR without a code."""
    r.send(struct.pack(">IIII", r.xid, 1, 32, 4))


@case("GETATTR", "error")
def error_other_xid(r):
    """RDMA_ERROR for an XID that was never used."""
    r.raw_error(2, xid=r.xid ^ 0x77770000)


@case("GETATTR")
def error_and_reply(r):
    """RDMA_ERROR, and then the Reply."""
    r.raw_error(2)
    r.send()


# ---- Chunk lists where none belong ----------------------------------------


@case("GETATTR")
def read_list(r):
    """A Reply with a Read list."""
    r.reads = [(4, 0x1234, 64, 0x1000)]
    r.send()


@case("READ")
def read_list_of_read(r):
    """A Read list in the Reply to a READ, with the client's own handle."""
    r.prepare()
    h, n, o = r.writes[0][0]
    r.reads = [(4, h, n, o), (4, h, n, o)]
    r.send()


@case("GETATTR", "error")
def read_list_endless(r):
    """A Read list that does not end within the message."""
    r.reads = [(4, i, 64, 0) for i in range(30)]
    r.send(r.message()[:16 + 30 * 24])


@case("GETATTR")
def write_list_unsolicited(r):
    """A Write chunk although none was offered."""
    r.prepare().writes = [[(0x1234, 4096, 0x10000)]]
    r.send()


@case("GETATTR", "error")
def write_list_huge(r):
    """A Write chunk of 2^32 - 1 segments."""
    m = r.message()
    r.send(m[:20] + struct.pack(">II", 1, 0xFFFFFFFF) + m[28:])


@case("GETATTR", "error")
def write_list_endless(r):
    """Forty Write chunks, and the message ends within them."""
    r.prepare().writes = [[(1, 1, 1)]] * 40
    r.send(r.header()[:20 + 40 * 24])


@case("GETATTR", "error")
def reply_chunk_unsolicited(r):
    """RDMA_NOMSG with a Reply chunk although none was offered."""
    r.prepare()
    r.proc, r.reply, r.body = 1, [(0x1234, 112, 0x10000)], b""
    r.send()


@case("GETATTR")
def reply_chunk_with_body(r):
    """RDMA_MSG with a Reply chunk and a body."""
    r.prepare().reply = [(0x1234, 112, 0x10000)]
    r.send()


@case("GETATTR", "error")
def reply_chunk_huge(r):
    """RDMA_NOMSG whose Reply chunk has 2^32 - 1 segments."""
    r.prepare()
    r.send(struct.pack(">IIIIIIII", r.xid, 1, 32, 1, 0, 0, 1, 0xFFFFFFFF))


@case("GETATTR", "error")
def nomsg_empty(r):
    """RDMA_NOMSG without a Reply chunk."""
    r.prepare()
    r.proc, r.body = 1, b""
    r.send()


@case("GETATTR")
def discriminator(r):
    """A list whose presence word is neither 0 nor 1."""
    m = bytearray(r.message())
    struct.pack_into(">I", m, 20, 2)
    r.send(m)


# ---- RPC ------------------------------------------------------------------


@case("GETATTR", "error")
def rpc_garbage(r):
    """The RPC message is noise."""
    r.prepare()
    r.body = struct.pack(">I", r.xid) + bytes(range(7, 207))
    r.send()


@case("GETATTR", "error")
def rpc_call(r):
    """A Call in place of the Reply: version 3 knows no reverse direction."""
    r.prepare()
    r.body = struct.pack(">IIIIIIIIII", r.xid, 0, 2, 0x40000000, 1, 0, 0, 0, 0, 0)
    r.send()


@case("GETATTR")
def rpc_call_flood(r):
    """Forty Calls in the reverse direction, then the Reply."""
    message = r.message()
    for i in range(40):
        r.send(struct.pack(">IIIIIII", i, 1, 32, 0, 0, 0, 0)
               + struct.pack(">IIIIIIIIII", i, 0, 2, 0x40000000, 1, 0, 0, 0, 0, 0))
    r.send(message)


@case("GETATTR", "error")
def rpc_rejected(r):
    """MSG_DENIED, AUTH_ERROR."""
    r.prepare()
    r.body = struct.pack(">IIIII", r.xid, 1, 1, 1, 5)
    r.send()


@case("GETATTR", "error")
def rpc_system_error(r):
    """SYSTEM_ERR."""
    r.prepare()
    r.body = struct.pack(">IIIIII", r.xid, 1, 0, 0, 0, 5)
    r.send()


@case("GETATTR", "error")
def rpc_results_cut(r):
    """The results end in the middle of the attributes."""
    r.prepare()
    r.body = r.body[:60]
    r.send()


@case("GETATTR", "error")
def rpc_verifier_huge(r):
    """A verifier that claims 2^32 - 4 octets."""
    r.prepare()
    r.body = r.body[:16] + struct.pack(">I", 0xFFFFFFFC) + r.body[20:]
    r.send()


# ---- Write chunks: READ -----------------------------------------------------


@case("READ", "ok")
def read_correct(r):
    """A correct READ."""
    r.send()


@case("READ", "error")
def write_chunk_missing(r):
    """The payload is written, but the Write list is empty."""
    r.prepare().writes = []
    r.send()


@case("READ", "error")
def write_chunk_none_used(r):
    """The results promise octets that were never written, the chunk's length is 0."""
    r.prepare()
    r.writes = [[(h, 0, o) for h, _, o in r.writes[0]]]
    r.send()


@case("READ", "error")
def write_chunk_no_segments(r):
    """The Write chunk comes back without segments."""
    r.prepare().writes = [[]]
    r.send()


@case("READ")
def write_chunk_more_segments(r):
    """One segment more than was offered."""
    r.prepare()
    r.writes = [r.writes[0] + [r.writes[0][-1]]]
    r.send()


@case("READ")
def write_chunk_many_segments(r):
    """Fifty segments, each as long as the offered one."""
    r.prepare()
    r.writes = [[r.call.writes[0][0]] * 50]
    r.send()


@case("READ")
def write_chunk_longer(r):
    """A segment longer than was offered."""
    r.prepare()
    h, n, o = r.writes[0][-1]
    r.writes[0][-1] = (h, n + 0x10000, o)
    r.send()


@case("READ")
def write_chunk_longest(r):
    """Every segment claims 2^32 - 1 octets: their sum overflows."""
    r.prepare()
    r.writes = [[(h, 0xFFFFFFFF, o) for h, _, o in r.writes[0]]]
    r.send()


@case("READ")
def write_chunk_shorter(r):
    """The chunk is shorter than the results say."""
    r.prepare()
    h, n, o = r.writes[0][-1]
    r.writes[0][-1] = (h, max(n - 1000, 0), o)
    r.send()


@case("READ")
def write_chunk_other_handle(r):
    """The chunk comes back with another handle."""
    r.prepare()
    r.writes = [[(h ^ 0x1234, n, o) for h, n, o in r.writes[0]]]
    r.send()


@case("READ")
def write_chunk_other_offset(r):
    """The chunk comes back with another offset."""
    r.prepare()
    r.writes = [[(h, n, o + 4096) for h, n, o in r.writes[0]]]
    r.send()


@case("READ")
def write_chunk_twice(r):
    """Two Write chunks where one was offered."""
    r.prepare()
    r.writes = r.writes * 2
    r.send()


@case("READ")
def write_and_reply_chunk(r):
    """A Write list and a Reply chunk, the latter never offered."""
    r.prepare().reply = [(0x1234, 200, 0x1000)]
    r.send()


@case("READ", "error")
def write_and_nomsg(r):
    """RDMA_NOMSG with the used Write chunk and no Reply chunk."""
    r.prepare()
    r.proc, r.body = 1, b""
    r.send()


@case("READ", "error")
def read_count_huge(r):
    """The results claim 2^32 - 1 octets."""
    r.prepare()
    r.body = r.body[:-12] + struct.pack(">III", 0xFFFFFFFF, 1, 0xFFFFFFFF)
    r.send()


@case("READ", "error")
def read_status(r):
    """NFS3ERR_IO, and the Write chunk comes back used."""
    r.prepare()
    r.body = r.body[:24] + struct.pack(">II", 5, 0)
    r.send()


@case("READ")
def read_inline(r):
    """The payload comes inline although a Write chunk was offered, cut to what fits."""
    r.writes = [[(h, 0, o) for h, _, o in c] for c in r.call.writes]
    r.body = r.answer.head + r.answer.payload[:400]
    r.send()


@case("READ", "ok")
def rdma_write_offered(r):
    """RDMA Write into what was offered, before the Reply: it is accepted.

    This one shows that the others, which must be refused, can tell the difference.
    """
    r.prepare()
    h, n, o = r.call.writes[0][0]
    data = r.answer.payload[:min(n, 4096)]
    r.refused(lambda: r.connection.rdma_write(h, o, data))
    r.send()


@case("READ", "error")
def rdma_write_beyond(r):
    """RDMA Write beyond the end of what was offered."""
    h, n, o = r.call.writes[0][-1]
    r.refused(lambda: r.connection.rdma_write(h, o + n, b"\xEE" * 4096))


@case("READ", "error")
def rdma_write_foreign(r):
    """RDMA Write with a handle that was never offered."""
    _, _, o = r.call.writes[0][0]
    r.refused(lambda: r.connection.rdma_write(0xDEAD_BE00, o, b"\xEE" * 4096))


@case("READ")
def rdma_write_late(r):
    """RDMA Write into the chunk after the Reply: the region must be fenced by then."""
    r.send()
    h, n, o = r.call.writes[0][0]
    time.sleep(0.5)
    r.refused(lambda: r.connection.rdma_write(h, o, b"\xEE" * min(n, 4096)))


@case("READ")
def invalidate_own(r):
    """Send With Invalidate of the chunk's handle, which was not negotiated."""
    r.send(invalidate=r.call.writes[0][0][0])


@case("READ")
def invalidate_and_late(r):
    """The same, and an RDMA Write afterwards."""
    r.send(invalidate=r.call.writes[0][0][0])
    h, n, o = r.call.writes[0][0]
    time.sleep(0.5)
    r.refused(lambda: r.connection.rdma_write(h, o, b"\xEE" * min(n, 4096)))


# ---- Reply chunks: READDIR ----------------------------------------------------


@case("READDIR", "ok")
def readdir_correct(r):
    """A correct READDIR through the Reply chunk."""
    r.send()


@case("READDIR", "error")
def reply_chunk_missing(r):
    """RDMA_NOMSG, the Reply is written, but the chunk does not come back."""
    r.prepare().reply = None
    r.send()


@case("READDIR", "error")
def reply_chunk_no_segments(r):
    """The Reply chunk comes back without segments."""
    r.prepare().reply = []
    r.send()


@case("READDIR", "error")
def reply_chunk_zero(r):
    """The Reply chunk comes back with length 0."""
    r.prepare().reply = [(h, 0, o) for h, _, o in r.reply]
    r.send()


@case("READDIR", "error")
def reply_chunk_short(r):
    """The Reply chunk comes back with 24 octets."""
    r.prepare().reply = [(h, 24, o) for h, _, o in r.reply[:1]]
    r.send()


@case("READDIR")
def reply_chunk_longer(r):
    """The Reply chunk comes back longer than was offered."""
    r.prepare()
    r.reply = [(h, n + 0x100000, o) for h, n, o in r.call.reply]
    r.send()


@case("READDIR")
def reply_chunk_longest(r):
    """Every segment of the Reply chunk claims 2^32 - 1 octets."""
    r.prepare()
    r.reply = [(h, 0xFFFFFFFF, o) for h, _, o in r.call.reply] * 2
    r.send()


@case("READDIR")
def reply_chunk_more_segments(r):
    """The Reply chunk comes back with more segments than were offered."""
    r.prepare()
    r.reply = r.reply + [r.reply[-1]] * 3
    r.send()


@case("READDIR")
def reply_chunk_other_handle(r):
    """The Reply chunk comes back with another handle."""
    r.prepare().reply = [(h ^ 0x77, n, o) for h, n, o in r.reply]
    r.send()


@case("READDIR")
def reply_chunk_and_body(r):
    """RDMA_MSG with a body and the used Reply chunk."""
    r.prepare()
    r.proc, r.body = 0, r.answer.inline()[:600]
    r.send()


@case("READDIR", "error")
def reply_chunk_garbage(r):
    """The Reply chunk holds noise."""
    r.prepare()
    h, n, o = r.call.reply[0]
    r.connection.rdma_write(h, o, bytes(range(256)) * 8)
    r.send()


@case("READDIR", "error")
def rdma_write_beyond_reply(r):
    """RDMA Write beyond the end of the Reply chunk."""
    h, n, o = r.call.reply[-1]
    r.refused(lambda: r.connection.rdma_write(h, o + n, b"\xEE" * 4096))


@case("READDIR")
def rdma_write_late_reply(r):
    """RDMA Write into the Reply chunk after the Reply."""
    r.send()
    h, n, o = r.call.reply[0]
    time.sleep(0.5)
    r.refused(lambda: r.connection.rdma_write(h, o, b"\xEE" * min(n, 4096)))


# ---- Read chunks: WRITE ---------------------------------------------------------


@case("WRITE", "ok")
def write_correct(r):
    """A correct WRITE, whose payload has been read."""
    r.send()


@case("WRITE", "error")
def rdma_read_beyond(r):
    """RDMA Read beyond the end of what was offered."""
    _, h, n, o = r.call.reads[-1]
    r.refused(lambda: r.connection.rdma_read(h, o + n, 4096))


@case("WRITE", "error")
def rdma_read_foreign(r):
    """RDMA Read with a handle that was never offered."""
    r.refused(lambda: r.connection.rdma_read(0xDEAD_BE00, r.call.reads[0][3], 4096))


@case("WRITE", "error")
def rdma_write_to_read_chunk(r):
    """RDMA Write into memory that was offered for reading only."""
    _, h, n, o = r.call.reads[0]
    r.refused(lambda: r.connection.rdma_write(h, o, b"\xEE" * min(n, 4096)))


@case("WRITE")
def rdma_read_late(r):
    """RDMA Read of the chunk after the Reply: the region must be fenced by then."""
    r.send()
    _, h, n, o = r.call.reads[0]
    time.sleep(0.5)
    r.refused(lambda: r.connection.rdma_read(h, o, min(n, 4096)))


@case("WRITE")
def write_echoes_reads(r):
    """The Reply carries the Call's Read list."""
    r.prepare().reads = list(r.call.reads)
    r.send()


@case("WRITE")
def write_invalidates(r):
    """Send With Invalidate of the Read chunk's handle, which was not negotiated."""
    r.send(invalidate=r.call.reads[0][1])


@case("WRITE")
def write_silence(_r):
    """No Reply to a WRITE."""
