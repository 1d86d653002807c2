# SPDX-License-Identifier: GPL-2.0
"""A client in user space that reads the draft of Version Two in one of the ways there are, and its RPCs.

Each RPC is a COMPOUND whose data are compared: READs and WRITEs of a file of which this end knows what it
holds. Three are under way at a time, each in its own part of the file and of the memory for chunks.
"""

import dataclasses
import random
import struct
import time

from common import Gone, pattern, watchdog
from hostile_caller import CHUNKS, XIDS, Refused, accepted
from hostile_two_caller import TwoConnection
from literal_reading import MAX_WHOLE, Literal, Sequence
from pyverbs.pyverbs_error import PyverbsRDMAError
from rpc_message import compound, moved, null_rpc, read, to_file, write
from rpcrdma2_header import INLINE, INVAL_CONT, REPLY_EXTERNAL, REPLY_RESOURCE, call

#: Where the file is, from the root of NFSv4.
FILE = ("export", "literal")
#: RPCs that are under way at a time, and octets of the file and of the arena that each of them has.
LANES, ROOM = 3, 96 << 10
#: Where in that part of the arena each kind of chunk begins.
READ_CHUNK, WRITE_CHUNK, REPLY_CHUNK = 0, 128 << 10, 256 << 10
#: Octets of a Reply chunk.
REPLY_ROOM = 64 << 10
#: What is asked for: Calls and Replies of all lengths, or only one of them.
LOADS = ("mixed", "reading", "writing")
#: Seconds without an answer after which a connection is taken for stuck.
STUCK = 4


class LiteralConnection(Literal, TwoConnection):
    """A connection, with a reading."""

    def __init__(self, reading, memory=None):
        super().__init__(memory=memory)
        self.follow(reading)

    def transmit(self, message, _handle):
        """Sends a message."""
        self.send_message(message)

    def turn(self):
        """Takes in what has arrived and sends what may be sent; returns answers to RPCs."""
        self.take()
        arrived, self.answers = self.answers, []
        for answer in arrived:
            self.note(answer.header.htype)
        self.pump()
        return [a for a in arrived if a.kind not in ("grant", "properties")]


def connect(reading, memory):
    """A new connection; see `hostile_caller.Caller` for why this may take several attempts."""
    for _ in range(20):
        try:
            return LiteralConnection(reading, memory)
        except PyverbsRDMAError as x:
            if "Errno: 98" not in str(x):
                raise
        time.sleep(0.1)
    raise Refused("no local port")


class Rpc:
    """An RPC: how its Call is made, and what its Reply has to be."""

    def __init__(self, lane, contents, draw, load):
        self.xid, self.lane, self.contents = next(XIDS), lane, contents
        self.at = ROOM * lane
        self.offers = draw.random() < 0.5
        self.kind = draw.choice({"mixed": ("null", "read", "read", "write", "write", "chunk", "place"),
                                 "reading": ("null", "read", "read", "read", "place"),
                                 "writing": ("null", "write", "write", "write", "chunk")}[load])
        self.count = self.length(draw)
        self.offset = self.at + draw.randrange(0, ROOM - 70_000)
        #: What a Read chunk has, or a Write chunk takes.
        self.moved = draw.choice((1, 100, 4096, 8191, 16_384, 40_001)) if self.kind == "place" else (
            draw.choice((1, 100, 4096, 8191, 16_384)) if self.kind == "chunk" else 0)
        self.cuts = draw.randrange(1, 5)
        self.seed = draw.random()
        #: Octets of the Call, with its data, and its messages.
        self.whole = self.parts = 0

    @staticmethod
    def length(draw):
        """As long as the payload of most RPCs is, or longer."""
        return draw.randrange(1, draw.choice((400, 400, 400, 400, 400, 4200, 14_000, 30_000)))

    def segments(self, connection, begin, length):
        """A chunk of that many octets, in some segments."""
        base = CHUNKS + self.lane * (320 << 10) + begin
        step = max(-(-length // self.cuts) + 3 & ~3, 4)
        return [connection.segment(min(step, length - at), base + at) for at in range(0, length, step)]

    def get(self, connection, begin, length):
        """What is in a chunk."""
        return connection.get(length, CHUNKS + self.lane * (320 << 10) + begin)

    def data(self):
        """What a WRITE has: what travels with the Call, and what is in its Read chunk."""
        return pattern((self.seed, 1), self.count), pattern((self.seed, 2), self.moved)

    def make(self, connection):
        """The messages of the Call."""
        chunks = {"reply": self.segments(connection, REPLY_CHUNK, REPLY_ROOM)} if self.offers else {}
        target = to_file(*FILE)
        if self.kind == "null":
            rpc = null_rpc(self.xid)
        elif self.kind == "read":
            rpc = compound(self.xid, *target, read(self.offset, self.count))
        elif self.kind == "place":
            rpc = compound(self.xid, *target, read(self.offset, self.moved))
            chunks["writes"] = [self.segments(connection, WRITE_CHUNK, self.moved)]
        else:
            first, second = self.data()
            operations = [write(self.offset, len(first)) + first + bytes(-len(first) % 4)]
            if second:
                operations.append(write(self.offset + len(first), len(second)))
                base = CHUNKS + self.lane * (320 << 10) + READ_CHUNK
                connection.arena.write(second, len(second), base)
            rpc = compound(self.xid, *target, *operations)
            if second:
                chunks["reads"] = [(len(rpc), *s) for s in self.segments(connection, READ_CHUNK, len(second))]
        self.whole = len(rpc) + (self.moved if self.kind == "chunk" else 0)
        messages, size = [], INLINE - 20
        last = len(call(0, 0, b"", **chunks))
        if last + len(rpc) > INLINE:
            # The rest has to fit behind the header of the last one.
            messages = connection.in_parts(self.xid, rpc, min(size, INLINE - last & ~3), **chunks)
        messages = messages or [call(self.xid, 0, rpc, **chunks)]
        self.parts = len(messages)
        return messages

    def fails(self, reading):
        """Whether it is known to fail: as its first part has it, the Call is longer than may come in parts."""
        return reading.remaining == "unreduced" and self.parts > 1 and self.whole > MAX_WHOLE

    def judge(self, connection, answer):
        """What is wrong with the Reply; the file has what was written."""
        rpc = answer.rpc
        if answer.header.htype == REPLY_EXTERNAL:
            rpc = self.get(connection, REPLY_CHUNK, sum(s[1] for s in answer.header.reply))
        if answer.kind != "reply":
            return answer.kind
        status, results = accepted(rpc)
        if status:
            return f"accept_stat {status}"
        if self.kind == "null":
            return None if not results else "results of NULL"
        try:
            found = moved(results, self.kind == "place")
        except ValueError as x:
            return str(x)
        if self.kind in ("read", "place"):
            count = self.moved if self.kind == "place" else self.count
            wanted = bytes(self.contents[self.offset:self.offset + count])
            data = found[0][1]
            if self.kind == "place":
                used = sum(s[1] for s in answer.header.writes[0])
                data = self.get(connection, WRITE_CHUNK, used)
            return None if found[0][0] == count and data == wanted else "wrong data were read"
        parts = [part for part in self.data() if part]
        if [length for length, _ in found] != [len(part) for part in parts]:
            return f"{found} were written"
        data = b"".join(parts)
        self.contents[self.offset:self.offset + len(data)] = data
        return None


class Fate:
    """What became of the RPCs between a peer and the module."""

    def __init__(self):
        self.replied = self.failed = self.lost = self.parts = 0
        self.again = 0
        self.stalled, self.problems = 0.0, []

    def __str__(self):
        out = f"{self.replied} RPCs well"
        for count, what in ((self.failed, "refused"), (self.again, "made again with a Reply chunk"),
                            (self.lost, "connections lost")):
            out += f", {count} {what}" if count else ""
        return out + (f", stalled for {self.stalled:.0f} s" if self.stalled else "")


class Run:
    """So many RPCs of a kind, as one reading has them."""

    def __init__(self, reading, load, count, contents, memory, seed):
        self.reading, self.left, self.load = reading, count, load
        self.contents, self.memory = contents, memory
        self.draw = random.Random(seed)
        self.fate = Fate()
        self.pending = {}
        self.lanes = set(range(LANES))
        self.connection = connect(reading, memory)
        self.memory = self.connection.memory
        self.last = time.monotonic()

    def begin(self):
        """Begins what may be under way."""
        while self.left and self.lanes:
            self.left -= 1
            rpc = Rpc(self.lanes.pop(), self.contents, self.draw, self.load)
            if self.left == 2 and self.load != "reading":
                # Longer, with its data, than may come in parts.
                rpc.kind, rpc.count, rpc.moved = "chunk", 24_000, 16_384
            if not self.connection.has_spoken and self.reading.first == "call" and not self.pending:
                # The first message is a short one (4.3).
                rpc.kind, rpc.offers, rpc.moved = "null", False, 0
            self.send(rpc)

    def send(self, rpc):
        """Has a Call sent."""
        self.pending[rpc.xid] = rpc
        self.connection.queue.append(Sequence(rpc.make(self.connection)))

    def hear(self, answer):
        """Takes an answer to an RPC."""
        rpc = self.pending.pop(answer.xid, None)
        if rpc is None:
            self.fate.problems.append(f"{answer.kind} for {answer.xid:#x}, which does not wait")
            return
        self.last = time.monotonic()
        queue = self.connection.queue
        error = answer.header.error
        if error:
            # What is left of it is not sent. An error ends a sequence that was begun, so that it can be given up.
            for sequence in [s for s in queue if s.messages[0][:4] == struct.pack(">I", rpc.xid)]:
                queue.remove(sequence)
        if error and error[0] == REPLY_RESOURCE and not rpc.offers and error[1] <= REPLY_ROOM:
            # Section 6.6.4.
            rpc.offers = True
            self.fate.again += 1
            self.send(rpc)
            return
        self.lanes.add(rpc.lane)
        if error and error[0] == INVAL_CONT and rpc.fails(self.reading):
            self.fate.failed += 1
            return
        wrong = rpc.judge(self.connection, answer)
        if wrong is None and rpc.fails(self.reading):
            wrong = "a Call that counts as too long was taken"
        if wrong:
            self.fate.problems.append(f"{rpc.kind} of {rpc.count} and {rpc.moved} octets: {wrong}")
        else:
            self.fate.replied += 1

    def is_done(self):
        """Whether all RPCs have ended."""
        return not self.left and not self.pending

    def turn(self):
        """Goes on. Returns whether it is stuck: what waits has waited for a while."""
        if not self.connection:
            rpcs, self.pending, self.last = list(self.pending.values()), {}, time.monotonic()
            reading = self.reading
            if reading.first == "call":
                # None of them may be as short as the first message has to be (4.3).
                reading = dataclasses.replace(reading, first="grant")
            self.connection = connect(reading, self.memory)
            for rpc in rpcs:
                self.send(rpc)
        try:
            self.begin()
            answers = self.connection.turn()
        except Gone:
            self.lose()
            return False
        for answer in answers:
            self.hear(answer)
        return time.monotonic() - self.last > STUCK * watchdog()

    def lose(self):
        """The connection has ended: another is made."""
        self.fate.lost += 1
        self.end()

    def end(self):
        """Ends the connection."""
        if self.connection:
            self.fate.problems += self.connection.wrong
            self.fate.parts += self.connection.sequences
            self.connection.close()
            self.connection = None
