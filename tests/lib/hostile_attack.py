# SPDX-License-Identifier: GPL-2.0
"""What the cases of the hostile client have in common: sending, and judging what comes back.

A case is a function that gets an `Attack`. What is wrong is noted in its `problems`.
"""

import struct
import time

from common import Gone, Pause, log, pattern, watchdog
from hostile_caller import Caller, Refused, XIDS
from hostile_judge import judge
from rpc_message import compound, getattr_, null_rpc, to_file
from rpcrdma_header import encode

#: Where the file is that all cases may read, from the root of NFSv4, and how long it is.
FILE, FILE_SIZE = ("export", "hostile"), 1 << 20
#: Every case by name, in the order in which they are run.
CASES = {}
#: How many messages are sent at most before their answers are waited for.
BATCH = 30


def case(function):
    """Enters a function into `CASES`."""
    CASES[function.__name__] = function
    return function


def contents(offset, length):
    """What the file holds there."""
    return pattern("hostile", FILE_SIZE)[offset:offset + length]


def fresh():
    """A new transaction id and a NULL Call that has it."""
    xid = next(XIDS)
    return xid, null_rpc(xid)


class Attack:
    """The state of the hostile client."""

    def __init__(self, cases=None):
        self.cases = cases or CASES
        self.problems = []
        self.name = ""
        self.connection = self.friend = None
        #: The longest that the well-behaved NULL Call between cases has taken.
        self.slowest = 0

    def problem(self, text):
        """Notes that something is wrong."""
        self.problems.append(f"{self.name}: {text}")
        log(f"  PROBLEM: {text}")

    def compare(self, label, outcome, allowed):
        """Notes that something is wrong if what became of a message is none of what is `allowed`."""
        if outcome not in allowed:
            self.problem(f"{label}: {outcome}, not {' or '.join(sorted(allowed))}")

    def connect(self, **how):
        """A connection of the case's own."""
        return Caller(**how)

    def current(self):
        """The connection for what does not end it."""
        if self.connection is None:
            self.connection = Caller()
            # After its first answer it knows how many credits it has.
            self.connection.null()
        return self.connection

    def alive(self):
        """Whether the current connection works; if not, the next case gets another."""
        try:
            if self.current().null():
                return True
            self.problem("a NULL Call is not answered")
        except Gone:
            pass
        self.drop()
        return False

    def drop(self):
        """Ends the current connection."""
        if self.connection:
            connection, self.connection = self.connection, None
            connection.close()

    def judged(self, label, data):
        """A message for `batch`, with what the RFC wants to be done."""
        verdict = judge(data)
        # What passes gets an answer of the RPC layer, or is found to be impossible later.
        return label, data, {"reply", "denied", "chunk"} if verdict == "pass" else {verdict}

    def batch(self, messages):
        """Sends messages `(label, octets, allowed)`, all of which the connection must survive.

        `allowed` is a set of the answers that are right, with `nothing` for none.
        """
        while messages:
            # One is for a NULL Call.
            room = max(1, min(BATCH, self.current().granted - 1))
            part, messages = messages[:room], messages[room:]
            try:
                self.exchange(self.current(), part)
            except Gone as x:
                self.problem(f"the connection was lost ({x}) with one of "
                             + ", ".join(label for label, _, _ in part))
                self.drop()

    def exchange(self, connection, part):
        """Sends a few messages and compares the answers."""
        connection.answers.clear()
        for _, data, _ in part:
            connection.send_message(data)
        if not connection.null():
            self.problem("a NULL Call is not answered after " + ", ".join(p[0] for p in part))
            self.drop()
            return
        wanted = {struct.unpack_from(">I", data)[0]: allowed
                  for _, data, allowed in part if "nothing" not in allowed}
        deadline = time.monotonic() + 5 * watchdog()
        pause = Pause()
        while set(wanted) - {a.xid for a in connection.answers} and time.monotonic() < deadline:
            connection.take()
            pause()
        # What should not come may come now.
        time.sleep(0.03)
        connection.take()
        # The last answer but the NULL Call's are for these.
        answers = {}
        for answer in connection.answers:
            answers.setdefault(answer.xid, []).append(answer)
        for label, data, allowed in part:
            xid = struct.unpack_from(">I", data)[0] if len(data) >= 4 else None
            got = [a.kind for a in answers.pop(xid, [])] or ["nothing"]
            self.compare(label, ", ".join(got), allowed)
        if len(answers) != 1:
            self.problem(f"answers to nothing: {[a[0].data.hex() for a in answers.values()]}")

    def alone(self, label, data, allowed, connection=None, limit=15):
        """Sends one message on a connection that it may end; `lost` in `allowed` says so.

        The connection is a new one unless given. Returns the answer, if there is one.
        """
        own = connection is None
        connection = connection or Caller()
        xid = struct.unpack_from(">I", data)[0]
        answer, outcome = None, "nothing"
        try:
            connection.send_message(data)
            if allowed == {"nothing"}:
                if not connection.null():
                    outcome = "a stall"
                answer = next((a for a in connection.answers if a.xid == xid), None)
            else:
                answer = connection.answer(xid, limit)
        except Gone:
            outcome = "lost"
        if answer:
            outcome = answer.kind
        self.compare(label, outcome, allowed)
        if own:
            connection.close()
        return answer

    def well(self):
        """Whether another connection gets its answer, and how fast."""
        began = time.monotonic()
        try:
            if self.friend is None:
                self.friend = Caller()
                # SUNRPC closes the oldest of many connections that have shown no file handle.
                xid = next(XIDS)
                self.friend.call(encode(xid) + compound(xid, *to_file(), getattr_()), xid)
            if not self.friend.null(30):
                self.problem("another connection gets no answers")
                self.friend = None
        except (Gone, Refused) as x:
            self.problem(f"another connection has ended: {x}")
            self.friend = None
        took = time.monotonic() - began
        self.slowest = max(self.slowest, took)
        return took

    def run(self, name):
        """Runs one case."""
        self.name = name
        before = len(self.problems)
        began = time.monotonic()
        try:
            self.cases[name](self)
        except (Gone, Refused) as x:
            self.problem(f"{type(x).__name__}: {x}")
            self.drop()
        took = time.monotonic() - began
        well = self.well()
        log(f"{name}: {took:.2f} s, then a NULL Call {well * 1000:.0f} ms"
            + ("" if len(self.problems) == before else ", FAILED"))
