# SPDX-License-Identifier: GPL-2.0
"""Readings of draft-ietf-nfsv4-rpcrdma-version-two-07, and an end that follows one of them.

The readings are those of tools/src/literal.rs, which has the sections of the draft. Here they are those
of a peer in user space, see `literal_caller` and `literal_server`.
"""

import collections
import dataclasses
import itertools
import struct
import time

from rpcrdma2_header import (CALL_EXTERNAL, CALL_MIDDLE, GRANT, Header, REPLY_INLINE, REPLY_MIDDLE, SEGMENT_COUNT,
                             SEGMENT_SIZE, prefix, properties)

#: The credits that a peer advertises.
ADVERTISED = 16
#: RPC messages after which properties are late.
LATE = 5
#: Seconds without a message after which no more credits are expected.
SETTLED = 0.05
#: What opens a connection: one of these messages, or a Call.
FIRST = ("properties", "middle", "grant", "call")
#: When properties are told.
TOLD = ("first", "late", "never")
#: What rdma_remaining counts.
REMAINING = ("later", "own", "unreduced")
#: Octets and number of the segments that are taken, if they are few.
SEGMENTS = {SEGMENT_SIZE: 4096, SEGMENT_COUNT: 2}
#: The longest message in parts that our module takes, in octets (`link/assembly.rs`).
MAX_WHOLE = 36 << 10


@dataclasses.dataclass(frozen=True)
class Reading:
    """A reading of the text; as it stands, that of the module."""

    #: The peer is the client.
    client: bool = True
    #: The credit value counts the messages that were sent, and not those received (4.2.1).
    sent: bool = False
    #: A message is posted unless the count of sent messages is greater than the credits (4.2.1).
    greater: bool = False
    #: GRANT, ERROR and CONNPROP do not count.
    uncounted: bool = False
    #: Credits are renewed by GRANTs (4.2.1.1).
    renews: bool = True
    #: What rdma_remaining counts (6.3.6, 6.3.9).
    remaining: str = "later"
    #: A GRANT may come between two parts.
    between: bool = False
    #: A sequence is begun with one credit, and waits for others in the middle (6.6.2).
    pauses: bool = False
    #: The first message (4.3), and when the properties are told (6.3.4).
    first: str = "properties"
    told: str = "first"
    #: Two segments of a page are all that a header may have (5.2.3, 5.2.4).
    few: bool = False
    #: How long a server waits before its first message, in seconds (4.3).
    answers_after: int = 0
    #: Which part of a Reply in parts invalidates the handle of the Call, of a server: "never", "first" or "last"
    #: (6.5).
    invalidates: str = "never"

    def __str__(self):
        """What differs from the module's own reading."""
        out = ["client" if self.client else "server"]
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            name = {"renews": "no GRANTs", "answers_after": "answers after"}.get(field.name, field.name)
            if value != field.default:
                out.append(name if isinstance(value, bool) else f"{name} {value}")
        return ", ".join(out)

    def is_defensible(self):
        """Whether the text allows it: it does not allow to leave messages out, nor anything between parts."""
        return not self.uncounted and not self.between

    def unserved(self):
        """Why not every RPC ends well, although the text allows it; as in `Reading::unserved`."""
        if self.client and self.remaining == "unreduced":
            return "too long"
        if self.client and self.sent and not self.renews:
            return "starves"
        if not self.client and self.sent and self.few and not self.renews:
            return "no form"
        return None

    def starves(self):
        """Whether the server may be left without credits: a client that counts what it has sent, not
        what it has received, brings none back for the parts of a Reply unless it sends GRANTs. What
        the text does not allow may take them too."""
        return self.client and self.sent and not (self.renews and self.is_defensible())


def readings(client):
    """All readings that the text allows, of one end."""
    flags = [False, True]
    begins = [("properties", "first"), ("middle", "first"), ("grant", "late"), ("grant", "never")]
    begins += [("call", "late"), ("call", "never")] if client else []
    out = []
    for n, (sent, greater, renews, remaining, pauses, (first, told), few) in enumerate(
            itertools.product(flags, flags, flags, REMAINING, flags, begins, flags)):
        # A client is sent no chunks but its own.
        if few and (client or told != "first"):
            continue
        # What invalidates has nothing to do with the rest; each comes with each of the others.
        invalidates = "never" if client else ("never", "last", "never", "first")[bin(n).count("1") % 4]
        out.append(Reading(client, sent, greater, False, renews, remaining, False, pauses, first, told, few, 0,
                           invalidates))
    if not client:
        # In the end another version is spoken, and nothing else of the reading is seen.
        out += [Reading(client=False, first=first, told=told, answers_after=20) for first, told in begins]
    return out


def refused(client):
    """Some readings that the text does not allow."""
    ways = [{"uncounted": True}, {"between": True}, {"uncounted": True, "between": True}]
    return [Reading(client, sent=sent, pauses=pauses, **way)
            for way in ways for sent in (False, True) for pauses in (False, True)]


def moved_by(header):
    """How many octets of its RPC message the chunks of a message move."""
    if header.htype == REPLY_INLINE:
        return sum(length for chunk in header.writes for _, length, _ in chunk)
    return sum(length for _, _, length, _ in header.reads)


class Sequence:
    """The messages of an RPC message, and the handle that one of them invalidates."""

    def __init__(self, messages, handle=None):
        self.messages, self.at, self.handle = messages, 0, handle
        self.data = moved_by(Header(messages[-1]))

    def next(self, reading):
        """The next message, and what it invalidates. Its credit value is yet to come."""
        message = self.messages[self.at]
        (htype,) = struct.unpack_from(">I", message, 12)
        if htype in (CALL_MIDDLE, REPLY_MIDDLE):
            (later,) = struct.unpack_from(">I", message, 16)
            more = {"later": 0, "own": len(message) - 20, "unreduced": self.data}[reading.remaining]
            message = message[:16] + struct.pack(">I", later + more) + message[20:]
        self.at += 1
        which = 1 if reading.invalidates == "first" else len(self.messages)
        return message, self.handle if self.at == which else None


class Literal:
    """What an end of a connection does with a reading.

    For a class that has counts of all messages `sent` and `received`, the `limit` that the other end has
    told, and `transmit`, which sends a message that may invalidate a handle.
    """

    def follow(self, reading):
        """Begins: nothing is sent yet, and one credit is there."""
        self.reading = reading
        #: Messages that do not count, of those received and sent.
        self.left_out = [0, 0]
        #: The credit value that was sent last.
        self.value = 1
        #: RPC messages that wait.
        self.queue = collections.deque()
        #: Set when something was sent, when properties were begun, and when all were told.
        self.has_spoken = self.has_begun = self.has_told = False
        #: RPC messages that have come.
        self.rpcs = 0
        #: When a message has come, the last time.
        self.heard = time.monotonic()
        #: RPC messages that were sent in parts.
        self.sequences = 0

    def note(self, htype):
        """Takes note of a message that has arrived."""
        self.heard = time.monotonic()
        if htype >= CALL_EXTERNAL:
            self.rpcs += htype not in (CALL_MIDDLE, REPLY_MIDDLE)
        elif self.reading.uncounted:
            self.left_out[0] += 1

    def credit(self):
        """The credit value of the next message."""
        count = self.sent - self.left_out[1] if self.reading.sent else self.received - self.left_out[0]
        return count + ADVERTISED

    def credits_left(self):
        """How many messages may be sent now."""
        ahead = self.limit - (self.sent - self.left_out[1]) & 0xFFFFFFFF
        ahead -= ahead >> 31 << 32
        return max(0, ahead + self.reading.greater)

    def is_due(self):
        """Whether a GRANT is due."""
        left = self.value - (self.received - self.left_out[0])
        return self.reading.renews and left <= ADVERTISED // 2 and self.credit() != self.value

    def may_speak(self):
        """Whether it may send something: a client one message until the server has spoken (4.3)."""
        return self.received > 0 or not self.has_spoken

    def control(self):
        """The next of the messages with which a connection begins, if it is time for it."""
        if not self.has_spoken and self.reading.first == "grant":
            return prefix(0, 0, GRANT)
        if not self.has_spoken and self.reading.first == "middle":
            self.has_begun = True
            return properties(0, last=False)
        if not self.has_spoken and self.reading.first == "call":
            return None
        told = self.reading.told
        if self.has_told or told == "never" or (told == "late" and self.rpcs < LATE):
            return None
        self.has_told = True
        return properties(0, list(SEGMENTS.items()) if self.reading.few else [])

    def in_sequence(self):
        """Whether it is between two parts."""
        return bool(self.queue) and self.queue[0].at > 0

    def count_sequence(self, parts):
        """Counts an RPC message that was sent in so many messages."""
        self.sequences += parts > 1

    def next_message(self):
        """The next message that may be sent now, and what it invalidates; or nothing."""
        if not self.may_speak() or self.credits_left() == 0:
            return None
        if not self.in_sequence():
            message = self.control()
            if message:
                return message, None
        if self.has_begun and not self.has_told:
            return None
        if (not self.in_sequence() or self.reading.between) and self.is_due():
            return prefix(0, 0, GRANT), None
        if not self.queue:
            return None
        sequence = self.queue[0]
        parts = len(sequence.messages)
        if sequence.at == 0 and parts > 1:
            # For all parts; or for as many as there are, if nothing is on its way that may bring more.
            is_settled = time.monotonic() - self.heard > SETTLED
            wanted = 1 if self.reading.pauses or is_settled else min(parts, ADVERTISED // 2)
            if not self.received or self.credits_left() < wanted:
                return None
        found = sequence.next(self.reading)
        if sequence.at == parts:
            self.queue.popleft()
            self.count_sequence(parts)
        return found

    def pump(self):
        """Sends what may be sent now; returns whether it was something."""
        busy = False
        while found := self.next_message():
            message, handle = found
            self.value = self.credit()
            message = message[:8] + struct.pack(">I", self.value & 0xFFFFFFFF) + message[12:]
            self.has_spoken = busy = True
            self.sent += 1
            if self.reading.uncounted and struct.unpack_from(">I", message, 12)[0] < CALL_EXTERNAL:
                self.left_out[1] += 1
            self.transmit(message, handle)
        return busy
