# SPDX-License-Identifier: GPL-2.0
"""A server in user space that reads the draft of Version Two in one of the ways there are."""

import json
import socket
import threading
import time

import hostile_two
from common import CONTROL_PORT, rnr_counters, sleepers
from hostile_operations import MOUNT_PORT
from hostile_server import Server
from literal_reading import Literal, Reading, Sequence
from nfs3_mini import serve_mount
from rpcrdma2_header import ERROR, INLINE, Header

#: Octets of the parts of a Reply that is cut to have several.
SHORT = 64


class LiteralTwo(Literal, hostile_two.Two):
    """The state of a connection, with a reading."""

    def __init__(self, connection):
        super().__init__(connection)
        self.follow(connection.server.reading)
        self.watch = self.answer
        self.quiet_until = time.monotonic() + self.reading.answers_after
        #: How many Replies have invalidated a handle.
        self.cut = 0

    def handle(self, data):
        """Takes a message in."""
        header = Header(data)
        self.note(header.htype)
        if header.htype == ERROR:
            # Not to be sent any more.
            self.queue = type(self.queue)(s for s in self.queue if s.at or s.messages[0][:4] != data[:4])
        super().handle(data)

    def answer_properties(self):
        """The properties of this end have a time of their own."""
        return True

    def renew(self):
        """So have GRANTs."""

    def may_speak(self):
        """A server speaks when it is spoken to."""
        return self.received > 0 and time.monotonic() >= self.quiet_until

    def idle(self):
        """Sends what may be sent."""
        self.pump()

    def answer(self, out):
        """Answers a Call, when it may be."""
        handle = out.call.inv
        size = INLINE - 20
        if handle and self.reading.invalidates != "never":
            # A Call with chunks has a short Reply. With its data, one in parts may count as too long.
            self.cut += 1
            counts_data = self.reading.remaining == "unreduced" and out.answer.payload is not None
            size = SHORT if self.cut % 2 and not counts_data else size
            self.connection.server.invalidated += 1
        else:
            handle = None
        self.queue.append(Sequence(out.parts(size), handle))

    def transmit(self, message, handle):
        """Sends a message."""
        self.tell(message)
        self.spoken = True
        self.connection.send_message(message, handle)

    def count_sequence(self, parts):
        """Counts a Reply that was sent in so many messages."""
        self.connection.server.in_parts += parts > 1


class LiteralServer(Server):
    """The listener, and how the next connections read the draft."""

    make_two = LiteralTwo

    def __init__(self):
        super().__init__()
        self.two = True
        self.reading = Reading(client=False)
        #: Handles invalidated, and Replies sent in parts.
        self.invalidated = self.in_parts = 0

    def state(self):
        """What there was since the last time."""
        with self.lock:
            out = {"connections": self.connections, "notes": self.notes, "invalidated": self.invalidated,
                   "in_parts": self.in_parts}
            self.connections = self.invalidated = self.in_parts = 0
            self.notes = []
        return out


def control(server):
    """Takes orders from the client guest, one per line."""
    listener = socket.create_server(("", CONTROL_PORT), backlog=16)
    functions = {"rnr_counters": rnr_counters, "sleepers": sleepers, "state": server.state}

    def read_as(**reading):
        server.reading = Reading(**reading)
    functions["read_as"] = read_as
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as f:
            try:
                request = json.loads(f.readline())
                result = functions[request["function"]](**request["arguments"])
                f.write(json.dumps({"result": result}).encode() + b"\n")
                f.flush()
            except (OSError, ValueError, KeyError, TypeError) as x:
                print(f"control: {x}", flush=True)


def main():
    """The server guest's program."""
    server = LiteralServer()
    threading.Thread(target=serve_mount, args=(MOUNT_PORT,), daemon=True).start()
    threading.Thread(target=control, args=(server,), daemon=True).start()
    print("READY", flush=True)
    server.run()
