# SPDX-License-Identifier: GPL-2.0
"""What tshark has to show of Version Two sessions, see `capture.Message`."""

import struct

from capture import messages, repeated, tshark
from common import check, fabric, log
from rpcrdma2_header import (CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, CONNPROP_FINAL, CONNPROP_MIDDLE,
                             ERROR, GRANT, HOST_AUTH, Header, READ_CHUNKS, REPLY_EXTERNAL,
                             REPLY_INLINE, REPLY_MIDDLE, REPLY_RESOURCE, REVERSE, SEGMENTS, SYSTEM, VERS,
                             VERS_MISMATCH, WRITE_CHUNKS, WRITE_RESOURCE)

#: All header types.
EVERY = {ERROR, GRANT, CONNPROP_MIDDLE, CONNPROP_FINAL, CALL_EXTERNAL, CALL_MIDDLE, CALL_INLINE,
         REPLY_EXTERNAL, REPLY_MIDDLE, REPLY_INLINE}
#: All errors.
ERRORS = {*range(VERS, VERS_MISMATCH + 1), SYSTEM}
#: What comes with an error.
ARMS = {VERS: ("err.vers_low", "err.vers_high"), READ_CHUNKS: ("err.max_chunks",),
        WRITE_CHUNKS: ("err.max_chunks",), SEGMENTS: ("err.max_segments",),
        WRITE_RESOURCE: ("err.chunk_index", "err.length_needed"),
        REPLY_RESOURCE: ("err.length_needed",)}
#: Operations of NFSv4.
OPEN, READ, READDIR, WRITE, EXCHANGE_ID, CREATE_SESSION, SEQUENCE = 18, 25, 26, 38, 42, 43, 53
NFS = 100003


def fields(data):
    """The fields of a message in the order in which they have to be shown."""
    header = Header(data)
    out = [("xid", header.xid), ("vers", header.vers), ("credit", header.credit),
           ("htype", header.htype)]
    segment = ("handle", "length", "offset")

    def reads(name, entries):
        out.append((name, None))
        for entry in entries:
            out.extend(zip(("position", *segment), entry))

    def chunk(name, segments):
        out.append((name, None))
        for entry in segments:
            out.extend(zip(segment, entry))

    if header.error:
        out.append(("err", header.error[0]))
        out.extend(zip(ARMS.get(header.error[0], ()), header.error[1:]))
    for which, value in header.properties:
        out.append(("prop.id", which))
        if len(value) == 4 and which != HOST_AUTH:
            out.append(("prop.brs" if which == REVERSE else "prop.value",
                        struct.unpack(">I", value)[0]))
        elif value:
            out.append(("prop.data", value))
    if header.remaining is not None:
        out.append(("remaining", header.remaining))
    if header.htype in (CALL_EXTERNAL, CALL_INLINE):
        out.append(("inv_handle", header.inv))
        if header.htype == CALL_EXTERNAL:
            reads("call_chunk", [(0, *s) for s in header.chunk])
        reads("read_list", header.reads)
    if header.htype in (CALL_EXTERNAL, CALL_INLINE, REPLY_EXTERNAL, REPLY_INLINE):
        out.append(("write_list", None))
        for segments in header.writes:
            chunk("write_chunk", segments)
        if header.reply is not None:
            chunk("reply_chunk", header.reply)
    return out


def octets(message, name):
    """The octets of a field of the RPC message."""
    return bytes.fromhex(message.rpc.get(name, [""])[0].replace(":", ""))


def check_rpc(message, rpc):
    """An RPC message has to be shown as what it is."""
    xid, kind = struct.unpack_from(">II", rpc)
    check((message.number("rpc.xid"), message.number("rpc.msgtyp")) == (xid, kind),
          f"{message}: another RPC message is shown: {message.rpc.get('rpc.xid')}")
    if kind == 0:
        shown = tuple(message.number(f"rpc.{n}") for n in ("program", "programversion", "procedure"))
        check(shown == struct.unpack_from(">III", rpc, 12), f"{message}: shown as {shown}")


class Notes:
    """What the client in user space has to say of its session."""

    def __init__(self):
        #: Each message, as a pair of whether it is ours and its octets.
        self.messages = []
        #: The XID of a Call whose parts do not add up.
        self.broken = None
        #: The data of each WRITE and of each READ, by XID.
        self.written, self.read = {}, {}
        #: Each Call that went by Call chunk, by XID.
        self.external = {}


def check_recorded(shown, notes):
    """Each of the recorded messages has to be shown, as it was."""
    check({m.get("htype") for m in shown} == EVERY,
          f"header types: {sorted({m.get('htype') for m in shown})}")
    errors = {m.get("err") for m in shown if m.get("htype") == ERROR}
    check(errors == ERRORS, f"errors: {sorted(errors)}")
    for ours in (True, False):
        there = [m for m in shown if m.ours == ours and "sent_again" not in m.derived]
        # A Call of a version, or a header type, that there is not is no message of Version Two.
        wanted = [data for by_us, data in notes.messages if by_us == ours and data[15] in EVERY
                  and (data[4:8] == b"\0\0\0\2" or len(data) == 28)]
        # The last grants may have come when nobody looked any more.
        late = there[len(wanted):]
        check(len(there) >= len(wanted) and all(m.get("htype") == GRANT and not ours for m in late),
              f"{len(there)} messages are shown, and not {len(wanted)}")
        before = b""
        first = 0
        for i, (message, data) in enumerate(zip(there, wanted)):
            check(message.fields == fields(data),
                  f"{message}:\n  shown {message.fields}\n  is    {fields(data)}")
            rest = Header(data).rpc
            if message.get("htype") in (CALL_MIDDLE, REPLY_MIDDLE):
                check(message.part == rest, f"{message}: other octets of a part")
                before, first = before + rest, first if before else i
                continue
            if before:
                check(message.part == rest and message.derived.get("parts") == i - first + 1,
                      f"{message}: {message.derived}, and there were {i - first + 1} parts")
                check(all(m.derived.get("complete_in") == message.frame for m in there[first:i]),
                      f"{message}: the parts before it lead elsewhere")
            check(message.broken == (ours and message.get("xid") == notes.broken),
                  f"{message}: parts add up, or do not")
            if rest and not message.broken:
                check_rpc(message, before + rest)
            whole = rest and not message.broken
            # If it went as a whole by RDMA, before the header that says so.
            by_rdma = message.get("htype") in (CALL_EXTERNAL, REPLY_EXTERNAL)
            whole = whole or by_rdma and "by_rdma" in message.derived
            if message.get("htype") == CALL_EXTERNAL and whole:
                check_rpc(message, notes.external[message.get("xid")])
            check(bool(message.rpc) == bool(whole), f"{message}: an RPC message")
            before = b""
    log(f"{len(notes.messages)} messages were shown as they were")


def check_credits(shown):
    """No message is shown that was beyond the limit that was shown before."""
    for ours in (True, False):
        count, limit = 0, 1
        for message in shown:
            if not message.fields or "sent_again" in message.derived:
                continue
            if message.ours != ours:
                limit = message.get("credit")
                continue
            count += 1
            check(count <= limit < count + 1024,
                  f"{message}: number {count}, and {limit} were allowed")


def check_answers(shown):
    """Each Call is shown, by RPC too, with its Reply, which RPC takes for that."""
    calls = {}
    for message in shown:
        htype, xid = message.get("htype"), message.get("xid")
        if "sent_again" in message.derived or htype not in (CALL_INLINE, REPLY_INLINE, REPLY_EXTERNAL):
            continue
        if htype == CALL_INLINE:
            check(message.number("rpc.xid") == xid and message.number("rpc.msgtyp") == 0
                  and message.number("rpc.program") == NFS, f"{message}: no Call of NFS: {message.rpc}")
            calls[xid] = message
            continue
        call = calls.pop(xid, None)
        check(call, f"{message}: there was no such Call")
        if message.rpc or htype == REPLY_INLINE:
            # Which of the two names it has depends on tshark's age.
            asked = message.number("rpc.repframe") or message.number("rpc.reqframe")
            check(message.number("rpc.xid") == xid and message.number("rpc.msgtyp") == 1
                  and message.number("rpc.program") == NFS and asked == call.frame,
                  f"{message}: no Reply to {call}: {message.rpc}")
            done = message.rpc.get("nfs.opcode", [])
            # It ends with the operation that has failed.
            check(done == call.rpc.get("nfs.opcode", [])[:len(done)],
                  f"{message}: operations {done} of {call.rpc.get('nfs.opcode')}")
    check(not calls, f"Calls without a Reply: {list(calls.values())[:5]}")


def with_operation(shown, operation, call=True):
    """The Calls, or the Replies, that have an operation."""
    return [m for m in shown if m.number("rpc.msgtyp") == (0 if call else 1)
            and str(operation) in m.rpc.get("nfs.opcode", ())]


def check_by_hand(path, notes):
    """The session of `recorded`; the same without what went by RDMA, and with packets sent twice by RoCE."""
    found = messages(path)
    check_recorded(found, notes)
    check_data(found, notes)
    if fabric() == "siw":
        check(len({m.frame for m in found}) < len(found), "no two messages came in one segment")
    check(not any("absent" in m.derived for m in found), "not all is seen that went by RDMA")
    by_rdma = [m.derived["by_rdma"] for m in found if "by_rdma" in m.derived]
    unseen = messages(path, "-o", "rpcrdma2.keep:FALSE")
    check_recorded(unseen, notes)
    absent = [m.derived["absent"] for m in unseen if "absent" in m.derived]
    check(absent == by_rdma and by_rdma[:2] == [50_001, 6000] and by_rdma[2] > 60_000,
          f"by RDMA went {by_rdma}, unseen {absent}")
    if fabric() == "rxe":
        twice = [m.frame for m in found if m.get("htype") in (CALL_MIDDLE, CALL_INLINE)]
        found = messages(repeated(path, twice))
        check(sum("sent_again" in m.derived for m in found) == len(twice),
              f"sent again: {[m for m in found if 'sent_again' in m.derived]}")
        check_recorded(found, notes)
        check_data(found, notes)


def check_data(found, notes):
    """What the dissector of NFS makes of data, whichever way they went."""
    for xid in notes.external:
        both = [m.rpc.get("nfs.opcode") for m in found
                if m.get("xid") == xid and "sent_again" not in m.derived]
        check(len(both) == 2 and both[0] and both[0] == both[1], f"{xid:#x} by Call chunk: {both}")
    for kind, known in ((0, notes.written), (1, notes.read)):
        there = {m.get("xid"): m for m in found
                 if m.number("rpc.msgtyp") == kind and "sent_again" not in m.derived}
        for xid, data in known.items():
            check(xid in there, f"the RPC message {xid:#x} is not shown")
            check(octets(there[xid], "nfs.data") == data, f"{there[xid]} has other data")


def check_mounted(path, data, parts):
    """A mount that wrote and read 100,000 octets of `data`, and 4096 of them, set an attribute, and listed names.

    The module has sent so many messages before the last ones of Calls.
    """
    found = messages(path)
    check_credits(found)
    check_answers(found)
    ours = [m for m in found if m.ours and "sent_again" not in m.derived]
    check(ours[0].get("htype") == CONNPROP_FINAL and ours[0].count("prop.id") >= 4,
          f"properties: {ours[0].fields}")
    there = sum(m.get("htype") == CALL_MIDDLE for m in ours)
    check(there == parts > 0, f"{there} parts are shown, {parts} were sent")
    [big, small] = with_operation(found, WRITE)
    check(big.count("position") and big.get("handle") and big.derived.get("by_rdma") == 100_000
          and big.get("inv_handle") in (0, big.get("handle")), f"{big}: {big.fields}, {big.derived}")
    check(octets(big, "nfs.data") == data, f"{big}: other data")
    check("parts" not in small.derived and octets(small, "nfs.data") == data[:4096],
          f"{small}: {small.derived}")
    [long] = [m for m in found if m.derived.get("parts") and m.ours]
    check(long.derived["parts"] == parts + 1 == 2, f"{long}: {long.derived}")
    big = with_operation(found, READ)[0]
    check(big.count("write_chunk") == 1 and big.get("handle"), f"{big}: {big.fields}")
    [big, small] = with_operation(found, READ, call=False)
    check(big.count("write_chunk") == 1 and big.derived.get("by_rdma") == 100_000
          and octets(big, "nfs.data") == data and octets(small, "nfs.data") == data[:4096],
          f"{big}: {big.derived}, {small}")
    for operation in (EXCHANGE_ID, CREATE_SESSION, SEQUENCE, OPEN, READDIR):
        check(with_operation(found, operation), f"operation {operation} is not shown")


def check_in_packets(path, data):
    """A mount that wrote and read `data` in messages that are longer than the packets of the network."""
    found = messages(path)
    packets = [m for m in found if not m.fields]
    whole = [m for m in found if m.fields]
    check_credits(whole)
    check_answers(whole)
    # tshark itself puts together what iWARP has taken apart.
    joins = fabric() == "rxe"
    check(len(packets) >= 4 * joins and all("message_in" in m.derived for m in packets),
          f"packets: {packets}")
    for operation, call in ((WRITE, True), (READ, False)):
        [message] = with_operation(whole, operation, call)
        check(octets(message, "nfs.data") == data and "parts" not in message.derived
              and sum(m.derived["message_in"] == message.frame for m in packets) >= 2 * joins,
              f"{message}: {message.fields}")


def check_other_version(path):
    """A mount that offered Version Two to a server of Version One."""
    found = messages(path)
    check([m.get("htype") for m in found] == [CONNPROP_FINAL, ERROR], f"{found}")
    refused = dict(found[1].fields)
    check((refused["err"], refused["err.vers_low"], refused["err.vers_high"]) == (VERS, 1, 1),
          f"{refused}")
    later = tshark(path, "-Y", "rpcordma and rpc", "-T", "fields", "-e", "frame.number")
    frames = [int(word) for word in later.split()]
    check(len(frames) > 10 and min(frames) > found[1].frame, f"Version One: {frames}")
