# SPDX-License-Identifier: GPL-2.0
"""What the hostile peers send and read of the protocol of 2016 against messages that were written by hand.

Run by host/vectors. RPC messages and errors come from `rpcrdma2016_header`; OPTIONAL messages are words, as the peers have
them. Each vector has something that is compared with it.
"""

import sys

import hostile_2016
import rpcrdma2016_words as words
from hostile_2016_caller import Message
from rpcrdma2016_header import CALL, REPLY, turned, turned_back
from rpcrdma_header import ERROR, Header, MSG, NOMSG, encode
from vectors import CALL as RPC_CALL, CREDIT, REPLY as RPC_REPLY, XID, segment, vectors

PATH = "tests/vectors/version-2016.txt"


def rpc_messages():
    """RPC messages: direction, procedure, Read list, Write list, Reply chunk."""
    def read(position, handle, length):
        return (position, *segment(handle, length))

    return {
        "msg-call-least": (CALL, MSG, [], [], None),
        "msg-call": (CALL, MSG, [read(0x50, 0xA1, 0x1000), read(0x50, 0xA2, 3)],
                     [[segment(0xA3, 0x400), segment(0xA4, 0x200)]], [segment(0xA5, 0x600)]),
        "msg-call-two-chunks": (CALL, MSG, [], [[segment(0xA1, 0x400)], []], None),
        "msg-reply-least": (REPLY, MSG, [], [], None),
        "msg-reply": (REPLY, MSG, [], [[segment(0xA1, 0x400), segment(0xA2, 0x10)], [segment(0xA3, 0)]],
                      [segment(0xA4, 0)]),
        "nomsg-call-least": (CALL, NOMSG, [read(0, 0xA1, 0x2000)], [], None),
        "nomsg-call": (CALL, NOMSG, [read(0, 0xA1, 0x2000), read(0x50, 0xA2, 0x800)], [[segment(0xA3, 0x400)]],
                       [segment(0xA4, 0x600)]),
        "nomsg-reply-least": (REPLY, NOMSG, [], [], [segment(0xA1, 0x1800)]),
        "nomsg-reply": (REPLY, NOMSG, [], [[segment(0xA1, 0x200)]], [segment(0xA2, 0x1000), segment(0xA3, 0x10)]),
    }


#: All other messages, as the peers write them. What they have a name for comes from there.
WORDS = {
    "error-vers": "X 2 20 4 1 1 2",
    "error-bad-header": words.BAD_HEADER,
    "error-inval-option": words.INVAL_OPTION,
    "connprop-empty": "X 2 20 5 0 1 8  0 0",
    "connprop-client": "X 2 20 5 0 1 30  3 1 4 3000 2 4 1 3 4 2  1 2",
    "connprop-server": "X 2 20 5 1 1 30  3 1 4 1000 2 4 0 3 4 1  1 6",
    "connprop-client-varying": words.TELL,
    "connprop-server-varying": hostile_2016.PROPERTIES,
    "reqprop-empty": words.ASK,
    "reqprop": "X 2 20 5 0 2 1c  2 1 4 2000 3 4 1",
    "resprop-empty": words.ANSWERED,
    "resprop": "X 2 20 5 1 3 20  1 1  1 4  1 2 4 0",
    "resprop-two-words": "X 2 20 5 1 3 1c  2 0 2  2 ffffffff 5  0",
    "updprop-empty": "X 2 20 5 1 4 4  0",
    "updprop": "X 2 20 5 1 4 28  3 1 4 4000 2 4 1 3 4 0",
    "property-receive-size": "X 2 20 5 0 4 10  1 1 4 80000001",
    "property-invalidation-no": "X 2 20 5 0 4 10  1 2 4 0",
    "property-invalidation-yes": "X 2 20 5 0 4 10  1 2 4 1",
    "property-reverse-none": "X 2 20 5 0 4 10  1 3 4 0",
    "property-reverse-inline": "X 2 20 5 0 4 10  1 3 4 1",
    "property-reverse-general": "X 2 20 5 0 4 10  1 3 4 2",
    "property-defaults": "X 2 20 5 0 4 1c  3 1 0 2 0 3 0",
    "property-unknown": "X 2 20 5 0 4 20  2 ffffff00 5 61626364 65000000 2 4 1",
    "optional-least": "X 2 20 5 0 63 0",
    "optional-payload": "X 2 20 5 1 63 5  61626364 65000000",
}


def check_rpc(wrong, name, head, rpc, direction, procedure, *lists):
    """An RPC message is written and read as it should be."""
    expected = RPC_REPLY if direction else RPC_CALL
    if rpc != (expected if procedure == MSG else b""):
        wrong(name, f"the RPC message is {rpc.hex(' ', 4)}")
    made = turned(encode(XID, procedure, 1, CREDIT, *lists), direction)
    if made != head:
        wrong(name, f"{made.hex(' ', 4)} is not {head.hex(' ', 4)}")
    header = Header(turned_back(head + rpc))
    if (header.xid, header.credit, header.proc) != (XID, CREDIT, procedure):
        wrong(name, f"the prefix is read as {header.data[:16].hex(' ', 4)}")
    if [header.reads, header.writes, header.reply] != list(lists):
        wrong(name, f"the lists are read as {header.reads}, {header.writes}, {header.reply}")
    if header.rpc != rpc:
        wrong(name, f"the header is read as {header.at + 4} octets, not {len(head)}")
    if direction == REPLY and (message(head + rpc).kind, message(head + rpc).rpc) != ("reply", rpc):
        wrong(name, "the hostile client does not find the Reply")


def message(data):
    """A message as the hostile client receives it."""
    class Received(bytes):
        """Octets, and what the device said about them."""
        invalidated = None

    return Message(Received(data))


def check_error(wrong, name, head):
    """An error is read as it should be, and turned into itself."""
    header = Header(turned_back(head))
    code = header.error[0]
    if header.proc != ERROR or message(head).kind != f"error {code}":
        wrong(name, f"is read as {header.error}")
    if turned(turned_back(head)) != head:
        wrong(name, "what is read is not what was written")


def main():
    """Compares everything with everything."""
    expected, rpcs, problems = vectors(PATH), rpc_messages(), []

    def wrong(name, what):
        problems.append(f"{name}: {what}")

    for name in expected.keys() ^ (rpcs.keys() | WORDS.keys()):
        wrong(name, "there is no vector, or nothing to compare it with")
    for name in expected.keys() & rpcs.keys():
        check_rpc(wrong, name, *expected[name], *rpcs[name])
    for name in expected.keys() & WORDS.keys():
        head, rpc = expected[name]
        # What is expected of an answer may leave its credits open.
        made = words.octets(WORDS[name].replace(" c ", " 20 ", 1), XID)
        if made != head:
            wrong(name, f"{made.hex(' ', 4)} is not {head.hex(' ', 4)}")
        if not words.is_like(head, WORDS[name].replace("2 20", "2 c", 1), XID):
            wrong(name, "is not taken for what it is")
        if words.is_like(head[:-1] + b"\x7f", WORDS[name], XID) or words.is_like(head[:-4], WORDS[name], XID):
            wrong(name, "something else is taken for it")
        if name.startswith("error"):
            check_error(wrong, name, head)
        elif message(head + rpc).kind != "an OPTIONAL message":
            wrong(name, "is not seen to be an OPTIONAL message")
    print("\n".join(problems) or f"{len(expected)} messages of 2016")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
