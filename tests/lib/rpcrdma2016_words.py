# SPDX-License-Identifier: GPL-2.0
"""Messages of the draft of 2016 as words in hex, sent and compared word by word.

The tests of this protocol have no encoder and no decoder of its headers: what is sent and what is to
come is written down as it is on the wire.
"""

import struct

from rpc_message import null_rpc

#: draft-cel-nfsv4-rpcrdma-version-two-01, 4.2: rdma_proc and rdma_err.
MSG, NOMSG, ERROR, OPTIONAL = 0, 1, 4, 5
#: An inline threshold before anything is told, in octets (2.3 there).
INLINE = 4096
#: CONNPROP with Receives of 0x3000 octets, Replies that may invalidate, no reverse direction; nothing that never changes.
TELL = "X 2 20 5 0 1 2c  3 1 4 3000 2 4 1 3 4 0  0"
#: The same of a server, with any values.
TOLD = "X 2 c 5 1 1 *"
#: A NULL Call, and its Reply.
CALL, REPLY = "X 2 20 0 0 0 0 0 NULL", "X 2 c 0 1 0 0 0 OK"
#: A request of nothing, and its answer.
ASK, ANSWERED = "X 2 20 5 0 2 4  0", "X 2 c 5 1 3 c  0 0 0"
#: Errors about a header, and about an operation.
BAD_HEADER, INVAL_OPTION = "X 2 c 4 2", "X 2 c 4 3"


def octets(text, xid, names=None):
    """A message. `X` is the transaction ID, `NULL` an RPC Call with it; `names` has words for other names.

    `[n` before the words takes the first `n` octets of them only.
    """
    words = text.split()
    length = None
    if words and words[0].startswith("["):
        length = int(words.pop(0)[1:], 16)
    out = b""
    for word in words:
        if word == "NULL":
            out += null_rpc(xid)
        elif word == "X":
            out += struct.pack(">I", xid)
        elif names and word in names:
            out += struct.pack(">I", names[word] & 0xFFFFFFFF)
        else:
            out += struct.pack(">I", int(word, 16))
    return out[:length]


def is_like(data, text, xid):
    """Whether a message is the one that was expected: `c` is any credit value that is allowed, `*` any rest, `OK` the
    Reply to a NULL Call."""
    words = [struct.unpack_from(">I", data, at)[0] for at in range(0, len(data) - 3, 4)]
    if len(data) % 4:
        return False
    expected = []
    for word in text.split():
        expected += [xid, 1, 0, 0, 0, 0] if word == "OK" else [word]
    for at, word in enumerate(expected):
        if word == "*":
            return True
        if at >= len(words):
            return False
        if word == "c":
            right = 1 <= words[at] <= 1024
        elif word == "X":
            right = words[at] == xid
        else:
            right = words[at] == (word if isinstance(word, int) else int(word, 16))
        if not right:
            return False
    return len(words) == len(expected)


def shown(data):
    """A message as words."""
    return " ".join(f"{word:x}" for (word,) in struct.iter_unpack(">I", data[:len(data) & ~3]))
