# SPDX-License-Identifier: GPL-2.0
"""Cases of the hostile server, in both versions: READs whose data have another XDR padding than is due.

There is a server that sends n mod 4 octets of padding where it should send 4 - n mod 4. What
comes in the message is taken up to the end of its last word, as the stock client does.
"""

import struct

#: Data and padding of the results, in octets.
SHAPES = [(length, padding) for length in (401, 402, 403, 404) for padding in (0, 1, 2, 3, 5)
          if padding != -length % 4]


def head_of(answer, length):
    """The results of a READ up to the data: `length` octets, the last of the file (RFC 1813, 3.3.6)."""
    head = bytearray(answer.head)
    struct.pack_into(">III", head, len(head) - 12, length, 1, length)
    return bytes(head)


def inline(r, length, padding):
    """The data are in the message."""
    r.body = head_of(r.answer, length) + r.answer.payload[:length] + bytes(padding)
    r.writes = [[(h, 0, o) for h, _, o in chunk] for chunk in r.call.writes]
    r.send()


def in_chunk(r, length, padding):
    """The data are in the Write chunk, and so is what is taken for their padding."""
    used, _ = r.connection.fill(r.call.writes[0], r.answer.payload[:length] + bytes(padding))
    r.body, r.writes = head_of(r.answer, length), [used]
    r.send()


def behind_chunk(r, length, padding):
    """The data are in the Write chunk, and the message ends with octets that are no whole word."""
    used, _ = r.connection.fill(r.call.writes[0], r.answer.payload[:length])
    r.body, r.writes = head_of(r.answer, length) + bytes(padding), [used]
    r.send()


def enter(case):
    """Enters all cases with the decorator of a version."""
    for shape in (inline, in_chunk, behind_chunk):
        for length, padding in SHAPES:
            def run(r, shape=shape, length=length, padding=padding):
                shape(r, length, padding)
            run.__name__ = f"padding_{shape.__name__}_{length}_{padding}"
            run.__doc__ = f"{length} octets with {padding} of padding. {shape.__doc__}"
            case("READ", "data")(run)


def reply_chunk(case):
    """Enters the cases with a Reply chunk of which the length is no multiple of 4: they fail, as with the stock client."""
    for more in (1, 2, 3):
        def run(r, more=more):
            r.prepare()
            handle, length, offset = r.reply[0]
            r.reply = [(handle, length - more, offset), *r.reply[1:]]
            r.send()
        run.__name__ = f"padding_reply_chunk_{more}"
        run.__doc__ = f"The Reply chunk comes back {more} octets shorter than the Reply."
        case("READDIR", "error")(run)
