# SPDX-License-Identifier: GPL-2.0
"""A client in user space that connects to an RPC-over-RDMA server and sends what it likes."""

import itertools
import os
import struct
import time

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import AddrInfo, CMID, ConnParam
from pyverbs.pyverbs_error import PyverbsRDMAError

from common import Gone, NFS_PORT, Pause, slowness, watchdog
from hostile_judge import TWO
from hostile_qp import DEPTH, Events, Memory, QueuePair, SENDS
from rpcrdma_header import ERROR, Header, encode
from rpc_message import null_call, null_rpc

#: Octets of the memory that messages and chunks are in. Messages are at its start.
ARENA = 2 << 20
#: Where in the arena chunks may begin.
CHUNKS = 1 << 20
#: Transaction ids that were not used before.
XIDS = itertools.count(0x1000)
#: The private data of RFC 8797: magic number, version, flags (our memory regions can't be
#: invalidated by the server), and both sizes of 4 KiB.
PRIVATE = struct.pack(">IBBBB", 0xF6AB0E18, 1, 0, 3, 3)


class Refused(Exception):
    """The server did not accept a connection."""


class Connection(QueuePair):
    """A connection to the server."""

    #: The protection domain of all connections, once there is one.
    domain = None

    def __init__(self, private=PRIVATE, depth=16, retry=7, rnr_retry=7, receives=DEPTH,
                 complete=True, memory=None, asks=True, source=None):
        self.events = Events()
        #: What ended the connection.
        self.ended = None
        cmid = CMID(creator=self.events.channel, port_space=ce.RDMA_PS_TCP)
        address = AddrInfo(src=source, dst=os.environ["PEER_ADDR"], dst_service=str(NFS_PORT),
                           port_space=ce.RDMA_PS_TCP)
        cmid.resolve_addr(address, 5000)
        self.expect(ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        cmid.resolve_route(5000)
        self.expect(ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
        memory = memory or Memory(cmid.context, ARENA, Connection.domain)
        Connection.domain = memory.pd
        super().__init__(cmid, memory)
        self.answers = []
        #: How many Calls may be unanswered, RFC 8166 section 3.3.3.
        self.granted = 1
        self.modify(e.IBV_QPS_INIT)
        for i in range(receives):
            self.post_recv(i)
        self.parameters = ConnParam(resources=depth, depth=depth, retry=retry, rnr_retry=rnr_retry,
                                    qp_num=self.qp.qp_num, data_len=len(private))
        if private:
            self.parameters.set_private_data(private)
        if asks:
            self.call_in()
            self.establish(complete)

    def call_in(self):
        """Asks the server for the connection."""
        self.cmid.connect(self.parameters)

    def establish(self, complete=True):
        """Waits for the server's answer to that, and completes the connection."""
        # Under iWARP the connection is established with the server's answer.
        kind = self.expect(ce.RDMA_CM_EVENT_CONNECT_RESPONSE, ce.RDMA_CM_EVENT_ESTABLISHED)
        if complete and kind == ce.RDMA_CM_EVENT_CONNECT_RESPONSE:
            # Again, since only now the peer's right to read our memory is among the attributes.
            self.modify(e.IBV_QPS_INIT)
            self.modify(e.IBV_QPS_RTR)
            # As many Reads of the server's memory as we like, whatever the server says.
            self.modify(e.IBV_QPS_RTS, max_rd_atomic=16)
            self.cmid.establish()
        elif complete:
            # The server's end of siw does not look for what arrives right after its answer.
            time.sleep(0.05)

    def expect(self, *wanted):
        """Waits for an event of the connection manager, which must be one of `wanted`."""
        if not self.events.pending(int(20_000 * watchdog())):
            raise Refused(f"no event {wanted}")
        event = self.events.take()
        kind = event.event_type
        event.ack_cm_event()
        if kind not in wanted:
            raise Refused(f"event {kind} in place of {wanted}")
        return kind

    def note_end(self):
        """Looks whether the server has ended the connection; returns what the end was, if so."""
        if not self.ended and self.events.pending():
            event = self.events.take()
            kind = event.event_type
            event.ack_cm_event()
            self.ended = f"event {kind}"
        return self.ended

    def check_alive(self):
        """Raises `Gone` if the server has ended the connection."""
        if ended := self.note_end():
            raise Gone(ended)

    def given_up(self):
        """Whether the server has ended the connection."""
        return bool(self.ended) or self.events.pending()

    def take(self):
        """Takes in what has arrived; raises `Gone` if the connection had ended behind that."""
        ended = self.note_end()
        self.poll()
        while self.arrived:
            self.answers.append(Answer(self.arrived.pop(0)))
            self.granted = self.answers[-1].header.credit
        if ended:
            raise Gone(ended)

    def send_many(self, messages):
        """Sends messages without waiting for each."""
        size = max(map(len, messages))
        room = min(CHUNKS // max(size, 1), SENDS // 2)
        for first in range(0, len(messages), room):
            ids = []
            for i, message in enumerate(messages[first:first + room]):
                wr = self.send_request(message, at=i * size)
                self.qp.post_send(wr)
                ids.append(wr.wr_id)
            for wr_id in ids:
                self.wait(wr_id)

    def answer(self, xid, limit=10, within=None):
        """Waits for the answer to a Call; `within` a few seconds where none is to come."""
        deadline = time.monotonic() + (within * slowness() if within else limit * watchdog())
        pause = Pause()
        while True:
            for answer in self.answers:
                if answer.xid == xid:
                    return answer
            self.take()
            if time.monotonic() > deadline:
                return None
            pause()

    def earn(self, count, seconds=None):
        """Uses all credits again and again, until the server grants `count`; raises `Gone` if it does not.

        A server grants few credits at first, and cuts off who sends many more Calls than that. It
        grants more when all of them were in use at once. Each Call has a chunk behind its message,
        which the server reads and does not look at, so that they are with it for a while; how long
        depends on the machine all the same.
        """
        until = time.monotonic() + (seconds * slowness() if seconds else 20 * watchdog())
        while self.granted < count:
            if time.monotonic() > until:
                raise Gone(f"{self.granted} credits, {count} wanted")
            xids = [next(XIDS) for _ in range(self.granted)]
            chunk = (len(null_rpc(0)), *self.segment(4096))
            self.send_many([null_call(xid, reads=[chunk]) for xid in xids])
            for xid in xids:
                self.answer(xid)
            self.answers.clear()

    def null(self, limit=10, within=None):
        """Does a NULL Call; returns whether it was answered."""
        xid = next(XIDS)
        self.send_message(null_call(xid))
        answer = self.answer(xid, limit, within)
        return answer is not None and answer.kind == "reply"

    def call(self, message, xid, limit=20):
        """Sends one Call and waits for its answer."""
        self.send_message(message)
        return self.answer(xid, limit)

    def request(self, xid, rpc, **lists):
        """Sends the Call of an RPC, maybe with chunk lists, and waits for its answer."""
        return self.call(encode(xid, **lists) + rpc, xid)

    def lost(self, limit=15, within=None):
        """Waits for the server to end the connection; returns whether it did."""
        deadline = time.monotonic() + (within * slowness() if within else limit * watchdog())
        pause = Pause()
        try:
            while time.monotonic() < deadline:
                self.take()
                pause()
        except Gone:
            return True
        return False

    def put(self, data, at=CHUNKS):
        """Puts octets into the arena and returns them as a segment."""
        self.arena.write(data, len(data), at)
        return self.segment(len(data), at)

    def segment(self, length, at=CHUNKS):
        """A segment of the arena."""
        return (self.arena.rkey, length, self.arena.buf + at)

    def get(self, length, at=CHUNKS):
        """Octets of the arena."""
        return self.arena.read(length, at)


def Caller(**how):
    """A new `Connection`.

    siw's connections are those of TCP: the port that the connection manager has chosen may be one
    that an earlier connection had just now.
    """
    for _ in range(20):
        try:
            return Connection(**how)
        except PyverbsRDMAError as x:
            if "Errno: 98" not in str(x):
                raise
        time.sleep(0.1)
    raise Refused("no local port")


class Answer:
    """A message from the server."""

    def __init__(self, data):
        self.data = data
        self.header = Header(data)
        self.xid = self.header.xid

    @property
    def kind(self):
        """What it is: `vers`, `chunk`, `reply` or `denied`; anything else is a mistake."""
        header = self.header
        if not 1 <= header.credit <= 1024:
            return f"a wrong grant: {self.data[:28].hex()}"
        if header.proc == ERROR:
            if header.error[:1] == (2,) and header.vers == 1:
                return "chunk"
            # RFC 8166, 4.5: the version is that of the Call.
            if header.error == (1, 1, 1) and header.vers != 1:
                return "vers"
            if header.error == (11,) and header.vers == 2 and TWO:
                return "vers"
            return f"a wrong RDMA_ERROR: version {header.vers}, {header.error}"
        if header.vers != 1 or header.proc > 1 or header.reads:
            return f"a wrong Reply: {self.data[:28].hex()}"
        if header.proc == 1:
            return "reply" if header.reply and not header.rpc else "an empty RDMA_NOMSG"
        xid, kind, denied = struct.unpack_from(">III", header.rpc)
        if xid != self.xid or kind != 1:
            return f"a wrong RPC Reply: {header.rpc[:12].hex()}"
        return "denied" if denied else "reply"

    def accepted(self, rpc=None):
        """The accept_stat and the results, of this message's Reply or of `rpc`."""
        return accepted(self.header.rpc if rpc is None else rpc)


def accepted(rpc):
    """The accept_stat and the results of an RPC Reply."""
    length = struct.unpack_from(">I", rpc, 16)[0]
    at = 20 + length + -length % 4
    return struct.unpack_from(">I", rpc, at)[0], rpc[at + 4:]
