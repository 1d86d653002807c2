# SPDX-License-Identifier: GPL-2.0
"""Cases of the hostile client: READs and WRITEs whose chunks do not fit what is moved."""

import struct

from common import digest, fabric, remote
from nfs_server import EXPORT
from hostile_attack import FILE, FILE_SIZE, case, contents
from hostile_caller import ARENA, CHUNKS, Caller, XIDS
from rpc_message import (compound, getattr_, getfh, null_call, read, read_result, symlink3,
                         to_file, write)
from rpcrdma_header import NOMSG, encode

#: What the arena is filled with, to see what was written to.
CANARY = b"\xEE"
#: Offset of a file that the cases write to.
SCRATCH = ("export", "hostile-scratch")


def untouched(t, connection, label, begin, end):
    """Notes a problem unless this part of the arena is as it was."""
    if connection.get(end - begin, begin) != CANARY * (end - begin):
        t.problem(f"{label}: memory was written that was not offered")


def do_read(t, label, offset, count, chunk, allowed, more=()):
    """A READ with a Write chunk; returns the answer, and where it was written to.

    `chunk` is a list of offsets in the arena and lengths.
    """
    connection = t.current()
    connection.arena.write(CANARY * (ARENA - CHUNKS), ARENA - CHUNKS, CHUNKS)
    xid = next(XIDS)
    segments = [connection.segment(n, at) for at, n in chunk]
    data = (encode(xid, writes=[segments, *more])
            + compound(xid, *to_file(*FILE), read(offset, count)))
    answer = t.alone(label, data, allowed, connection)
    t.alive()
    if connection is not t.connection:
        return None
    at = CHUNKS
    for begin, length in sorted(chunk):
        untouched(t, connection, label, at, begin)
        at = max(at, begin + length)
    untouched(t, connection, label, at, ARENA)
    return answer


def used(offered, length):
    """A chunk as it is returned with that many octets in it (RFC 8166, 3.4.6)."""
    out = []
    for handle, room, offset in offered:
        out.append((handle, min(room, length), offset))
        length -= out[-1][1]
    return out


def check_read(t, label, answer, offset, count, chunk):
    """Whether a READ has put the right data into its chunk."""
    if answer is None or answer.kind != "reply":
        return
    connection = t.current()
    returned = answer.header.writes[0]
    got = b"".join(connection.get(n, at) for (_, n, _), (at, _) in zip(returned, chunk))
    stat, results = answer.accepted()
    status, rest = read_result(results) if stat == 0 else (stat, b"")
    if (stat or status or got != contents(offset, count)
            or struct.unpack_from(">I", rest, 4)[0] != count):
        t.problem(f"{label}: accept status {stat}, status {status}, {len(got)} octets of {count}")
    if returned != used([connection.segment(n, at) for at, n in chunk], count):
        t.problem(f"{label}: returned as {returned}")
    if len(rest) != 8:
        # RFC 8166, 3.4.4.4: padding goes with the data, and is written nowhere (3.4.6.2).
        t.problem(f"{label}: {len(rest) - 8} octets behind the length")
    for (_, n, _), (at, room) in zip(returned, chunk):
        untouched(t, connection, label, at + min(n, room), at + room)


@case
def write_chunks(t):
    """READs into chunks of every shape."""
    a = CHUNKS + 4096
    for label, count, chunk in (
            ("exact", 4096, [(a, 4096)]),
            ("too long", 4096, [(a, 8192)]),
            ("odd", 4095, [(a, 4095)]),
            ("odd and too long", 4093, [(a + 1, 4200)]),
            ("odd, in parts and too long", 4093, [(a, 1001), (a + 2000, 4000)]),
            ("in octets", 100, [(a + 2 * i, 1) for i in range(100)]),
            ("in many parts", 6000, [(a + 64 * i, 25) for i in range(240)]),
            ("with gaps", 4096, [(a, 0), (a, 1000), (a, 0), (a + 2000, 0), (a + 3000, 4000)]),
            ("not in order", 4096, [(a + 8192, 2000), (a, 2000), (a + 4096, 2000)]),
            ("long", 524_288, [(a, 524_288)]),
            ("long and in parts", 524_288, [(a + 4000 * i, 3999) for i in range(132)]),
            ("nothing", 0, [(a, 4096)])):
        answer = do_read(t, label, 8, count, chunk, {"reply"})
        check_read(t, label, answer, 8, count, chunk)
    for label, count, chunk in (
            ("an octet too short", 4096, [(a, 4095)]),
            ("much too short", 65536, [(a, 100)]),
            ("of no length", 4096, [(a, 0), (a, 0)]),
            ("many, too short", 65536, [(a + 64 * i, 8) for i in range(240)])):
        # RFC 8166, 4.5.3, or an error of the RPC.
        answer = do_read(t, label, 0, count, chunk, {"reply", "denied", "chunk"})
        if answer and answer.kind == "reply" and answer.accepted()[0] == 0:
            status, _ = read_result(answer.accepted()[1])
            if status == 0:
                t.problem(f"{label}: a READ succeeds")


@case
def empty_chunks(t):
    """An empty Write chunk asks for an inline result (RFC 8166, 4.3.2.3)."""
    answer = do_read(t, "empty", 4, 1001, [], {"reply"})
    if answer and answer.kind == "reply":
        status, rest = read_result(answer.accepted()[1])
        data = rest[8:8 + 1001]
        if status or data != contents(4, 1001) or answer.header.writes != [[]]:
            t.problem(f"status {status}, {len(data)} octets inline, chunks {answer.header.writes}")
    # Two READs, only the second with a chunk.
    connection = t.current()
    chunk = [connection.segment(512, CHUNKS)]
    xid = next(XIDS)
    data = (encode(xid, writes=[[], chunk])
            + compound(xid, *to_file(*FILE), read(0, 256), read(256, 512)))
    answer = t.alone("empty and not", data, {"reply"}, connection)
    if answer and answer.kind == "reply":
        stat, results = answer.accepted()
        # The second READ's data are not compared: with two READs in a COMPOUND, nfsd reads the
        # second's into another page than the one that it sends.
        if stat or contents(0, 256) not in results or answer.header.writes != [[], chunk]:
            t.problem(f"two READs: {stat}, {answer.header.writes}, {results.hex()}")
    # What does not fit inline can't be answered.
    answer = do_read(t, "empty, and the result is long", 0, 65536, [], {"chunk"})


@case
def unconsumed_chunks(t):
    """Write chunks without a result come back unused (RFC 8166, 4.3.2.2), also that of one of no octets."""
    connection = t.current()
    chunk = [connection.segment(64, CHUNKS), connection.segment(32, CHUNKS + 128)]
    answer = t.alone("no result", null_call(next(XIDS), writes=[chunk, chunk]), {"reply"},
                     connection)
    if answer and answer.header.writes != [used(chunk, 0)] * 2:
        t.problem(f"no result: returned as {answer.header.writes}")
    # The first READ begins at the end of the file. RFC 8267, 6.4.1: its chunk is the first all the same, the next READ
    # has the next, and without one its data are inline.
    for label, count in (("a READ of nothing, with two chunks", 2), ("with one", 1)):
        connection.arena.write(CANARY * 8192, 8192, CHUNKS)
        places = [CHUNKS, CHUNKS + 4096][:count]
        offered = [[connection.segment(600, at)] for at in places]
        xid = next(XIDS)
        data = (encode(xid, writes=offered)
                + compound(xid, *to_file(*FILE), read(FILE_SIZE, 256), read(0, 512)))
        answer = t.alone(label, data, {"reply"}, connection)
        if not answer or answer.kind != "reply":
            continue
        stat, results = answer.accepted()
        returned = [used(chunk, n) for chunk, n in zip(offered, (0, 512))]
        if stat or answer.header.writes != returned or (contents(0, 512) in results) != (count == 1):
            t.problem(f"{label}: {stat}, {answer.header.writes}, {results.hex()}")
        untouched(t, connection, label, CHUNKS, CHUNKS + 4096)
        if count == 2 and connection.get(512, places[1]) != contents(0, 512):
            t.problem(f"{label}: other data")


@case
def reply_chunks(t):
    """Reply chunks of every size for a Reply of known size."""
    connection = t.current()
    a = CHUNKS + 4096
    for label, chunk, allowed in (
            ("long enough", [(a, 4000)], {"reply"}),
            ("in parts", [(a + 64 * i, 20) for i in range(200)], {"reply"}),
            ("too short", [(a, 100)], {"chunk"}),
            ("too short, in parts", [(a + 64 * i, 1) for i in range(200)], {"chunk"}),
            ("of no length", [(a, 0)], {"chunk", "reply"}),
            ("empty", [], {"chunk", "reply"})):
        connection.arena.write(CANARY * (ARENA - CHUNKS), ARENA - CHUNKS, CHUNKS)
        xid = next(XIDS)
        data = (encode(xid, reply=[connection.segment(n, at) for at, n in chunk])
                + compound(xid, *to_file(*FILE), read(16, 2000)))
        answer = t.alone(label, data, allowed, connection)
        if not t.alive():
            connection = t.current()
            continue
        at = CHUNKS
        for begin, length in chunk:
            untouched(t, connection, label, at, begin)
            at = begin + length
        untouched(t, connection, label, at, ARENA)
        if answer and answer.header.proc == NOMSG:
            got = b"".join(connection.get(n, at) for (_, n, _), (at, _)
                           in zip(answer.header.reply, chunk))
            stat, results = answer.accepted(got)
            if stat or contents(16, 2000) not in results:
                t.problem(f"{label}: other data")
    # A Reply that has to be in its chunk (RFC 8166, 3.5.3), all of it and with its padding.
    connection = t.current()
    chunk = [(a, 3000), (a + 8192, 1), (a + 16384, 9000)]
    offered = [connection.segment(n, at) for at, n in chunk]
    xid = next(XIDS)
    answer = t.alone("longer than a message",
                     encode(xid, reply=offered) + compound(xid, *to_file(*FILE), read(16, 7001)),
                     {"reply"}, connection)
    if answer and answer.kind == "reply":
        returned = answer.header.reply or []
        got = b"".join(connection.get(n, at) for (_, n, _), (at, _) in zip(returned, chunk))
        if (answer.header.proc != NOMSG or returned != used(offered, len(got)) or len(got) % 4
                or got[-7004:-3] != contents(16, 7001)):
            t.problem(f"longer than a message: {answer.header.proc}, {returned}")
    # A Reply that is too long for a message, without any chunk.
    xid = next(XIDS)
    t.alone("no chunk", encode(xid) + compound(xid, *to_file(*FILE), read(0, 65536)),
            {"chunk"}, connection)


@case
def special_call_in_parts(t):
    """A READ whose Call is a chunk in many parts, and its Reply another."""
    connection = t.current()
    xid = next(XIDS)
    rpc = compound(xid, *to_file(*FILE), getattr_(), read(0, 2000))
    handle, _, offset = connection.put(rpc)
    reads = [(0, handle, min(4, len(rpc) - i), offset + i) for i in range(0, len(rpc), 4)]
    at = CHUNKS + 65536
    reply = [connection.segment(32, at + 64 * i) for i in range(100)]
    answer = t.alone("a READ in parts", encode(xid, NOMSG, reads=reads, reply=reply),
                     {"reply"}, connection)
    if answer and answer.kind == "reply":
        got = b"".join(connection.get(n, at + 64 * i)
                       for i, (_, n, _) in enumerate(answer.header.reply))
        stat, results = answer.accepted(got)
        if stat or contents(0, 2000) not in results:
            t.problem("a READ in parts has other data")


@case
def writes(t):
    """WRITEs whose Read chunk is not where the data should be, or not as long."""
    for label, count, parts, shift, good in (
            ("correct", 3001, [3001], 0, True),
            ("in parts", 3001, [1000, 2000, 1], 0, True),
            ("with its padding", 3001, [3004], 0, True),
            ("an octet short", 3001, [3000], 0, False),
            ("half", 8192, [4096], 0, False),
            ("too long", 100, [5000], 0, None),
            ("where its length is", 3000, [3000], -4, None),
            ("far in front", 3000, [3000], -40, None),
            ("at the second word", 3000, [3000], None, None),
            ("in many parts", 6000, [100] * 60, 0, True)):
        connection = t.current()
        xid = next(XIDS)
        rpc = compound(xid, *to_file(*SCRATCH), write(0, count))
        position = 8 if shift is None else len(rpc) + shift
        data = contents(count, sum(parts))
        at, reads = CHUNKS, []
        for n in parts:
            reads.append((position, *connection.put(data[at - CHUNKS:at - CHUNKS + n], at)))
            at += n
        answer = t.alone(label, encode(xid, reads=reads) + rpc,
                         {"reply"} if good is not None else {"reply", "denied", "lost"},
                         connection, 3)
        t.alive()
        if good is None or not answer or answer.kind != "reply":
            continue
        stat, results = answer.accepted()
        status = struct.unpack_from(">I", results)[0] if stat == 0 else stat
        if good != (status == 0):
            t.problem(f"{label}: accept status {stat}, status {status}")
        if good:
            # Not through the mount, which would be given a delegation.
            got = remote(f"head -c {count} {EXPORT}/{SCRATCH[-1]} | sha256sum").split()[0]
            if got != digest(data[:count]):
                t.problem(f"{label}: the file has other data")


def handle_of(t, *names):
    """The file handle of a file or directory."""
    xid = next(XIDS)
    answer = t.alone("GETFH", encode(xid) + compound(xid, *to_file(*names), getfh()), {"reply"},
                     t.current())
    stat, results = answer.accepted()
    if stat or struct.unpack_from(">I", results)[0]:
        raise ValueError(f"no file handle of {names}: {stat}, {results.hex()}")
    # Behind the status, the tag, the number of results and those of PUTROOTFH and LOOKUP.
    at = 12 + 8 * (1 + len(names)) + 8
    (length,) = struct.unpack_from(">I", results, at)
    return results[at + 4:at + 4 + length]


@case
def cut_paths(t):
    """The first octets of a SYMLINK's path in a Read chunk, and the others behind it.

    The server takes such a path for all of it, and finds the rest where the chunk has its page: in
    it may be what other Calls have left there, which READLINK would tell.
    """
    directory = handle_of(t, SCRATCH[0])
    secret, count = b"S" * 65536, 8
    for _ in range(count):
        # Whatever thread serves the others has had these in its pages.
        xid, connection = next(XIDS), t.current()
        rpc = compound(xid, *to_file(*SCRATCH), write(0, len(secret)))
        t.alone("what is to be kept", encode(xid, reads=[(len(rpc), *connection.put(secret))])
                + rpc, {"reply"}, connection)
    for n, first in enumerate((4, 8, 100, 512) * 2):
        name, path = f"hostile-link-{n}".encode(), b"A" * 1000
        xid, connection = next(XIDS), t.current()
        rpc = symlink3(xid, directory, name, path)
        reads = [(len(rpc), *connection.put(path[:first]))]
        answer = t.alone(f"{first} octets of a path", encode(xid, reads=reads) + rpc + path[first:],
                         {"reply"}, connection)
        t.alive()
        target = remote(f"readlink {EXPORT}/{name.decode()}; rm -f {EXPORT}/{name.decode()}",
                        ok=None)
        if "S" in target:
            t.problem(f"{first} octets of a path: {target.count('S')} octets of others in the link")
        stat, results = answer.accepted() if answer else (None, b"")
        if stat == 0 and results[:4] == bytes(4) and target.strip() != path.decode():
            t.problem(f"{first} octets of a path: another link, of {len(target)} octets")


@case
def many_parts_at_once(t):
    """READs and WRITEs in more segments than a Send Queue holds, all at once."""
    connection = t.current()
    each, count = 200, 12
    connection.earn(count)
    connection.answers.clear()
    messages, areas = [], {}
    for i in range(count):
        xid, at = next(XIDS), CHUNKS + i * 64 * each
        if i % 3 == 2:
            size = 150 * 40
            connection.put(contents(size, size), at)
            rpc = compound(xid, *to_file(*SCRATCH), write(0, size))
            reads = [(len(rpc), *connection.segment(40, at + 40 * n)) for n in range(150)]
            messages.append(encode(xid, reads=reads) + rpc)
        else:
            chunk = [connection.segment(30, at + 64 * n) for n in range(each)]
            rpc = compound(xid, *to_file(*FILE), read(1000 * i, 30 * each))
            messages.append(encode(xid, writes=[chunk]) + rpc)
            areas[xid] = (1000 * i, [at + 64 * n for n in range(each)])
    connection.send_many(messages)
    for message in messages:
        xid = struct.unpack_from(">I", message)[0]
        answer = connection.answer(xid)
        if answer is None or answer.kind != "reply":
            # Where a Read takes a memory region there may be too few of them.
            if answer is None or answer.kind != "chunk" or fabric() != "siw" or xid in areas:
                t.problem(f"a Call in parts: {answer and answer.kind}")
            continue
        status = read_result(answer.accepted()[1])[0]
        if xid in areas:
            offset, places = areas[xid]
            got = b"".join(connection.get(30, at) for at in places)
            if got != contents(offset, len(got)):
                t.problem("a READ in parts has other data")
        if status:
            t.problem(f"a Call in parts has status {status}")


@case
def many_writes_at_once(t):
    """WRITEs and READs that are given up in the middle of their RDMA Reads and Writes."""
    held = []
    for n in range(6):
        connection = Caller()
        connection.earn(16)
        messages = []
        size = 262_144
        for i in range(24):
            xid = next(XIDS)
            segment = connection.segment(size, CHUNKS)
            if (i + n) % 2:
                rpc = compound(xid, *to_file(*FILE), read(0, size))
                messages.append(encode(xid, writes=[[segment]]) + rpc)
            else:
                rpc = compound(xid, *to_file(*SCRATCH), write(0, size))
                messages.append(encode(xid, reads=[(len(rpc), *segment)]) + rpc)
        connection.send_many(messages)
        held.append(connection)
        if n % 3 == 0:
            connection.close()
        elif n % 3 == 1:
            # The region goes, the connection stays.
            connection.arena.close()
        else:
            connection.qp.close()
    t.well()
    for connection in held:
        connection.close()
