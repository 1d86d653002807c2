# SPDX-License-Identifier: GPL-2.0
"""A server in user space that calls its client back: in Version One, and in every form that Version Two has.

Calls of the client are passed on to the NFS server of this guest over TCP, so there is a real session. Calls to the
client are made here, in that session: a CB_COMPOUND that is as long as it has to be, and has as long a Reply.
"""

import json
import os
import queue
import random
import select
import socket
import struct
import threading
import time
import traceback

import hostile_server
import hostile_two
import rpcrdma_header as one
from common import CONTROL_PORT, Gone, rnr_counters
from hostile_qp import ACCESS, MR, WINDOWS
from nfs3_mini import Answer, opaque
from rpc_message import CREATE_SESSION, rpc_call
from rpcrdma2_header import (CALL_MIDDLE, INLINE, REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE, Header, call,
                             call_external, middle)

#: The callback program, as the client asks for it.
CALLBACK = 0x40000000
#: Operations of CB_COMPOUND, and one that there is not.
CB_RECALL_ANY, CB_SEQUENCE, NO_SUCH = 8, 11, 9999
#: NFS4ERR_OP_ILLEGAL, and the operation that its result has.
ILLEGAL = 10044
#: The slot that is used, which nfsd gets to last.
SLOT = 7
#: Octets of memory of its own for chunks: for what is read, for what is written.
CHUNKS, REPLIES = 64 << 10, 16 << 10
#: Of many random decisions.
SEED = 4


class Nfsd:
    """The NFS server of this guest, and what is to be known of the client's session."""

    def __init__(self):
        self.connection = socket.create_connection((os.environ["OWN_ADDR"], 2049))
        self.session = None

    def receive(self):
        """The next message."""
        out, last = b"", False
        while not last:
            (mark,) = struct.unpack(">I", self.exactly(4))
            out, last = out + self.exactly(mark & 0x7FFFFFFF), mark >> 31
        return out

    def exactly(self, length):
        """So many octets."""
        out = b""
        while len(out) < length:
            part = self.connection.recv(length - len(out))
            if not part:
                raise Gone("nfsd has closed its connection")
            out += part
        return out

    def answer(self, rpc):
        """Passes a Call on; returns the Reply."""
        self.send(rpc)
        while True:
            message = self.receive()
            if message[:8] == rpc[:4] + struct.pack(">I", 1):
                self.learn(message)
                return Answer("", message)
            self.null(message)

    def send(self, rpc):
        """Sends a message."""
        self.connection.sendall(struct.pack(">I", 1 << 31 | len(rpc)) + rpc)

    def null(self, message):
        """Answers a Call of nfsd's own: it asks with a NULL whether there is somebody."""
        if message[4:8] == bytes(4) and message[20:24] == bytes(4):
            self.send(message[:4] + struct.pack(">IIIII", 1, 0, 0, 0, 0))

    def idle(self):
        """Answers what nfsd has to ask."""
        while select.select([self.connection], [], [], 0)[0]:
            self.null(self.receive())

    def learn(self, reply):
        """Takes the session out of the result of CREATE_SESSION, the only operation of its COMPOUND."""
        words = struct.unpack_from(">10I", reply) if len(reply) >= 40 else ()
        # Accepted, without a verifier; success, no tag, one result.
        if words and words[2:6] == (0, 0, 0, 0) and words[6:9] == (0, 0, 1) and words[9] == CREATE_SESSION:
            self.session, self.sequence = reply[44:60], 0


class Callback(hostile_two.Two):
    """The state of a connection on which Calls go both ways."""

    def __init__(self, connection):
        super().__init__(connection)
        #: What has come of Replies, by transaction ID: parts, and then (header, RPC message).
        self.begun, self.answers = {}, {}
        #: A Call to be sent before the next one of the client's is answered, with its transaction ID.
        self.in_between = None

    def handle(self, data):
        """Keeps Replies, and errors instead of them."""
        header = Header(data)
        if header.htype == REPLY_MIDDLE:
            self.received += 1
            self.begun[header.xid] = self.begun.get(header.xid, b"") + header.rpc
        elif header.htype in (REPLY_INLINE, REPLY_EXTERNAL):
            self.received += 1
            parts = self.begun.pop(header.xid, b"")
            self.answers[header.xid] = (header, parts + header.rpc, bool(parts))
        elif header.error:
            self.received += 1
            self.answers[header.xid] = (header, b"", False)
        else:
            super().handle(data)

    def call(self, header, rpc):
        """Answers a Call, perhaps after one with the same transaction ID."""
        make, self.in_between = self.in_between, None
        if make:
            make(header.xid)
        super().call(header, rpc)


class CallbackOne:
    """The same in Version One, where a Call and its Reply are one message each."""

    spoken = False

    def __init__(self, connection):
        self.connection = connection
        self.received = self.sent = 0
        self.answers, self.in_between = {}, None

    def handle(self, data):
        """Keeps Replies, and errors instead of them; answers Calls."""
        header = one.Header(data)
        self.received += 1
        if header.error or header.rpc[4:8] == struct.pack(">I", 1):
            self.answers[header.xid] = (header, header.rpc, False)
            return
        make, self.in_between = self.in_between, None
        if make:
            make(header.xid)
        self.connection.handle(data)


class Peer(hostile_server.Server):
    """The listener, and the Calls to be made."""

    def __init__(self):
        super().__init__()
        self.nfs = Nfsd()
        self.wanted, self.made = queue.Queue(), queue.Queue()
        self.random = random.Random(SEED)
        self.own = None
        self.xid = 0x5000

    def run(self):
        """Serves for ever."""
        while True:
            self.step(200)
            try:
                wanted = self.wanted.get_nowait()
            except queue.Empty:
                continue
            try:
                self.made.put({"result": self.reverse(**wanted)})
            except Gone as x:
                self.drop(str(x))
                self.made.put({"result": f"lost: {x}"})
            except Exception as x:  # noqa: BLE001 - the client shows it
                traceback.print_exc()
                self.made.put({"error": f"{type(x).__name__}: {x}"})

    def step(self, wait):
        """Takes what has come."""
        self.nfs.idle()
        self.events(0 if self.connection else wait)
        if not self.connection:
            return
        if not self.connection.two:
            self.connection.two = (Callback if self.two else CallbackOne)(self.connection)
        try:
            idle = not self.connection.poll()
            while self.connection.arrived:
                handler = self.connection if self.two else self.connection.two
                handler.handle(self.connection.arrived.pop(0))
                idle = False
        except Gone as x:
            self.drop(str(x))
            return
        except Exception as x:  # noqa: BLE001 - a connection that ends shows in many ways
            traceback.print_exc()
            self.drop(f"{type(x).__name__}: {x}")
            return
        if idle:
            self.events(1)

    # ---- What is called ---------------------------------------------------------

    def compound(self, xid, length, operations, tag):
        """A CB_COMPOUND of `length` octets at least, and what its Reply has to be.

        Most of it is a list of Calls that are referred to, all of another session: of lists with lengths by chance, so
        that no two pages can be exchanged. The last operation does not exist.
        """
        session = self.nfs.session
        assert session, "the client has no session"
        self.nfs.sequence += 1
        lists = []
        small = 16 * operations + 200 + tag
        while sum(map(len, lists)) + small < length:
            room = (length - small - sum(map(len, lists)) - 20) // 8
            count = min(self.random.randrange(1, 60), max(room, 0))
            lists.append(bytes(16) + struct.pack(">I", count) + self.random.randbytes(8 * count))
        sequence = session + struct.pack(">IIIII", self.nfs.sequence, SLOT, SLOT, 0, len(lists)) + b"".join(lists)
        ops = [struct.pack(">I", CB_SEQUENCE) + sequence]
        ops += [struct.pack(">IIII", CB_RECALL_ANY, 0, 1, 0)] * operations
        ops += [struct.pack(">I", NO_SUCH)]
        rpc = rpc_call(xid, 1, 1, opaque(b"t" * tag) + struct.pack(">III", 1, 0, len(ops)) + b"".join(ops),
                       program=CALLBACK)
        answer = (struct.pack(">IIIIII", xid, 1, 0, 0, 0, 0) + struct.pack(">I", ILLEGAL) + opaque(b"t" * tag)
                  + struct.pack(">I", len(ops)) + struct.pack(">II", CB_SEQUENCE, 0) + session)
        # What follows are the sequence, slot and two highest slots, of which the client chooses the last.
        rest = struct.pack(">II", CB_RECALL_ANY, 0) * operations
        return rpc, answer, rest, len(rpc)

    def chunk_memory(self):
        """Memory of its own for chunks, which the client may be given the key of."""
        if self.own is None:
            access = WINDOWS if os.environ["FABRIC"] == "rxe" else ACCESS
            self.own = MR(self.connection.memory.pd, CHUNKS + REPLIES, access)
        return self.own

    def segments(self, at, length, count=1):
        """Segments for memory from `at` on."""
        memory, out = self.chunk_memory(), []
        step = -(-length // count) + 3 & ~3
        while length > 0:
            out.append((memory.rkey, min(step, length), memory.buf + at))
            at, length = at + step, length - step
        return out

    def window(self, at, length):
        """A memory window, which the client is to invalidate. Needs rxe."""
        return self.connection.window(self.chunk_memory(), at, length)

    def reverse(self, form, length=0, operations=0, tag=4, reply=0, writes=0, same=False, count=1, window=False,
                patience=20):
        """Makes one Call and returns what became of it.

        `form` says how the Call goes: `inline`, `parts`, `chunk` (all of it in a Call chunk of `count` segments), `read`
        (a part of it in a Read chunk), `reads` (in two), `both` (a part in a Read chunk, the rest in a Call chunk), `foreign` (a chunk of which there is no memory). `reply` is the length of the Reply chunk, `writes` that of a
        Write chunk. `same` waits for a Call of the client's and takes its transaction ID.
        """
        connection = self.connection
        assert connection and connection.two.received, "there is no connection"
        if same:
            seen = []
            connection.two.in_between = lambda xid: seen.append(
                self.one(xid, form, length, operations, tag, reply, writes, count, window, patience))
            deadline = time.monotonic() + patience
            while not seen and time.monotonic() < deadline:
                self.step(1)
            return seen[0] if seen else "no Call of the client's"
        self.xid += 1
        return self.one(self.xid, form, length, operations, tag, reply, writes, count, window, patience)

    def one(self, xid, form, length, operations, tag, reply, writes, count, window, patience):
        """As `reverse`, with a transaction ID."""
        connection, two = self.connection, self.connection.two
        rpc, answer, rest, size = self.compound(xid, length, operations, tag)
        if not self.two:
            assert form == "inline" and not (reply or writes), "Version One has no other form"
            connection.send_message(one.encode(xid) + rpc)
            return self.wait(xid, patience) or self.judge_one(xid, answer, rest, size)
        memory = self.chunk_memory()
        chunks = {}
        if reply:
            memory.write(b"\xee" * REPLIES, REPLIES, CHUNKS)
            chunks["reply"] = self.segments(CHUNKS, reply, 2)
        if writes:
            chunks["writes"] = [self.segments(CHUNKS + reply, writes)]
        reads = []
        if form == "chunk":
            memory.write(rpc, len(rpc), 0)
            reads = [self.window(0, len(rpc))] if window else self.segments(0, len(rpc), count)
            chunks["inv"] = reads[0][0] if window else 0
            messages = [call_external(xid, two.credit(), reads, **chunks)]
        elif form == "foreign":
            messages = [call_external(xid, two.credit(), [(0x7777, len(rpc), 0x10000)])]
        elif form == "both":
            begin, end = 400 + tag & ~3, len(rpc) - 16 * operations - 400 & ~3
            left = rpc[:begin] + rpc[end:]
            memory.write(rpc[begin:end], end - begin, 0)
            memory.write(left, len(left), end - begin)
            reads = [(begin, *s) for s in self.segments(0, end - begin, count)]
            body = self.segments(end - begin, len(left), count)
            messages = [call_external(xid, two.credit(), body, reads=reads, **chunks)]
        elif form in ("read", "reads"):
            # From behind the RPC header up to the operations, and in the second chunk some of those.
            cuts = [(400 + tag & ~3, len(rpc) - 16 * operations - 400 & ~3)]
            if form == "reads":
                cuts.append((len(rpc) - 16 * operations + 4 & ~3, len(rpc) - 100 & ~3))
            left, at = b"", 0
            for begin, end in cuts:
                memory.write(rpc[begin:end], end - begin, begin)
                reads += [(begin, *s) for s in self.segments(begin, end - begin, count)]
                left, at = left + rpc[at:begin], end
            messages = [call(xid, two.credit(), left + rpc[at:], reads=reads, **chunks)]
        else:
            messages, left = [], rpc
            part = INLINE - 20 & ~3
            while form == "parts" and len(call(0, 0, left, **chunks)) > INLINE:
                messages.append(middle(xid, two.credit(), CALL_MIDDLE, len(left) - part, left[:part]))
                left = left[part:]
            messages.append(call(xid, two.credit(), left, **chunks))
        connection.invalidated.clear()
        for message in messages:
            connection.send_message(message)
            two.sent += 1
        if missing := self.wait(xid, patience):
            return missing
        # The field is that of immediate data, which some releases turn.
        key = chunks.get("inv") or 0
        keys = (key, int.from_bytes(key.to_bytes(4, "little"), "big"))
        assert all(k in keys for k in connection.invalidated), f"{connection.invalidated} is not {key}"
        took = len(connection.invalidated)
        connection.invalidated.clear()
        return self.judge(xid, answer, rest, reply, writes, size) + ", invalidated" * took

    def wait(self, xid, patience):
        """Waits for the answer to a Call; returns why there is none."""
        connection, two = self.connection, self.connection.two
        deadline = time.monotonic() + patience
        while xid not in two.answers:
            if self.connection is not connection:
                return "connection lost"
            if time.monotonic() > deadline:
                return "no answer"
            if not connection.poll():
                time.sleep(0.0005)
            while connection.arrived:
                two.handle(connection.arrived.pop(0))
        return ""

    def judge_one(self, xid, answer, rest, size):
        """Judges an answer in Version One: it must be an RDMA_MSG without chunks, with the whole RPC message."""
        header, _, _ = self.connection.two.answers[xid]
        lists = (header.reads, header.writes, header.reply)
        if header.vers != 1 or not header.credit or not header.error and (header.proc, *lists) != (
                one.MSG, [], [], None):
            return f"a wrong header: {header.data[:64].hex()}"
        return self.judge(xid, answer, rest, 0, 0, size)

    def judge(self, xid, answer, rest, reply, writes, size):
        """What the client has answered."""
        header, rpc, parts = self.connection.two.answers.pop(xid)
        if header.error:
            # It was not executed.
            self.nfs.sequence -= 1
            return f"error {' '.join(map(str, header.error))}"
        how = "parts" if parts else "inline"
        if header.reply is not None:
            used = sum(s[1] for s in header.reply)
            assert [s[::2] for s in header.reply] == [s[::2] for s in self.segments(CHUNKS, reply, 2)], header.reply
            assert not rpc, "a Reply behind the header of a special Reply"
            rpc, how = self.chunk_memory().read(used, CHUNKS), "chunk"
            rest_of_it = self.chunk_memory().read(REPLIES - used, CHUNKS + used)
            assert rest_of_it == b"\xee" * len(rest_of_it), "more was written than the Reply"
        if writes:
            assert [sum(s[1] for s in c) for c in header.writes] == [0], header.writes
        assert rpc[:len(answer)] == answer, f"{rpc[:len(answer)].hex()} is not {answer.hex()}"
        at = len(answer) + 16
        assert rpc[at:at + len(rest)] == rest, "wrong results"
        assert rpc[at + len(rest) + 4:] == struct.pack(">I", ILLEGAL), rpc[at + len(rest):].hex()
        return f"{how} {len(rpc)} for {size}"


def control(peer):
    """Takes orders from the client guest, one per line."""
    listener = socket.create_server(("", CONTROL_PORT), backlog=16)
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as f:
            try:
                request = json.loads(f.readline())
                if request["function"] == "reverse":
                    peer.wanted.put(request["arguments"])
                    reply = peer.made.get()
                elif request["function"] == "rnr_counters":
                    reply = {"result": rnr_counters()}
                else:
                    reply = {"result": {"connections": peer.connections, "notes": peer.notes}}
                f.write(json.dumps(reply).encode() + b"\n")
                f.flush()
            except (OSError, ValueError, KeyError) as x:
                print(f"control: {x}", flush=True)


def main():
    """The server guest's program."""
    peer = Peer()
    threading.Thread(target=control, args=(peer,), daemon=True).start()
    print("READY", flush=True)
    peer.run()
