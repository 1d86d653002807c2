# SPDX-License-Identifier: GPL-2.0
"""Cases in which a message, its header or its RPC message is wrong."""

import struct
import time

from common import Gone, watchdog
from hostile_reply import case
from rpcrdma_header import ERROR, Header, NOMSG, encode

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
    # A shorter one is discarded (RFC 8166, 4.5).
    case("GETATTR", "error" if length < 28 else "at once")(cut)


for n in (0, 1, 4, 12, 15, 16, 18, 20, 24, 27, 28, 29, 32, 36, 44, 51, 60):
    runt(n)


def version(number):
    """A case with another version number."""
    def other(r):
        r.vers = number
        r.send()
    other.__name__ = f"version_{number}"
    other.__doc__ = f"The Reply claims version {number}."
    case("GETATTR", "at once")(other)


for n in (0, 2, 9, 0xFFFFFFFF):
    version(n)


def procedure(number):
    """A case with another header type."""
    def other(r):
        r.prepare().proc = number
        r.send()
    other.__name__ = f"proc_{number}"
    other.__doc__ = f"A Reply with header type {number}."
    case("GETATTR", "at once")(other)


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


@case("GETATTR", "at once")
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


@case("READ", "ok")
def credits_few(r):
    """A grant of two credits. The Reply takes its time, for more Calls to come."""
    r.credit = 2
    time.sleep(0.02)
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


@case("GETATTR", "ok")
def unsolicited(r):
    """Thirty Replies that nobody asked for, then the right one."""
    message = bytearray(r.message())
    for i in range(30):
        struct.pack_into(">I", message, 0, r.xid + 1000 + i)
        struct.pack_into(">I", message, 28, r.xid + 1000 + i)
        r.send(message)
    r.send()


@case("GETATTR", "ok")
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
    raise Gone("as the case wants")


@case("READ", "error")
def credits_of_nobody(r):
    """Many credits in a message that is neither Call nor Reply, and then no connection."""
    connection = r.connection
    connection.send_message(encode(r.xid) + struct.pack(">II", r.xid, 2))
    time.sleep(0.05)
    connection.poll()
    # It ends its RPC, so that another may be sent.
    if len(connection.credits) == 1 and len(connection.arrived) > 1:
        connection.wrong(f"{len(connection.arrived)} Calls before the first Reply")
    raise Gone("as the case wants")


@case("READ", "error")
def closed_read(r):
    """The same, for a READ."""
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


@case("GETATTR", "at once")
def error_vers(r):
    """RDMA_ERROR: version not supported, 1 to 1 is."""
    r.raw_error(1, struct.pack(">II", 1, 1))


@case("GETATTR", "at once")
def error_vers_2(r):
    """RDMA_ERROR: version not supported, only 2 is."""
    r.raw_error(1, struct.pack(">II", 2, 2))


@case("GETATTR", "at once")
def error_vers_cut(r):
    """RDMA_ERROR ERR_VERS without its versions."""
    r.raw_error(1)


@case("GETATTR", "at once")
def error_chunk(r):
    """RDMA_ERROR: bad chunks."""
    r.raw_error(2)


@case("READ", "at once")
def error_chunk_read(r):
    """RDMA_ERROR: bad chunks, for a READ with registered memory."""
    r.raw_error(2)


@case("WRITE", "at once")
def error_chunk_write(r):
    """RDMA_ERROR: bad chunks, for a WRITE with registered memory."""
    r.raw_error(2)


@case("GETATTR", "at once")
def error_unknown(r):
    """RDMA_ERROR with an unknown code."""
    r.raw_error(77)


@case("GETATTR", "at once")
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


@case("GETATTR", "at once")
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


@case("GETATTR", "at once")
def read_list_endless(r):
    """A Read list that does not end within the message."""
    r.reads = [(4, i, 64, 0) for i in range(30)]
    r.send(r.message()[:16 + 30 * 24])


@case("GETATTR", "at once")
def write_list_unsolicited(r):
    """A Write chunk although none was offered."""
    r.prepare().writes = [[(0x1234, 4096, 0x10000)]]
    r.send()


@case("GETATTR", "at once")
def write_list_huge(r):
    """A Write chunk of 2^32 - 1 segments."""
    m = r.message()
    r.send(m[:20] + struct.pack(">II", 1, 0xFFFFFFFF) + m[28:])


@case("GETATTR", "error")
def write_list_endless(r):
    """Forty Write chunks, and the message ends within them."""
    r.prepare().writes = [[(1, 1, 1)]] * 40
    r.send(r.header()[:20 + 40 * 24])


@case("GETATTR", "at once")
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


@case("GETATTR", "at once")
def nomsg_empty(r):
    """RDMA_NOMSG without a Reply chunk."""
    r.prepare()
    r.proc, r.body = 1, b""
    r.send()


@case("GETATTR", "at once")
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


def reverse_refused(name, make):
    """A case that sends a Call in the reverse direction, to which the answer is ERR_CHUNK."""
    def refused(r):
        xid = r.xid ^ 0x0C0DE000
        r.send(make(xid) + (struct.pack(">IIIIIIIIII", xid, 0, 2, 0x40000000, 1, 0, 0, 0, 0, 0)
                            if name != "nomsg" else b""))
        connection, deadline = r.connection, time.monotonic() + 10 * watchdog()
        while not connection.arrived and time.monotonic() < deadline:
            connection.poll()
            time.sleep(0.001)
        answers = [Header(data) for data in connection.arrived]
        connection.arrived.clear()
        told = [(a.xid, a.vers, a.proc, a.error, a.credit > 0) for a in answers]
        if told != [(xid, 1, ERROR, (2,), True)]:
            connection.wrong(f"{told} is the answer to Call {xid:#x}")
        r.send()
    refused.__name__ = f"reverse_{name}"
    refused.__doc__ = f"A Call in the reverse direction, with chunks ({name})."
    case("GETATTR", "ok")(refused)


# RFC 8167, 5.3. The last one has an error in its header (RFC 8166, 4.5.2).
for name, lists in (("read_list", {"reads": [(40, 0x1234, 64, 0x1000)]}),
                    ("write_list", {"writes": [[(0x1234, 64, 0x1000)]]}),
                    ("empty_chunk", {"writes": [[]]}),
                    ("reply_chunk", {"reply": [(0x1234, 64, 0x1000)]}),
                    ("nomsg", {"proc": NOMSG, "reads": [(0, 0x1234, 64, 0x1000)]}),
                    ("position_zero", {"reads": [(0, 0x1234, 64, 0x1000)]})):
    reverse_refused(name, lambda xid, lists=lists: encode(xid, **lists))


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
