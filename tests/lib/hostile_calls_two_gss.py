# SPDX-License-Identifier: GPL-2.0
"""Cases of the hostile client in Version Two: Read chunks that cut an RPC header, or a token, in pieces."""

from common import soak
from hostile_calls_gss import (check_seen, cut, kinds, long_tokens, start_proxy, token, token_call,
                               tokens_seen)
from hostile_calls_two import attempt, case, opened
from rpcrdma2_header import BAD_XDR, call

#: The longest message that our server takes.
SIZE = 12 << 10


@case
def cut_headers(t):
    """As in Version One."""
    connection = opened()
    for kind in kinds(0):
        for position in range(1, 201):
            def make(c, xid, kind=kind, position=position):
                inline, reads = cut(c, kinds(xid)[kind][0], position)
                return [call(xid, c.credit(), inline, reads=reads)]
            due = kinds(0)[kind][1]
            # The direction is looked for in the message.
            if position % 4 or position == 4:
                due = f"error {BAD_XDR}"
            attempt(t, f"{kind}, at {position}", make, {due}, connection)
    connection.close()


@case
def cut_tokens(t):
    """As in Version One, and with longer messages."""
    start_proxy()
    tokens, before, memory = {}, tokens_seen(), None
    for position in [None, *range(8, 200, 4 if soak() else 20), 1000]:
        label = f"a token cut at {position}"
        tokens[label] = whole = token(2000, position)

        def make(c, xid, position=position, whole=whole):
            inline, reads = token_call(xid, whole), []
            if position:
                inline, reads = cut(c, inline, position)
            return [call(xid, c.credit(), inline, reads=reads)]
        connection = opened(memory=memory)
        # As in Version One: they share it.
        memory = connection.memory
        attempt(t, label, make, {"lost"}, connection)
        connection.close()
    check_seen(t, tokens, before)

    # One message before its answer: the window allows it, and nobody has to count.
    long_tokens(t, opened, lambda xid, c, rpc, reads: call(xid, c.credit(), rpc, reads=reads),
                SIZE, {f"error {BAD_XDR}", "lost"})
