# SPDX-License-Identifier: GPL-2.0
"""What tshark has to show of the protocol of 2016, see `capture.Message`."""

from capture import messages
from common import check, log
from rpcrdma2016_words import CALL

#: What is sent, and what has to be shown of it behind the prefix: names and values in the order of the octets.
SENT = (
    ("X 2 20 5 0 1 30  3 1 4 3000 2 4 1 3 4 2  1 2",
     [("direction", 0), ("opttype", 1), ("propset", None), ("prop_2016.id", 1), ("prop.value", 0x3000),
      ("prop_2016.id", 2), ("prop.value", 1), ("prop_2016.id", 3), ("prop.value", 2),
      ("propsubset", None), ("propsubset.word", 2)]),
    (CALL, [("direction", 0), ("read_list", None), ("write_list", None)]),
    ("X 2 20 5 0 2 4  0", [("direction", 0), ("opttype", 2), ("propset", None)]),
    ("X 2 20 5 0 2 24  3 63 4 1 1 0 1001 1 a5000000",
     [("direction", 0), ("opttype", 2), ("propset", None), ("prop_2016.id", 0x63), ("prop.value", 1),
      ("prop_2016.id", 1), ("prop_2016.id", 0x1001), ("prop.data", b"\xa5")]),
    ("X 2 20 5 0 4 10  1 2 4 0", [("direction", 0), ("opttype", 4), ("propset", None), ("prop_2016.id", 2),
                                  ("prop.value", 0)]),
    ("X 2 20 5 1 3 20  1 1  1 2  1 1 4 1000",
     [("direction", 1), ("opttype", 3), ("propsubset", None), ("propsubset.word", 1), ("propsubset", None),
      ("propsubset.word", 2), ("propset", None), ("prop_2016.id", 1), ("prop.value", 0x1000)]),
    ("X 2 20 5 0 63 8 1 2", [("direction", 0), ("opttype", 0x63), ("optinfo", bytes([0, 0, 0, 1, 0, 0, 0, 2]))]),
    ("X 2 20 4 3", [("err_2016", 3)]),
    ("X 2 20 4 2", [("err_2016", 2)]),
    # Its Read list is not read: its chunk has no octets.
    ("X 2 20 1 0  1 0 abc 0 1 2 0  0  1 1 def 100 0 1000",
     [("direction", 0), ("read_list", None), ("position", 0), ("handle", 0xABC), ("length", 0),
      ("offset", 0x100000002), ("write_list", None), ("reply_chunk", None), ("handle", 0xDEF), ("length", 0x100),
      ("offset", 0x1000)]),
)
#: What has to come back, in this order; to others nothing does.
RECEIVED = {1: [("direction", 1), ("read_list", None), ("write_list", None)],
            2: [("direction", 1), ("opttype", 3), ("propsubset", None), ("propsubset", None), ("propset", None)],
            # The size is done, the others are rejected.
            3: [("direction", 1), ("opttype", 3), ("propsubset", None), ("propsubset.word", 2), ("propsubset", None),
                ("propsubset.word", 5), ("propset", None)],
            6: [("err_2016", 3)], 9: [("err_2016", 2)]}


def session():
    """A client in user space: what it has sent, and which transaction ID each message had."""
    from hostile_2016_caller import EarlierCaller
    connection = EarlierCaller()
    sent, received = [], []
    for at, (text, _) in enumerate(SENT):
        xid = connection.say(text)
        sent.append(xid)
        if at in RECEIVED or at == 0:
            answer = connection.hear(xid)
            check(answer is not None, f"{text} is not answered")
            received.append(answer.data)
    check(connection.null(), "a NULL Call is not answered")
    connection.close()
    return sent, received


def check_by_hand(path, sent, received):
    """Each message has to be shown, with every field."""
    all_shown = messages(path)
    for at, (xid, (text, fields)) in enumerate(zip(sent, SENT)):
        words = text.split()
        head = [("xid", xid), ("vers", 2), ("credit", int(words[2], 16)), ("htype", int(words[3], 16))]
        found = [m for m in all_shown if m.ours and m.get("xid") == xid]
        check(len(found) == 1 and found[0].fields == head + fields,
              f"{text}:\n  shown {[m.fields for m in found]}\n  is    {head + fields}")
        answers = [m for m in all_shown if not m.ours and m.get("xid") == xid]
        check(len(answers) == (at in RECEIVED or at == 0), f"answers to {text}: {answers}")
        if at in RECEIVED:
            check(answers[0].fields[4:] == RECEIVED[at], f"the answer to {text}: {answers[0].fields}")
    log(f"{len(sent)} messages and {len(received)} answers are shown as they were")
    call = next(m for m in all_shown if m.ours and m.get("xid") == sent[1])
    reply = next(m for m in all_shown if not m.ours and m.get("xid") == sent[1])
    check(call.number("rpc.msgtyp") == 0 and reply.number("rpc.msgtyp") == 1,
          f"the RPC messages are not shown: {call.rpc}, {reply.rpc}")


def check_mounted(path, data):
    """READ and WRITE have to be shown with their data, the long listing with its names."""
    shown = messages(path)
    check({m.get("htype") for m in shown} >= {0, 1, 5}, f"header types: {sorted({m.get('htype') for m in shown})}")
    for operation, name in ((38, "WRITE"), (25, "READ")):
        found = [m for m in shown if str(operation) in m.rpc.get("nfs.opcode", []) and m.derived.get("by_rdma")]
        octets = sum(m.derived["by_rdma"] for m in found)
        check(octets >= len(data), f"{name}: {octets} octets that went by RDMA are shown")
    log(f"{len(shown)} messages of a mount")
