# SPDX-License-Identifier: GPL-2.0
"""Cases of the hostile client: chunk lists that can't be followed, and memory that can't be used."""

import struct

import pyverbs.enums as e
from pyverbs.mr import MR

from common import fabric
from hostile_attack import FILE, case, fresh
from hostile_caller import ARENA, CHUNKS, Caller, XIDS
from rpc_message import compound, null_call, null_rpc, read, to_file
from rpcrdma_header import NOMSG, encode

#: A handle that nobody has given out.
FOREIGN = 0xDEADBE00


def nomsg(xid, rest=b"", **lists):
    """RDMA_NOMSG with these lists."""
    return encode(xid, NOMSG, **lists) + rest


@case
def positions(t):
    """Read chunks at positions that can't be (RFC 8166, 3.4.5)."""
    connection = t.current()
    size = len(null_rpc(0))
    eight = connection.segment(8)

    def at(*positions):
        xid, rpc = fresh()
        return encode(xid, reads=[(p, *eight) for p in positions]) + rpc

    # The first is not wrong: the data follow the message, which does not look at them.
    t.batch([("behind the message", at(size), {"reply"}),
             ("two segments there", at(size, size), {"reply"})])
    t.batch([(f"positions {p}", at(*p), {"chunk"}) for p in (
        (1,), (2,), (3,), (size + 1,), (size - 1,), (size + 4,), (4096,), (0x7FFFFFFC,),
        (0xFFFFFFFC,), (0xFFFFFFFF,), (0,), (0, 0), (0, size), (size, 0),
        # They go backwards, or into what the one before has inserted.
        (size, size - 4), (16, 12), (16, 20), (16, 16, 20), (16, 24, 28), (24, 16),
        (16, size + 12), (size, size + 4), (size, size + 12), (16, 0xFFFFFFFC))])


@case
def special_calls(t):
    """RDMA_NOMSG that lacks an RPC message, or has one that makes no sense."""
    connection = t.current()
    eight, segment = connection.segment(8), connection.segment(256)
    bad = [
        ("nothing at all", {}),
        ("only a Write list", {"writes": [[segment]]}),
        ("only an empty Write chunk", {"writes": [[]]}),
        ("only an empty Reply chunk", {"reply": []}),
        ("only a Reply chunk of no length", {"reply": [connection.segment(0)]}),
        ("no position zero", {"reads": [(8, *eight)]}),
        ("no position zero, but a Reply chunk", {"reads": [(8, *eight)], "reply": [segment]}),
        ("no length", {"reads": [(0, *connection.segment(0))]}),
        ("twice no length", {"reads": [(0, *connection.segment(0))] * 2}),
        ("a chunk behind its end", {"reads": [(0, *eight), (12, *eight)]}),
        ("a chunk far behind its end", {"reads": [(0, *eight), (0x80000000, *eight)]}),
        ("an unaligned chunk", {"reads": [(0, *segment), (7, *eight)]}),
        ("chunks that go backwards", {"reads": [(0, *segment), (16, *eight), (8, *eight)]}),
    ]
    t.batch([(label, nomsg(next(XIDS), **lists), {"chunk"}) for label, lists in bad])
    xid, rpc = fresh()
    t.batch([("an RPC message behind the header",
              nomsg(xid, rpc, reads=[(0, *connection.put(rpc))]), {"chunk"})])
    for label, make in (("correct", lambda x: null_rpc(x)),
                        ("of another transaction", lambda x: null_rpc(x ^ 0x5A5A)),
                        ("a Reply", lambda x: struct.pack(">IIIIII", x, 1, 0, 0, 0, 0)),
                        ("neither Call nor Reply", lambda x: struct.pack(">II", x, 2) + bytes(80)),
                        ("one word", lambda x: struct.pack(">I", x)),
                        ("one octet", lambda x: b"\0"),
                        ("cut", lambda x: null_rpc(x)[:20]),
                        ("noise", lambda x: struct.pack(">II", x, 0) + b"\xA7" * 3001)):
        xid = next(XIDS)
        data = nomsg(xid, reads=[(0, *t.current().put(make(xid)))])
        allowed = {"correct": {"reply"},
                   # RFC 8166, 4.5.2.
                   "of another transaction": {"chunk"}}.get(
                       label, {"reply", "denied", "chunk", "nothing", "lost"})
        t.alone(label, data, allowed, t.current(), 10 if len(allowed) == 1 else 0.1)
        t.alive()


@case
def lengths(t):
    """Lengths and offsets that can't be, or are more than a server takes."""
    size = len(null_rpc(0))
    handle, _, offset = t.current().segment(8)
    messages = []
    for label, segments in (
            ("4 GiB", [(handle, 0xFFFFFFFF, offset)]),
            ("2 GiB", [(handle, 0x80000000, offset)]),
            ("64 MiB", [(handle, 64 << 20, offset)]),
            ("a sum of 4 GiB", [(handle, 0x80000000, offset)] * 2),
            ("a sum that wraps to 8", [(handle, 0xFFFFFFFC, offset), (handle, 12, offset)]),
            ("past the end of all addresses", [(handle, 8, 0xFFFFFFFFFFFFFFFC)]),
            ("a sum of 64 MiB", [(handle, 1 << 20, offset)] * 64)):
        xid, rpc = fresh()
        messages.append((f"a Read chunk of {label}",
                         encode(xid, reads=[(size, *s) for s in segments]) + rpc, {"chunk"}))
        messages.append((f"an RPC message of {label}",
                         nomsg(next(XIDS), reads=[(0, *s) for s in segments]), {"chunk"}))
    for label, segments in (
            ("a sum of 4 GiB", [(handle, 0x80000000, offset)] * 2),
            ("past the end of all addresses", [(handle, 8, 0xFFFFFFFFFFFFFFFC)])):
        messages.append((f"a Write chunk of {label}",
                         null_call(next(XIDS), writes=[segments]), {"chunk"}))
        messages.append((f"a Reply chunk of {label}",
                         null_call(next(XIDS), reply=segments), {"chunk"}))
    # What is never written to may be as long as it likes.
    messages.append(("an unused Write chunk of 4 GiB",
                     null_call(next(XIDS), writes=[[(handle, 0xFFFFFFFF, offset)]]), {"reply"}))
    t.batch(messages)


@case
def counts(t):
    """Lists that claim more than there is, or have more than anybody needs."""
    connection = t.current()
    segment = connection.segment(64)
    size = len(null_rpc(0))
    messages = []
    for count in (2, 5, 272, 273, 0x10000, 0x10000000, 0x10000001, 0x7FFFFFFF, 0xFFFFFFFF):
        for label, lists in (("a Write chunk", (0, 1, count)), ("a Reply chunk", (0, 0, 1, count))):
            xid = next(XIDS)
            data = struct.pack(f">{4 + len(lists)}I", xid, 1, 32, 0, *lists)
            data += struct.pack(">IIQ", *segment)
            messages.append((f"{label} of {count} segments, one of them there", data, {"chunk"}))
    for n in (1, 20, 160):
        xid, rpc = fresh()
        reads = encode(xid, reads=[(size, *segment)] * n)
        messages.append((f"a Read list without an end after {n}", reads[:16 + 24 * n] * 1, {"chunk"}))
        writes = null_call(next(XIDS), writes=[[segment]] * n)
        messages.append((f"a Write list without an end after {n}",
                         writes[:20 + 24 * n], {"chunk"}))
    t.batch(messages)
    t.batch([(f"{n} Write chunks", null_call(next(XIDS), writes=[chunk] * n), {"reply", "chunk"})
             for n in (1, 2, 16, 17, 100, 130) for chunk in ([], [segment])]
            + [(f"{n} Write segments", null_call(next(XIDS), writes=[[segment] * n]),
                {"reply", "chunk"}) for n in (1, 100, 240)]
            + [(f"{n} Reply segments", null_call(next(XIDS), reply=[segment] * n),
                {"reply", "chunk"}) for n in (0, 1, 100, 240)])
    # More Reads than the server has memory regions for, where it needs some: it may refuse.
    for n in (2, 20, 64, 65, 160):
        xid, rpc = fresh()
        data = encode(xid, reads=[(size, *connection.segment(4, CHUNKS + 64 * i))
                                  for i in range(n)]) + rpc
        t.batch([(f"{n} Read segments", data, {"reply", "chunk"} if n > 20 else {"reply"})])
    # Two positions and many segments of no length.
    xid, rpc = fresh()
    data = encode(xid, reads=[(size, *connection.segment(0))] * 100) + rpc
    t.batch([("100 Read segments of no length", data, {"reply", "chunk"})])


def memories(connection):
    """Segments that the server must not be able to use, for Reads and for Writes."""
    pd = connection.memory.pd
    gone = MR(pd, 8192, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
              | e.IBV_ACCESS_REMOTE_READ)
    gone_segment = (gone.rkey, 4096, gone.buf)
    gone.close()
    private = MR(pd, 8192, e.IBV_ACCESS_LOCAL_WRITE)
    end = connection.segment(8192, ARENA - 2048)
    handle, _, offset = connection.segment(4096)
    return {
        "a handle of nobody's": (FOREIGN, 4096, offset),
        "handle 0": (0, 4096, offset),
        "handle 2^32 - 1": (0xFFFFFFFF, 4096, offset),
        "a handle next to ours": (handle ^ 1, 4096, offset),
        "memory that is not registered any more": gone_segment,
        "memory that is nobody else's to use": (private.rkey, 4096, private.buf),
        "memory beyond the region's end": end,
        "memory before the region": (handle, 4096, connection.arena.buf - 4096),
        "address 0": (handle, 4096, 0),
    }, private


@case
def foreign_reads(t):
    """Read chunks of memory that can't be read: the connection ends (RFC 8166, 4.5.3)."""
    size = len(null_rpc(0))
    for label in memories_of(t):
        connection = Caller()
        table, _keep = memories(connection)
        xid, rpc = fresh()
        # siw lets every region be read, also ours.
        open_ = fabric() == "siw" and "nobody else's" in label
        t.alone(label, encode(xid, reads=[(size, *table[label])]) + rpc,
                {"lost", "reply"} if open_ else {"lost"}, connection)
        connection.close()
    t.alone("a whole Call with a handle of nobody's",
            nomsg(next(XIDS), reads=[(0, FOREIGN, 4096, 0)]), {"lost"})


def memories_of(t):
    """The names of `memories`."""
    connection = t.current()
    names = list(memories(connection)[0])
    t.drop()
    return names


@case
def foreign_writes(t):
    """Write chunks and Reply chunks of memory that can't be written: the connection ends."""
    for label in memories_of(t):
        connection = Caller()
        table, _keep = memories(connection)
        xid = next(XIDS)
        data = encode(xid, writes=[[table[label]]]) + compound(xid, *to_file(*FILE), read(0, 4096))
        # Under iWARP the Reply may overtake the news that the Write before it was refused.
        t.alone(f"a Write chunk in {label}", data, {"lost"}, connection)
        connection.close()
    for label in ("a handle of nobody's", "memory that is not registered any more"):
        connection = Caller()
        table, _keep = memories(connection)
        data = null_call(next(XIDS), reply=[table[label]])
        t.alone(f"a Reply chunk in {label}", data, {"lost"}, connection)
        connection.close()
    # A chunk that has no use does no harm, whatever its memory.
    t.batch([("an unused Write chunk in a handle of nobody's",
              null_call(next(XIDS), writes=[[(FOREIGN, 4096, 0)]]), {"reply"})])
