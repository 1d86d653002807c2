# SPDX-License-Identifier: GPL-2.0
"""What the hostile server does in the protocol of 2016 (draft-cel-nfsv4-rpcrdma-version-two-01, called B below, and
draft-dnoveck-nfsv4-rpcrdma-xcharext-03, called X), and what it can do wrong.

Messages of RPCs are those of Version One with one word more. So each case of `hostile_cases` is one here: what it makes is
turned into this protocol when it is sent, with whatever is wrong in it.
"""

import itertools
import struct
import time

import hostile_cases
from common import Gone, slowness, watchdog
from hostile_reply import Case
from rpcrdma2016_header import turned_back
from rpcrdma2016_words import ERROR, INLINE, MSG, NOMSG, OPTIONAL, is_like, octets, shown
from rpcrdma_header import Header

#: Cases about Replies by name, see `hostile_reply`; and those about the first message of a connection, which get the
#: connection, and the transaction ID of the client's first message, and return whether the server's properties follow.
CASES, FIRST = {}, {}
#: The properties of a correct server: Receives of 4096 octets, of which nothing is expected to stay.
PROPERTIES = "X 2 20 5 1 1 2c  3 1 4 1000 2 4 1 3 4 1  0"
#: Transaction IDs of the server's own messages.
OWN = itertools.count(0x77770000)
#: Cases of Version One that end otherwise, with the reason.
OTHERWISE = {
    # What has another version is none of this connection's, and is answered with an error.
    "version_0": "error", "version_2": "error", "version_9": "error", "version_4294967295": "error",
}


def case(procedure, expect="any"):
    """Enters a function into `CASES`."""
    def enter(function):
        CASES[function.__name__] = Case(function, procedure, expect)
        return function
    return enter


def first(expect="any", version=None):
    """Enters a function into `FIRST`: the mount works and speaks `version`, or fails with the error `expect`."""
    def enter(function):
        entry = Case(function, "", expect)
        entry.version = version
        FIRST[function.__name__] = entry
        return function
    return enter


for name, one in hostile_cases.CASES.items():
    # Calls of the server's are others here: `earlier_calls`.
    if name.startswith("reverse_"):
        continue
    CASES[name] = Case(one.run, one.procedure, OTHERWISE.get(name, one.expect))


class Earlier:
    """The state of a connection that speaks this protocol."""

    def __init__(self, connection):
        self.connection = connection
        #: The number of messages that have come, and the longest that may come.
        self.received, self.longest = 0, INLINE
        #: Whether the client may send OPTIONAL messages that answer nothing.
        self.knows, self.told = True, False
        #: The size of the client's Receives, once it has told it.
        self.size = INLINE

    def say(self, text, xid=None, payload=b"", **names):
        """Sends a message of words, as it is; returns its transaction ID."""
        xid = next(OWN) if xid is None else xid
        self.connection.send_raw(octets(text, xid, names) + payload)
        return xid

    def ask(self, text, expected, limit=5):
        """Sends a message and notes what is wrong if another answer comes than is expected: one message, or none."""
        xid = self.say(text)
        # The client waits two seconds for its Reply on a slow kernel, and one case has three such silences.
        silence = 0.1 * min(slowness(), 4)
        deadline = time.monotonic() + (limit * watchdog() if expected else silence)
        got = []
        while time.monotonic() < deadline and not (got and expected):
            self.connection.poll()
            own = [m for m in self.connection.arrived if m[:4] == struct.pack(">I", xid)]
            for message in own:
                self.connection.arrived.remove(message)
            got += own
            time.sleep(0.002)
        if len(got) != (expected is not None) or got and not is_like(got[0], expected, xid):
            self.connection.wrong(f"{' and '.join(map(shown, got)) or 'nothing'} answers {text}, not {expected}")

    def check_first(self, data):
        """The client's first message (B 5; X 4.1)."""
        if not 28 < len(data) <= 1024 or not is_like(data, "0 2 c 5 0 1 *", 0):
            self.connection.wrong(f"the first message is {shown(data)}")
            return
        words = struct.unpack(f">{len(data) // 4}I", data)
        if words[7:10:2] + words[11:12] + words[14:15] != (3, 4, 2, 3) or words[8] != 1 or words[10] < INLINE:
            self.connection.wrong(f"the properties are {shown(data)}")
        self.size = words[10]
        # Nothing may come before our answer.
        time.sleep(0.02)
        self.connection.poll()
        if self.connection.arrived:
            self.connection.wrong("a second message before ours")

    def optional(self, data):
        """Handles an OPTIONAL message."""
        connection = self.connection
        xid, _, credit, _, direction, operation = struct.unpack_from(">IIIIII", data)
        if not credit:
            connection.wrong(f"no credits: {shown(data)}")
        if operation == 1 and self.received == 1:
            self.check_first(data)
            server = connection.server
            name = server.first
            if name:
                server.hits += 1
            if not name or FIRST[name].run(self, xid):
                self.say(PROPERTIES, xid)
                self.told = True
            return
        if not self.knows or not self.told:
            connection.wrong(f"an OPTIONAL message to who has none: {shown(data)}")
        elif operation == 2 and direction == 0:
            self.say("X 2 20 5 1 3 c  0 0 0", xid)
        elif (operation, direction) not in ((3, 1), (4, 0)):
            connection.wrong(f"no operation of a client's: {shown(data)}")

    def handle(self, data):
        """Handles a message."""
        self.received += 1
        connection = self.connection
        if len(data) < 20:
            connection.wrong(f"{len(data)} octets: {data.hex()}")
            return
        procedure = struct.unpack_from(">I", data, 12)[0]
        if len(data) > self.longest:
            # B 2.3; X 3.1.
            connection.wrong(f"a message of {len(data)} octets, not of {self.longest}")
        if procedure == ERROR:
            connection.server.notes.append(f"error {struct.unpack_from('>I', data, 16)[0]}")
        elif procedure == OPTIONAL and len(data) >= 28:
            self.optional(data)
        elif procedure in (MSG, NOMSG) and data[16:20] == bytes(4):
            if not self.told and self.knows:
                connection.wrong(f"a Call before our answer: {shown(data[:32])}")
            # The rest is as in Version One.
            connection.answer_call(Header(turned_back(data)))
        else:
            connection.wrong(f"no message of this protocol: {shown(data[:32])}")


# ---- The answer to the first message ------------------------------------


def answered(name, text, expect, version, doc, end=False):
    """A case in which the client's properties are answered with these words, and nothing follows of itself."""
    def run(earlier, xid):
        earlier.say(text, xid)
        if end:
            raise Gone("as the case wants")
        return False
    run.__name__, run.__doc__ = f"first_{name}", doc
    first(expect, version)(run)


answered("vers", "X 2 80 4 1 1 1", "ok", 1, "A server of Version One.")
answered("unknown_error", "X 2 80 4 63", "ok", 1, "An error of no meaning, and silence.")
answered("cut_error", "X 2 80 4", "ok", 1, "An error without a code, and silence.")
answered("bad_header", "X 2 80 4 2", "ok", 1, "The properties can't be read there.")
answered("inval_htype", "X 2 80 4 4", "ok", 1, "A server of -07 only.", end=True)
answered("of_07", "X 2 21 7 0", "ok", 1, "The properties of -07.")
answered("grant_of_07", "X 2 21 5", "ok", 1, "A GRANT of -07.")
answered("reply", "X 2 80 0 1 0 0 0 X 1 0 0 0 0", "ok", 1, "A Reply to no Call.")
answered("version_one", "X 1 80 0 0 0 0 X 1 0 0 0 0", "ok", 1, "A Reply of Version One.")
answered("version_7", "X 7 80 5 1 1 8 0 0", "ok", 1, "Another version.")


@first("ok", 1)
def first_silence(_earlier, _xid):
    """No answer."""
    return False


@first("ok", 1)
def first_lost(_earlier, _xid):
    """No answer, and the end of the connection."""
    raise Gone("as the case wants")


@first("ok", 2)
def first_without_operations(earlier, xid):
    """A server that knows no operations: there are defaults, and no further OPTIONAL message (B 3.1)."""
    earlier.knows = False
    earlier.say("X 2 80 4 3", xid)
    return False


def told(name, text, doc, longest=INLINE):
    """A case in which the server's properties are these."""
    def run(earlier, xid):
        earlier.told, earlier.longest = True, longest
        earlier.say(text, xid)
        return False
    run.__name__, run.__doc__ = f"first_{name}", doc
    first("ok", 2)(run)


told("nothing_told", "X 2 20 5 1 1 8  0 0", "No property is told: there are defaults.")
told("receives_of_512", "X 2 20 5 1 1 14  1 1 4 200  0", "Receives of 512 octets.", 0x200)
told("receives_of_any_size", "X 2 20 5 1 1 14  1 1 4 ffffffff  0", "Receives of any length.", 1 << 20)
told("unknown_properties", "X 2 20 5 1 1 28  3 63 4 1 1 4 1000 ffffff00 2 20000 0", "Some that nobody knows.")
told("no_credits", "X 2 0 5 1 1 14  1 1 4 1000  0", "Properties, and a grant of nothing, which counts as one.")
told("all_credits", "X 2 ffffffff 5 1 1 14  1 1 4 1000  0", "Properties, and a grant of everything.")
told("as_a_call", "X 2 20 5 0 1 14  1 1 4 1000  0", "The properties have the direction of a Call.")


@first("ok", 2)
def first_twice(earlier, xid):
    """The properties come twice: the second time they are changes (X 4.1)."""
    earlier.told, earlier.longest = True, 0x400
    earlier.say("X 2 20 5 1 1 14  1 1 4 1000  0", xid)
    earlier.say("X 2 20 5 1 1 14  1 1 4 400  0", xid)
    return False


@first("ok", 2)
def first_bad_set(earlier, xid):
    """A set that can't be read has no effect, and is reported (X 2.1)."""
    earlier.told = True
    earlier.ask("X 2 20 5 1 1 14  1 1 2 20000000  0", "X 2 c 4 2")
    earlier.say(PROPERTIES, xid)
    return False


@first("ok", 2)
def first_changes(earlier, xid):
    """Two hundred changes at once."""
    earlier.told = True
    earlier.say(PROPERTIES, xid)
    for _ in range(200):
        earlier.say("X 2 20 5 1 4 4  0")
    return False


# ---- Beside an RPC ------------------------------------------------------


def error(name, words, expect, doc, then=False):
    """A case in which an error comes in place of a Reply, or before it."""
    def run(r):
        r.connection.earlier.say(words, r.xid)
        if then:
            r.send()
    run.__name__, run.__doc__ = f"earlier_{name}", doc
    case("GETATTR", expect)(run)


error("bad_header", "X 2 20 4 2", "at once", "An error ends its RPC.")
error("vers", "X 2 20 4 1 1 1", "at once", "So does one about versions.")
error("code_63", "X 2 20 4 63", "at once", "So does one without a meaning.")
error("inval_option", "X 2 20 4 3", "ok", "An error about an operation ends no RPC.", then=True)
error("call", "X 2 20 0 0 0 0 0 X 1 0 0 0 0", "ok", "A Reply that is said to be a Call is none.", then=True)
error("direction_2", "X 2 20 0 2 0 0 0 X 1 0 0 0 0", "any", "A direction that there is not.", then=True)


@case("GETATTR", "at once")
def earlier_unknown_reply(r):
    """A Reply in an operation that nobody knows: its RPC has an end (B 4.2.1)."""
    r.prepare()
    r.connection.earlier.say("X 2 20 5 1 63 0", r.xid, r.body)


def beside(name, rows, doc, procedure="GETATTR"):
    """A case in which messages are answered as they should be, before the Reply."""
    def run(r):
        for text, expected in rows:
            r.connection.earlier.ask(text, expected)
        r.send()
    run.__name__, run.__doc__ = f"earlier_{name}", doc
    case(procedure, "ok")(run)


beside("requests", [
    ("X 2 20 5 0 2 4  0", "X 2 c 5 1 3 c  0 0 0"),
    ("X 2 20 5 0 2 10  1 63 4 1", "X 2 c 5 1 3 10  0 1 1 0"),
    # Shorter Receives while a Call is under way, and longer ones than there are.
    ("X 2 20 5 0 2 10  1 1 4 800", "X 2 c 5 1 3 10  0 1 1 0"),
    ("X 2 20 5 0 2 10  1 1 4 ffffffff", "X 2 c 5 1 3 10  0 1 1 0"),
    # Nobody takes Calls on this mount.
    ("X 2 20 5 0 2 10  1 3 4 0", "X 2 c 5 1 3 10  1 1 0 0"),
    ("X 2 20 5 0 2 10  1 3 4 2", "X 2 c 5 1 3 10  0 1 1 0"),
    ("X 2 20 5 0 2 1c  2 2 4 1 1 4 1000", "X 2 c 5 1 3 14  1 1 1 2 0"),
], "Each request is answered (X 4.3).")
beside("bad_requests", [
    ("X 2 20 5 0 2 10  1 1 2 20000000", "X 2 c 4 2"),
    ("X 2 20 5 0 2 10  1 2 4 2", "X 2 c 4 2"),
    ("X 2 20 5 0 2 40  0", "X 2 c 4 2"),
    ("X 2 20 5 1 2 4  0", "X 2 c 4 2"),
    ("X 2 20 5 2 2 4  0", "X 2 c 4 2"),
    ("X 2 20 5 1 4 10  1 1 1 0", "X 2 c 4 2"),
    ("X 2 20 5 1 3 c  0 0 0", None),
    ("X 2 20 5 1 3 c  7 0 0", None),
    ("X 2 20 5", None),
], "What can't be read is reported, but for answers (X 2.1).")
beside("unknown_operations", [
    ("X 2 20 5 0 63 0", "X 2 c 4 3"),
    ("X 2 20 5 1 63 0", "X 2 c 4 3"),
    ("X 2 20 5 0 ffffffff 4 1", "X 2 c 4 3"),
], "An operation that is not known is refused (B 3.1).")
beside("other_versions", [
    ("X 1 20 0 0 0 0 X 0 2 40000000 1 0 0 0 0 0", "X 1 c 4 1 2 2"),
    ("X 9 20 0 0 0 0 0 X 0 2 40000000 1 0 0 0 0 0", "X 9 c 4 1 1 2"),
], "A message of another version is answered with those that there are.")
beside("calls", [
    ("X 2 20 0 0 0 0 0 X 0 2 40000000 1 0 0 0 0 0", "X 2 c 4 2"),
    ("X 2 20 1 0  1 0 1 28 0 1000 0  0 0", "X 2 c 4 2"),
], "Nobody takes Calls on this mount: they are refused (X 3.3).")


@case("WRITE", "ok")
def earlier_shorter(r):
    """The server's Receives get shorter, and longer again: the client keeps to that."""
    earlier = r.connection.earlier
    if earlier.longest == INLINE:
        earlier.say("X 2 20 5 1 4 10  1 1 4 200")
        earlier.longest = 0x200
    else:
        earlier.longest = INLINE
        earlier.say("X 2 20 5 1 4 10  1 1 4 1000")
    r.send()


@case("GETATTR", "ok")
def earlier_grants(r):
    """Credits come and go by changes of nothing (B 4.2.2)."""
    for credit in (1, 0xFFFFFFFF, 0, 5):
        r.connection.earlier.say(f"X 2 {credit:x} 5 1 4 4  0")
    r.send()


@case("GETATTR", "any")
def earlier_requests_at_once(r):
    """A hundred requests at once: they are answered, or the connection ends."""
    for _ in range(100):
        r.connection.earlier.say("X 2 20 5 0 2 4  0")
    r.send()
