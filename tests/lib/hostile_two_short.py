# SPDX-License-Identifier: GPL-2.0
"""Cases in which the hostile server has short Receives in Version Two, so that nearly no Call fits one message.

NFS has no Call that is long beside its data. With Receives that are shorter than the rest of a WRITE it has: then the data
have a Read chunk, and the rest comes in parts (6.6.2 of the draft). Where there is one credit at a time the rest has a Call
chunk (4.5.1.2 and 6.3.5).
"""

import os
import time

from common import Gone, slowness
from hostile_two import first
from rpcrdma2_header import READ_CHUNKS, RECEIVE_SIZE, properties

#: Octets of a Receive. The header of a WRITE with both chunks fits, and no WRITE does.
SHORT = 128


def short(what):
    """Enters a case in which Receives are short, one credit at a time, and `what` answers WRITEs that have a Call chunk."""
    def run(connection):
        two = connection.two
        two.room, two.window, two.watch = SHORT, 1, watch
        connection.send_message(properties(two.credit(), [(RECEIVE_SIZE, SHORT)]))
        two.sent += 1
        two.spoken = True
        return False

    def watch(r):
        if r.answer.procedure == "WRITE" and r.call.chunk:
            what(r)
        else:
            r.send()
    run.__name__, run.__doc__ = f"first_{what.__name__}", what.__doc__
    first("ok", 2)(run)


@first("ok", 2)
def first_short_receives(connection):
    """Receives of 128 octets, and as many as a Call takes in parts."""
    two = connection.two
    two.room = SHORT
    connection.send_message(properties(two.credit(), [(RECEIVE_SIZE, SHORT)]))
    two.sent += 1
    two.spoken = True
    return False


def both(r):
    """Notes which chunks a WRITE has, and looks at them. Returns whether there are both."""
    chunk, reads = r.call.chunk, r.call.reads
    if not reads:
        r.note("a call chunk alone")
        return False
    r.note("a call chunk and a read chunk")
    position = reads[0][0]
    # The data are the last argument, and their padding is in no chunk (3.4.5.2 of RFC 8166).
    if {p for p, *_ in reads} != {position} or sum(n for _, n, _ in chunk) != position:
        r.note(f"wrong: a Call chunk {chunk} and Read chunks {reads}")
    # What is most work to invalidate is what it asks for.
    longest = max(chunk + [s[1:] for s in reads], key=lambda s: s[1])
    if r.call.inv != longest[0]:
        r.note(f"wrong: {r.call.inv:#x} is to be invalidated, not {longest[0]:#x}")
    return True


@short
def short_receive(r):
    """Receives of 128 octets, one at a time: WRITEs have a Call chunk and a Read chunk."""
    both(r)
    r.send()


@short
def short_receive_invalidated(r):
    """The same, and the handle that is named is invalidated with the Reply, where a program can do that."""
    both(r)
    r.send(invalidate=None if os.environ["FABRIC"] == "siw" else r.call.inv)


@short
def short_receive_refused(r):
    """The first WRITE with a Read chunk beside its Call chunk is refused: one Call chunk is left."""
    if both(r):
        r.error(READ_CHUNKS, 0)
    else:
        r.send()


@short
def short_receive_lost(r):
    """The connection ends in place of the first Reply: the WRITE is sent again on the next one."""
    if both(r) and "lost" not in r.connection.server.notes:
        r.note("lost")
        raise Gone("as the case wants")
    r.send()


@short
def short_receive_late(r):
    """After the Reply neither chunk can be read any more: the first time the Call chunk is tried, then the Read chunk."""
    segment = r.call.chunk[0]
    if both(r) and "refused" in r.connection.server.notes:
        segment = r.call.reads[0][1:]
    r.send()
    time.sleep(0.4 * slowness())
    handle, length, offset = segment
    try:
        r.connection.rdma_read(handle, offset, length)
    except Gone:
        r.note("refused")
        raise
    r.note("wrong: the memory of a WRITE was open after its Reply")
