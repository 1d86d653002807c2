# SPDX-License-Identifier: GPL-2.0
"""Cases in which what comes back of the client's chunks, or is done to their memory, is wrong."""

import struct
import time

from common import slow
from hostile_operations import LINK
from hostile_reply import case

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


@case("READ", "data")
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
def reply_chunk_of_another(r):
    """What is in the Reply chunk is the Reply to another Call."""
    body = r.answer.inline()
    r.reply, _ = r.connection.fill(r.call.reply, struct.pack(">I", r.xid ^ 0x10000) + body[4:])
    r.proc, r.body = 1, b""
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
    r.prepare()
    r.reply = [(h, 0, o) for h, _, o in r.reply]
    r.send()


@case("READDIR", "error")
def reply_chunk_short(r):
    """The Reply chunk comes back with 24 octets."""
    r.prepare()
    r.reply = [(h, 24, o) for h, _, o in r.reply[:1]]
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
    r.prepare()
    r.reply = [(h ^ 0x77, n, o) for h, n, o in r.reply]
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


@case("READLINK", "error")
def reply_longer_than_memory(r):
    """A target of 20,000 octets: there is room in the Reply chunk, but not behind it."""
    whole = r.answer.inline()
    target = 20_000
    body = whole[:-(4 + LINK + -LINK % 4)] + struct.pack(">I", target) + b"t" * target
    r.reply, fits = r.connection.fill(r.call.reply, body)
    if not fits:
        r.note("wrong: no room")
    r.proc, r.body = 1, b""
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


@case("READDIR")
def rdma_write_killed(r):
    """RDMA Write into the Reply chunk of a process that is killed meanwhile, without a Reply."""
    h, n, o = r.call.reply[0]
    time.sleep(12 if slow() else 1.8)
    r.refused(lambda: r.connection.rdma_write(h, o, b"\xEE" * min(n, 4096)))


@case("READDIR")
def never_received(r):
    """One name for each READDIR, and no Receives any more: one of those that follow finds none, for ever."""
    r.connection.post_recv = lambda number: None
    # The list ends behind its first entry, but not the directory.
    r.body = r.answer.head[:152] + bytes(8)
    r.send()


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
