# SPDX-License-Identifier: GPL-2.0
"""A client in user space that sends our server what a search has made, see `fuzz`.

An input is how the connection is made, and steps:

  send     a message, with names in it (`fuzz_octets`); the next one does not wait for it
  spoil    a message that comes as one that invalidates a handle
  put      octets into the memory that chunks are in: where, and which
  hear     waits for so many messages of the server
  pause    waits so many milliseconds
  recall   has nfsd call back
  touch    an RDMA Write and an RDMA Read of the server's memory
"""

import os
import struct
import time

import pyverbs.enums as e
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.wr import SGE, SendWR

import hostile_calls_2016
import hostile_calls_callback
import hostile_calls_two_callback
import rpcrdma2_header as two
import vectors
from common import Failure, Gone, log, run, status, write
from fuzz import Finding
from fuzz_octets import (CLIENT_NONCE, CLIENT_PROOF, KEY, changed, filled, in_words, nonce_in, proved,
                         random_word, segment, xid)
from host_auth_caller import CHALLENGE, HELLO, RESPONSE, item, token
from hostile_2016_caller import EarlierConnection
from hostile_attack import FILE
from hostile_caller import CHUNKS, Connection, PRIVATE, Refused, XIDS
from hostile_qp import DEPTH, QueuePair, SENDS
from hostile_two_caller import TwoConnection
from nfs41_session import Session
from nfs3_mini import opaque
from nfs_server import EXPORT
from rpc_message import (ANONYMOUS, WRITE, compound, getattr_, getfh, null_rpc, operation, read as read_data,
                         rpc_call, symlink3, to_file, write as write_data)
from rpcrdma2016_header import turned
from rpcrdma2016_words import TELL, octets
from rpcrdma_header import DONE, ERROR, MSG, MSGP, NOMSG, encode

#: Transaction IDs of an input, from its first one on; above these are those of the server's own Calls.
THEIRS = 0xF000
#: How many connections one process makes.
CONNECTIONS = 150
#: Addresses that connections come from: a host that offends too often has to wait.
HOSTS = [f"10.99.0.{n}" for n in range(20, 250)]
PARAMETERS = "/sys/module/rpcrdma/parameters"
SERVER = "/sys/kernel/debug/rpcrdma/server"
#: How long an input may take at the most, and how long nothing has to come for it to be over, in seconds.
LONGEST, QUIET = 0.4, 0.006
#: How long a NULL Call takes on an idle machine.
USUAL = 0.003
#: A well-behaved client has its answer within so many seconds.
PATIENCE = 20
#: A Reply without results, to a Call with a name.
ACCEPTED = struct.pack(">IIIIII", xid(THEIRS), 1, 0, 0, 0, 0)
SCRATCH = FILE[0], "hostile-scratch"


class Peer:
    """What makes connections, in a process of its own."""

    def __init__(self):
        self.number = os.getpid() << 8
        #: Calls of the server's that an input has got, as transaction IDs.
        self.called = []
        self.host = 0
        #: How much longer things take than on an idle machine.
        self.pace = 1
        #: The memory of all connections, which takes longer to register than all the rest.
        self.memory = None

    def connect(self, how):
        """The connection that an input wants."""
        self.host += 1
        self.address = HOSTS[(os.getpid() + self.host * 7) % len(HOSTS)]
        write(f"{PARAMETERS}/server_host_auth", how["auth"])
        kind = how["session"]
        # Without Receives nobody has a session.
        options = {"private": how["private"][:56], "receives": DEPTH if kind else min(how["receives"], DEPTH),
                   "memory": self.memory, "source": self.address}
        if not kind:
            return Connection(**options)
        connection = {"one": Connection, "two": TwoConnection, "2016": EarlierConnection}[kind](**options)
        try:
            if kind == "two":
                connection.open([(two.REVERSE, 1)])
            elif kind == "2016":
                connection.open(hostile_calls_2016.told_level(1))
            session = Session(connection, XIDS)
            until = time.monotonic() + 1
            # nfsd looks after a new backchannel in its own time.
            while not session.open(FILE[:-1], FILE[-1]) and time.monotonic() < until:
                time.sleep(0.01)
        except (Failure, Gone, struct.error):
            # It goes on without.
            pass
        return connection

    def word(self, kind, number):
        """What stands for a name."""
        if kind == b"HD":
            return self.connection.arena.rkey
        if number >= THEIRS and self.called:
            return self.called[(number - THEIRS) % len(self.called)]
        return self.number + number

    def place(self, number):
        """What stands for a place in memory."""
        return self.connection.arena.buf + CHUNKS + (number & 0xFFFFF)

    def run(self, what):
        """Runs an input; returns what has become of it."""
        self.number += 1 << 16
        self.called, self.nonce = [], None
        try:
            self.connection = self.connect(what["how"])
            self.memory = self.connection.memory
        except (Refused, PyverbsError) as x:
            return f"no connection: {type(x).__name__}"
        connection = self.connection
        self.posted = self.heard = 0
        self.end = time.monotonic() + LONGEST * self.pace
        try:
            for kind, *value in what["steps"]:
                getattr(self, "do_" + kind)(*value)
            self.listen(1 << 20, QUIET)
            outcome = "lost" if connection.given_up() else "alive"
        except (Gone, PyverbsError):
            outcome = "lost"
        connection.close()
        return outcome

    def listen(self, count, quiet):
        """Takes what comes, until there are so many messages or nothing comes for a while."""
        connection, last = self.connection, time.monotonic()
        while (now := time.monotonic()) < min(self.end, last + quiet * self.pace):
            if QueuePair.poll(connection):
                last = now
            count -= self.heed()
            if count <= 0 or connection.given_up():
                return
            time.sleep(0.0003)

    def heed(self):
        """Looks at what has come; returns how many messages it was."""
        arrived, self.connection.arrived = self.connection.arrived, []
        for message in arrived:
            self.nonce = nonce_in(message, CHALLENGE) or self.nonce
            number = int.from_bytes(message[:4], "big")
            is_ours = number - self.number & 0xFFFFFFFF < 1 << 16
            if number and not is_ours and number not in self.called:
                self.called.append(number)
        return len(arrived)

    def do_send(self, message, invalidate=None):
        """Sends a message."""
        connection = self.connection
        if self.posted - len(connection.done) > SENDS - 8:
            self.listen(1 << 20, QUIET)
        message = proved(filled(message, self.word, self.place), CLIENT_NONCE, self.nonce, self.address)
        wr = QueuePair.send_request(connection, message, invalidate, self.posted % 120 * 8192)
        connection.qp.post_send(wr)
        self.posted += 1

    def do_spoil(self, message, handle):
        """Sends a message with an invalidation."""
        self.do_send(message, handle)

    def do_put(self, at, data):
        """Fills memory."""
        data = filled(data, self.word, self.place)
        self.connection.arena.write(data, len(data), CHUNKS + at % (1 << 19))

    def do_hear(self, count):
        """Waits for messages."""
        self.listen(count, 0.03)

    def do_pause(self, milliseconds):
        """Waits."""
        time.sleep(min(milliseconds, 100) / 1000)

    def do_recall(self):
        """The kernel wants memory back, and with it nfsd the delegations that were granted."""
        write("/proc/sys/vm/drop_caches", "2")

    def do_touch(self, handle, at):
        """Reads and writes memory that is not ours."""
        connection = self.connection
        for opcode in (e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ):
            wr = SendWR(wr_id=connection.new_id(), opcode=opcode, num_sge=1, send_flags=e.IBV_SEND_SIGNALED,
                        sg=[SGE(connection.arena.buf, 8, connection.arena.lkey)])
            wr.set_wr_rdma(handle, at)
            connection.qp.post_send(wr)
            self.posted += 1

    def check(self, _):
        """A well-behaved client gets an answer."""
        write(f"{PARAMETERS}/server_host_auth", "off")
        began = time.monotonic()
        try:
            connection = Connection(memory=self.memory)
            self.memory = connection.memory
            asked = time.monotonic()
            is_well = connection.null(PATIENCE)
            self.pace = min(5, max(1, 0.7 * self.pace + 0.3 * (time.monotonic() - asked) / USUAL))
            connection.close()
        except (Gone, Refused, PyverbsError) as x:
            raise Finding(f"a well-behaved client: {type(x).__name__}: {x}") from x
        if not is_well:
            raise Finding(f"a well-behaved client has no answer after {time.monotonic() - began:.0f} s")
        return "well"

    def file_handle(self, names):
        """The file handle of a file."""
        connection, number = Connection(), next(XIDS)
        answer = connection.request(number, compound(number, *to_file(*names), getfh()))
        connection.close()
        stat, results = answer.accepted()
        if stat or results[:4] != bytes(4):
            raise Failure(f"no file handle: {results[:8].hex()}")
        # The handle is the last of the results.
        return next(results[at + 4:] for at in range(len(results) - 4, 0, -4)
                    if struct.unpack_from(">I", results, at)[0] == len(results) - at - 4)


class Target:
    """The server in this guest, as `fuzz.Search` sees it."""

    def __init__(self, worker):
        #: What makes a process with a `Peer`.
        self.worker, self.process = worker, worker()
        #: Connections that there are without an input.
        self.others = len(os.listdir(SERVER))
        self.calls_back = 0

    def ask(self, name, value=None):
        """Has a peer do something, a fresh one now and then."""
        if self.process.count >= CONNECTIONS:
            self.renew()
        return self.process.ask(name, value)

    def renew(self):
        """Another peer."""
        self.process.end()
        self.process = self.worker()
        self.process.ask("check")

    def run(self, what):
        """Runs an input, until the server has left it behind."""
        out = self.ask("run", what)
        until = time.monotonic() + 0.25
        while len(os.listdir(SERVER)) > self.others and time.monotonic() < until:
            time.sleep(0.0005)
        if what["how"]["session"]:
            self.calls_back += 1
            if self.calls_back % 32 == 0:
                self.expire()
        return out

    @staticmethod
    def expire():
        """Has nfsd forget its clients, which it would keep for long."""
        for name in os.listdir("/proc/fs/nfsd/clients"):
            try:
                write(f"/proc/fs/nfsd/clients/{name}/ctl", "expire\n")
            except OSError:
                # It is about to go.
                pass

    def check(self):
        """Everything has to be well."""
        self.ask("check")

    def end(self):
        """Ends the peer, and all of its connections."""
        self.process.end()
        self.expire()

    # ---- Inputs ------------------------------------------------------------

    def seeds(self):
        """What the search begins with."""
        return seeds(self.ask("file_handle", FILE[:1]), self.ask("file_handle", SCRATCH))

    @staticmethod
    def change(random, what, corpus):
        """Another input made of one, and of others."""
        how, steps = dict(what["how"]), [list(step) for step in what["steps"]]
        other = random.choice(corpus)
        messages = [step[1] for step in other["steps"] if step[0] == "send"]
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            change_steps(random, how, steps, other, messages)
        return {"how": how, "steps": steps[:60]}


def change_steps(random, how, steps, other, messages):
    """One change of an input."""
    sends = [i for i, step in enumerate(steps) if step[0] in ("send", "spoil", "put")]
    kind = random.random()
    if kind < 0.62 and sends:
        step = steps[random.choice(sends)]
        at = 2 if step[0] == "put" else 1
        step[at] = changed(random, step[at], messages)
    elif kind < 0.68 and steps:
        at = random.randrange(len(steps))
        steps[at:at] = [list(steps[at]) for _ in range(random.choice((1, 1, 2, 3, 8, 30)))]
    elif kind < 0.73 and steps:
        del steps[random.randrange(len(steps))]
    elif kind < 0.77 and len(steps) > 1:
        a, b = random.randrange(len(steps)), random.randrange(len(steps))
        steps[a], steps[b] = steps[b], steps[a]
    elif kind < 0.88:
        first = random.randrange(len(other["steps"]) + 1)
        some = other["steps"][first:first + random.choice((1, 1, 2, 4, 60))]
        at = random.choice((len(steps), random.randrange(len(steps) + 1)))
        steps[at:at] = [list(step) for step in some]
    elif kind < 0.92:
        steps.insert(random.randrange(len(steps) + 1), random.choice((
            ["hear", 1], ["hear", random.choice((1, 2, 5, 20))], ["pause", random.choice((1, 5, 20, 60))])))
    elif kind < 0.94 and sends:
        i = random.choice(sends)
        if steps[i][0] == "send":
            steps[i] = ["spoil", steps[i][1], random_word(random)]
    elif kind < 0.95:
        steps.insert(random.randrange(len(steps) + 1), ["touch", random_word(random), random_word(random)])
    elif kind < 0.96:
        how["auth"] = random.choice(("off", "offer", "require"))
    elif kind < 0.975:
        how["private"] = changed(random, how["private"], [PRIVATE])[:56]
    else:
        how["receives"] = random.choice((0, 1, 2, 3, DEPTH, DEPTH, DEPTH))


def one(*steps, session="", private=PRIVATE, receives=DEPTH, auth="off"):
    """An input."""
    return {"how": {"session": session, "private": private, "receives": receives, "auth": auth},
            "steps": [list(step) for step in steps]}


def talk(messages, **how):
    """An input that waits for an answer to each message."""
    steps = []
    for message in messages:
        steps += [("send", message), ("hear", 1)]
    return one(*steps, **how)


def rpcs(directory, scratch):
    """RPC messages, with positions and data of Read chunks, lengths of Write chunks, and a Reply chunk."""
    def readdir(count):
        return operation(26, struct.pack(">QQII", 0, 0, count, count) + struct.pack(">II", 1, 2))

    data = bytes(range(256)) * 8
    write = write_data(0, len(data))
    nowhere = write_data(0, 0)
    path = b"a/path/of/some/length"
    link = symlink3(xid(), directory, b"no", path)
    call = compound(xid(), *to_file(*SCRATCH), write)
    read_long = compound(xid(), *to_file(*FILE), read_data(0, 7001))
    write_few = operation(WRITE, ANONYMOUS + struct.pack(">QI", 0, 2) + opaque(data[:77]))
    write3 = rpc_call(xid(), 3, 7, opaque(scratch) + struct.pack(">QIII", 0, 1024, 2, 1024))
    return [
        (null_rpc(xid()), [], [], None),
        (null_rpc(xid()), [], [[64], [64, 64]], [128]),
        (compound(xid(), *to_file(*FILE), read_data(0, 100)), [], [], None),
        (compound(xid(), *to_file(*FILE), read_data(0, 2000)), [], [], [4096]),
        (read_long, [], [[8192]], None),
        (read_long, [], [[1000, 7, 8192]], [512]),
        (read_long, [], [[100]], None),
        (read_long, [], [], [1000, 9000]),
        (read_long, [], [], None),
        (compound(xid(), *to_file(*FILE), read_data(0, 100_000)), [], [[65536, 65536]], None),
        (compound(xid(), *to_file(*FILE), read_data(1 << 30, 50)), [], [[4096]], [4096]),
        (compound(xid(), *to_file(*FILE), read_data(0, 3000), read_data(5000, 3001)), [], [[3000], [4096]],
         None),
        (compound(xid(), *to_file(*FILE[:1]), readdir(8192)), [], [], [9000]),
        (compound(xid(), *to_file(*FILE[:1]), readdir(4000)), [], [], [40]),
        (call, [(len(call), data)], [], None),
        (call, [(len(call), data[:1000]), (len(call), data[1000:])], [], None),
        (call, [(len(call), data[:1000])], [], None),
        (call + data[:1024], [], [], None),
        (compound(xid(), *to_file(*SCRATCH), nowhere), [], [], None),
        (compound(xid(), *to_file(*SCRATCH), write_few, getattr_()), [], [], [600]),
        (write3, [(len(write3), data[:1024])], [], None),
        (link, [(len(link), path)], [], None),
        (rpc_call(xid(), 3, 6, opaque(scratch) + struct.pack(">QI", 0, 900)), [], [[1024]], None),
        (rpc_call(xid(), 3, 16, opaque(directory) + struct.pack(">QQI", 0, 0, 4096)), [], [], [5000]),
        (rpc_call(xid(), 9, 9), [], [], None),
        (null_rpc(xid())[:20], [], [], None),
        (b"", [], [], None),
    ]


def chunked(reads, writes, reply):
    """The steps that fill memory, and chunk lists for it."""
    steps, read_list, at = [], [], 0
    for position, data in reads:
        steps.append(("put", at, data))
        read_list.append((position, *segment(len(data), at=at)))
        at += 65536
    def segments(chunk, at):
        return [segment(length, at=at + 65536 * i) for i, length in enumerate(chunk)]

    write_list = [segments(chunk, 0x40000) for chunk in writes]
    return steps, read_list, write_list, reply and segments(reply, 0x80000)


def version_one(rpc, reads, writes, reply):
    """Inputs that make a Call in Version One, and in the protocol of 2016."""
    steps, reads, writes, reply = chunked(reads, writes, reply)
    message = encode(xid(), reads=reads, writes=writes, reply=reply) + rpc
    yield one(*steps, ("send", message), ("hear", 1))
    yield one(*steps, *2 * (("send", octets(TELL, xid(1))), ("hear", 1)),
              ("send", turned(message, 0)), ("hear", 1))
    # The whole Call is in a chunk.
    whole = [(0, *segment(len(rpc), at=0xC0000))]
    message = encode(xid(), NOMSG, reads=whole + reads, writes=writes, reply=reply)
    yield one(*steps, ("put", 0xC0000 % (1 << 19), rpc), ("send", message), ("hear", 1))


def version_two(rpc, reads, writes, reply):
    """Inputs that make a Call in Version Two: in one message, in parts, in a chunk."""
    steps, reads, writes, reply = chunked(reads, writes, reply)
    begin = (("send", two.properties(400)), ("hear", 2))
    lists = {"reads": reads, "writes": writes, "reply": reply, "inv": segment(0)[0] if reads or writes else 0}
    yield one(*steps, *begin, ("send", two.call(xid(), 400, rpc, **lists)), ("hear", 1))
    half = len(rpc) // 8 * 4
    if half:
        part = two.middle(xid(), 400, two.CALL_MIDDLE, len(rpc) - half, rpc[:half])
        last = two.call(xid(), 400, rpc[half:], **lists)
        yield one(*steps, *begin, ("send", part), ("send", last), ("hear", 1))
    yield one(*steps, *begin, ("put", 0x70000, rpc),
              ("send", two.call_external(xid(), 400, [segment(len(rpc), at=0x70000)], **lists)), ("hear", 1))


def callbacks():
    """Inputs that answer the server's Calls: well, and wrongly."""
    def answering(kind, messages):
        sends = [("send", message) for message in messages]
        return one(("recall",), ("hear", 1), *sends, ("hear", 1), session=kind)

    yield answering("one", [encode(xid(THEIRS)) + ACCEPTED])
    yield answering("two", [two.reply(xid(THEIRS), 400, ACCEPTED)])
    yield answering("2016", [octets("X 2 20 0 1 0 0 0", xid(THEIRS)) + ACCEPTED])
    for messages in hostile_calls_callback.wrong_answers(xid(THEIRS)).values():
        yield answering("one", messages)
    for messages in hostile_calls_two_callback.wrong_answers(xid(THEIRS), 400).values():
        yield answering("two", messages)
    for texts in hostile_calls_2016.WRONG_ANSWERS.values():
        yield answering("2016", [octets(text, xid(THEIRS)) for text in texts])


def authentications():
    """Inputs that authenticate the client: well, in pieces, and not at all."""
    def told(material, last=False):
        return two.properties(400, [(two.HOST_AUTH, item(material))], last=last)

    hello, response = token(HELLO, CLIENT_NONCE), token(RESPONSE, CLIENT_PROOF)
    call = two.call(xid(), 400, null_rpc(xid()))
    for auth in ("offer", "require"):
        yield talk([told(hello), told(response, True), call], auth=auth)
        yield talk([told(hello[:16]), told(hello[16:]), told(response[:20]), told(response[20:], True), call],
                   auth=auth)
        yield talk([told(hello), told(token(RESPONSE, bytes(32)), True), call], auth=auth)
        yield talk([told(hello, True), call], auth=auth)
        yield talk([told(token(9, b"what"), True), call], auth=auth)
        yield talk([two.properties(400), call], auth=auth)
        yield talk([encode(xid()) + null_rpc(xid())], auth=auth)


def seeds(directory, scratch):
    """What the search begins with: one of each kind, correct or not."""
    out = []
    for rpc in rpcs(directory, scratch):
        out += [*version_one(*rpc), *version_two(*rpc)]
    null = null_rpc(xid())
    out += [talk([encode(xid(), proc, vers) + null])
            for proc in (MSG, NOMSG, MSGP, DONE, ERROR, 5) for vers in (0, 1, 3)]
    out += [talk([struct.pack(">IIII", xid(), 1, 32, ERROR) + struct.pack(f">{len(words)}I", *words)])
            for words in ((), (1, 1, 2), (2,), (3,))]
    out += [one(*[("send", encode(xid(n)) + null_rpc(xid(n))) for n in range(count)], ("hear", count))
            for count in (2, 16, 60)]
    magic = PRIVATE[:4]
    out += [talk([encode(xid()) + null], private=private)
            for private in (b"", magic, magic + b"\1\1\0\0", magic + b"\2\1\xFF\xFF", bytes(56))]
    out += [talk([encode(xid()) + null], receives=0), one()]
    begin = [two.properties(400)]
    for name, (header, body) in vectors.vectors("tests/vectors/version-two.txt").items():
        message = header + body
        if "connprop" in name or "property" in name:
            out.append(talk([message, *begin, two.call(xid(), 400, null)]))
        out.append(talk([*begin, message, two.call(xid(), 400, null)]))
    for header, body in vectors.vectors("tests/vectors/version-2016.txt").values():
        out += [talk([header + body]), talk([octets(TELL, xid(1)), header + body])]
    for message in in_words("tests/lib/hostile_calls_2016.py"):
        out += [talk([message]), talk([octets(TELL, xid(1)), message])]
    return out + list(authentications()) + list(callbacks())


def addresses():
    """Gives this guest the addresses that connections come from."""
    for host in HOSTS:
        run("ip", "addr", "add", f"{host}/24", "dev", os.environ["NETDEV"])


def files():
    """Makes the files that inputs use, and the key."""
    write(f"{PARAMETERS}/host_auth_key", KEY.hex())
    with open(f"{EXPORT}/{FILE[-1]}", "wb") as f:
        f.write(bytes(range(256)) * 4096)
    with open(f"{EXPORT}/{SCRATCH[-1]}", "wb") as f:
        os.fchmod(f.fileno(), 0o666)
    for n in range(60):
        with open(f"{EXPORT}/a-name-of-some-length-{n}", "wb"):
            pass
    log(status("ls", EXPORT)[1].splitlines()[-1])
