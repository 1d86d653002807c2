# SPDX-License-Identifier: GPL-2.0
"""A server in user space whose messages to our client a search has spoilt, see `fuzz`.

It answers correctly as `hostile_server` does, and then the *plan* of an input says what becomes of some of
the messages that it sends, by their number. An input is

  kind        the protocol that is spoken
  vers        the version of NFS: only 4.1 has Calls of the server's
  auth        the client's wish for host authentication
  begun       whether a correct Reply comes before all that; a client waits longer before it connects again
              if it never got one
  operations  what is done to the mount, and `at once` whether it is done at the same time
  fill        how much of a payload is written into chunks
  put         octets for our own memory: where, and which
  plan        for messages: the number of one, what becomes of it, and how

and a message may have one of these done to it:

  change   octets of it change: a list of edits, see `edited`
  before   another one comes before it, with names in it (`fuzz_octets`)
  instead  another one comes in its place
  parts    as a Reply of Version Two it comes in parts of so many octets
  spoil    it invalidates a handle: which of the Call, or any number
  twice    it comes so many times more
  keep     it comes behind the next one
  silence  it does not come
  pause    it comes so many milliseconds later
  end      the connection ends in its place
"""

import concurrent.futures
import ctypes
import os
import struct
import threading
import time
import traceback

from pyverbs.pyverbs_error import PyverbsError

import hostile_2016
import hostile_server
import hostile_two
import rpcrdma2_header as two
from common import Failure, Gone, LIBC, ROOT, is_errno, mount_raw, read, run, status, write
from fuzz import Finding
from fuzz_answers import KINDS, NOTHING, OURS, SESSION, changed_input, seeds
from fuzz_octets import LONGEST, SERVER_NONCE, SERVER_PROOF, filled, nonce_in, proved
from host_auth_caller import CHALLENGE, HELLO, item, token
from hostile_operations import (MOUNT_PORT, OPERATIONS, RDMA_PORT, attempt, getattr_, mount_options, read_few,
                                write_few)
from hostile_qp import QueuePair
from nfs3_mini import Nfs3, serve_mount
from reverse_peer import CB_SEQUENCE, Nfsd
from rpcrdma2016_header import turned

PARAMETERS = "/sys/module/rpcrdma/parameters"
#: What is done to a mount, by name.
WORK = {**OPERATIONS, "FEW": read_few, "WRITE FEW": write_few}
#: The port of the server with callbacks, and where each version of NFS is mounted.
OTHER_PORT = RDMA_PORT + 10
PATHS = {"3": f"{ROOT}/fuzzed", "4.1": f"{ROOT}/fuzzed4"}
#: How long an RPC waits for its Reply before it is sent again, in tenths of a second.
TIMEOUT = 10
#: After how many seconds of silence an input is over: the mount goes on with another connection.
SILENCE = 0.15
#: How long a GETATTR takes on an idle machine.
USUAL = 0.008
#: An operation ends within so many seconds, and the mount works again.
PATIENCE = 60
#: How often a number in the sequence of a session is used in vain.
TRIES = 3
#: What NFS takes attributes for that do not fit those before: such a mount is made again.
SPOILT = ("ESTALE", "ENOTDIR", "ELOOP", "EACCES")
MNT_DETACH = 2
#: How many inputs one process has.
INPUTS = 300
#: Where in the server's memory its own chunks are.
OWN = 2 << 20
#: The last octets of the header types of Replies in Version Two.
REPLIES = (two.REPLY_EXTERNAL, two.REPLY_MIDDLE, two.REPLY_INLINE)


class Quiet:
    """Without the judgements of the hostile server, and their waits."""

    def inspect(self, data, header=None):
        """Nobody looks."""


class Two(Quiet, hostile_two.Two):
    """Version Two."""

    def handle(self, data):
        """Answers a message; who says hello is challenged."""
        connection = self.connection
        if nonce := nonce_in(data, HELLO):
            connection.nonce = nonce
            self.received += 1
            material = item(token(CHALLENGE, SERVER_NONCE + SERVER_PROOF))
            connection.send_message(two.properties(self.credit(), [(two.HOST_AUTH, material)], last=False))
        elif len(data) > 15 and data[15] in REPLIES:
            # Nobody waits for it.
            self.received += 1
        else:
            super().handle(data)

    def call(self, header, rpc):
        """Notes what a Call offers."""
        chunks = [header.chunk, [r[1:] for r in header.reads], *header.writes, header.reply or []]
        self.connection.offered = (header.xid, sum(chunks, []))
        super().call(header, rpc)


class Earlier(hostile_2016.Earlier):
    """The protocol of 2016."""

    def check_first(self, data):
        """Nobody looks."""


class Connection(Quiet, hostile_server.Connection):
    """A connection whose messages are spoilt."""

    def __init__(self, server, event):
        super().__init__(server, event)
        self.patience = 1
        #: Transaction ID and segments of the newest Call.
        self.offered = (0, [])
        #: Messages that come later, and those of the client that may have no answer yet.
        self.kept, self.unanswered = [], []
        #: The nonce of a client that authenticates itself, and how many messages have come.
        self.nonce, self.number = None, 0

    def wrong(self, text):
        """Nobody looks."""

    def handle(self, data):
        """Answers a message, in whatever protocol."""
        self.server.nfs.heard(data)
        if not self.server.is_correct:
            self.unanswered = [*self.unanswered[-8:], data]
        if self.server.is_2016 and not self.earlier:
            self.earlier = Earlier(self)
        super().handle(data)

    def answer_again(self):
        """Answers what was answered wrongly, or not at all."""
        unanswered, self.unanswered = self.unanswered, []
        for data in unanswered:
            self.handle(data)

    def answer_call(self, call):
        """Notes what a Call offers; a Reply is nothing to answer."""
        if call.rpc[4:8] == bytes([0, 0, 0, 1]):
            return
        self.offered = (call.xid, sum([[r[1:] for r in call.reads], *call.writes, call.reply or []], []))
        super().answer_call(call)

    def fill(self, segments, data):
        """Writes some of a payload."""
        how = "whole" if self.server.is_correct else self.server.what["fill"]
        if how == "none":
            return list(segments), True
        return super().fill(segments, data[:len(data) // 2] if how == "half" else data)

    def word(self, kind, number):
        """What stands for a name."""
        number_of_call, segments = self.offered
        if kind == b"XI":
            return number_of_call if number == 0 else 0x77000000 + number
        if number >= OURS or not segments:
            return self.memory.arena.rkey
        return segments[number % len(segments)][0]

    def place(self, number):
        """What stands for a place in memory."""
        which, at = number >> 24, number & 0xFFFFF
        segments = self.offered[1]
        if which >= OURS or not segments:
            return self.memory.arena.buf + OWN + at
        return segments[which % len(segments)][2] + at

    def send_raw(self, data):
        """Sends a message, as it is."""
        self.outgoing(data, None)

    def send_message(self, data, invalidate=None):
        """Sends a message of the version that is spoken."""
        self.outgoing(turned(data) if self.earlier else data, invalidate)

    def outgoing(self, data, invalidate):
        """Sends a message after the plan has been followed."""
        server = self.server
        number, server.sent = server.sent, server.sent + 1
        messages = [(bytes(data), invalidate)]
        if not server.is_correct:
            for of, action, *how in server.what["plan"]:
                if of == number and messages:
                    messages = getattr(self, "do_" + action)(messages, *how)
        # What was kept comes behind this, unless that is kept, too.
        if self.kept and messages:
            messages, self.kept = messages + self.kept, []
        for message, key in messages:
            message = proved(message, self.nonce, SERVER_NONCE, os.environ["OWN_ADDR"])
            QueuePair.send_message(self, server.nfs.in_session(message), key)

    def do_change(self, messages, edits):
        """Changes the message."""
        message, key = messages[-1]
        for edit in edits:
            message = edited(message, edit)
        return messages[:-1] + [(filled(message, self.word, self.place), key)]

    def do_before(self, messages, message):
        """Sends another one before."""
        return [(filled(message, self.word, self.place), None)] + messages

    def do_instead(self, messages, message):
        """Sends another one in its place."""
        return [(filled(message, self.word, self.place), messages[-1][1])]

    def do_parts(self, messages, size):
        """Sends a Reply of Version Two in parts."""
        message, key = messages[-1]
        try:
            header = two.Header(message)
        except struct.error:
            return messages
        if header.vers != 2 or header.htype != two.REPLY_INLINE:
            return messages
        out, rest, size = [], header.rpc, max(size & ~3, 4)
        while len(rest) > size and len(out) < 40:
            left = len(rest) - size
            out.append((two.middle(header.xid, header.credit, two.REPLY_MIDDLE, left, rest[:size]), None))
            rest = rest[size:]
        return messages[:-1] + out + [(two.reply(header.xid, header.credit, rest, header.writes), key)]

    def do_spoil(self, messages, which):
        """Has it invalidate a handle."""
        segments = self.offered[1]
        key = segments[which][0] if which < len(segments) else which
        return messages[:-1] + [(messages[-1][0], key)]

    def do_twice(self, messages, times):
        """Sends it more than once."""
        return messages + [messages[-1]] * min(times, 40)

    def do_keep(self, messages):
        """Sends it later."""
        self.kept += messages
        return []

    def do_silence(self, _messages):
        """Does not send it."""
        return []

    def do_pause(self, messages, milliseconds):
        """Waits before it is sent."""
        time.sleep(min(milliseconds, 200) / 1000)
        return messages

    def do_end(self, _messages):
        """Ends the connection."""
        raise Gone("as the plan wants")


def edited(message, edit):
    """A message after an edit: what is done, a place, and a value."""
    kind, at, value = edit
    if kind == "grow":
        return (message + value * at)[:LONGEST]
    at %= len(message) + 1
    if kind == "cut":
        return message[:at]
    if kind == "octets":
        return message[:at] + value + message[at + len(value):]
    at &= ~3
    if kind == "word":
        return message[:at] + struct.pack(">I", value) + message[at + 4:]
    if kind == "add":
        if at + 4 > len(message):
            return message
        (word,) = struct.unpack_from(">I", message, at)
        return message[:at] + struct.pack(">I", word + value & 0xFFFFFFFF) + message[at + 4:]
    if kind == "insert":
        return (message[:at] + value + message[at:])[:LONGEST]
    return message[:at] + message[at + value:]


class OnlyNfs3(Nfs3):
    """A server without sessions."""

    def in_session(self, message):
        """Nothing belongs to one."""
        return message

    def idle(self):
        """Nobody asks."""

    def heard(self, message):
        """Nobody was called."""


class Nfs41(Nfsd):
    """The NFS server of this guest over TCP, for a mount that can be called back."""

    def __init__(self):
        super().__init__()
        #: The last number in the sequence that the client has taken, and how often the next was used since.
        self.sequence = self.tries = 0

    def in_session(self, message):
        """A message that belongs to the client's session, if it wants to."""
        if SESSION not in message or not self.session:
            return message
        self.tries += 1
        if self.tries > TRIES:
            # It was taken, and the Reply was lost or is in a chunk.
            self.sequence, self.tries = self.sequence + 1, 1
        return message.replace(SESSION, self.session + struct.pack(">I", self.sequence + 1))

    def heard(self, message):
        """Looks for a CB_SEQUENCE that has succeeded in a message of the client's."""
        done = struct.pack(">II", CB_SEQUENCE, 0) + (self.session or SESSION)
        at = message.find(done) + len(done)
        if at >= len(done) and len(message) >= at + 4:
            self.sequence, self.tries = struct.unpack_from(">I", message, at)[0], 0


class Server(hostile_server.Server):
    """The listener, and the plan."""

    make_two = Two

    def __init__(self, port, nfs):
        self.what, self.is_correct, self.sent = NOTHING, True, 0
        hostile_server.RDMA_PORT = port
        super().__init__()
        self.nfs = nfs

    def do(self, function, patience=None):
        """Serves while a function runs; returns its result.

        After so long a silence the server is a correct one, and answers what has no answer. If that is no use
        it drops the connection.
        """
        out = []
        thread = threading.Thread(target=lambda: out.append(function()), daemon=True)
        thread.start()
        last = time.monotonic()
        until = last + PATIENCE
        while thread.is_alive():
            now = time.monotonic()
            if now > until:
                stacks = status("sh", "-c", "cat /proc/*/task/*/stack")[1]
                raise Finding(f"an operation does not end:\n{stacks}")
            if self.step() or not self.connection:
                last = now
            elif patience and now > last + patience:
                last = now
                if self.is_correct:
                    self.drop("silence")
                self.is_correct = True
                self.surely(lambda: self.connection and self.connection.answer_again())
        if not out:
            raise Finding("an operation ended with an exception")
        return out[0]

    def step(self):
        """Takes what has come; returns whether there was something."""
        self.events(0 if self.connection else 5)
        connection = self.connection
        if not connection:
            return False
        self.nfs.idle()
        was = connection.number
        self.surely(connection.poll)
        while connection.arrived and connection is self.connection:
            connection.number += 1
            self.surely(lambda: connection.handle(connection.arrived.pop(0)))
        if connection is not self.connection or connection.number > was:
            return True
        self.events(1)
        return False

    def surely(self, function):
        """Does something that may find the connection at its end, or something that was spoilt."""
        try:
            function()
        except (Gone, PyverbsError, struct.error, ValueError, IndexError) as x:
            self.drop(str(x))

    def drop(self, why):
        """Ends the current connection."""
        if self.connection:
            connection, self.connection = self.connection, None
            connection.close()


class Peer:
    """The servers and their mounts, in a process of its own."""

    def __init__(self):
        hostile_server.Connection = Connection
        self.servers = {"3": Server(RDMA_PORT, OnlyNfs3()), "4.1": Server(OTHER_PORT, Nfs41())}
        #: How much longer things take than on an idle machine.
        self.pace = 1
        #: For operations that are done at once.
        self.pool = concurrent.futures.ThreadPoolExecutor(4)
        threading.Thread(target=self.mountd, daemon=True).start()

    @staticmethod
    def mountd():
        """Serves the MOUNT protocol."""
        try:
            serve_mount(MOUNT_PORT)
        except OSError:
            traceback.print_exc()

    def mount(self, _):
        """Mounts all."""
        for vers in PATHS:
            self.mount_one(vers)
        return "mounted"

    def mount_one(self, vers):
        """Mounts with a version of NFS."""
        address, path = os.environ["OWN_ADDR"], PATHS[vers]
        options = f"addr={address},{mount_options(address, TIMEOUT)}"
        if vers == "4.1":
            options = (f"addr={address},clientaddr={address},vers=4.1,proto=rdma,port={OTHER_PORT},soft,"
                       f"timeo={TIMEOUT},retrans=1,noac")
        server = self.speak({**NOTHING, "vers": vers})
        for _ in range(10):
            # On a busy machine that may take longer than an RPC may.
            outcome = server.do(lambda: tried(lambda p: not mount_raw(f"{address}:/", p, options), path))
            # Not `ismount`, which asks the server.
            if f" {path} " in read("/proc/mounts"):
                return
        raise Finding(f"the mount with NFSv{vers} fails: {outcome}")

    def session(self, known):
        """The session of the mount that is called back: takes what another peer has `known`, and tells it."""
        nfs = self.servers["4.1"].nfs
        if known:
            nfs.session, nfs.sequence = known
            # The servers of a new peer speak Version One, and are silent where the client would not.
            self.speak(NOTHING)
        return nfs.session, nfs.sequence

    def umount(self, _):
        """Unmounts all."""
        # READDIR at its root had the real server look at the mounts there. It keeps them in its cache.
        run("exportfs", "-f")
        for vers, path in PATHS.items():
            server, error, until = self.servers[vers], 1, time.monotonic() + 10
            server.is_correct = True
            while error and time.monotonic() < until:
                error = server.do(lambda: LIBC.umount2(path.encode(), 0) and ctypes.get_errno())
            if error:
                raise Finding(f"{path} cannot be unmounted: {is_errno(error)}\n{holders(path)}")

    def speak(self, what):
        """Has both ends speak the protocol of an input."""
        server = self.servers[what["vers"]]
        server.two, server.is_2016 = what["kind"] == "two", what["kind"] == "2016"
        version, dialect = KINDS[what["kind"]]
        write(f"{PARAMETERS}/client_host_auth", what["auth"])
        # Writing it has the client forget what it knows of servers.
        write(f"{PARAMETERS}/client_dialect", dialect)
        write(f"{PARAMETERS}/client_version", version)
        return server

    def run(self, what):
        """Runs an input, and then waits until the mount works; returns what has become of the operations."""
        self.servers[what["vers"]].drop("a new input")
        server, path = self.speak(what), PATHS[what["vers"]]
        if what["begun"]:
            server.is_correct = True
            server.do(lambda: tried(getattr_, path))
        server.what, server.is_correct, server.sent = what, False, 0
        for at, data in what["put"] if server.memory else ():
            data = server.nfs.in_session(data)
            server.memory.arena.write(data, len(data), OWN + at % (1 << 20))
        works = [WORK[name] for name in what["operations"]]

        def done():
            if what["at once"]:
                return list(self.pool.map(lambda work: tried(work, path), works))
            return [tried(work, path) for work in works]

        outcomes = server.do(done, SILENCE * self.pace)
        if any(action[1] in ("before", "instead") for action in what["plan"]):
            # The client may have something to do with what came beside the Replies.
            server.do(lambda: time.sleep(0.01 * self.pace))
        server.is_correct = True
        if what["auth"] != "off":
            self.speak({**what, "auth": "off"})
        began, is_new = time.monotonic(), False
        while (again := server.do(lambda: tried(getattr_, path))) not in ("ok", "short"):
            if again in SPOILT and not is_new:
                server.do(lambda: LIBC.umount2(path.encode(), MNT_DETACH))
                self.mount_one(what["vers"])
                is_new = True
            elif time.monotonic() > began + PATIENCE:
                raise Finding(f"the mount with NFSv{what['vers']} does not recover: {again}")
            # It may wait for credits, which it does for a minute.
            server.drop("nothing goes on")
        return "ok" if set(outcomes) <= {"ok", "short"} else "failed"

    def check(self, _):
        """A file is read, and it is the right one."""
        server, path = self.servers["3"], PATHS["3"]
        for _ in range(3):
            out = server.do(lambda: tried(WORK["READ"], path))
            if out == "ok":
                began = time.monotonic()
                server.do(lambda: tried(getattr_, path))
                self.pace = min(5, max(1, 0.7 * self.pace + 0.3 * (time.monotonic() - began) / USUAL))
                return "well"
        raise Finding(f"a READ with a correct server: {out}")


def holders(path):
    """What may keep a mount busy: mounts below it, who has a file or a directory of it, the server's caches."""
    script = (f"grep {path} /proc/mounts /proc/net/rpc/*/content; "
              f"ls -l /proc/*/task/*/cwd /proc/*/task/*/root /proc/*/fd/* | grep {path}")
    return status("sh", "-c", script)[1]


def tried(work, path):
    """Does one operation; returns what happened."""
    try:
        return attempt(work, path)[0]
    except (Failure, OSError) as x:
        # A spoilt Reply may have other contents: nothing shows that.
        return f"{type(x).__name__}: {x}"


class Target:
    """The client in this guest, as `fuzz.Search` sees it."""

    seeds, change = staticmethod(seeds), staticmethod(changed_input)

    def __init__(self, worker):
        #: What makes a process with a `Peer`.
        self.worker, self.process = worker, worker()

    def ask(self, name, value=None):
        """Has the peer do something, a fresh one now and then."""
        if self.process.count >= INPUTS:
            self.renew()
        return self.process.ask(name, value, 3 * PATIENCE)

    def renew(self):
        """Another peer: the mounts come back to it."""
        known = self.process.ask("session")
        self.process.end()
        self.process = self.worker()
        self.process.ask("session", known)
        self.process.ask("check", None, 3 * PATIENCE)

    def run(self, what):
        """Runs an input."""
        return self.ask("run", what)

    def check(self):
        """Everything has to be well."""
        self.ask("check")
