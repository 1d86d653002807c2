# SPDX-License-Identifier: GPL-2.0
"""A search for inputs that reach new places of our module, and for those that it does not survive.

What an input is the *target* knows: it runs one, and makes another one of it. Here it is anything that JSON
can tell, with octets as hexadecimal text.
"""

import collections
import json
import os
import pickle
import random
import select
import signal
import struct
import sys
import time
import traceback

import cover
from common import Failure, LAST, check, log, read, write

sys.path.insert(0, "tools/guest.d")
import reports  # noqa: E402 - it is not beside the other libraries

#: Inputs that are kept to be told if something goes wrong, and the room that each has in the file for that.
RECENT, ROOM = 24, 16384
#: So many changes are made of an input that has reached a new place.
FAVOURED = 24
#: An input that takes more than so many seconds takes long.
LONG = 0.3
#: A hit that was not repeated so often is noise.
DOUBTED = 3
#: After how many inputs it is seen whether everything is well.
CHECKED = 20
#: After how many seconds a line tells how far it is.
TOLD = 15


class Finding(Exception):
    """The module did what it must not do, whatever its peer sends."""


def shown(value):
    """An input for JSON."""
    if isinstance(value, bytes):
        return "hex:" + value.hex()
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return value


def hidden(value):
    """An input from JSON."""
    if isinstance(value, str) and value.startswith("hex:"):
        return bytes.fromhex(value[4:])
    if isinstance(value, dict):
        return {key: hidden(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hidden(item) for item in value]
    return value


class Worker:
    """A process that has a peer, and can be replaced: what verbs leave behind goes with it."""

    def __init__(self, make):
        ours, theirs = os.pipe(), os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ours[1])
            os.close(theirs[0])
            self.serve(make, ours[0], theirs[1])
        os.close(ours[0])
        os.close(theirs[1])
        self.requests, self.answers = ours[1], theirs[0]
        #: How many requests it has had.
        self.count = 0

    @staticmethod
    def serve(make, requests, answers):
        """What the process does: each request is the name of a method, and what it is given."""
        try:
            peer = make()
            while True:
                head = os.read(requests, 4)
                if not head:
                    break
                name, value = pickle.loads(Worker.exactly(requests, struct.unpack(">I", head)[0]))
                try:
                    out = getattr(peer, name)(value)
                except Finding as x:
                    out = x
                data = pickle.dumps(out)
                data = struct.pack(">I", len(data)) + data
                while data:
                    data = data[os.write(answers, data):]
        except BaseException:  # noqa: BLE001 - the process must end here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(0)

    @staticmethod
    def exactly(fd, length):
        """So many octets; fewer if there is nobody who writes them."""
        out = b""
        while len(out) < length and (part := os.read(fd, length - len(out))):
            out += part
        return out

    def ask(self, name, value=None, limit=60):
        """Has something done, and returns what comes of it."""
        self.count += 1
        data = pickle.dumps((name, value))
        os.write(self.requests, struct.pack(">I", len(data)))
        while data:
            data = data[os.write(self.requests, data):]
        if not select.select([self.answers], [], [], limit)[0]:
            # What each task does goes to the console. Whether it runs, and where, shows in the difference;
            # the CPUs come last, since a CPU that does not answer may hold up who asks.
            for _ in range(2):
                print(read(f"/proc/{self.pid}/stat"), read(f"/proc/{self.pid}/stack"), read("/proc/stat"), flush=True)
                time.sleep(5)
            for key in "wtl":
                write("/proc/sysrq-trigger", key)
            raise Finding(f"{name} is not done after {limit} s")
        head = self.exactly(self.answers, 4)
        # It has said why.
        check(len(head) == 4, "the peer has ended")
        out = pickle.loads(self.exactly(self.answers, struct.unpack(">I", head)[0]))
        if isinstance(out, Finding):
            raise out
        return out

    def end(self):
        """Ends the process."""
        os.close(self.requests)
        if not select.select([self.answers], [], [], 5)[0]:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.answers)
        os.waitpid(self.pid, 0)


class Console:
    """What the kernel says."""

    def __init__(self):
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.fd, 0, os.SEEK_END)

    def reports(self):
        """The reports that have come since the last time."""
        lines = []
        while True:
            try:
                record = os.read(self.fd, 8192)
            except BlockingIOError:
                return [lines[i] for i in reports.find(lines, (), os.environ["MODULE"])]
            except BrokenPipeError:
                # Some were overwritten.
                continue
            lines += record.decode(errors="replace").partition(";")[2].splitlines()[:1]


class Search:
    """The corpus, and how it grows.

    An input is kept if it reaches a place, or reaches one in another class of times, where no other has.
    Timers and other traffic do so too now and then: so it is repeated, and has to do it again.
    """

    def __init__(self, target, seconds):
        self.target, self.seconds = target, seconds
        self.seed = int(os.environ.get("FUZZ_SEED") or random.SystemRandom().getrandbits(32))
        self.random = random.Random(self.seed)
        self.counters, self.console = cover.Counters(), Console()
        #: All hits so far, those that are worth nothing any more, and how often others did not come again.
        self.hits, self.settled, self.doubtful = set(), set(), collections.Counter()
        #: The inputs that were kept, the number of hits that each was first to have, and how long each took.
        self.corpus, self.first, self.took = [], [], []
        #: Inputs to be changed first, and those that ran last.
        self.favoured = []
        self.recent = collections.deque(maxlen=RECENT)
        self.runs = self.noise = 0
        self.outcomes = collections.Counter()
        #: When it began, and when it last told how far it is.
        self.began = self.told = time.monotonic()
        self.file = os.open(os.environ["RESULTS"], os.O_RDWR | os.O_CREAT)

    def places(self):
        """The places that were reached."""
        return {hit >> 3 for hit in self.hits}

    def note(self, what):
        """Writes an input where it can be read if the guest ends with it."""
        text = json.dumps(shown(what)).encode()[:ROOM - 1]
        os.pwrite(self.file, text.ljust(ROOM - 1) + b"\n", self.runs % RECENT * ROOM)

    def run(self, what):
        """Runs an input; returns its hits."""
        self.recent.append(what)
        self.note(what)
        self.counters.clear()
        self.outcomes[self.target.run(what)] += 1
        hits = self.counters.hits()
        self.hits |= hits
        self.runs += 1
        LAST[0] = time.monotonic()
        if found := self.console.reports():
            raise Finding("; ".join(found))
        if self.runs % CHECKED == 0:
            self.target.check()
        return hits

    def try_one(self, what):
        """Runs an input, and keeps it if it is worth that."""
        if time.monotonic() > self.told + TOLD:
            self.tell()
        hits = self.run(what)
        new = hits - self.settled
        if not new:
            return
        began = time.monotonic()
        again = self.run(what)
        self.doubtful.update(new - again)
        self.settled.update(hit for hit in new - again if self.doubtful[hit] >= DOUBTED)
        new &= again
        if not new:
            self.noise += 1
            return
        took = time.monotonic() - began
        if {hit >> 3 for hit in new} - {hit >> 3 for hit in self.settled}:
            # What is behind a new place is reached by changes of this input, if at all.
            self.favoured += [what] * max(2, int(FAVOURED * min(1, LONG / took)))
        self.settled |= new
        self.corpus.append(what)
        self.first.append(len(new))
        self.took.append(took)

    def choose(self):
        """An input to be changed: one that was found lately, or was first in many places, or any.

        One that takes long is chosen less often.
        """
        if self.favoured and self.random.random() < 0.5:
            return self.favoured.pop()
        while True:
            how, count = self.random.random(), len(self.corpus)
            if how < 0.3:
                at = count - 1 - self.random.randrange(min(count, 40))
            elif how < 0.6:
                at = self.random.choices(range(count), self.first)[0]
            else:
                at = self.random.randrange(count)
            if self.random.random() < LONG / self.took[at]:
                return self.corpus[at]

    def go(self):
        """Searches until the time is over."""
        log(f"FUZZ_SEED={self.seed}")
        self.began = self.told = time.monotonic()
        path = os.environ.get("CORPUS")
        for what in replayed(path) if path else self.target.seeds():
            self.try_one(what)
        seeds = len(self.places())
        del self.favoured[:-10 * FAVOURED]
        log(f"{seeds} places by {self.runs} runs to begin with")
        while time.monotonic() < self.began + self.seconds:
            self.try_one(self.target.change(self.random, self.choose(), self.corpus))
        self.tell()
        more = len(self.places()) - seeds
        log(f"{seeds} places were reached by what the search began with, {more} more by the search")

    def tell(self):
        """Says how far it is."""
        self.told = time.monotonic()
        took = self.told - self.began
        outcomes = ", ".join(f"{n} {what}" for what, n in self.outcomes.most_common(8))
        log(f"{self.runs} runs, {self.runs / took:.0f} a second; {len(self.places())} places, "
            f"{len(self.corpus)} inputs kept, {self.noise} not repeated; {outcomes}")

    def keep(self, lines, inputs):
        """Writes lines and inputs to the file of results in the end."""
        os.ftruncate(self.file, 0)
        text = "\n".join([*lines, *(json.dumps(shown(what)) for what in inputs)]) + "\n"
        os.pwrite(self.file, text.encode(), 0)


def grown(before, after):
    """How many octets more are in use, but for queues that the device keeps, and what programs have."""
    more = {field: getattr(after, field) - getattr(before, field) for field in before._fields}
    log("octets more than before: " + ", ".join(f"{name} {number:,}" for name, number in more.items()))
    return more["used"] - more["queues"] - more["programs"]


def replayed(path):
    """The inputs in a file that `Search` has written."""
    with open(path, encoding="utf-8") as f:
        return [hidden(json.loads(line)) for line in f if line.startswith(("{", "["))]


def search(target, end, seconds):
    """Searches, or runs the inputs of `$REPLAY` only; fails if there is a finding."""
    state = Search(target, seconds)
    try:
        if path := os.environ.get("REPLAY"):
            for what in replayed(path):
                state.run(what)
                target.check()
            log(f"{state.runs} inputs were repeated")
        else:
            state.go()
            target.check()
    except Finding as x:
        state.keep([f"# {x}", f"# FUZZ_SEED={state.seed}, the last inputs, the newest last:"], state.recent)
        log(f"FINDING after {state.runs} runs: {x}")
        for what in list(state.recent)[-3:]:
            log(f"  {json.dumps(shown(what))}")
        raise Failure(f"{x}; the last inputs are in the file of results") from x
    return state


def report(state, end):
    """Says how many of the places at one end were reached, and where others are."""
    places = cover.Places()
    there, reached = places.of(end), state.places()
    table = places.table(there, reached)
    log("\n".join(["places that were reached:", *table]))
    missing = places.unreached(there, reached)
    state.keep(["# Places that were reached:", *(f"#   {line}" for line in table), "# Others:",
                *(f"#   {line}" for line in missing),
                "# Their offsets: " + " ".join(f"{at:x}" for at in sorted(reached & set(there))),
                "# What reached them:"], state.corpus)
