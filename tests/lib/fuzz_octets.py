# SPDX-License-Identifier: GPL-2.0
"""Messages of the fuzzing peers: octets with names in them, and what is changed in them at random.

A name stands for what is known only when a message is sent, so that an input means the same each time. It
begins with two letters: `XI` and a number is a transaction ID, `HD` and a number a handle of memory, `OF` and
six octets a place in such memory. What is changed at random in a name is a name no more, mostly.
"""

import hmac
import os
import re
import struct

from host_auth_caller import LABEL, item
from rpcrdma2016_words import octets

NAME = re.compile(rb"XI..|HD..|OF\0\0....", re.S)
#: The longest message that is made.
LONGEST = 4608
#: Words that headers may be wrong about.
WORDS = (*range(18), 20, 24, 28, 31, 32, 33, 36, 40, 63, 64, 65, 100, 127, 128, 255, 256, 257, 511, 512, 1000,
         1023, 1024, 1025, 2016, 4076, 4092, 4095, 4096, 4097, 8192, 16384, 65535, 65536,
         1 << 20, (1 << 20) + 1, 1 << 24, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 31) + 1,
         0xFFFFFF00, 0xFFFFFFF0, 0xFFFFFFFC, 0xFFFFFFFE, 0xFFFFFFFF)


def xid(number=0):
    """The name of a transaction ID, as a number."""
    return int.from_bytes(b"XI" + number.to_bytes(2, "big"), "big")


def segment(length, number=0, at=0):
    """A segment in memory that has a name: handle, length and offset."""
    return (int.from_bytes(b"HD" + number.to_bytes(2, "big"), "big"), length,
            int.from_bytes(b"OF\0\0" + struct.pack(">I", number << 24 | at), "big"))


def filled(message, word, place):
    """The octets of a message: `word` gives what stands for `XI` and `HD` with a number, `place` for `OF`."""
    def replace(found):
        name = found[0]
        if name[:2] == b"OF":
            return struct.pack(">Q", place(struct.unpack_from(">I", name, 4)[0]) & 0xFFFFFFFFFFFFFFFF)
        return struct.pack(">I", word(name[:2], struct.unpack_from(">H", name, 2)[0]) & 0xFFFFFFFF)
    return NAME.sub(replace, message)


#: The key of host authentication, and what is a proof once the other end's nonce is known.
KEY = bytes(range(0x40, 0x60))
CLIENT_PROOF, SERVER_PROOF = b"PROOF OF THE CLIENT IN 32 OCTETS", b"PROOF OF THE SERVER IN 32 OCTETS"
#: The nonces of the peers.
CLIENT_NONCE, SERVER_NONCE = b"\xC1" * 32, b"\x5E" * 32


def proved(message, client_nonce, server_nonce, client):
    """The octets of a message with proofs, if the nonces are known; `client` is its address."""
    if client_nonce and server_nonce and b"PROOF OF THE " in message:
        for role, name in ((b"client", CLIENT_PROOF), (b"server", SERVER_PROOF)):
            ends = client.encode(), os.environ["PEER_ADDR"].encode()
            signed = b"".join(item(data) for data in (LABEL, role, client_nonce, server_nonce, *ends))
            message = message.replace(name, hmac.digest(KEY, signed, "sha256"))
    return message


def nonce_in(message, kind):
    """The nonce in a token of some kind, if a message has a whole one."""
    at = message.find(b"RPRX")
    if at >= 0 and message[at + 8:at + 12] == struct.pack(">I", kind) and len(message) >= at + 44:
        return message[at + 12:at + 44]
    return None


def in_words(path):
    """The messages that a library for the protocol of 2016 has in words, without those with names in them."""
    with open(path, encoding="utf-8") as f:
        for text in re.findall(r'"((?:\[\w+ )?X [0-9a-f]+ [0-9a-f ]*(?:NULL)?)"', f.read()):
            try:
                yield octets(text, xid())
            except (ValueError, struct.error):
                pass


def random_word(random):
    """A word that is likely to matter."""
    how = random.random()
    if how < 0.7:
        return random.choice(WORDS)
    if how < 0.8:
        return random.randrange(64)
    if how < 0.9:
        return random.choice(WORDS) + random.randrange(-4, 5) & 0xFFFFFFFF
    return random.getrandbits(32)


def place_in(random, message, size=4):
    """A place for a word: more often in the header than behind it."""
    words = (len(message) - size) // 4
    if words < 0:
        return None
    somewhere = random.randrange(words + 1)
    return 4 * min(words, random.choice((random.randrange(8), random.randrange(24), somewhere)))


def set_word(random, message, _others):
    """Another word."""
    at = place_in(random, message)
    if at is None:
        return message
    return message[:at] + struct.pack(">I", random_word(random)) + message[at + 4:]


def add_to_word(random, message, _others):
    """A word that is a little more or less."""
    at = place_in(random, message)
    if at is None:
        return message
    (word,) = struct.unpack_from(">I", message, at)
    word = word + random.choice((-64, -16, -8, -4, -3, -2, -1, 1, 2, 3, 4, 8, 16, 64)) & 0xFFFFFFFF
    return message[:at] + struct.pack(">I", word) + message[at + 4:]


def flip(random, message, _others):
    """Another bit."""
    if not message:
        return message
    out, last = bytearray(message), len(message) - 1
    at = min(last, random.choice((random.randrange(64), random.randrange(last + 1))))
    out[at] ^= 1 << random.randrange(8)
    return bytes(out)


def set_octets(random, message, _others):
    """A few other octets."""
    if not message:
        return message
    at = random.randrange(len(message))
    return message[:at] + random.randbytes(random.randrange(1, 9)) + message[at + random.randrange(9):]


def cut(random, message, _others):
    """The end is missing."""
    return message[:random.randrange(len(message) + 1)]


def grow(random, message, _others):
    """Octets more at the end."""
    more = random.choice((1, 2, 3, 4, 8, 20, 100, 1000, LONGEST))
    return message + bytes([random.choice((0, 0xFF, 0xD2))]) * min(more, LONGEST - len(message))


def insert(random, message, others):
    """Words more in between: new ones, or some of this or of another message."""
    at = place_in(random, message, 0)
    source = random.choice((message, random.choice(others) if others else message))
    first = 4 * random.randrange(len(source) // 4 + 1)
    words = source[first:first + 4 * random.choice((1, 2, 4, 5, 6, 8, 16))]
    if random.random() < 0.3:
        words = struct.pack(">I", random_word(random))
    return message[:at] + words + message[at:]


def remove(random, message, _others):
    """Words less in between."""
    at = place_in(random, message, 0)
    return message[:at] + message[at + 4 * random.choice((1, 1, 2, 4, 5, 6, 16)):]


def copy(random, message, others):
    """Words of this or of another message over others."""
    source = random.choice((message, random.choice(others) if others else message))
    at, first = place_in(random, message, 0), 4 * random.randrange(len(source) // 4 + 1)
    words = source[first:first + 4 * random.choice((1, 2, 4, 5, 6))]
    return message[:at] + words + message[at + len(words):]


def splice(random, message, others):
    """The beginning of this message and the end of another one."""
    other = random.choice(others) if others else message
    at = place_in(random, message, 0)
    return message[:at] + other[random.choice((at, place_in(random, other, 0))):]


def change_segment(random, message, _others):
    """Another segment: its length, its place, its handle; twice, many times, or not at all."""
    places = [m.start() for m in re.finditer(rb"HD..", message, re.S) if m.start() % 4 == 0]
    if not places:
        return message
    at = random.choice(places)
    if len(message) < at + 16 or at < 8:
        return message
    how = random.randrange(6)
    if how == 0:
        return message[:at + 4] + struct.pack(">I", random_word(random)) + message[at + 8:]
    if how == 1:
        (length,) = struct.unpack_from(">I", message, at + 4)
        length = length + random.choice((-4096, -4, -1, 1, 4, 4096, length)) & 0xFFFFFFFF
        return message[:at + 4] + struct.pack(">I", length) + message[at + 8:]
    if how == 2:
        # The position in a Read list, or how many segments a chunk has.
        where = at - random.choice((4, 4, 8))
        return message[:where] + struct.pack(">I", random_word(random)) + message[where + 4:]
    if how == 3:
        return message[:at] + random.randbytes(4) + message[at + 4:]
    # An entry of a Read list begins with 1 and the position, a chunk with the number of its segments.
    (before, number) = struct.unpack_from(">II", message, at - 8)
    times = random.choice((1, 1, 2, 15, 16, 100)) if how == 4 else 0
    if before == 1 and random.random() < 0.2:
        # An empty chunk before it.
        return message[:at - 8] + struct.pack(">II", 1, 0) + message[at - 8:]
    # A whole chunk of one segment looks like an entry.
    if before == 1 and (number == 0 or number > 16 or number == 1 and random.random() < 0.5):
        entry = message[at - 8:at + 16]
        return message[:at - 8] + entry * (times + 1 if times else 0) + message[at + 16:]
    if not 0 < number <= 300:
        return message[:at] + message[at:at + 16] * (times + 1 if times else 0) + message[at + 16:]
    number = struct.pack(">I", number + times if times else number - 1)
    return message[:at - 4] + number + message[at:at + 16] * (times + 1 if times else 0) + message[at + 16:]


#: What may be done to one message, the more likely the more often it is named.
CHANGES = (set_word, set_word, set_word, add_to_word, add_to_word, flip, set_octets, cut, grow, insert,
           insert, remove, copy, splice, change_segment, change_segment, change_segment)


def changed(random, message, others):
    """A message that is changed in one or a few ways; `others` are messages to take words from."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        message = random.choice(CHANGES)(random, message, others)[:LONGEST]
    return message
