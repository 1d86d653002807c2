# SPDX-License-Identifier: GPL-2.0
"""What the hostile server can do wrong in Version Two; see `hostile_cases` for what a case is."""

import struct
import time

import hostile_padding
import hostile_two_short  # noqa: F401 - it enters its cases
from common import Gone, slowness
from hostile_chunks import never_received
from hostile_two import CASES, FIRST, case, first
from rpcrdma2_header import (BAD_PROPVAL, BAD_XDR, ERROR, GRANT, HOST_AUTH, Header,
                             INVAL_CONT, INVAL_HTYPE, READ_CHUNKS, REPLY_INLINE, REPLY_MIDDLE,
                             REPLY_RESOURCE, SEGMENT_COUNT, SEGMENT_SIZE, SEGMENTS, SYSTEM, VERS, VERS_MISMATCH, WRITE_CHUNKS,
                             WRITE_RESOURCE, call, error, middle, prefix, properties, reply, reply_external)

__all__ = ["CASES", "FIRST"]

# ---- Whole messages -----------------------------------------------------


@case("GETATTR", "ok")
def correct(r):
    """A correct Reply, to see that the server works."""
    r.send()


@case("GETATTR", "ok")
def correct_in_parts(r):
    """A small Reply in five parts."""
    r.send(*r.parts(size=24))


@case("READDIR", "ok")
def correct_readdir(r):
    """A Reply that is too long for one message, or nearly so."""
    parts = r.parts(size=512)
    r.note(f"{len(parts)} parts")
    r.send(*parts)


@case("READ", "ok")
def correct_read(r):
    """A READ with a Write chunk."""
    r.send()


@case("WRITE", "ok")
def correct_write(r):
    """A WRITE with a Read chunk: `call` in `hostile_two` compares it with the item's length."""
    if not r.call.reads:
        r.connection.wrong("a WRITE without a Read chunk")
    r.send()


def runt(length):
    """A case that sends only the first octets of the Reply."""
    def cut(r):
        r.send(r.parts()[0][:length])
    cut.__name__ = f"cut_at_{length}"
    cut.__doc__ = f"Only the first {length} octets of the Reply."
    case("GETATTR", "error")(cut)


for n in (0, 15, 16, 18, 20, 24, 27, 60):
    runt(n)


def version(number):
    """A case with another version number."""
    def other(r):
        message = r.parts()[0]
        r.send(message[:4] + struct.pack(">I", number) + message[8:])
    other.__name__ = f"version_{number}"
    other.__doc__ = f"The Reply claims version {number}."
    case("GETATTR", "error")(other)


for n in (0, 1, 3, 0xFFFFFFFF):
    version(n)


def header_type(number):
    """A case with another header type."""
    def other(r):
        message = r.parts()[0]
        r.send(message[:12] + struct.pack(">I", number) + message[16:])
    other.__name__ = f"type_{number}"
    other.__doc__ = f"A Reply with header type {number}."
    case("GETATTR", "error")(other)


for n in (0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 0xFFFFFFFF):
    header_type(n)


@case("GETATTR", "ok")
def duplicate(r):
    """The same Reply twice."""
    r.send()
    r.send()


@case("GETATTR")
def unsolicited(r):
    """Ten Replies that nobody asked for, then the right one."""
    for i in range(10):
        xid = r.xid + 1000 + i
        r.send(reply(xid, r.credit, struct.pack(">IIIIII", xid, 1, 0, 0, 0, 0)))
    r.send()


@case("READ")
def invalidate_foreign(r):
    """Send With Invalidate of a handle that is not of the Call."""
    r.send(invalidate=0xDEAD_BE00)


@case("READ")
def invalidate_not_named(r):
    """Send With Invalidate of the Call's own handle, which is what it names."""
    r.prepare()
    r.send(invalidate=r.call.writes[0][0][0] if r.call.writes else None)


def ends(r):
    """Waits for the client to end the connection, and notes whether it does: sooner than for want of a Reply."""
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        try:
            r.connection.poll()
            if r.connection.given_up():
                raise Gone("given up")
        except Gone:
            r.note("ended")
            raise
        time.sleep(0.005)
    r.note("goes on")


def invalidate_with(name, make):
    """A case in which a message that is no Reply invalidates the handle of the Call, once."""
    def spoil(r):
        if r.connection.server.hits == 1:
            handle = r.call.writes[0][0][0]
            r.send(make(r), invalidate=handle)
            ends(r)
        r.send()
    spoil.__name__, spoil.__doc__ = f"invalidate_with_{name}", f"Send With Invalidate of {name}."
    case("READ")(spoil)


# The client cannot know what is left of its registrations, so these end the connection.
invalidate_with("grant", lambda r: prefix(0, r.credit, GRANT))
invalidate_with("properties", lambda r: properties(r.credit, [(1, 100)]))
invalidate_with("middle", lambda r: middle(r.xid ^ 0x4444, r.credit, REPLY_MIDDLE, 400,
                                           struct.pack(">II", r.xid ^ 0x4444, 1)))
invalidate_with("call", lambda r: reverse_call(r, 78))
invalidate_with("error", lambda r: error(r.xid ^ 0x4444, r.credit, SYSTEM))
invalidate_with("stray", lambda r: reply(r.xid ^ 0x4444, r.credit, struct.pack(
    ">IIIIII", r.xid ^ 0x4444, 1, 0, 0, 0, 0)))


@case("GETATTR", "error")
def spoilt_for_ever(r):
    """A Reply that ends the connection, on each of them: see `hard` in tests/guest/hostile.py."""
    r.send(prefix(r.xid, r.credit, REPLY_INLINE) + struct.pack(">I", 2))


@case("GETATTR", "error")
def silence(_r):
    """No Reply at all."""


# The same as in Version One.
case("READDIR")(never_received)


@case("GETATTR", "error")
def closed(_r):
    """No Reply: the connection is closed."""
    raise Gone("as the case wants")


# ---- Continuation ---------------------------------------------------------


def lie(name, text, change, expect="error"):
    """A case about the octets that remain: `change` of the right value."""
    def spoil(r):
        parts = r.parts(size=24)
        for i, message in enumerate(parts[:-1]):
            rest = struct.unpack_from(">I", message, 16)[0]
            wrong = change(i, rest) & 0xFFFFFFFF
            parts[i] = message[:16] + struct.pack(">I", wrong) + message[20:]
        r.send(*parts)
    spoil.__name__, spoil.__doc__ = f"rest_{name}", text
    case("GETATTR", expect)(spoil)


lie("more", "Four octets more are to come than do.", lambda i, n: n + 4)
lie("less", "Four octets fewer are to come than do.", lambda i, n: n - 4)
lie("changes", "The second part has its own view of the rest.", lambda i, n: n + 4 * (i == 1))
lie("odd", "The rest is an odd number.", lambda i, n: n + 1)
lie("none", "Nothing remains, says each part.", lambda i, n: 0)
lie("all", "2^32 - 1 octets remain.", lambda i, n: -1)
lie("long", "64 KiB remain.", lambda i, n: 65536 - 24 * i)
lie("fits", "As much remains as may, and then less comes.", lambda i, n: (36 << 10) - 24 * (i + 1))


@case("GETATTR", "error")
def part_missing(r):
    """A part in the middle does not come."""
    parts = r.parts(size=24)
    r.send(*parts[:1], *parts[2:])


@case("GETATTR", "error")
def part_twice(r):
    """A part comes twice."""
    parts = r.parts(size=24)
    r.send(*parts[:2], parts[1], *parts[2:])


@case("GETATTR", "error")
def parts_turned(r):
    """Two parts in the wrong order."""
    parts = r.parts(size=24)
    r.send(parts[0], parts[2], parts[1], *parts[3:])


@case("GETATTR", "error")
def part_empty(r):
    """A part without octets."""
    parts = r.parts(size=24)
    rest = struct.unpack_from(">I", parts[0], 16)[0]
    r.send(parts[0], middle(r.xid, r.credit, REPLY_MIDDLE, rest, b""), *parts[1:])


@case("GETATTR", "error")
def last_missing(r):
    """The last part does not come."""
    r.send(*r.parts(size=24)[:-1])


@case("GETATTR", "error")
def last_with_chunk(r):
    """The last part has a Write chunk that nobody offered."""
    parts = r.parts(size=24)
    last = parts[-1]
    r.send(*parts[:-1], reply(r.xid, r.credit, last[20:], [[(0x1234, 4096, 0x10000)]]))


@case("GETATTR", "ok")
def grant_between(r):
    """A GRANT between two parts: it is dropped with an error that has its transaction ID (6.3.9)."""
    parts = r.parts(size=24)
    r.send(parts[0], prefix(0, r.credit, GRANT))
    connection, deadline = r.connection, time.monotonic() + 10 * slowness()
    answers = []
    while not answers and time.monotonic() < deadline:
        connection.poll()
        answers = [data for data in connection.arrived if Header(data).htype == ERROR]
        time.sleep(0.001)
    told = [(Header(data).xid, *Header(data).error) for data in answers]
    if told != [(0, INVAL_CONT)]:
        connection.wrong(f"{told} is the answer to a GRANT between parts")
    r.send(*parts[1:])


@case("GETATTR")
def reply_between(r):
    """Another Reply between two parts."""
    parts = r.parts(size=24)
    other = r.xid ^ 0x1111
    r.send(parts[0], reply(other, r.credit, struct.pack(">IIIIII", other, 1, 0, 0, 0, 0)), *parts[1:])


@case("GETATTR")
def call_between(r):
    """A Call between two parts."""
    parts = r.parts(size=24)
    r.send(parts[0], reverse_call(r, 77), *parts[1:])


@case("GETATTR")
def error_between(r):
    """An error for the same Call between two parts."""
    parts = r.parts(size=24)
    r.send(parts[0], error(r.xid, r.credit, SYSTEM), *parts[1:])


@case("GETATTR")
def sequences_mixed(r):
    """The parts of two Replies in turn."""
    parts = r.parts(size=24)
    other = r.xid ^ 0x2222
    mixed = []
    for i, part in enumerate(parts):
        mixed += [part, middle(other, r.credit, REPLY_MIDDLE, 400 - 8 * i,
                               struct.pack(">II", other, 1))]
    r.send(*mixed)


@case("GETATTR")
def strangers_in_parts(r):
    """The first parts of Replies that nobody waits for, then the Reply."""
    for i in range(8):
        other = r.xid ^ (0x3333 + i)
        r.send(middle(other, r.credit, REPLY_MIDDLE, 400, struct.pack(">II", other, 1)))
    r.send()


@case("READ")
def read_in_parts(r):
    """The data of a READ in parts although there is a chunk for them."""
    r.body = r.answer.inline()[:20_000]
    r.writes = [[(h, 0, o) for h, _, o in chunk] for chunk in r.call.writes]
    r.send()


hostile_padding.enter(case)

# ---- Credits ----------------------------------------------------------------


@case("GETATTR", "ok")
def credits_none_for_a_while(r):
    """Nothing may be sent any more, until a GRANT says otherwise: then the connection goes on."""
    message = r.parts()[0]
    r.send(message[:8] + bytes(4) + message[12:])
    # The next Call of the client has to wait for it.
    r.connection.two.put_off(0.2)


@case("GETATTR")
def credits_none_for_ever(r):
    """Nothing may be sent any more."""
    message = r.parts()[0]
    r.send(message[:8] + bytes(4) + message[12:])
    r.connection.two.expect_silence()


@case("GETATTR")
def credits_behind(r):
    """The limit goes back by more than the window."""
    message = r.parts()[0]
    r.send(message[:8] + struct.pack(">I", (r.credit - 1000) & 0xFFFFFFFF) + message[12:])
    r.connection.two.expect_silence()


@case("GETATTR", "ok")
def credits_far(r):
    """2^31 - 2 messages may be sent; the next Reply says the truth."""
    message = r.parts()[0]
    r.send(message[:8] + struct.pack(">I", r.credit + 0x7FFFFF00) + message[12:])


@case("GETATTR")
def credits_too_far(r):
    """2^31 messages more may be sent: it counts as none."""
    message = r.parts()[0]
    r.send(message[:8] + struct.pack(">I", (r.credit + 0x80000000) & 0xFFFFFFFF) + message[12:])
    r.connection.two.expect_silence()


@case("GETATTR", "ok")
def grants(r):
    """Forty GRANTs before the Reply, which is within the window."""
    for _ in range(40):
        r.send(prefix(0, r.credit, GRANT))
    r.send()


@case("GETATTR")
def grant_storm(r):
    """As many GRANTs as the client takes."""
    for _ in range(2000):
        r.send(prefix(0, r.credit, GRANT))
    r.send()


@case("GETATTR")
def reply_storm(r):
    """Many more Replies than the client has Receives for."""
    for _ in range(600):
        r.send()


# ---- Properties ---------------------------------------------------------------


@case("GETATTR", "ok")
def properties_again(r):
    """CONNPROP messages behind the last one."""
    for last in (True, False):
        r.send(properties(r.credit, [(1, 100)], last=last))
    r.send()


@case("GETATTR", "ok")
def properties_flood(r):
    """Twenty of them, and each is answered with an error."""
    for _ in range(20):
        r.send(properties(r.credit, [(99, bytes(1000))] * 3))
    r.send()


# ---- Errors -------------------------------------------------------------------


def once(name, procedure, words, expect):
    """A case in which the first Call is answered with an error, and the next one well."""
    def refuse(r):
        if not getattr(r.connection, name, False):
            setattr(r.connection, name, True)
            r.error(*words(r))
            return
        r.note("again")
        for what, there in (("read-chunk", r.call.reads), ("call-chunk", r.call.chunk),
                            ("write-chunk", r.call.writes), ("reply-chunk", r.call.reply)):
            if there:
                r.note(what)
        r.send()
        # What the client has learnt is for this connection only. It lasts until the case ends: a Reply whose
        # regions were not fenced when it was lost comes to nothing.
        r.connection.only_for = name
    refuse.__name__, refuse.__doc__ = name, f"{procedure} is answered with an error once."
    case(procedure, expect)(refuse)


def always(name, procedure, words, expect="error", executed=False):
    """A case in which every Call is answered with an error, maybe one that was executed."""
    def refuse(r):
        if executed:
            before = vars(r.connection).setdefault("executed", set())
            if r.xid in before:
                r.connection.wrong(f"{procedure} {r.xid:#x} comes again, and was executed")
            before.add(r.xid)
        r.error(*words(r))
    refuse.__name__, refuse.__doc__ = name, f"{procedure} is answered with an error always."
    case(procedure, expect)(refuse)


#: What another form of the Call helps against.
once("refuse_read_chunks", "WRITE", lambda r: (READ_CHUNKS, 0), "ok")
once("refuse_write_chunks", "READ", lambda r: (WRITE_CHUNKS, 0), "ok")
once("refuse_padding", "READ", lambda r: (WRITE_RESOURCE, 1, r.call.writes[0][0][1] + 3
                                          if r.call.writes else 0), "ok")


def stepwise(name, procedure, first):
    """A case in which one error makes the client use many segments, and the next one fewer."""
    def refuse(r):
        done = getattr(r.connection, name, 0)
        setattr(r.connection, name, done + 1)
        if done == 0:
            r.error(first, 0)
            return
        most = max(len(r.call.chunk), len(r.call.reply or ()))
        if done == 1:
            r.note("many segments" if most > 1 else f"wrong: only {most} segments")
            r.error(SEGMENTS, 1)
            return
        r.note("again" if most <= 1 else f"wrong: again {most} segments")
        # These may have a region of their own, if one is enough.
        for what, there in (("read-chunk", r.call.reads), ("write-chunk", r.call.writes)):
            if there:
                r.note(what)
        r.send()
        r.connection.only_for = name
    refuse.__name__, refuse.__doc__ = name, f"{procedure} is answered with an error, and then with SEGMENTS."
    case(procedure, "ok")(refuse)


stepwise("refuse_call_segments", "WRITE", READ_CHUNKS)
stepwise("refuse_reply_segments", "READ", WRITE_CHUNKS)
#: What nothing helps against.
once("segments_unknown", "READ", lambda r: (SEGMENTS, 0), "error")
once("segments_enough", "READ", lambda r: (SEGMENTS, 500), "error")
once("write_unknown", "READ", lambda r: (WRITE_RESOURCE, 0, 0), "error")
once("write_too_long", "READ", lambda r: (WRITE_RESOURCE, 1, 1 << 30), "error")
once("reply_unknown", "READLINK", lambda r: (REPLY_RESOURCE, 0), "error")
once("reply_too_long", "READLINK", lambda r: (REPLY_RESOURCE, 1 << 30), "error")
# There was a Reply chunk with more room than that.
once("reply_refused", "READLINK", lambda r: (REPLY_RESOURCE, 4000), "error")
once("reply_chunk_refused", "READDIR", lambda r: (REPLY_RESOURCE, 8000), "error")
once("chunks_of_getattr", "GETATTR", lambda r: (READ_CHUNKS, 0), "error")
for code, rest in ((BAD_XDR, ()), (BAD_PROPVAL, ()), (INVAL_CONT, ()), (SYSTEM, ())):
    once(f"error_{code}", "GETATTR", lambda r, words=(code, *rest): words, "error")
    always(f"error_{code}_always", "WRITE", lambda r, words=(code, *rest): words)
#: What ends the connection, after which the Call is sent again.
for code, words in ((VERS, (1, 1)), (VERS, (2, 2)), (INVAL_HTYPE, ()), (VERS_MISMATCH, ())):
    once(f"error_{code}_{sum(words[:1])}", "GETATTR",
         lambda r, words=(code, *words): words, "any")
for code, values in ((READ_CHUNKS, (0,)), (WRITE_CHUNKS, (0,)), (SEGMENTS, (1,)),
                     (WRITE_RESOURCE, (1, 1 << 20)), (REPLY_RESOURCE, (8192,))):
    for procedure in ("READ", "WRITE", "READDIR"):
        # What has no room for its Reply was executed, and a WRITE may not be twice (6.6.4).
        always(f"{procedure.lower()}_error_{code}", procedure,
               lambda r, words=(code, *values): words,
               executed=procedure == "WRITE" and code in (WRITE_RESOURCE, REPLY_RESOURCE))


@case("GETATTR", "error")
def error_unknown(r):
    """An error code that there is not."""
    r.error(77)


@case("GETATTR", "error")
def error_cut(r):
    """An error without a code."""
    r.send(prefix(r.xid, r.credit, 4))


@case("GETATTR", "error")
def error_other(r):
    """An error for an XID that was never used."""
    r.error(SYSTEM, xid=r.xid ^ 0x77770000)


@case("GETATTR")
def error_and_reply(r):
    """An error, and then the Reply."""
    r.error(SYSTEM)
    r.send()


@case("WRITE", "error")
def segments_down(r):
    """The number of segments goes down and down."""
    left = getattr(r.connection, "segments_down", 20)
    r.connection.segments_down = left - 1
    r.error(SEGMENTS, max(left, 1))


# ---- Chunks ---------------------------------------------------------------------


@case("GETATTR", "error")
def external_unsolicited(r):
    """REPLY_EXTERNAL although no Reply chunk was offered."""
    r.prepare()
    r.send(reply_external(r.xid, r.credit, [(0x1234, 112, 0x10000)]))


@case("GETATTR", "error")
def external_huge(r):
    """A Reply chunk of 2^32 - 1 segments."""
    r.send(prefix(r.xid, r.credit, 11) + struct.pack(">III", 0, 1, 0xFFFFFFFF))


@case("READDIR", "error")
def external_of_another(r):
    """The Reply in the Reply chunk is that of another Call."""
    r.prepare()
    body = r.answer.inline()
    r.chunk, _ = r.connection.fill(r.call.reply, struct.pack(">I", r.xid ^ 0x10000) + body[4:])
    r.body = b""
    r.send()


@case("READ", "error")
def external_for_write_chunk(r):
    """REPLY_EXTERNAL into the Write chunk."""
    r.prepare()
    chunk = r.call.writes[0] if r.call.writes else [(0x1234, 112, 0x10000)]
    r.send(reply_external(r.xid, r.credit, chunk))


@case("READ")
def write_chunk_longest(r):
    """Every segment claims 2^32 - 1 octets."""
    r.prepare()
    r.writes = [[(h, 0xFFFFFFFF, o) for h, _, o in chunk] for chunk in r.writes]
    r.send()


@case("READ")
def write_chunk_other_handle(r):
    """The chunk comes back with another handle."""
    r.prepare()
    r.writes = [[(h ^ 0x1234, n, o) for h, n, o in chunk] for chunk in r.writes]
    r.send()


# ---- The reverse direction ------------------------------------------------------


def reverse_call(r, xid, **chunks):
    """A Call to the client."""
    return call(xid, r.credit, struct.pack(">IIIIIIIIII", xid, 0, 2, 0x40000000, 1, 0, 0, 0, 0, 0),
                **chunks)


@case("GETATTR")
def reverse_flood(r):
    """Twenty Calls to a client without a service for them, then the Reply."""
    for i in range(20):
        r.send(reverse_call(r, i))
    r.send()


@case("GETATTR")
def reverse_errors_wait(r):
    """Calls that the client may not answer: eight errors wait, and the ninth ends the connection."""
    if r.connection.server.hits == 1:
        try:
            # One credit may be left.
            for i in range(10):
                message = reverse_call(r, i)
                r.send(message[:8] + struct.pack(">I", r.connection.two.received) + message[12:])
        except Gone:
            r.note("ended")
            raise
        ends(r)
    r.send()


@case("GETATTR", "ok")
def reverse_chunks(r):
    """Calls with chunks, or in parts, to a client without a service for them."""
    segment = (0x1234, 4096, 0x10000)
    r.send(reverse_call(r, 5, reads=[(8, *segment)]))
    r.send(reverse_call(r, 6, writes=[[segment]]))
    r.send(reverse_call(r, 7, reply=[segment]))
    r.send(middle(8, r.credit, 9, 400, struct.pack(">II", 8, 0)))
    r.send(reverse_call(r, 8))
    r.send()


@case("GETATTR", "ok")
def reverse_same_xid(r):
    """A Call with the transaction ID of the Call that is being answered."""
    r.send(reverse_call(r, r.xid))
    r.send()


# ---- The first message of the server ------------------------------------------------


@first("ok", 1)
def first_silence(_connection):
    """Nothing: the client goes on with Version One."""
    return False


@first("ok", 1)
def first_closed(_connection):
    """The end of the connection."""
    raise Gone("as the case wants")


@first("ok", 1)
def first_dropped(_connection):
    """The end of the connection as soon as it is there, before any message: see `Server.events`."""
    return False


def one_message(name, make, goes_on, expect="ok", version=None):
    """A case in which the first message is another one than it should be."""
    def run(connection):
        message = make(connection.two.credit())
        connection.two.tell(message)
        connection.send_message(message)
        connection.two.sent += 1
        return goes_on
    run.__name__, run.__doc__ = f"first_{name}", f"First there is: {name}."
    first(expect, version)(run)


# What leaves no doubt that it is no Version Two, or a refusal.
one_message("vers_one", lambda c: error(0, c, VERS, 1, 1), False, version=1)
one_message("vers_two", lambda c: error(0, c, VERS, 2, 2), False, version=1)
one_message("bad_xdr", lambda c: error(0, c, BAD_XDR), False, version=1)
one_message("version_7", lambda c: prefix(0, c, 7, vers=7), False, version=1)
one_message("type_99", lambda c: prefix(0, c, 99), False, version=1)
one_message("error_without_code", lambda c: prefix(0, c, 4), False, version=1)
one_message("vers_without_range", lambda c: prefix(0, c, 4) + struct.pack(">I", VERS), False, version=1)
one_message("vers_backwards", lambda c: error(0, c, VERS, 2, 1), False, version=1)
# What does not keep the client from Version Two.
one_message("vers_other_xid", lambda c: error(5, c, VERS, 1, 1), True, version=2)
one_message("runt", lambda c: bytes(12), True, version=2)
one_message("grant", lambda c: prefix(0, c, GRANT), True, version=2)
one_message("call", lambda c: call(9, c, struct.pack(">II", 9, 0)), True, version=2)
one_message("reply", lambda c: reply(9, c, struct.pack(">IIIIII", 9, 1, 0, 0, 0, 0)), True, version=2)
one_message("bad_property", lambda c: properties(c, [(2, bytes(3))]), True, version=2)
one_message("property_beyond", lambda c: properties(c)[:-4] + struct.pack(">III", 1, 2, 0xFFFFFFFF),
            True, version=2)
one_message("properties_endless", lambda c: properties(c)[:-4] + struct.pack(">I", 0xFFFFFFFF), True,
            version=2)
one_message("largest", lambda c: properties(c, [(n, 0xFFFFFFFF) for n in range(1, 6)]), False,
            version=2)
one_message("shorter_segments", lambda c: properties(c, [(SEGMENT_SIZE, 131_072)]), False, version=2)
one_message("many_segments", lambda c: properties(c, [(SEGMENT_SIZE, 65_536), (SEGMENT_COUNT, 20)]),
            False, version=2)
# The largest WRITE does not fit these: it is sent in Version One.
one_message("short_segments", lambda c: properties(c, [(SEGMENT_SIZE, 65_536)]), False, version=1)
one_message("shortest_segments", lambda c: properties(c, [(SEGMENT_SIZE, 8191)]), False, version=1)
one_message("one_segment", lambda c: properties(c, [(SEGMENT_COUNT, 1)]), False, version=1)
one_message("no_segment", lambda c: properties(c, [(SEGMENT_COUNT, 0)]), False, version=1)
one_message("smallest", lambda c: properties(c, [(n, 0) for n in range(1, 6)]), False, version=1)
one_message("unknown", lambda c: properties(c, [(n, bytes(40)) for n in range(50, 90)]), False,
            version=2)
# What is Version Two, and of no use: nothing may be sent, or nothing but a part comes.
one_message("no_credits", lambda c: properties(0), False, "error")
one_message("middle", lambda c: middle(9, c, REPLY_MIDDLE, 400, struct.pack(">II", 9, 1)), True, "any")


def material(credit, octets, last=True):
    """A CONNPROP message with host authentication material."""
    value = struct.pack(">I", len(octets)) + octets + bytes(-len(octets) % 4)
    return properties(credit, [(HOST_AUTH, value)], last=last)


# To a client that does not ask for host authentication.
one_message("refusal", lambda c: material(c, b"RPRX" + bytes(4)), False, "EACCES")
one_message("material", lambda c: material(c, b"something" * 100), False, version=2)
# To one that requires it, see tests/guest/hostile.py.
one_message("required_none", properties, False, "EACCES")
one_message("required_refusal", lambda c: material(c, b"RPRX" + bytes(4)), False, "EACCES")
one_message("required_other", lambda c: material(c, b"something" * 100), False, "EACCES")
one_message("required_proof", lambda c: material(
    c, b"RPRX" + struct.pack(">II", 68, 2) + bytes(64), last=False), False, "EACCES")
one_message("required_proof_last", lambda c: material(
    c, b"RPRX" + struct.pack(">II", 68, 2) + bytes(64)), False, "EACCES")
one_message("required_echo", lambda c: material(
    c, b"RPRX" + struct.pack(">II", 36, 1) + bytes(32), last=False), False, "EACCES")
one_message("required_endless", lambda c: material(
    c, b"RPRX" + struct.pack(">I", 0xFFFFFFFF) + bytes(1000), last=False), False, "EACCES")
one_message("required_half", lambda c: material(
    c, b"RPRX" + struct.pack(">II", 68, 2), last=False), False, "error")
one_message("required_call", lambda c: call(9, c, struct.pack(">II", 9, 0)), False, "EACCES")
one_message("required_one", lambda c: error(0, c, VERS, 1, 1), False, "EACCES")


@first("any")
def first_middles(connection):
    """CONNPROP_MIDDLE and then nothing: the client does not wait for ever."""
    connection.send_message(properties(connection.two.credit(), last=False))
    return False


@first("ok", 2)
def first_many_middles(connection):
    """Thirty CONNPROP_MIDDLE, and then the last one."""
    for _ in range(30):
        connection.send_message(properties(connection.two.credit(), [(2, 8192)], last=False))
    return True
