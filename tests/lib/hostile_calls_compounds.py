# SPDX-License-Identifier: GPL-2.0
"""COMPOUNDs of NFSv4.1 with several chunks, in either version: nothing is wrong with them."""

import struct

from common import digest, pattern, remote
from hostile_attack import FILE, case, contents
from hostile_caller import ARENA, CHUNKS, Caller, XIDS, accepted
from hostile_calls_data import CANARY, SCRATCH, untouched, used
from nfs41_session import Session
from nfs_server import EXPORT
from rpc_message import getattr_, moved, read, to_file, write

#: The longest Call and Reply of a session.
SIZE = 1 << 18
#: Where chunks are.
A, B = CHUNKS + 4096, CHUNKS + 65536
#: NFS4ERR_REP_TOO_BIG.
REP_TOO_BIG = 10066


def ask(t, label, session, xid, rpc, **lists):
    """Sends a Call with chunk lists; returns its answer if that is a Reply."""
    answer = session.caller.request(xid, rpc, **lists)
    if answer is None or answer.kind != "reply":
        t.problem(f"{label}: {answer.kind if answer else 'no answer'}")
        return None
    return answer


def offer(connection, *chunks):
    """Chunks that are lists of places in the arena and lengths, as they are offered."""
    connection.arena.write(CANARY * (ARENA - CHUNKS), ARENA - CHUNKS, CHUNKS)
    return [[connection.segment(n, at) for at, n in chunk] for chunk in chunks]


def written(connection, chunk, returned):
    """What is in a chunk that was returned."""
    return b"".join(connection.get(n, at) for (_, n, _), (at, _) in zip(returned, chunk) if n)


def beside(t, label, connection, chunks, returned):
    """Notes a problem if something was written elsewhere than in these chunks."""
    end = CHUNKS
    for at, n in sorted((at, n) for chunk, segments in zip(chunks, returned)
                        for (at, _), (_, n, _) in zip(chunk, segments)):
        untouched(t, connection, label, end, at)
        end = at + n
    untouched(t, connection, label, end, ARENA)


def expect(t, label, answer, rpc, reduced, wanted):
    """Whether the results say that this was moved, and hold what is not in chunks."""
    try:
        stat, results = answer.accepted() if rpc is None else accepted(rpc)
        got = moved(results, reduced)
    except (ValueError, struct.error) as x:
        t.problem(f"{label}: wrong results: {x}")
        return
    if stat or got != wanted:
        t.problem(f"{label}: accept status {stat}, {[n for n, _ in got]} octets, or other data")


def two_reads(t, connection):
    """Two READs and two Write chunks: each result is in its own."""
    label = "two READs"
    session = Session(connection, XIDS, SIZE)
    # The first ends with a page: else nfsd reads the second's data into another page than the one
    # that it sends.
    reads = ((8, 8192, [(A, 5000), (A + 8192, 6000)]),
             (100_001, 5003, [(B, 3001), (B + 4096, 3001)]))
    chunks = [chunk for _, _, chunk in reads]
    offered = offer(connection, *chunks)
    answer = ask(t, label, session, *session.call(
        *to_file(*FILE), *(read(at, count) for at, count, _ in reads)), writes=offered)
    if answer is None:
        return
    returned = [used(chunk, count) for chunk, (_, count, _) in zip(offered, reads)]
    if answer.header.writes != returned:
        t.problem(f"{label}: returned as {answer.header.writes}, not {returned}")
        return
    expect(t, label, answer, None, 2, [(count, b"") for _, count, _ in reads])
    for number, (segments, (at, count, chunk)) in enumerate(zip(returned, reads), 1):
        if written(connection, chunk, segments) != contents(at, count):
            t.problem(f"{label}: other data in chunk {number}")
    beside(t, label, connection, chunks, returned)


def two_writes(t, connection):
    """Two WRITEs and two Read chunks, each where its data belong, and an operation behind them."""
    label = "two WRITEs"
    session = Session(connection, XIDS, SIZE)
    first, second = 3001, 6002
    data = pattern(label, first + second)
    last = (write(first, second), getattr_())
    xid, rpc = session.call(*to_file(*SCRATCH), write(0, first), *last)
    # RFC 8166, 3.4.5: counted in the message with all data in it, and with the padding.
    one = len(rpc) - sum(map(len, last))
    two = one + first + -first % 4 + len(last[0])
    places = ((one, 0, 1000, A), (one, 1000, first, A + 8192), (two, first, first + second, B))
    reads = [(position, *connection.put(data[begin:end], at))
             for position, begin, end, at in places]
    answer = ask(t, label, session, xid, rpc, reads=reads)
    if answer is None:
        return
    expect(t, label, answer, None, 0, [(first, b""), (second, b"")])
    got = remote(f"head -c {len(data)} {EXPORT}/{SCRATCH[-1]} | sha256sum").split()[0]
    if got != digest(data):
        t.problem(f"{label}: the file has other data")


def both_chunks(t, connection):
    """A READ into its Write chunk, and what is left of the Reply into the Reply chunk."""
    session = Session(connection, XIDS, SIZE)
    large, rest = (8, 8192), (50_000, 7001)
    # A short rest may be in the message as well.
    for label, beyond in (("a long rest", (read(*rest), getattr_())), ("a short rest", ())):
        chunks = [(A, 8192)], [(B, 3000), (B + 4096, 20), (B + 8192, 9000)]
        offered, reply = offer(connection, *chunks)
        answer = ask(t, label, session, *session.call(*to_file(*FILE), read(*large), *beyond),
                     writes=[offered], reply=reply)
        if answer is None:
            continue
        placed = answer.header.reply
        length = sum(n for _, n, _ in placed or ())
        wrong = placed != used(reply, length) if placed or beyond else False
        if wrong or answer.header.writes != [offered]:
            t.problem(f"{label}: returned as {answer.header.writes} and {placed}")
            continue
        rpc = written(connection, chunks[1], placed) if placed else None
        expect(t, label, answer, rpc, 1,
               [(large[1], b"")] + [(rest[1], contents(*rest))] * bool(beyond))
        if written(connection, chunks[0], offered) != contents(*large):
            t.problem(f"{label}: other data in the Write chunk")
        beside(t, label, connection, chunks, [offered, placed or used(reply, 0)])


def taken_back(t, connection):
    """A READ that leaves no room for the next operation's error: nfsd takes its result back."""
    label = "a READ without room for an error behind it"
    session = Session(connection, XIDS, 8192)
    # Two, or nfsd would not copy the data.
    chunks = [(A, 64)], [(B, 16384)]
    offered = offer(connection, *chunks)
    answer = ask(t, label, session, *session.call(
        *to_file(*FILE), read(8, 64), read(100, 16384), getattr_()), writes=offered)
    if answer is None:
        return
    stat, results = answer.accepted()
    (status,) = struct.unpack_from(">I", results)
    if (stat, status) != (0, REP_TOO_BIG):
        t.problem(f"{label}: accept status {stat}, status {status}")
    returned = [offered[0], used(offered[1], 0)]
    if answer.header.writes != returned:
        t.problem(f"{label}: returned as {answer.header.writes}, not {returned}")
    elif written(connection, chunks[0], returned[0]) != contents(8, 64):
        t.problem(f"{label}: other data in the chunk of the first")
    beside(t, label, connection, chunks, returned)


def several(t, connection):
    """All of them on one connection."""
    for function in (two_reads, two_writes, both_chunks, taken_back):
        function(t, connection)
    for text in getattr(connection, "wrong", ()):
        t.problem(text)
    connection.close()


@case
def compounds(t):
    """Several data items in one RPC: each has its chunk, in order (RFC 8166, 3.4.5 and 4.3.2)."""
    several(t, Caller())
