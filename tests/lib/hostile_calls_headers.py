# SPDX-License-Identifier: GPL-2.0
"""Cases of the hostile client: headers that are cut, changed, or not a Call's."""

import random
import struct

from hostile_attack import FILE, case, fresh
from hostile_caller import Caller, CHUNKS, PRIVATE, Refused, XIDS
from hostile_judge import TWO, judge
from rpc_message import GARBAGE_ARGS, compound, null_call, read, rpc_call, to_file
from rpcrdma_header import DONE, ERROR, MSG, MSGP, NOMSG, encode

#: Values that a word of a header may be changed to.
ODD = (0, 1, 2, 3, 4, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def full(connection):
    """A correct NULL Call with every kind of chunk, of memory that is there.

    Returns its transaction id, its header and its RPC message.
    """
    xid, rpc = fresh()
    reads = [(len(rpc), *connection.segment(8, CHUNKS + 64 * i)) for i in range(2)]
    write = [connection.segment(64, CHUNKS + 4096 * i) for i in range(1, 3)]
    reply = [connection.segment(4096, CHUNKS + 65536)]
    return xid, encode(xid, reads=reads, writes=[write], reply=reply), rpc


@case
def correct(t):
    """Correct Calls, to see that the others differ in what they say they do."""
    connection = t.current()
    xid, header, rpc = full(connection)
    t.batch([("with chunks", header + rpc, {"reply"}),
             ("without", null_call(next(XIDS)), {"reply"})])


@case
def prefixes(t):
    """Every prefix of a header with all kinds of chunks, and of one without."""
    messages = []
    for length in range(len(full(t.current())[1]) + 12):
        _, header, rpc = full(t.current())
        messages.append(t.judged(f"{length} octets", (header + rpc)[:length]))
    for length in range(0, 36):
        messages.append(t.judged(f"{length} octets of a short one",
                                 null_call(next(XIDS))[:length]))
    t.batch(messages)


@case
def words(t):
    """Every word of a header, changed to odd values."""
    messages, risky = [], []
    _, header, _ = full(t.current())
    for at in range(0, len(header) + 8, 4):
        for value in ODD:
            _, header, rpc = full(t.current())
            data = bytearray(header + rpc)
            if struct.unpack_from(">I", data, at)[0] == value:
                continue
            struct.pack_into(">I", data, at, value)
            label = f"word {at // 4} changed to {value:#x}"
            # The server would use memory that is not there; that has cases of its own.
            entry = t.judged(label, bytes(data))
            (risky if judge(data) == "pass" and at >= 16 else messages).append(entry)
    t.batch(messages)
    # In a NULL Call the Write list has no use: only the Read list and the Reply chunk are risky.
    for label, data, allowed in risky[::11]:
        t.drop()
        t.alone(label, data, allowed | {"lost"}, t.current(), 5)
    t.drop()


@case
def versions(t):
    """Other versions: the answer says that there is only Version One (RFC 8166, 4.5.1)."""
    messages = []
    for vers in (0, 2, 3, 9, 0x100, 0x1000000, 0x7FFFFFFF, 0xFFFFFFFF):
        for proc in (MSG, NOMSG, MSGP, DONE, 5, 0xFFFFFFFF):
            data = null_call(next(XIDS), vers=vers, proc=proc)
            messages.append((f"version {vers:#x}, procedure {proc}", data, {"vers"}))
        # Only Responders send errors.
        messages.append((f"version {vers:#x}, an error",
                         struct.pack(">IIIIIII", next(XIDS), vers, 32, ERROR, 1, 1, 1),
                         {"nothing"}))
        # 28 octets are enough to be trusted, 27 are not; a server of Version Two trusts 16 of that version.
        data = null_call(next(XIDS), vers=vers)
        messages.append((f"version {vers:#x}, 28 octets", data[:28], {"vers"}))
        data = null_call(next(XIDS), vers=vers)
        messages.append((f"version {vers:#x}, 27 octets", data[:27],
                         {"vers" if TWO and vers == 2 else "nothing"}))
    t.batch(messages)


@case
def procedures(t):
    """Unknown and obsolete procedures (RFC 8166, 4.5.2 and 4.6)."""
    t.batch([(f"procedure {proc}", null_call(next(XIDS), proc=proc),
              {"nothing" if proc in (DONE, ERROR) else "chunk"})
             for proc in (MSGP, DONE, ERROR, 5, 6, 13, 0x7FFFFFFF, 0xFFFFFFFF)])


@case
def runts(t):
    """Runts, many of them: nothing of them may be used up."""
    rng = random.Random(1)
    for _ in range(5):
        t.batch([(f"a runt of {n}", rng.randbytes(n), {"nothing"}) for n in range(28)])


@case
def noise(t):
    """Noise with a header that begins well, and noise without."""
    rng = random.Random(2)
    messages = []
    for i in range(120):
        data = struct.pack(">IIII", next(XIDS), 1, 32, i % 2) + rng.randbytes(rng.randrange(900))
        if i % 3 == 0:
            data = struct.pack(">I", next(XIDS)) + rng.randbytes(rng.randrange(28, 900))
        messages.append(t.judged(f"noise {i}", data))
    t.batch(messages)


@case
def sizes(t):
    """A message that just fits the Receives, and one that does not."""
    t.batch([("4096 octets", null_call(next(XIDS)).ljust(4096, b"\xA5"), {"reply"})])
    for size in (4097, 65536):
        t.alone(f"{size} octets", null_call(next(XIDS)).ljust(size, b"\xA5"), {"lost"})


@case
def credit_field(t):
    """Every request for credits gets a grant, zero included."""
    t.batch([(f"credit {n:#x}", null_call(next(XIDS), credit=n), {"reply"})
             for n in (0, 1, 64, 65, 0x7FFFFFFF, 0xFFFFFFFF)])


@case
def rpc_garbage(t):
    """RPC messages that make no sense, in headers that do.

    The RPC layer rejects them, drops them, or ends the connection.
    """
    rng = random.Random(3)
    bodies = [rng.randbytes(4 * rng.randrange(1, 200)) for _ in range(10)]
    # Credentials that claim too much, or more than there is.
    for length in (1, 401, 0x7FFFFFFF, 0xFFFFFFFC, 0xFFFFFFFF):
        bodies.append(struct.pack(">IIIIII", 2, 100003, 4, 0, 1, length) + bytes(40))
    # Each prefix of a Call of NFSv3's GETATTR; and a file handle that is too long.
    getattr3 = rpc_call(0, 3, 1, struct.pack(">I", 0xFFFFFFFF) + bytes(64))[8:]
    bodies += [getattr3[:n] for n in range(0, len(getattr3), 12)]
    # Other RPC versions, programs, versions and procedures.
    for rpc in ((3, 100003, 4, 0), (2, 100005, 3, 0), (2, 100003, 1, 0), (2, 100003, 99, 0),
                (2, 100003, 4, 2), (2, 100003, 3, 99), (2, 0xFFFFFFFF, 0, 0)):
        bodies.append(struct.pack(">IIII", *rpc) + rpc_call(0, 4, 0)[24:])
    for i, body in enumerate(bodies):
        xid = next(XIDS)
        data = encode(xid) + struct.pack(">II", xid, 0) + body
        t.alone(f"RPC garbage {i}", data, {"reply", "denied", "nothing", "lost"}, t.current(), 0.1)
        t.alive()


@case
def garbage_args(t):
    """Arguments that the upper layer cannot parse, in a header that is right: a Reply says so (RFC 8166, 4.5.2)."""
    xid = next(XIDS)
    rpc = rpc_call(xid, 3, 1, struct.pack(">I", 0xFFFFFFFF) + bytes(64))
    answer = t.alone("GETATTR of no file handle", encode(xid) + rpc, {"reply"}, t.current())
    if answer and answer.accepted()[0] != GARBAGE_ARGS:
        t.problem(f"GETATTR of no file handle: accept status {answer.accepted()[0]}")
    t.alive()


@case
def replies(t):
    """Replies, errors and RDMA_DONE that nobody asked for, on a connection without callbacks."""
    t.batch(unsolicited())


def unsolicited(xids=None):
    """Messages that come from Responders only, or from nobody; all are to be discarded."""
    out = []

    def add(label, data):
        out.append((label, data, {"nothing"}))

    def xid():
        return next(xids or XIDS)

    for code in (0, 1, 2, 3, 0xFFFFFFFF):
        for rest in ((), (1, 1), (2, 1), (0, 0xFFFFFFFF)):
            add(f"an error {code} {rest}",
                struct.pack(f">IIIII{len(rest)}I", xid(), 1, 32, ERROR, code, *rest))
    add("an error without a code", struct.pack(">IIII", xid(), 1, 32, ERROR))
    add("RDMA_DONE", struct.pack(">IIIIIII", xid(), 1, 32, DONE, 0, 0, 0))
    segment = (0x1234, 4096, 0x10000)
    for label, how in (("a Reply", {}), ("a Reply with a Write list", {"writes": [[segment]]}),
                       ("a Reply with a Read list", {"reads": [(8, *segment)]}),
                       ("a Reply with a Reply chunk", {"reply": [segment]}),
                       ("a Reply without credits", {"credit": 0}),
                       ("a Reply with many credits", {"credit": 0xFFFFFFFF})):
        i = xid()
        add(label, encode(i, **how) + struct.pack(">IIIIII", i, 1, 0, 0, 0, 0))
        i = xid()
        add(f"{label} of another transaction",
            encode(i, **how) + struct.pack(">IIIIII", i ^ 7, 1, 0, 0, 0, 0))
        i = xid()
        add(f"{label}, cut", encode(i, **how) + struct.pack(">II", i, 1))
        i = xid()
        add(f"{label}, noise", encode(i, **how) + struct.pack(">II", i, 1) + b"\xC3" * 200)
    add("RDMA_NOMSG with a Reply chunk", encode(xid(), NOMSG, reply=[segment]))
    return out


@case
def private_data(t):
    """Odd private data is none (RFC 8797, 4.2); a peer that answers no RDMA Reads is refused."""
    for private in (b"", b"\0", PRIVATE[:7], PRIVATE + bytes(40), bytes(8), b"\xFF" * 8, b"\xFF" * 56,
                    PRIVATE[:4] + b"\x02" + PRIVATE[5:], PRIVATE[:6] + b"\0\0",
                    PRIVATE[:6] + b"\xFF\xFF"):
        connection = Caller(private=private)
        if not connection.null():
            t.problem(f"private data {private.hex()}: no answer")
        # Only who has said that it can receive so much gets it (section 5.1).
        told = private in (PRIVATE + bytes(40), PRIVATE[:6] + b"\xFF\xFF")
        xid = next(XIDS)
        t.alone(f"a READ with private data {private.hex()}",
                encode(xid) + compound(xid, *to_file(*FILE), read(0, 2000)),
                {"reply" if told else "chunk"}, connection)
        connection.close()
    try:
        connection = Caller(depth=0)
        # The answer may be that there is no connection, or one that ends.
        connection.null()
        t.problem("a connection without RDMA Reads is accepted")
        connection.close()
    except Refused:
        pass
