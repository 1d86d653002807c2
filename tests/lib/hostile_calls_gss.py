# SPDX-License-Identifier: GPL-2.0
"""Cases of the hostile client: Read chunks that cut an RPC header, or a token of RPCSEC_GSS, in pieces."""

import hashlib
import struct

import gss_proxy
from common import pattern, remote, soak
from hostile_attack import case
from hostile_caller import CHUNKS, Caller, XIDS
from nfs3_mini import NFS_PROGRAM, opaque
from rpc_message import null_rpc
from rpcrdma_header import NOMSG, encode

#: Of RFC 2203: the flavor, and procedures.
RPCSEC_GSS, DATA, INIT = 6, 0, 1
#: A page of the server's.
PAGE = 4096


def gss_call(xid, procedure, handle, arguments, service=1):
    """A NULL Call with a credential of RPCSEC_GSS, and a verifier of 16 octets if it should have one."""
    body = struct.pack(">IIII", 1, procedure, 1, service) + opaque(handle)
    verifier = (RPCSEC_GSS, b"\x04\x04" + bytes(14)) if procedure == DATA else (0, b"")
    return (struct.pack(">IIIIIII", xid, 0, 2, NFS_PROGRAM, 4, 0, RPCSEC_GSS) + opaque(body)
            + struct.pack(">I", verifier[0]) + opaque(verifier[1]) + arguments)


def token_call(xid, token):
    """A Call that is to set up a context."""
    return gss_call(xid, INIT, b"", opaque(token))


def token(length, seed=0):
    """A token that the proxy knows."""
    return (gss_proxy.MAGIC + pattern(("token", seed), length))[:length]


def cut(connection, rpc, position, length=8):
    """An RPC message with some octets of it in a Read chunk: what is inline, and the Read list."""
    chunk = connection.put(rpc[position:position + length], CHUNKS + 512 * position)
    return rpc[:position] + rpc[position + length:], [(position, *chunk)]


def start_proxy():
    """Has the server ask a gssproxy of ours, which it does until it is started anew."""
    remote("pidof -x gss_proxy.py || { setsid python3 tests/lib/gss_proxy.py > /run/gss-proxy.log 2>&1 & }\n"
           f"for i in $(seq 100); do test -S {gss_proxy.SOCKET} && break; sleep 0.1; done; sleep 0.2\n"
           "echo 1 > /proc/net/rpc/use-gss-proxy")


def tokens_seen():
    """The tokens that the proxy was shown: lengths and checksums."""
    return remote(f"cat {gss_proxy.SEEN} 2>/dev/null || true").split("\n")[:-1]


def check_seen(t, tokens, before):
    """Whether the proxy was shown exactly these tokens, by label, since it was shown those of `before`."""
    lines = [f"{len(data)} {hashlib.sha256(data).hexdigest()}" for data in tokens.values()]
    seen = tokens_seen()[len(before):]
    for label, line in zip(tokens, lines):
        if (times := seen.count(line)) != 1:
            t.problem(f"{label}: the proxy has seen it {times} times")
    if others := [line for line in seen if line not in lines]:
        t.problem(f"the proxy has seen other tokens: {others}")


def kinds(xid):
    """RPC messages of at least 200 octets by what they are, with the answer that each is due."""
    behind = pattern("behind", 200)
    return {
        "AUTH_NONE": (struct.pack(">IIIIIIIIII", xid, 0, 2, NFS_PROGRAM, 4, 0, 0, 0, 0, 0) + behind,
                      "reply"),
        "AUTH_SYS": (null_rpc(xid) + behind, "reply"),
        # Nobody has given out such a handle.
        "RPCSEC_GSS": (gss_call(xid, DATA, b"none", behind), "denied"),
        "RPCSEC_GSS, signed": (gss_call(xid, DATA, b"none", behind, 2), "denied"),
    }


@case
def cut_headers(t):
    """A Read chunk at every position of the first 200 octets: the RPC message is what it was."""
    connection = t.current()
    for kind in kinds(0):
        messages = []
        for position in range(1, 201):
            xid = next(XIDS)
            rpc, due = kinds(xid)[kind]
            inline, reads = cut(connection, rpc, position)
            # The direction is looked for in the message; and RFC 8166, 3.4.5.
            if position % 4 or position == 4:
                due = "chunk"
            messages.append((f"{kind}, at {position}", encode(xid, reads=reads) + inline, {due}))
        t.batch(messages)
        # All that is there of the header is in front of the chunk.
        messages = []
        for position in range(8, 68, 4):
            xid = next(XIDS)
            rpc, due = kinds(xid)[kind]
            inline, reads = cut(connection, rpc, position, len(rpc) - position)
            messages.append((f"{kind}, to {position}", encode(xid, reads=reads) + inline, {due}))
        t.batch(messages)
        # In pieces, all of them in chunks.
        xid = next(XIDS)
        rpc, due = kinds(xid)[kind]
        handle, _, offset = connection.put(rpc)
        reads = [(0, handle, min(12, len(rpc) - i), offset + i) for i in range(0, len(rpc), 12)]
        t.batch([(f"{kind}, a whole Call in parts", encode(xid, NOMSG, reads=reads), {due})])


@case
def cut_tokens(t):
    """A Read chunk in a Call that brings a token: a gssproxy is shown all of the token, and nothing else."""
    start_proxy()
    tokens, before, memory = {}, tokens_seen(), None
    for length in (60, 2000):
        size = len(token_call(0, token(length)))
        for position in [None, *range(8, min(size - 8, 200), 4 if soak() else 20), *([1000] if length > 1000 else [])]:
            connection = Caller(memory=memory)
            # What connections had is not freed: they share it.
            memory = connection.memory
            xid, label = next(XIDS), f"a token of {length}, cut at {position}"
            tokens[label] = token(length, position)
            inline, reads = token_call(xid, tokens[label]), []
            if position:
                inline, reads = cut(connection, inline, position)
            # SUNRPC ends the connection when there is no context.
            t.alone(label, encode(xid, reads=reads) + inline, {"lost"}, connection)
            connection.close()
    check_seen(t, tokens, before)
    long_tokens(t, Caller, lambda xid, c, rpc, reads: encode(xid, reads=reads) + rpc,
                4096, {"chunk", "lost"})


def long_tokens(t, connect, make, size, refused):
    """Tokens in as many pages as there are, with as much behind them as a message of `size` octets holds.

    `make` makes the message with an XID and a Read list. What is too long is `refused`.
    """
    memory = None
    payload = int(remote("cat /proc/fs/nfsd/max_block_size"))
    # Of `svc_serv_maxpages`: a page for the header, one for the tail, and two more.
    most = payload // PAGE + 4
    for pages in (payload // PAGE, *range(most - 4, most + 2)):
        for tail in (0, 4, size - 200):
            connection = connect(memory=memory)
            memory = connection.memory
            xid, length = next(XIDS), pages * PAGE + tail
            rpc = token_call(xid, b"")[:-4] + struct.pack(">I", length)
            position, reads, left = len(rpc), [], pages * PAGE
            while left:
                part = min(left, 1 << 19)
                reads.append((position, *connection.segment(part)))
                left -= part
            t.alone(f"a token of {pages} of {most} pages and {tail} octets",
                    make(xid, connection, rpc + bytes(tail), reads), refused, connection)
            connection.close()
        t.well()
