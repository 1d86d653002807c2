# SPDX-License-Identifier: GPL-2.0
"""An NFSv3 server in user space that can be told to misbehave.

It speaks Version One (RFC 8166) over verbs, MOUNT over TCP, and knows a handful
of procedures, enough to mount, stat, read, write and list. Files need not exist:
`d<length>` is a file of that length with contents that both sides can compute.

A *case* is set over the control connection. While it is set, Replies of the
procedure it names leave as `cases` in `hostile_cases` wants them; every other
Reply is a correct one, so a mount lives on between cases.
"""

import json
import os
import select
import socket
import struct
import threading
import time
import traceback

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import AddrInfo, CMEvent, CMEventChannel, CMID, ConnParam
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

import hostile_cases
from common import CONTROL_PORT
from hostile_reply import Gone
from nfs3_mini import Nfs3, serve_mount

#: Where the hostile server listens for RDMA, and for the MOUNT protocol.
RDMA_PORT, MOUNT_PORT = 20050, 20051
#: Octets of each Receive buffer, and how many of them there are.
INLINE, DEPTH = 4096, 64
#: Octets of the memory from and into which messages and chunks are moved.
ARENA = 4 << 20
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
#: pyverbs has no name for it in every release.
SEND_WITH_INV = getattr(e, "IBV_WR_SEND_WITH_INV", 9)


class Call:
    """A received Call: its transport header and what follows."""

    def __init__(self, data):
        self.data = data
        self.at = 0
        self.xid, self.vers, self.credit, self.proc = self.words(4)
        self.reads, self.writes, self.reply = [], [], None
        while self.words(1)[0]:
            position, handle, length = self.words(3)
            self.reads.append((position, handle, length, self.words(2)))
        self.reads = [(p, h, n, (o[0] << 32) | o[1]) for p, h, n, o in self.reads]
        while self.words(1)[0]:
            self.writes.append(self.segments())
        if self.words(1)[0]:
            self.reply = self.segments()
        self.rpc = data[self.at:]

    def words(self, n):
        """The next `n` words of the header."""
        out = struct.unpack_from(f">{n}I", self.data, self.at)
        self.at += 4 * n
        return out

    def segments(self):
        """A counted array of RDMA segments as (handle, length, offset)."""
        out = []
        for _ in range(self.words(1)[0]):
            handle, length, high, low = self.words(4)
            out.append((handle, length, (high << 32) | low))
        return out


class Connection:
    """One accepted connection."""

    def __init__(self, server, event):
        self.server = server
        self.cmid = CMID(creator=event, listen_id=server.listener)
        self.context = self.cmid.context
        # Memory is the device's, not the connection's: there are many connections.
        pd = server.memory(self.context)
        self.recv, self.arena = server.recv, server.arena
        self.cq = CQ(self.context, 1024)
        cap = QPCap(max_send_wr=256, max_recv_wr=DEPTH, max_send_sge=2, max_recv_sge=1)
        # Not the CMID's own Queue Pair, which pyverbs lets nobody post to freely.
        self.qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap,
                                    sq_sig_all=1))
        self.arrived, self.done = [], set()
        self.wr_id = 1000
        self.last_reply = None
        self.modify(e.IBV_QPS_INIT)
        for i in range(DEPTH):
            self.post_recv(i)
        self.modify(e.IBV_QPS_RTR)
        self.modify(e.IBV_QPS_RTS)
        self.cmid.accept(ConnParam(resources=16, depth=16, rnr_retry=7, qp_num=self.qp.qp_num))

    def modify(self, state):
        """Takes the Queue Pair to its next state; under iWARP the kernel does that."""
        if os.environ["FABRIC"] != "siw":
            attr, mask = self.cmid.init_qp_attr(state)
            self.qp.modify(attr, mask)

    def post_recv(self, i):
        """Posts a Receive again."""
        sge = SGE(self.recv[i].buf, INLINE, self.recv[i].lkey)
        self.qp.post_recv(RecvWR(wr_id=i, num_sge=1, sg=[sge]))

    def poll(self):
        """Takes what has completed."""
        n, wcs = self.cq.poll(64)
        for wc in wcs[:n] if n else ():
            if wc.status != e.IBV_WC_SUCCESS:
                raise Gone(f"completion status {wc.status}")
            if wc.wr_id < DEPTH:
                self.arrived.append(self.recv[wc.wr_id].read(wc.byte_len, 0))
                self.post_recv(wc.wr_id)
            else:
                self.done.add(wc.wr_id)
        return n

    def post(self, wr):
        """Posts a work request and waits for its completion."""
        self.qp.post_send(wr)
        deadline = time.monotonic() + 20
        while wr.wr_id not in self.done:
            if not self.poll():
                if time.monotonic() > deadline or self.server.superseded(self):
                    raise Gone("a work request does not complete")
                time.sleep(0.0005)
        self.done.discard(wr.wr_id)

    def new_id(self):
        """An id for a work request."""
        self.wr_id += 1
        return self.wr_id

    def send_message(self, data, invalidate=None):
        """Sends one message, as it is."""
        data = bytes(data)
        if data:
            self.arena.write(data, len(data), 0)
        sge = SGE(self.arena.buf, len(data), self.arena.lkey)
        opcode = e.IBV_WR_SEND if invalidate is None else SEND_WITH_INV
        wr = SendWR(wr_id=self.new_id(), opcode=opcode, num_sge=1, sg=[sge],
                    send_flags=e.IBV_SEND_SIGNALED)
        if invalidate is not None:
            # The same union as the immediate data.
            wr.imm_data = invalidate
        self.post(wr)

    def rdma_write(self, handle, offset, data):
        """RDMA Write of some octets into the client's memory."""
        if not data:
            return
        self.arena.write(data, len(data), 0)
        sge = SGE(self.arena.buf, len(data), self.arena.lkey)
        wr = SendWR(wr_id=self.new_id(), opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[sge],
                    send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(handle, offset)
        self.post(wr)

    def rdma_read(self, handle, offset, length):
        """RDMA Read of the client's memory."""
        sge = SGE(self.arena.buf, length, self.arena.lkey)
        wr = SendWR(wr_id=self.new_id(), opcode=e.IBV_WR_RDMA_READ, num_sge=1, sg=[sge],
                    send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(handle, offset)
        self.post(wr)
        return self.arena.read(length, 0)

    def in_order(self):
        """Whether the Queue Pair is, a moment later, still ready to send."""
        if os.environ["FABRIC"] != "siw":
            return True
        for _ in range(50):
            attr, _ = self.qp.query(e.IBV_QP_STATE)
            if attr.qp_state != e.IBV_QPS_RTS:
                return False
            time.sleep(0.02)
        return True

    def fill(self, segments, data):
        """RDMA Writes `data` into the segments of a chunk; returns them as used."""
        used, at = [], 0
        for handle, length, offset in segments:
            n = min(length, len(data) - at)
            self.rdma_write(handle, offset, data[at:at + n])
            used.append((handle, n, offset))
            at += n
        return used, at == len(data)

    def handle(self, data):
        """Answers one message."""
        call = Call(data)
        if call.vers != 1 or call.proc > 1:
            return
        rpc = bytearray(call.rpc)
        # Position zero is the whole message, other positions are inserted there.
        for position in sorted({r[0] for r in call.reads}):
            payload = b"".join(self.rdma_read(h, o, n)
                               for p, h, n, o in call.reads if p == position)
            if call.proc == 1 and position == 0:
                rpc = bytearray(payload)
            else:
                payload += bytes(-len(payload) % 4)
                rpc[position:position] = payload
        answer = self.server.nfs.answer(bytes(rpc))
        if answer is None:
            return
        reply = hostile_cases.Reply(self, call, answer)
        name, procedure = self.server.case
        if name and answer.procedure == procedure:
            with self.server.lock:
                self.server.hits += 1
                hostile_cases.CASES[name].run(reply)
        else:
            reply.send()

    def close(self):
        """Ends the connection; its objects stay, since pyverbs frees them in no safe order."""
        GRAVEYARD.append(self)
        for action in (self.cmid.disconnect, self.qp.close, self.cq.close):
            try:
                action()
            except Exception as x:  # noqa: BLE001 - the other side may be gone already
                print(f"close: {x}", flush=True)


#: Connections that have ended.
GRAVEYARD = []


class Server:
    """The listener and its newest connection; an older one is given up."""

    def __init__(self):
        self.case = ("", "")
        self.hits = self.connections = 0
        self.notes = []
        self.nfs = Nfs3()
        self.lock = threading.Lock()
        self.channel = CMEventChannel()
        # pyverbs does not show the channel's descriptor, which alone can be polled.
        new = [int(f) for f in os.listdir("/proc/self/fd")
               if os.path.exists(f"/proc/self/fd/{f}")
               and "rdma_cm" in os.readlink(f"/proc/self/fd/{f}")]
        self.poller = select.poll()
        self.poller.register(new[0], select.POLLIN)
        self.listener = CMID(creator=self.channel, port_space=ce.RDMA_PS_TCP)
        self.listener.bind_addr(AddrInfo(src=os.environ["OWN_ADDR"], src_service=str(RDMA_PORT),
                                         port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE))
        self.listener.listen(backlog=8)
        self.connection = self.pd = None

    def memory(self, context):
        """The protection domain, with the memory that all connections share."""
        if self.pd is None:
            self.pd = PD(context)
            self.recv = [MR(self.pd, INLINE, ACCESS) for _ in range(DEPTH)]
            self.arena = MR(self.pd, ARENA, ACCESS)
        return self.pd

    def superseded(self, connection):
        """Whether an event waits, which means that this connection is over."""
        return bool(self.poller.poll(0)) or connection is not self.connection

    def events(self, wait):
        """Handles what the connection manager has to say."""
        while self.poller.poll(wait):
            wait = 0
            event = CMEvent(self.channel)
            kind = event.event_type
            if kind == ce.RDMA_CM_EVENT_CONNECT_REQUEST:
                self.drop("superseded")
                self.connections += 1
                try:
                    self.connection = Connection(self, event)
                except Exception as x:  # noqa: BLE001
                    print(f"accept: {type(x).__name__}: {x}", flush=True)
                event.ack_cm_event()
            else:
                # The end of a connection shows when the client makes the next.
                event.ack_cm_event()

    def drop(self, why):
        """Ends the current connection."""
        if self.connection:
            connection, self.connection = self.connection, None
            connection.close()
            print(f"connection dropped: {why}", flush=True)

    def run(self):
        """Serves for ever."""
        while True:
            self.events(0 if self.connection else 200)
            if not self.connection:
                continue
            try:
                idle = not self.connection.poll()
                while self.connection.arrived:
                    self.connection.handle(self.connection.arrived.pop(0))
                    idle = False
            except Gone as x:
                self.drop(str(x))
                continue
            except Exception as x:  # noqa: BLE001 - a case may have broken the connection
                traceback.print_exc()
                self.drop(f"{type(x).__name__}: {x}")
                continue
            if idle:
                self.events(1)


def control(server):
    """Takes cases from the client guest, one per line."""
    listener = socket.create_server(("", CONTROL_PORT), backlog=16)
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as f:
            try:
                request = json.loads(f.readline())
                # Not while a case is in the middle of something.
                with server.lock:
                    result = {"hits": server.hits, "connections": server.connections,
                              "notes": server.notes}
                    arguments = request["arguments"]
                    server.hits, server.notes = 0, []
                    server.case = (arguments["name"], arguments["procedure"])
                f.write(json.dumps({"result": result}).encode() + b"\n")
                f.flush()
            except (OSError, ValueError, KeyError) as x:
                print(f"control: {x}", flush=True)


def main():
    """The server guest's program."""
    server = Server()
    threading.Thread(target=serve_mount, args=(MOUNT_PORT,), daemon=True).start()
    threading.Thread(target=control, args=(server,), daemon=True).start()
    print("READY", flush=True)
    server.run()

