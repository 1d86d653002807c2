# SPDX-License-Identifier: GPL-2.0
"""The hostile peers' codec of Version Two against messages that were written by hand.

Run by host/vectors. `messages` are what the encoder is asked for; each vector has one.
"""

import struct
import sys

import rpcrdma2_header as two

PATH = "tests/vectors/version-two.txt"
XID, CREDIT = 0x12345678, 0x20
CALL, REPLY = struct.pack(">II", XID, 0), struct.pack(">II", XID, 1)


def vectors(path):
    """The vectors of a file: by name, the octets of the header and those of the RPC message."""
    found, name = {}, None
    with open(path, encoding="ascii") as f:
        for line in f:
            words = line.split()
            if not words or words[0] == "#" or words[0].startswith("#"):
                continue
            if not line[0].isspace():
                name, *words = words
                assert name not in found, f"{name} comes twice"
                found[name] = [b"", b""]
            for word in words:
                if word == "...":
                    found[name].append(None)
                else:
                    found[name][len(found[name]) == 3] += bytes.fromhex(word)
    return {name: (parts[0], parts[1]) for name, parts in found.items()}


def segment(handle, length):
    """A segment of the vectors."""
    return (handle, length, 0xB0000C000)


def messages():
    """What each vector is, as the encoder makes it."""
    def told(which, value, last=False):
        return two.properties(CREDIT, [(which, value)], last=last)

    errors = {
        "vers": (two.VERS, 1, 2), "bad-xdr": (two.BAD_XDR,), "bad-propval": (two.BAD_PROPVAL,),
        "inval-htype": (two.INVAL_HTYPE,), "inval-cont": (two.INVAL_CONT,),
        "read-chunks": (two.READ_CHUNKS, 3), "write-chunks": (two.WRITE_CHUNKS, 0),
        "segments": (two.SEGMENTS, 16), "write-resource": (two.WRITE_RESOURCE, 1, 1 << 20),
        "reply-resource": (two.REPLY_RESOURCE, 0x1234), "vers-mismatch": (two.VERS_MISMATCH,),
        "system": (two.SYSTEM,),
    }
    defaults = [(1, 4096), (2, 4096), (3, 1 << 20), (4, 16), (5, 0)]
    return {f"error-{name}": two.error(XID, CREDIT, *words) for name, words in errors.items()} | {
        "grant": two.prefix(0, -16, two.GRANT),
        "connprop-middle-empty": two.properties(CREDIT, last=False),
        "connprop-final-empty": two.properties(CREDIT),
        "property-send-size": told(two.SEND_SIZE, 12288),
        "property-receive-size": told(two.RECEIVE_SIZE, 1024),
        "property-segment-size": told(two.SEGMENT_SIZE, 1 << 20),
        "property-segment-count": told(two.SEGMENT_COUNT, 256),
        "property-reverse": told(two.REVERSE, 3),
        "property-host-auth": told(two.HOST_AUTH, struct.pack(">I8s", 6, b"abcdef")),
        "connprop-final": two.properties(CREDIT, defaults),
        "call-external-least": two.call_external(XID, CREDIT, [segment(0xA1, 0x2000)]),
        "call-external": two.call_external(
            XID, CREDIT, [segment(0xA1, 0x2000), segment(0xA2, 0x800)], 0xA3,
            [(0x50, *segment(0xA3, 0x4000))], [[segment(0xA4, 0x400)]], [segment(0xA5, 0x600)]),
        "call-middle": two.middle(XID, CREDIT, two.CALL_MIDDLE, 4076, CALL),
        "reply-middle": two.middle(XID, CREDIT, two.REPLY_MIDDLE, 4076, REPLY),
        "call-inline-least": two.call(XID, CREDIT, CALL),
        "call-inline": two.call(
            XID, CREDIT, CALL, 0xA1,
            [(0x50, *segment(0xA1, 0x1000)), (0x50, *segment(0xA2, 3))],
            [[segment(0xA3, 0x400), segment(0xA4, 0x200)], []], [segment(0xA5, 0x600)]),
        "reply-external-least": two.reply_external(XID, CREDIT, [segment(0xA1, 0x1800)]),
        "reply-external": two.reply_external(
            XID, CREDIT, [segment(0xA2, 0x1000), segment(0xA3, 0x10)], [[segment(0xA1, 0x200)]]),
        "reply-inline-least": two.reply(XID, CREDIT, REPLY),
        "reply-inline": two.reply(XID, CREDIT, REPLY,
                                  [[segment(0xA1, 0x200)], [segment(0xA2, 0)]]),
    }


def written_again(header):
    """What the encoder makes of what the decoder has read."""
    xid, credit, rpc = header.xid, header.credit, header.rpc
    if header.htype == two.ERROR:
        return two.error(xid, credit, *header.error)
    if header.htype == two.GRANT:
        return two.prefix(xid, credit, two.GRANT)
    if header.htype in (two.CONNPROP_MIDDLE, two.CONNPROP_FINAL):
        last = header.htype == two.CONNPROP_FINAL
        return two.properties(credit, header.properties, last, xid)
    if header.htype in (two.CALL_MIDDLE, two.REPLY_MIDDLE):
        return two.middle(xid, credit, header.htype, header.remaining, rpc)
    if header.htype == two.CALL_EXTERNAL:
        return two.call_external(xid, credit, header.chunk, header.inv, header.reads,
                                 header.writes, header.reply)
    if header.htype == two.CALL_INLINE:
        return two.call(xid, credit, rpc, header.inv, header.reads, header.writes, header.reply)
    if header.htype == two.REPLY_EXTERNAL:
        return two.reply_external(xid, credit, header.reply, header.writes)
    return two.reply(xid, credit, rpc, header.writes)


def main():
    """Compares everything with everything."""
    expected, made = vectors(PATH), messages()
    wrong = [f"{name}: there is no vector, or nothing to compare it with"
             for name in expected.keys() ^ made.keys()]
    for name in expected.keys() & made.keys():
        head, rpc = expected[name]
        if made[name] != head + rpc:
            wrong.append(f"{name}: {made[name].hex(' ', 4)} is not {(head + rpc).hex(' ', 4)}")
        header = two.Header(head + rpc)
        if header.rpc != rpc:
            wrong.append(f"{name}: the header is read as {header.at} octets, not {len(head)}")
        if written_again(header) != head + rpc:
            wrong.append(f"{name}: what is read is not what was written")
    print("\n".join(wrong) or f"{len(expected)} messages")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
