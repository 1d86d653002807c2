# SPDX-License-Identifier: GPL-2.0
"""Cases of the hostile client in the protocol of 2016 (draft-cel-nfsv4-rpcrdma-version-two-01, called B below, and
draft-dnoveck-nfsv4-rpcrdma-xcharext-03, called X)."""

import collections
import os
import re
import struct
import time

import callback_setup
from common import Failure, Gone, check, log, remote, slow, slowness, wait_for, watchdog
from hostile_2016_caller import EarlierCaller
from hostile_attack import FILE, contents
from hostile_caller import XIDS
from hostile_calls_callback import FILES
from hostile_qp import MR, WINDOWS
from nfs41_session import Session
from nfs_server import EXPORT
from rpc_message import compound, getattr_, read, read_result, to_file
from rpcrdma2016_words import (ANSWERED, ASK, BAD_HEADER, CALL, INLINE, INVAL_OPTION, OPTIONAL, REPLY, TELL, TOLD, is_like,
                               octets, shown)

#: Every case by name, in the order in which they are run.
CASES = {}


def case(function):
    """Enters a function into `CASES`."""
    CASES[function.__name__] = function
    return function


def finish(t, label, connection):
    """Notes what the server has done wrong on a connection, and ends it."""
    for text in connection.wrong:
        t.problem(f"{label}: {text}")
    connection.close()


def attempt(t, label, connection, text, expected, lost=False, alive=True, **names):
    """Sends one message and compares what comes with what is expected: one message, or none; and then an answer to a
    NULL Call if the connection is to be alive, or its end."""
    xid, got = next(XIDS), []
    try:
        connection.send_message(octets(text, xid, names))
        if expected:
            connection.hear(xid)
        if lost:
            if not connection.lost():
                t.problem(f"{label}: the connection goes on")
        elif alive and not connection.null():
            t.problem(f"{label}: a NULL Call is not answered")
        got = connection.said(xid)
    except Gone as x:
        # A Send may not have waited for what came back.
        connection.lost(within=1)
        got = [m for m in connection.answers if m.xid == xid]
        if not lost:
            t.problem(f"{label}: lost: {x}")
    is_right = len(got) == (expected is not None) and all(is_like(m.data, expected, xid) for m in got)
    wanted = expected or "nothing"
    t.compare(label, wanted if is_right else " and ".join(shown(m.data) for m in got) or "nothing", {wanted})


def alone(t, label, text, expected, told=True, **how):
    """The same on a connection of its own, which has exchanged properties if it is told to."""
    connection = EarlierCaller()
    if told:
        connection.open()
    attempt(t, label, connection, text, expected, **how)
    finish(t, label, connection)


def several(t, rows, told=True):
    """The same with several messages `(label, text, answer)`, which the connection has to survive."""
    connection = EarlierCaller()
    if told:
        connection.open()
    for label, text, expected in rows:
        attempt(t, label, connection, text, expected)
        if connection.ended:
            connection = EarlierCaller().open()
    finish(t, "several", connection)


@case
def first_messages(t):
    """B 5: what a connection begins with says what it speaks."""
    for label, text, expected in (
            ("a Call", CALL, REPLY),
            ("properties", TELL, TOLD),
            ("no properties", "X 2 20 5 0 1 8  0 0", TOLD),
            ("a request", ASK, ANSWERED),
            ("changes without properties", "X 2 20 5 0 4 10  1 1 4 2000", None),
            ("an unknown operation", "X 2 20 5 0 63 0", INVAL_OPTION),
            ("one with octets in it", "X 2 20 5 0 63 7  1 2", INVAL_OPTION),
            ("one with a length beyond the message", "X 2 20 5 0 63 ffffffff", BAD_HEADER),
            ("one with a payload", "X 2 20 5 0 63 0 NULL", INVAL_OPTION),
            ("a wrong layout", "X 2 20 0 0 0 0 NULL", BAD_HEADER)):
        alone(t, f"first, {label}", text, expected, told=False)
    for procedure in ("2", "3", "e", "ffffffff"):
        alone(t, f"first, procedure {procedure}", f"X 2 20 {procedure} 0 0 0 0", "X 2 c 4 4", told=False, lost=True)
    for label, text in (("20 octets of an OPTIONAL", "X 2 20 5 0"), ("24 octets of it", "X 2 20 5 0 1")):
        alone(t, f"first, {label}", text, "X 2 c 4 4", told=False, lost=True)
    for version in ("3", "0", "ffffffff"):
        alone(t, f"first, version {version}", f"X {version} 20 0 0 0 0 0 NULL", f"X {version} c 4 1 1 2", told=False)
    for length in (0, 4, 0xC, 0xF):
        connection = EarlierCaller()
        connection.send_message(octets(f"[{length:x} {CALL}", next(XIDS)))
        connection.send_message(octets("X 2 20 4 2", next(XIDS)))
        if not connection.null():
            t.problem(f"first, {length} octets: no answers any more")
        if len(connection.answers) != 1:
            t.problem(f"first, {length} octets: answers to nothing")
        finish(t, "first, runts", connection)


@case
def other_dialects(t):
    """Who has begun with -07 gets no answer of this protocol, and the other way round."""
    connection = EarlierCaller()
    connection.send_message(octets("0 2 20 5", 0))
    deadline = time.monotonic() + 10 * watchdog()
    while not any(m.proc == 7 for m in connection.answers) and time.monotonic() < deadline:
        connection.take()
    check(connection.answers, "no properties of -07")
    connection.wrong.clear()
    xid = connection.say(CALL)
    answer = connection.hear(xid)
    if answer is None or answer.data[12:20] != struct.pack(">II", 4, 4):
        t.problem(f"a Call of 2016 in -07: {answer and shown(answer.data)}")
    connection.close()
    several(t, [(f"header type {htype} of -07", f"X 2 20 {htype:x} 0 0 0 0 NULL", BAD_HEADER)
                for htype in range(6, 14)]
            + [("version one", "X 1 20 0 0 0 0 NULL", "X 1 c 4 1 2 2"),
               ("version three", "X 3 20 0 0 0 0 NULL", "X 3 c 4 1 1 2")])


@case
def headers(t):
    """B 4.2: the words of a header."""
    names = {"h": 0xDEADBE00}
    rows = [
        ("without a direction", "X 2 20 0 0 0 0 NULL", BAD_HEADER),
        ("a Call that is said to be a Reply", "X 2 20 0 1 0 0 0 NULL", None),
        ("direction 2", "X 2 20 0 2 0 0 0 NULL", BAD_HEADER),
        ("a Reply that is said to be a Call", "X 2 20 0 0 0 0 0  X 1 0 0 0 0", BAD_HEADER),
        ("another transaction", "X 2 20 0 0 0 0 0  77777777 0 2 186a3 4 0 0 0 0 0", BAD_HEADER),
        ("a Read list neither there nor not", "X 2 20 0 0 2 0 0 NULL", BAD_HEADER),
        ("a Write list neither there nor not", "X 2 20 0 0 0 2 0 NULL", BAD_HEADER),
        ("a Reply chunk neither there nor not", "X 2 20 0 0 0 0 2 NULL", BAD_HEADER),
        ("octets behind NOMSG", "X 2 20 1 0  1 0 h 28 0 1000 0  0 0  NULL", BAD_HEADER),
        ("NOMSG without any", "X 2 20 1 0  0 0 0", BAD_HEADER),
        ("NOMSG of no octets", "X 2 20 1 0  1 0 h 0 0 1000 0  0 0", BAD_HEADER),
        ("NOMSG that is a Reply", "X 2 20 1 1  0 0  1 1 h 100 0 1000", None),
        ("segments beyond the message", "X 2 20 0 0  0  1 ffffff h 1 0 0  0  0 NULL", BAD_HEADER),
        ("RDMA_MSGP", "X 2 20 2 0 0 0 0 NULL", BAD_HEADER),
        ("RDMA_DONE", "X 2 20 3 0 0 0 0 NULL", BAD_HEADER),
        ("procedure 14", "X 2 20 e 0 0 0 0 NULL", BAD_HEADER),
        ("an error", "X 2 20 4 2", None),
        ("an error with no code", "X 2 20 4", None),
        ("an error of another code", "X 2 20 4 63", None),
        ("an error about an operation", "X 2 20 4 3", None),
        ("16 octets", "X 2 20 5", None),
        ("24 octets", "X 2 20 0 0 0", None),
        ("no credits", "X 2 0 0 0 0 0 0 NULL", REPLY),
        ("all credits", "X 2 ffffffff 0 0 0 0 0 NULL", REPLY),
    ]
    several(t, [(label, text.replace(" h ", f" {names['h']:x} "), answer) for label, text, answer in rows])
    # Each header cut at each word: an answer, or none, and never anything else.
    connection = EarlierCaller().open()
    whole = octets("X 2 20 0 0  1 70 1 1 0 0  0  1 1 1 1 0 0  0  0 NULL", 0)
    for length in range(0, 76, 1 if not slow() else 4):
        xid = next(XIDS)
        message = bytearray(whole[:length])
        message[:4] = struct.pack(">I", xid)[:min(length, 4)]
        connection.send_message(bytes(message))
        if length % 8 == 0 and not connection.null():
            t.problem(f"{length} octets of a Call: no answers any more")
    connection.barrier()
    finish(t, "cut", connection)


@case
def properties(t):
    """X 2.1 and 4.1: the first properties, right and wrong."""
    for label, text, expected in (
            ("a value of no length", "X 2 20 5 0 1 10  1 1 0  0", TOLD),
            ("unknown ones", "X 2 20 5 0 1 34  4 63 4 1 ffffff00 6 1 20000 3 0 2 0 0", TOLD),
            ("one of them twice", "X 2 20 5 0 1 20  2 1 4 4000 1 4 2000 0", TOLD),
            ("a subset of everything", "X 2 20 5 0 1 44  1 1 4 2000  c " + "ffffffff " * 12, TOLD),
            ("two octets of a size", "X 2 20 5 0 1 14  1 1 2 20000000 0", BAD_HEADER),
            ("eight octets of a size", "X 2 20 5 0 1 18  1 1 8 0 2000 0", BAD_HEADER),
            ("an octet of a flag", "X 2 20 5 0 1 14  1 2 1 1000000 0", BAD_HEADER),
            ("a flag of 2", "X 2 20 5 0 1 14  1 2 4 2 0", BAD_HEADER),
            ("level 3", "X 2 20 5 0 1 14  1 3 4 3 0", BAD_HEADER),
            ("a good one and a bad one", "X 2 20 5 0 1 20  2 1 4 200 3 4 3 0", BAD_HEADER),
            ("fewer than counted", "X 2 20 5 0 1 10  5 1 4 2000", BAD_HEADER),
            ("a count of all", "X 2 20 5 0 1 10  ffffffff 1 4 2000", BAD_HEADER),
            ("no subset", "X 2 20 5 0 1 10  1 1 4 2000", BAD_HEADER),
            ("a subset that is too long", "X 2 20 5 0 1 c  0 40000001 0", BAD_HEADER),
            ("a word behind, inside", "X 2 20 5 0 1 c  0 0 0", BAD_HEADER),
            ("a word behind, outside", "X 2 20 5 0 1 8  0 0 0", BAD_HEADER),
            ("a length beyond the message", "X 2 20 5 0 1 40 0", BAD_HEADER),
            ("a part of a word", "X 2 20 5 0 1 7  0 0", BAD_HEADER),
            ("direction 2", "X 2 20 5 2 1 8  0 0", BAD_HEADER)):
        alone(t, label, text, expected, told=False)
    connection = EarlierCaller()
    xid = connection.say(TELL)
    answer = connection.hear(xid)
    words = struct.unpack(f">{len(answer.data) // 4}I", answer.data)
    log(f"  the server's: {shown(answer.data)}")
    if words[4:10] != (1, 1, 48, 3, 1, 4) or words[10] < INLINE or words[17:] != (1, 6):
        t.problem(f"the server's properties: {shown(answer.data)}")
    # Only the first time.
    attempt(t, "properties again", connection, TELL, None)
    finish(t, "properties", connection)


@case
def requests(t):
    """X 4.2 and 4.3: each request is answered, whatever it is."""
    connection = EarlierCaller()
    xid = connection.say(TELL)
    (size,) = struct.unpack_from(">I", connection.hear(xid).data, 40)
    connection.has_told = True
    rejected = "X 2 c 5 1 3 10  0 1 1 0"
    less = rejected if size == INLINE else "X 2 c 5 1 3 18  0 0 1 1 4 1000"
    rows = [
        ("nothing", ASK, ANSWERED),
        ("the size that is", f"X 2 20 5 0 2 10  1 1 4 {size:x}", "X 2 c 5 1 3 10  1 1 0 0"),
        ("a larger one", "X 2 20 5 0 2 10  1 1 4 7fffffff", rejected),
        ("an unknown property", "X 2 20 5 0 2 10  1 63 4 1", rejected),
        ("a level of the server's", "X 2 20 5 0 2 10  1 3 4 0", rejected),
        ("an answer to nothing", "X 2 20 5 1 3 c  0 0 0", None),
        ("a bad answer to nothing", "X 2 20 5 1 3 c  7 0 0", None),
        ("an answer that is a question", "X 2 20 5 0 3 c  0 0 0", None),
        ("a question that is an answer", "X 2 20 5 1 2 4  0", BAD_HEADER),
        ("two octets", "X 2 20 5 0 2 10  1 1 2 20000000", BAD_HEADER),
        ("a flag of 2", "X 2 20 5 0 2 10  1 2 4 2", BAD_HEADER),
        ("eight octets", "X 2 20 5 0 2 14  1 1 8 0 2000", BAD_HEADER),
        ("nothing, still", ASK, ANSWERED),
        # Afterwards it may be smaller.
        ("a tiny size", "X 2 20 5 0 2 10  1 1 4 100", less),
    ]
    for label, text, expected in rows:
        attempt(t, f"requested: {label}", connection, text, expected)
    # Element 33 of 40, and more than are ever answered.
    many = "".join(f"{0x1000 + n:x} 0 " for n in range(40))
    for count, expected in ((40, "X 2 c 5 1 3 14  0  2 ffffffff ff  0"),):
        attempt(t, f"requested: {count} unknown ones", connection, f"X 2 20 5 0 2 144  28 {many}", expected)
    full = "".join(f"{0x1000 + n:x} 0 " for n in range(500))
    attempt(t, "requested: 500 unknown ones", connection, f"X 2 20 5 0 2 fa4  1f4 {full}",
            "X 2 c 5 1 3 4c  0  10 " + "ffffffff " * 15 + "fffff  0")
    # One transaction ID is as good as another.
    xid = next(XIDS)
    for _ in range(2):
        connection.send_message(octets(ASK, xid))
    connection.barrier()
    if len(connection.said(xid)) != 2:
        t.problem(f"{len(connection.said(xid))} answers to two requests")
    finish(t, "requested", connection)


def to_read(length, at=0):
    """The operations of a COMPOUND that reads the file."""
    return (*to_file(*FILE), read(at, length))


def read_inline(connection, length):
    """READ without a chunk: the data, or what came in place of it."""
    xid = next(XIDS)
    answer = connection.request(xid, compound(xid, *to_read(length)))
    if answer is None or answer.kind != "reply":
        return answer and shown(answer.data)
    status, rest = read_result(answer.accepted()[1])
    check(status == 0, f"READ: status {status}")
    return rest[8:8 + length]


@case
def sizes(t):
    """B 2.3, X 3.1: no message is longer than it may be."""
    # All of a Reply but the data: 32 octets of its header, and the status of each operation.
    rest = 108
    for label, told, most in (("nothing told", None, INLINE),
                              ("more than 4096", TELL, INLINE),
                              ("1024", "X 2 20 5 0 1 14  1 1 4 400 0", 0x400),
                              ("only another property", "X 2 20 5 0 1 14  1 2 4 1 0", INLINE),
                              ("the last of two", "X 2 20 5 0 1 20  2 1 4 1000 1 4 200 0", 0x200)):
        connection = EarlierCaller()
        connection.longest = most
        if told == TELL:
            # This client's Receives have 4096 octets.
            connection.open("X 2 20 5 0 1 14  1 1 4 1000 0")
        elif told:
            connection.open(told)
        for length, fits in ((most - rest, True), (most - rest + 4, False)):
            got = read_inline(connection, length)
            if fits != (got == contents(0, length)) or not fits and not str(got).endswith("4 2"):
                t.problem(f"{label}: READ of {length} octets: {str(got)[:100]}")
        if told and "1 4 " in told[18:]:
            # It may change, unless it was not told at first.
            connection.say("X 2 20 5 0 4 10  1 1 4 180")
            connection.longest = 0x180
            if read_inline(connection, 0x200 - rest) == contents(0, 0x200 - rest):
                t.problem(f"{label}: a change is not obeyed")
            connection.say("X 2 20 5 1 4 10  1 1 4 1000")
            connection.longest = INLINE
            if read_inline(connection, INLINE - rest) != contents(0, INLINE - rest):
                t.problem(f"{label}: another change is not obeyed")
        elif told:
            connection.say("X 2 20 5 0 4 10  1 1 4 180")
            if read_inline(connection, INLINE - rest) != contents(0, INLINE - rest):
                t.problem(f"{label}: what was never told changes")
        finish(t, label, connection)


@case
def chunks(t):
    """Chunk lists as in Version One, and a Reply chunk that is not used without need."""
    # This memory can't be invalidated by others.
    connection = EarlierCaller().open(told_level(0))
    arena = connection.segment(8192)
    names = {"h": arena[0], "a": arena[2] >> 32, "b": arena[2] & 0xFFFFFFFF}
    xid = next(XIDS)
    connection.send_message(octets("X 2 20 0 0  0  1 1 h 2000 a b  0  0", xid, names)
                            + compound(xid, *to_read(6000, 8)))
    answer = connection.answer(xid)
    if answer is None or not is_like(answer.data, f"X 2 c 0 1  0  1 1 {names['h']:x} 1770 *", xid):
        t.problem(f"READ into a Write chunk: {answer and shown(answer.data)}")
    elif connection.get(6000) != contents(8, 6000):
        t.problem("READ into a Write chunk: other data")
    # A short Reply beside a Reply chunk comes inline; a long one is put there.
    for label, operations, expected in (
            ("a Reply that fits", (*to_file(*FILE), getattr_()), "X 2 c 0 1  0 0 0 *"),
            ("a long Reply", to_read(6000, 8), f"X 2 c 1 1  0 0 1 1 {names['h']:x} *")):
        xid = next(XIDS)
        connection.send_message(octets("X 2 20 0 0  0 0  1 1 h 2000 a b", xid, names) + compound(xid, *operations))
        answer = connection.answer(xid)
        if answer is None or not is_like(answer.data, expected, xid):
            t.problem(f"{label}: {answer and shown(answer.data)}")
    attempt(t, "a key that nobody has", connection, "X 2 20 1 0  1 0 deadbe00 48 0 1000 0  0 0", None, lost=True)
    finish(t, "chunks", connection)


@case
def invalidations(t):
    """X 3.2: only while the client says so, and never but for a handle of the Call."""
    if os.environ["FABRIC"] == "siw":
        # It has no memory windows.
        return
    connection = EarlierCaller()
    memory = MR(connection.memory.pd, 4096, WINDOWS)
    connection.kept.append(memory)

    def invalidated():
        """Reads into a new window; returns whether the server has invalidated it."""
        key, _, address = connection.window(memory, 0, 4096)
        names = {"h": key, "a": address >> 32, "b": address & 0xFFFFFFFF}
        xid = next(XIDS)
        connection.send_message(octets("X 2 20 0 0  0  1 1 h 1000 a b  0  0", xid, names)
                                + compound(xid, *to_read(1000)))
        answer = connection.answer(xid)
        check(answer is not None and answer.kind == "reply", f"READ: {answer and shown(answer.data)}")
        check(memory.read(1000, 0) == contents(0, 1000), "other data")
        is_any = bool(connection.invalidated)
        is_right = connection.has_invalidated(key)
        check(is_right or not is_any, "another key was invalidated")
        return is_right

    seen = [invalidated()]
    connection.open()
    seen.append(invalidated())
    for value in (0, 1):
        connection.say(f"X 2 20 5 0 4 10  1 2 4 {value}")
        check(connection.barrier(), "a request is not answered")
        seen.append(invalidated())
        check(connection.null() and not connection.invalidated, "a NULL Call has invalidated something")
    log(f"  invalidated with nothing told, true, false, true: {seen}")
    if seen != [False, True, False, True]:
        t.problem(f"invalidated with nothing told, true, false, true: {seen}")
    finish(t, "invalidations", connection)


@case
def withdrawn_credits(t):
    """B 4.2.2: a server that wants fewer Calls at a time says so, and has Receives for what it has granted before until
    it is known that the client has heard."""
    setting = "/proc/sys/sunrpc/svc_rdma/max_requests"
    connection = EarlierCaller().open()

    def at_once(count):
        """So many Calls without a wait: whether all are answered."""
        xids = [connection.say(CALL) for _ in range(count)]
        return all(connection.hear(xid) for xid in xids)

    def asked():
        """The grant of a change of nothing, and the request behind it."""
        change = next((m for m in connection.answers if is_like(m.data, "X 2 c 5 1 4 4 0", m.xid)), None)
        request = next((m for m in connection.answers if is_like(m.data, ASK.replace("20", "c"), m.xid)), None)
        connection.take()
        return (change.credit, request) if change and request else None

    try:
        # It takes as many Calls with the server at a time as there are credits.
        deadline = time.monotonic() + 30 * watchdog()
        while connection.granted < 8 and time.monotonic() < deadline:
            check(at_once(8), "a Call is not answered")
        check(connection.granted >= 8, f"{connection.granted} credits")
        remote(f"echo 4 > {setting}")
        deadline = time.monotonic() + 25 * watchdog()
        while (told := asked()) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if told is None or told[0] != 4:
            t.problem(f"fewer credits are not told, or others: {told}")
            return
        if not at_once(8):
            t.problem("what was granted before is not kept until the client has answered")
        connection.send_message(octets("X 2 20 5 1 3 c  0 0 0", told[1].xid))
        if not at_once(4) or connection.granted != 4:
            t.problem(f"4 Calls with 4 credits are not answered, or {connection.granted} granted")
    finally:
        remote(f"echo 64 > {setting}")
    finish(t, "withdrawn credits", connection)


@case
def asked(t):
    """X 4.2 and 4.3: an administrator has the server ask clients for another callback service. It takes what they answer,
    and asks again only when a client has told another value."""
    setting = "/sys/module/rpcrdma/parameters/server_request_callbacks"
    # All of these clients take Calls without chunks.
    tells = "X 2 20 5 0 1 2c  3 1 4 3000 2 4 1 3 4 1  0"
    wanted = "X 2 c 5 0 2 10  1 3 4 0"
    answers = {"done": "X 2 20 5 1 3 10  1 1 0 0", "rejected": "X 2 20 5 1 3 10  0 1 1 0",
               "other": "X 2 20 5 1 3 18  0 0 1 3 4 2", "overlapping": "X 2 20 5 1 3 14  1 1 1 1 0",
               "unreadable": "X 2 20 5 1 3 c  7 0 0", "nothing": None}
    connections = {name: EarlierCaller().open(tells) for name in answers}

    def requests(connection):
        """The transaction IDs of the requests for something that have come."""
        connection.take()
        return [m.xid for m in connection.answers if m.proc == OPTIONAL and m.data[16:24] == struct.pack(">II", 0, 2)
                and not is_like(m.data, ASK.replace("20", "c"), m.xid)]

    try:
        remote(f"echo none > {setting}")
        for name, connection in connections.items():
            try:
                wait_for("a request", 30 * slowness(), lambda c=connection: requests(c))
            except Failure as x:
                t.problem(f"{name}: {x}")
                continue
            (xid,) = requests(connection)
            message = next(m for m in connection.answers if m.xid == xid)
            if not is_like(message.data, wanted, xid):
                t.problem(f"{name}: asked {shown(message.data)}, not {wanted}")
            if answers[name]:
                connection.send_message(octets(answers[name], xid))
            check(connection.null(), f"{name}: no answers any more")
        # The server shows what it has asked for, and what it believes of the client.
        states = remote("cat /sys/kernel/debug/rpcrdma/server/*/state", ok=None)
        seen = collections.Counter(f"{word} {level}" for word, level in re.findall(
            r"requested_reverse_direction: 0 (\S+)\n(?:.*\n)*?peer_reverse_direction: (\S+)", states))
        log(f"  {dict(seen)}")
        # Other clients have been asked too.
        if not collections.Counter(["- simple", "done none", "other general", *["rejected simple"] * 3]) <= seen:
            t.problem(f"asked for no callbacks: {dict(seen)}")
        # Only a peer that has told another value is asked again.
        connections["rejected"].say("X 2 20 5 0 4 10  1 3 4 2")
        wait_for("another request", 30 * slowness(), lambda: len(requests(connections["rejected"])) == 2)
        for name, connection in connections.items():
            if len(requests(connection)) != 1 + (name == "rejected"):
                t.problem(f"{name}: asked {len(requests(connection))} times")
    finally:
        remote(f"echo any > {setting}")
    for name, connection in connections.items():
        finish(t, f"asked, {name}", connection)


@case
def changes(t):
    """X 4.4: changes that can't be read change nothing."""
    several(t, [("two octets", "X 2 20 5 0 4 10  1 1 2 20000000", BAD_HEADER),
                ("level 3", "X 2 20 5 0 4 10  1 3 4 3", BAD_HEADER),
                ("nothing", "X 2 20 5 0 4 4  0", None),
                ("unknown ones", "X 2 20 5 0 4 10  1 63 4 1", None),
                ("as an answer", "X 2 20 5 1 4 10  1 1 4 1000", None),
                ("a size of nothing", "X 2 20 5 0 4 c  1 1 0", None),
                ("the size as before", "X 2 20 5 0 4 10  1 1 4 1000", None)])
    connection = EarlierCaller().open()
    connection.say("X 2 20 5 0 4 10  1 1 4 0")
    if not connection.ask(CALL, BAD_HEADER):
        t.problem("a client without Receives is not told that it gets no Reply")
    connection.say("X 2 20 5 0 4 10  1 1 4 1000")
    if not connection.null():
        t.problem("a client that has Receives again gets no Reply")
    finish(t, "changes", connection)


@case
def floods(t):
    """Many messages without a wait: answered or lost, and nobody else is held up."""
    for label, text in (("requests", ASK), ("changes", "X 2 20 5 0 4 4  0"), ("unknown operations", "X 2 20 5 0 63 0"),
                        ("bad headers", "X 2 20 5 0 1 40 0"), ("other versions", "X 3 20 0 0 0 0 NULL"),
                        ("errors", "X 2 20 4 3"), ("Replies", "X 2 20 0 1 0 0 0 X 1 0 0 0 0")):
        connection = EarlierCaller().open()
        count, outcome = (100 if slow() else 400), "answered"
        try:
            for _ in range(count // 8):
                # No more at a time than find a Receive if nothing else is going on.
                for _ in range(8):
                    connection.say(text)
                connection.take()
            if not connection.null():
                outcome = "a stall"
                t.problem(f"{label}: a stall")
        except Gone as x:
            outcome = f"lost: {x}"
        log(f"  {count} {label}: {outcome}")
        finish(t, label, connection)
        t.well()


@case
def endings(t):
    """Connections that end as soon as they have begun: the server is in the middle of answering."""
    for texts in ([TELL], [ASK], [TELL, ASK], [TELL, ASK, CALL], [TELL, "X 2 20 5 0 4 4  0", ASK, TELL]):
        for _ in range(3 if slow() else 10):
            connection = EarlierCaller()
            for text in texts:
                xid = next(XIDS)
                connection.qp.post_send(connection.send_request(octets(text, xid)))
            connection.close()
    t.well()


def reverse_call(connection, limit=None):
    """Waits for a Call of the server's; returns it, or nothing."""
    # Where none is to come the wait is short.
    deadline = time.monotonic() + (limit * slowness() if limit else 5 * watchdog())
    while time.monotonic() < deadline:
        connection.take()
        for message in connection.answers:
            if message.data[12:20] == struct.pack(">II", 0, 0):
                connection.answers.remove(message)
                return message
        time.sleep(0.01)
    return None


def told_level(level):
    """The first message of a client that takes Calls on this level."""
    return f"X 2 20 5 0 1 2c  3 1 4 1000 2 4 0 3 4 {level}  0"


def delegated(session, tries=3):
    """As `hostile_calls_callback.delegated`."""
    for _ in range(tries):
        file = f"earlier{next(FILES)}"
        remote(f"echo x > {EXPORT}/{file}")
        deadline = time.monotonic() + 3 * watchdog()
        while time.monotonic() < deadline:
            if session.open(FILE[:-1], file):
                return file
            time.sleep(0.1)
    return None


#: Answers to a Call of the server's, by what is wrong with them.
WRONG_ANSWERS = {
    "nothing": [],
    "an error": ["X 2 1 4 2"],
    "an error about versions": ["X 2 1 4 1 1 1"],
    "an error about an operation": ["X 2 1 4 3"],
    "an error without a code": ["X 2 1 4"],
    "a Reply that is said to be a Call": ["X 2 1 0 0 0 0 0  X 1 0 0 0 0"],
    "an OPTIONAL message": ["X 2 1 5 1 63 0  X 1 0 0 0 0"],
    "no credits": ["X 2 0 0 1 0 0 0  X 1 0 0 0 0"],
    "a Read list": ["X 2 1 0 1  1 4 deadbe00 10 0 1000 0  0 0  X 1 0 0 0 0"],
    "a Reply chunk": ["X 2 1 1 1  0 0  1 1 deadbe00 1000 0 1000"],
    "Version One": ["X 1 1 0 0 0 0  X 1 0 0 0 0"],
    "ten times": ["X 2 1 0 1 0 0 0  X 1 0 0 0 0"] * 10,
    "with its changes between": ["X 2 1 5 0 4 10  1 3 4 0", "X 2 1 0 1 0 0 0  X 1 0 0 0 0", "X 2 1 5 0 4 10  1 3 4 1"],
}


@case
def recalls(t):
    """A delegation is recalled, and the answer to that is wrong."""
    held = []
    for name, answers in WRONG_ANSWERS.items():
        connection = EarlierCaller().open(told_level(1))
        held.append(connection)
        file = delegated(Session(connection, XIDS))
        if file is None:
            t.problem(f"{name}: no delegation is granted")
            continue
        # Waits until the delegation is given back or taken away.
        remote(f"exec 3<>{EXPORT}/{file}", wait=False)
        call = reverse_call(connection)
        if call is None:
            t.problem(f"{name}: no delegation is recalled")
            continue
        check(is_like(call.data, "X 2 c 0 0 0 0 0 X 0 2 40000000 *", call.xid), f"a wrong Call: {shown(call.data)}")
        outcome = "taken"
        try:
            for text in answers:
                connection.send_message(octets(text, call.xid))
            if not connection.null():
                t.problem(f"{name}: no answers any more")
        except Gone:
            outcome = "lost"
        log(f"  {name}: {outcome}")
        t.well()
    for connection in held:
        finish(t, "recalls", connection)


@case
def no_callbacks(t):
    """X 3.3: who says that it takes no Calls gets none, whether or not nfsd grants it delegations nevertheless; see
    `callback_setup.py` for why it does."""
    callback_setup.watch(remote)
    connection = EarlierCaller().open(told_level(0))
    file = delegated(Session(connection, XIDS), 1)
    if file:
        remote(f"exec 3<>{EXPORT}/{file}", wait=False)
    if call := reverse_call(connection, 1):
        t.problem(f"a Call to who takes none: {shown(call.data)}")
    if not connection.null():
        t.problem("who takes no Calls gets no answers any more")
    finish(t, "no callbacks", connection)
    # Who takes them for a while only.
    connection = EarlierCaller().open(told_level(1))
    session = Session(connection, XIDS)
    file = delegated(session)
    check(file is not None, "no delegation is granted")
    connection.say("X 2 20 5 0 4 10  1 3 4 0")
    check(connection.barrier(), "a request is not answered")
    opened = f"/run/{file}.opened"
    remote(f"exec 3<>{EXPORT}/{file} && touch {opened}", wait=False)
    # On slow kernels no longer: nfsd takes away what is not returned within a lease of ten seconds.
    if call := reverse_call(connection, 3 / slowness()):
        t.problem(f"a Call to who takes none any more: {shown(call.data)}")
    session.give_back(FILE[:-1], file)
    wait_for("who wants to write", 20, lambda: remote(f"ls {opened}", ok=(0, 2)).startswith(opened))
    finish(t, "callbacks for a while", connection)
    for line in callback_setup.errors(remote):
        t.problem(f"a transport for callbacks was refused: {line}")


@case
def refused(t):
    """A server that does not speak this protocol says so in its words, and goes on in Version One."""
    from hostile_caller import Caller
    from rpc_message import null_call

    remote("echo N > /sys/module/rpcrdma/parameters/server_2016")
    try:
        for label, text in (("a Call", CALL), ("properties", TELL), ("an unknown operation", "X 2 20 5 0 63 0")):
            connection = Caller()
            xid = next(XIDS)
            connection.send_message(octets(text, xid))
            answer = connection.answer(xid)
            if answer is None or not is_like(answer.data, "X 2 c 4 1 1 1", xid):
                t.problem(f"refused, {label}: {answer and answer.data.hex()}")
            xid = next(XIDS)
            answer = connection.call(null_call(xid), xid)
            if answer is None or answer.kind != "reply":
                t.problem(f"refused, {label}: no Version One")
            connection.close()
    finally:
        remote("echo Y > /sys/module/rpcrdma/parameters/server_2016")
