# SPDX-License-Identifier: GPL-2.0
"""The inputs of `fuzz_answerer`: what its search begins with, and how it changes them."""

import re
import struct

import rpcrdma2_header as two
import vectors
from fuzz_octets import CHANGES, LONGEST, SERVER_NONCE, WORDS, in_words, random_word, segment, xid
from host_auth_caller import CHALLENGE, item, token
from nfs3_mini import opaque
from reverse_peer import CALLBACK, CB_RECALL_ANY, CB_SEQUENCE, NO_SUCH
from rpc_message import rpc_call
from rpcrdma2016_header import turned
from rpcrdma_header import ERROR, NOMSG, encode

#: Parameters of the client for each protocol: `client_version` and `client_dialect`.
KINDS = {"one": ("1", "07"), "two": ("2", "07"), "2016": ("2", "2016")}
#: What can be done to a mount.
OPERATIONS = ("GETATTR", "READ", "WRITE", "READDIR", "READLINK", "SHORT WRITE", "FEW", "WRITE FEW")
#: Segments with these numbers and above are in the server's own memory.
OURS = 0x80
#: What stands for the client's session, and behind it for the next number in its sequence.
SESSION = b"SESSION 16 LONG.NEXT"
ACCEPTED = struct.pack(">IIIIII", xid(), 1, 0, 0, 0, 0)
NULL = rpc_call(xid(1), 1, 0, program=CALLBACK)
#: A correct server.
NOTHING = {"kind": "one", "vers": "3", "auth": "off", "begun": True, "operations": [], "at once": False,
           "fill": "whole", "put": [], "plan": []}


def planned(kind, *plan, operations=("GETATTR",), **more):
    """An input."""
    plan = [list(action) for action in plan]
    return {**NOTHING, "kind": kind, "operations": list(operations), "plan": plan, **more}


# ---- Changes ----------------------------------------------------------------


#: What can be done to a message, the more likely the more often it is named.
EDITS = ("word", "word", "word", "add", "add", "octets", "cut", "grow", "insert", "insert", "delete")


def random_edit(random):
    """An edit."""
    at = 4 * random.choice((random.randrange(8), random.randrange(24), random.randrange(250)))
    kind = random.choice(EDITS)
    if kind == "word":
        return [kind, at, random_word(random)]
    if kind == "add":
        return [kind, at, random.choice((-4096, -16, -8, -4, -1, 1, 4, 8, 16, 4096))]
    if kind == "octets":
        return [kind, at + random.randrange(4), random.randbytes(random.randrange(1, 5))]
    if kind == "cut":
        return [kind, at + random.choice((0, 0, 1, 2, 3)), 0]
    if kind == "grow":
        value = random.choice((bytes(4), b"\xFF" * 4, b"\xD2"))
        return [kind, random.choice((1, 2, 4, 20, 100, 1000)), value]
    if kind == "insert":
        handle, length, offset = segment(random.choice(WORDS), random.choice((0, 0, 1, 2, OURS)))
        return [kind, at, random.choice((
            struct.pack(">I", random_word(random)), struct.pack(">IIQ", handle, length, offset),
            struct.pack(">IIIIQ", 1, random_word(random), handle, length, offset),
            bytes(4 * random.randrange(1, 8))))]
    return [kind, at, 4 * random.choice((1, 1, 2, 4, 5, 6))]


def change_message(random, what, other):
    """Changes a message of the plan's own; returns whether there is one."""
    texts = [action for action in what["plan"] if action[1] in ("before", "instead")]
    if not texts:
        return False
    action = random.choice(texts)
    others = [a[2] for a in other["plan"] if a[1] in ("before", "instead")]
    for _ in range(random.choice((1, 1, 2, 3))):
        action[2] = random.choice(CHANGES)(random, action[2], others)[:LONGEST]
    return True


def change_edits(random, what):
    """Changes an edit of the plan's, or adds one."""
    edits = [action for action in what["plan"] if action[1] == "change"]
    if not edits or random.random() < 0.4:
        some = [random_edit(random) for _ in range(random.choice((1, 1, 2, 3)))]
        what["plan"].append([number(random), "change", some])
        return
    action = random.choice(edits)
    action[2] = [*action[2], random_edit(random)]
    if random.random() < 0.5:
        del action[2][random.randrange(len(action[2]))]


def number(random):
    """The number of a message."""
    return random.choice((0, 0, 1, 1, 2, 3, random.randrange(12)))


def change_plan(random, what, other):
    """Another action, fewer, or those of another input."""
    plan, how = what["plan"], random.random()
    if how < 0.3 and other["plan"]:
        first, at = random.randrange(len(other["plan"])), random.randrange(len(plan) + 1)
        plan[at:at] = [list(action) for action in other["plan"][first:first + random.choice((1, 1, 2, 8))]]
    elif how < 0.45 and plan:
        del plan[random.randrange(len(plan))]
    elif how < 0.6 and plan:
        random.choice(plan)[0] = number(random)
    else:
        plan.append([number(random), *random.choice((
            ["parts", random.choice((4, 24, 100, 1000, 4072))],
            ["spoil", random.choice((0, 1, 2, random_word(random)))],
            ["twice", random.choice((1, 2, 10, 40))], ["pause", random.choice((1, 10, 50))],
            ["keep"], ["silence"], ["end"]))])


def change_settings(random, what, other):
    """Something else than the plan."""
    how = random.random()
    if how < 0.3:
        what["operations"].insert(random.randrange(len(what["operations"]) + 1), random.choice(OPERATIONS))
    elif how < 0.45:
        what["operations"] = what["operations"][1:] or [random.choice(OPERATIONS)]
    elif how < 0.55:
        what["vers"] = random.choice(("3", "3", "4.1"))
    elif how < 0.65:
        what["auth"] = random.choice(("off", "off", "off", "offer", "offer", "require"))
    elif how < 0.7:
        what["begun"] = not what["begun"]
    elif how < 0.75:
        what["at once"] = not what["at once"]
    elif how < 0.85:
        what["fill"] = random.choice(("whole", "none", "half"))
    elif how < 0.92:
        what["put"] = other["put"]
    else:
        what["kind"] = random.choice(list(KINDS))


def changed_input(random, what, corpus):
    """Another input made of one, and of others."""
    out = {**what, "operations": list(what["operations"]), "plan": [list(action) for action in what["plan"]]}
    other = random.choice(corpus)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        how = random.random()
        if how < 0.15:
            change_settings(random, out, other)
        elif how < 0.4:
            change_plan(random, out, other)
        elif how > 0.7 or not change_message(random, out, other):
            change_edits(random, out)
    out["operations"], out["plan"] = out["operations"][:6], out["plan"][:24]
    return out


# ---- What it begins with --------------------------------------------------------


def ones():
    """Messages of Version One."""
    yield encode(xid()) + ACCEPTED
    yield encode(xid(1)) + ACCEPTED
    yield encode(xid(1)) + NULL
    yield encode(xid(1), reads=[(len(NULL), *segment(64, OURS))], writes=[[segment(64, OURS)]],
                 reply=[segment(512, OURS)]) + NULL
    yield encode(xid(1), NOMSG, reads=[(0, *segment(64, OURS))])
    yield encode(xid(), NOMSG, reply=[segment(200)])
    yield encode(xid(), writes=[[segment(8), segment(8, 1)]]) + ACCEPTED
    for words in ((), (1, 1, 1), (1, 2, 2), (1, 1, 2), (2,), (9,)):
        yield struct.pack(">IIII", xid(), 1, 32, ERROR) + struct.pack(f">{len(words)}I", *words)


def named(message):
    """A vector with the transaction ID and the handles of a Call."""
    message = message.replace(bytes.fromhex("12345678"), xid().to_bytes(4, "big"))
    return re.sub(rb"\0\0\0[\xA1-\xA7]", lambda m: b"HD\0" + bytes([m[0][3] - 0xA1]), message)


def messages():
    """Messages of each protocol, to come before or in place of others."""
    found = {"one": list(ones()), "two": [two.reply(xid(), 400, ACCEPTED)],
             "2016": [turned(encode(xid()) + ACCEPTED), *in_words("tests/lib/hostile_2016.py")]}
    for kind, path in (("two", "tests/vectors/version-two.txt"), ("2016", "tests/vectors/version-2016.txt")):
        found[kind] += [named(header + body) for header, body in vectors.vectors(path).values()]
    return found


def callback(length, operations, tag):
    """A CB_COMPOUND of so many octets, about, whose Reply is the longer the more operations it has."""
    filler = [bytes(16) + struct.pack(">I", 60) + bytes(480)] * (length // 500)
    sequence = SESSION + struct.pack(">IIII", 7, 7, 0, len(filler)) + b"".join(filler)
    ops = [struct.pack(">I", CB_SEQUENCE) + sequence]
    ops += [struct.pack(">IIII", CB_RECALL_ANY, 0, 1, 0)] * operations
    ops += [struct.pack(">I", NO_SUCH)]
    return rpc_call(xid(1), 1, 1, opaque(b"t" * tag) + struct.pack(">III", 1, 0, len(ops)) + b"".join(ops),
                    program=CALLBACK)


def reverse(kind, form, length=0, operations=2, tag=4, reply=0, writes=0):
    """An input that calls back, in a form as in `reverse_peer`."""
    rest = callback(length, operations, tag)
    put, reads, whole = [], [], []
    if form in ("read", "both"):
        begin, end = 400 + tag & ~3, len(rest) - 16 * operations - 400 & ~3
        if end <= begin:
            begin, end = len(rest) - 4, len(rest)
        put, rest = [[0x10000, rest[begin:end]]], rest[:begin] + rest[end:]
        reads = [(begin, *segment(end - begin, OURS, 0x10000))]
    if form in ("chunk", "both"):
        half = len(rest) // 2
        put.append([0x30000, rest])
        whole = [segment(half, OURS, 0x30000), segment(len(rest) - half, OURS, 0x30000 + half)]
    lists = {"reads": reads, "writes": [[segment(writes, OURS, 0x60000)]] if writes else [], "reply": None}
    if reply:
        lists["reply"] = [segment(reply // 2, OURS, 0x40000), segment(reply // 2, OURS, 0x50000)]
    if kind == "two" and whole:
        calls = [two.call_external(xid(1), 400, whole, **lists)]
    elif kind == "two":
        calls = []
        while form == "parts" and len(rest) > 4000:
            calls.append(two.middle(xid(1), 400, two.CALL_MIDDLE, len(rest) - 4000, rest[:4000]))
            rest = rest[4000:]
        calls.append(two.call(xid(1), 400, rest, **lists))
    else:
        proc = NOMSG if whole else 0
        lists["reads"] = [(0, *s) for s in whole] + reads
        call = encode(xid(1), proc, **lists) + (b"" if whole else rest)
        calls = [turned(call, 0) if kind == "2016" else call]
    # What comes first is put in front last.
    plan = [(0, "before", message) for message in reversed(calls)]
    return planned(kind, *plan, operations=["GETATTR", "GETATTR"], put=put, vers="4.1")


def reverses():
    """Inputs that call back in each form."""
    for kind in KINDS:
        message = encode(xid(1)) + NULL if kind != "two" else two.call(xid(1), 400, NULL)
        message = turned(message, 0) if kind == "2016" else message
        yield planned(kind, vers="4.1")
        yield planned(kind, (0, "before", message), vers="4.1")
        yield planned(kind, *((n, "before", message) for n in (0, 0, 0, 1, 1)), operations=["GETATTR"] * 3,
                      vers="4.1")
        for form in ("inline", "chunk", "read", "both"):
            yield reverse(kind, form)
            yield reverse(kind, form, 600 if form == "inline" else 9000, 20, reply=8192, writes=512)
        yield reverse(kind, "chunk", 12000, 437, 512, reply=8192)
        yield reverse(kind, "chunk", 12000, 437, 512)
        yield reverse(kind, "chunk", 40000)
    for operations, tag, reply in ((2, 4, 0), (437, 512, 0), (437, 512, 8192), (437, 512, 2048)):
        yield reverse("two", "parts", 10000, operations, tag, reply)
        yield reverse("two", "parts", 30000, operations, tag, reply)


def authentications():
    """Inputs in which the client authenticates itself, and wants the server to."""
    for kind in KINDS:
        for auth in ("offer", "require"):
            yield planned(kind, auth=auth, begun=False)
    wrong = item(token(CHALLENGE, SERVER_NONCE + bytes(32)))
    challenge = two.properties(400, [(two.HOST_AUTH, wrong)], last=False)
    refusal = two.properties(400, [(two.HOST_AUTH, item(b"RPRX" + bytes(4)))])
    for message in (challenge, refusal, two.properties(400)):
        yield planned("two", (0, "instead", message), auth="require", begun=False)
        yield planned("two", (1, "instead", message), auth="require", begun=False)
        yield planned("two", (0, "before", message), auth="offer", begun=False)


def seeds():
    """What the search begins with: correct Replies, and a message of each kind before, or in place of one."""
    out = []
    for kind in KINDS:
        out += [planned(kind, operations=[name]) for name in OPERATIONS]
        out.append(planned(kind, operations=["READ", "GETATTR", "SHORT WRITE", "READ"], **{"at once": True}))
        for fill in ("none", "half"):
            out += [planned(kind, operations=[name], fill=fill) for name in ("READ", "READDIR")]
        out += [planned(kind, [n, action], operations=["READ", "READDIR"])
                for n in (0, 1) for action in ("end", "keep", "silence")]
        out.append(planned(kind, [0, "end"], begun=False))
        out += [planned(kind, [n, "spoil", which], operations=["READ"])
                for n in (0, 1) for which in (0, 1, 0xDEADBE00)]
    for size in (4, 24, 1000):
        out += [planned("two", *([n, "parts", size] for n in (0, 1, 2)), operations=[name])
                for name in ("GETATTR", "READDIR", "READ")]
    for kind, some in messages().items():
        for message in some:
            out += [planned(kind, [0, where, message]) for where in ("before", "instead")]
            if kind != "one":
                out.append(planned(kind, [0, "instead", message], begun=False))
    return out + list(reverses()) + list(authentications())
