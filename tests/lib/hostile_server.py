# SPDX-License-Identifier: GPL-2.0
"""An NFSv3 server in user space that can be told to misbehave.

It speaks Version One (RFC 8166), or in the variants `two` and `2016` the protocol of that name, over verbs, MOUNT over
TCP, and knows a handful of procedures, enough to mount, stat, read, write and list. Files need not exist:
`d<length>` is a file of that length with contents that both sides can compute.

A *case* is set over the control connection. While it is set, Replies of the
procedure it names leave as `cases` in `hostile_cases` wants them; every other
Reply is a correct one, so a mount lives on between cases.
"""

import json
import os
import socket
import struct
import threading
import time
import traceback

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import AddrInfo, CMID, ConnParam

import hostile_2016
import hostile_cases
import hostile_two
import hostile_two_cases
from common import CONTROL_PORT, Gone
from hostile_judge import judge
from hostile_operations import MOUNT_PORT, RDMA_PORT
from hostile_qp import DEPTH, Events, Memory, QueuePair
from nfs3_mini import Nfs3, serve_mount
from rpcrdma2016_header import turned
from rpcrdma_header import Header, MSG

#: Octets of the memory from and into which messages and chunks are moved.
ARENA = 4 << 20
#: How many Calls a client can have sent before it saw a Reply, at the most: what is granted else.
GRANT = 32
#: After what time a client's device sends again what found no Receive, as the verbs number it: 0.04 s.
#: Number 0 is 0.66 s. That is longer than the timeout of a client's rxe, which gives up after a few of
#: those, whatever `rnr_retry` is.
RNR_TIMER = 24


class Connection(QueuePair):
    """One accepted connection."""

    def __init__(self, server, event):
        self.server = server
        cmid = CMID(creator=event, listen_id=server.listener)
        # Memory is the device's, not the connection's: there are many connections.
        super().__init__(cmid, server.memory_of(cmid.context))
        self.last_reply = None
        #: The case after which this connection ends, if any.
        self.only_for = None
        #: The state of Version Two, once the client speaks it.
        self.two = None
        #: The same of the protocol of 2016.
        self.earlier = None
        #: The credits that Replies had; before the first there is one.
        self.credits = [1]
        self.modify(e.IBV_QPS_INIT)
        for i in range(DEPTH):
            self.post_recv(i)
        self.modify(e.IBV_QPS_RTR, min_rnr_timer=RNR_TIMER)
        self.modify(e.IBV_QPS_RTS)
        self.cmid.accept(ConnParam(resources=16, depth=16, rnr_retry=7, qp_num=self.qp.qp_num))

    def send_raw(self, data):
        """Sends a message, as it is."""
        super().send_message(data)

    def send_message(self, data, invalidate=None):
        """Sends a message of the version that is spoken. That of 2016 is made of one of Version One."""
        super().send_message(turned(data) if self.earlier else data, invalidate)

    def given_up(self):
        """Whether the client has made, or is making, another connection."""
        self.server.sift()
        return self.server.superseded(self)

    def fill(self, segments, data):
        """RDMA Writes `data` into the segments of a chunk; returns them as used."""
        used, at = [], 0
        for handle, length, offset in segments:
            n = min(length, len(data) - at)
            self.rdma_write(handle, offset, data[at:at + n])
            used.append((handle, n, offset))
            at += n
        return used, at == len(data)

    def wrong(self, text):
        """The client has sent something that it must not send, whatever the case."""
        self.server.notes.append(f"wrong: {text}")

    def inspect(self, data):
        """Looks for what a Requester must not do (RFC 8166); no case lets it."""
        if (verdict := judge(data)) != "pass":
            self.wrong(f"{verdict} is the answer to {data[:64].hex()}")
        if len(data) > hostile_cases.Reply.INLINE:
            # Section 3.3.3: we have not told what we can receive.
            self.wrong(f"a message of {len(data)} octets")
        if len(self.credits) == 1:
            # If there is a second Call before the first Reply, it is on its way.
            time.sleep(0.05)
        self.poll()
        # Section 3.3.1. A smaller grant is not known yet to those under way.
        if 1 + len(self.arrived) > max(1, *self.credits[-GRANT - 1:]):
            self.wrong(f"{1 + len(self.arrived)} Calls with credits {self.credits[-3:]}")

    def handle(self, data):
        """Answers one message."""
        if self.server.is_2016 and data[4:8] == bytes([0, 0, 0, 2]):
            self.earlier = self.earlier or hostile_2016.Earlier(self)
            self.earlier.handle(data)
            return
        if self.server.two and data[4:8] == bytes([0, 0, 0, 2]):
            self.two = self.two or self.server.make_two(self)
            self.two.handle(data)
            return
        if not self.server.two and not self.server.is_2016:
            # A client that has been told of other versions tries them: no offence.
            self.inspect(data)
        call = Header(data)
        if call.vers != 1 or call.proc > 1:
            return
        if self.two and self.two.spoken:
            # Section 4.3.3 of the draft.
            self.wrong("Version One after Version Two")
        if self.earlier and (self.earlier.told or not self.earlier.knows):
            self.wrong("Version One after the protocol of 2016")
        # It may go on in Version One.
        self.earlier = None
        self.answer_call(call)

    def answer_call(self, call):
        """Answers a Call, which has the header of Version One."""
        if not call.credit:
            self.wrong("no credits are asked for")
        rpc = bytearray(call.rpc)
        # Position zero is the whole message, other positions are inserted there.
        for position in sorted({r[0] for r in call.reads}):
            payload = b"".join(self.rdma_read(h, o, n)
                               for p, h, n, o in call.reads if p == position)
            if call.proc == 1 and position == 0:
                rpc = bytearray(payload)
            else:
                (n,) = struct.unpack_from(">I", rpc, position - 4)
                if call.proc == MSG and len(payload) not in (n, n + -n % 4):
                    # Section 3.4.5.2.
                    self.wrong(f"a Read chunk of {len(payload)} octets for {n}")
                payload += bytes(-len(payload) % 4)
                rpc[position:position] = payload
        answer = self.server.nfs.answer(bytes(rpc))
        if answer is None:
            return
        if misfit := answer.misfit(call.writes):
            self.wrong(misfit)
        reply = hostile_cases.Reply(self, call, answer)
        name, procedure = self.server.case
        # A client that has gone over to Version One gets good answers.
        spoken = self.earlier if self.server.is_2016 else not self.server.two
        if name and answer.procedure == procedure and spoken:
            with self.server.lock:
                self.server.hits += 1
                (hostile_2016 if self.earlier else hostile_cases).CASES[name].run(reply)
        else:
            reply.send()


class Server:
    """The listener and its newest connection; an older one is given up."""

    #: What makes the state of Version Two of a connection.
    make_two = hostile_two.Two

    def __init__(self):
        #: Whether Version Two is spoken.
        self.two = os.environ.get("VARIANT") == "two"
        #: The same of the protocol of 2016.
        self.is_2016 = os.environ.get("VARIANT") == "2016"
        self.case = ("", "")
        #: The case about the first message of a connection, if any.
        self.first = ""
        self.hits = self.connections = 0
        self.notes = []
        self.nfs = Nfs3()
        self.lock = threading.Lock()
        self.inbox = Events()
        #: Events that ask for a connection.
        self.requests = []
        self.listener = CMID(creator=self.inbox.channel, port_space=ce.RDMA_PS_TCP)
        self.listener.bind_addr(AddrInfo(src=os.environ["OWN_ADDR"], src_service=str(RDMA_PORT),
                                         port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE))
        self.listener.listen(backlog=8)
        self.connection = self.memory = None

    def memory_of(self, context):
        """The memory that all connections share."""
        if self.memory is None:
            self.memory = Memory(context, ARENA)
        return self.memory

    def superseded(self, connection):
        """Whether another connection is asked for, which means that this one is over."""
        return bool(self.requests) or connection is not self.connection

    def sift(self):
        """Takes the events there are; those that ask for a connection are kept. Returns whether one was
        established."""
        established = False
        while self.inbox.pending():
            event = self.inbox.take()
            if event.event_type == ce.RDMA_CM_EVENT_CONNECT_REQUEST:
                self.requests.append(event)
                continue
            # The end of a connection shows when the client makes the next.
            established |= event.event_type == ce.RDMA_CM_EVENT_ESTABLISHED
            event.ack_cm_event()
        return established

    def events(self, wait):
        """Handles what the connection manager has to say."""
        if not self.requests:
            self.inbox.pending(wait)
        self.sift()
        while self.requests:
            event = self.requests.pop(0)
            self.drop("superseded")
            self.connections += 1
            try:
                self.connection = Connection(self, event)
            except Exception as x:  # noqa: BLE001
                print(f"accept: {type(x).__name__}: {x}", flush=True)
            event.ack_cm_event()
            if self.first == "first_dropped" and not self.hits:
                self.hits += 1
                # Before that the CM tells the client nothing, whose device then tries for seconds.
                while self.inbox.pending(1000) and not self.sift():
                    pass
                self.drop("before any message")

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
            if self.connection and self.connection.only_for not in (None, self.case[0]):
                self.drop("another connection for the next case")
            if not self.connection:
                continue
            try:
                idle = not self.connection.poll()
                while self.connection.arrived:
                    self.connection.handle(self.connection.arrived.pop(0))
                    idle = False
                if self.connection.two:
                    self.connection.two.idle()
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
                arguments = json.loads(f.readline())["arguments"]
                case = (arguments["name"], arguments["procedure"])
                # Not while a case is in the middle of something.
                with server.lock:
                    result = {"hits": server.hits, "connections": server.connections,
                              "notes": server.notes}
                    server.hits, server.notes = 0, []
                    server.case = case
                    server.first = ""
                    firsts = hostile_2016.FIRST if server.is_2016 else hostile_two_cases.FIRST
                    if arguments["name"] in firsts:
                        server.case, server.first = ("", ""), arguments["name"]
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

