#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A peer in user space that was written from the draft of Version Two alone, in each way to read it.
# mode: pair
# server: ours
# variants: client server@ours-none
# fabrics: rxe
# kernels: uml
# timeout: 150 3600
# rounds: 1 2
"""Whatever the peer has read in the draft, each RPC ends well, and at most one connection is lost.

In the variant `client` the peer is a client of our server, in `server` a server of our client. The readings
are those of Documentation/protocol/readings.rst; `make check` takes a sample of them, `make soak` all. What the page
says is not served is told apart: it has to end as it is said there.
"""

import concurrent.futures
import dataclasses
import mmap
import os
import random
import sys
import time

sys.path.insert(0, "tests/lib")
import agreed  # noqa: E402
import nfs_server  # noqa: E402
from case import broken_credits, main  # noqa: E402
from common import (ROOT, TRACING, Failure, check, is_errno, log, module_refs,  # noqa: E402
                    mount_raw, pattern, remote, remote_call, rounds, soak, wait_for, watchdog, write)
from hostile_operations import getattr_, mount_options, readdir  # noqa: E402
from literal_reading import readings, refused  # noqa: E402
from versions import PARAMETERS, connections  # noqa: E402

#: Which sample `make check` takes, and of how many readings.
SEED, SAMPLE = 7, {"client": 40, "server": 14}
#: RPCs of a reading, in each round.
RPCS = 24
#: Seconds for which a connection may stall that has run out of credits, before it has to be gone.
STALL = 150
#: Connections that may be stalled at a time.
STALLED = 12


def of_interest(client):
    """The readings of this run, those that the text does not allow behind the others."""
    everything, further = readings(client), refused(client)
    draw = random.Random(SEED)
    if soak():
        return everything + further
    well = [r for r in everything if not r.unserved() and not r.answers_after]
    chosen = draw.sample(well, SAMPLE["client" if client else "server"])
    # Some of each kind that is not served, and a late server.
    for kind in ("too long", "starves", "no form"):
        those = [r for r in everything if r.unserved() == kind]
        chosen += draw.sample(those, min(len(those), 2))
    chosen += [r for r in everything if r.answers_after][:1]
    return chosen + draw.sample(further, 2)


class Table:
    """What became of each reading."""

    def __init__(self):
        self.rows, self.problems = [], []

    def add(self, reading, what, problems):
        """Enters a reading, and how it has ended."""
        said = "" if reading.is_defensible() else " (not allowed)"
        self.rows.append((str(reading) + said, what))
        self.problems += [f"{reading}: {p}" for p in problems]
        log(f"{reading}{said}: {what}" + "".join(f"\n    PROBLEM: {p}" for p in problems))

    def show(self):
        """Prints it, and fails if something has not ended as it should."""
        log(f"{len(self.rows)} readings:")
        for reading, what in self.rows:
            log(f"  {reading:76} {what}")
        check(not self.problems, f"{len(self.problems)} problems:\n  " + "\n  ".join(self.problems))


# ---- The peer is a client ------------------------------------------------------------


class Callers:
    """All runs of a client, of which some may be stalled while others go on."""

    def __init__(self, table):
        from literal_caller import LANES, ROOM
        self.table, self.contents, self.stalled = table, bytearray(LANES * ROOM), []
        remote(f"truncate -s {len(self.contents)} {nfs_server.EXPORT}/literal && "
               f"chmod 666 {nfs_server.EXPORT}/literal; echo Y > /proc/fs/nfsd/v4_end_grace || true")
        #: Memory that no connection uses.
        self.memory = []

    def run(self, reading, load, seed):
        """Makes the RPCs of a reading."""
        from literal_caller import Run
        run = Run(reading, load, RPCS * rounds(), self.contents, self.memory.pop() if self.memory else None, seed)
        began = time.monotonic()
        while not run.is_done():
            is_stuck = run.turn()
            if is_stuck and reading.starves() and not run.fate.lost:
                self.stalled.append((run, load, time.monotonic()))
                if not soak():
                    self.leave()
                elif len(self.stalled) == STALLED:
                    self.wait()
                return
            if time.monotonic() - began > 40 * watchdog():
                run.fate.problems.append(f"{len(run.pending)} RPCs do not end, {run.connection.sent} sent, "
                                         f"{run.connection.limit} allowed, {run.connection.received} received")
                break
            time.sleep(0.0005)
        self.end(run, load)

    def leave(self):
        """There is no time to wait for the end of a stalled connection."""
        for run, load, _ in self.stalled:
            connection, fate = run.connection, run.fate
            # All that the server may send is used up, as far as it knows.
            left = connection.allowed - connection.received
            if left >= 8:
                fate.problems.append(f"stuck with {left} credits")
            self.table.add(run.reading, f"{load}: {fate}, then stuck: {left} credits left", fate.problems)
            run.end()
        self.stalled = []

    def wait(self):
        """Waits until the stalled connections have ended, and their RPCs on others."""
        for run, load, since in self.stalled:
            while not run.is_done():
                run.turn()
                if run.fate.lost and not run.fate.stalled:
                    run.fate.stalled = time.monotonic() - since
                if time.monotonic() - since > STALL * watchdog() + 60:
                    run.fate.problems.append("it does not go on")
                    break
                time.sleep(0.001 if run.fate.lost else 0.05)
            self.end(run, load)
        self.stalled = []

    def end(self, run, load):
        """Enters what became of it."""
        fate, reading = run.fate, run.reading
        run.end()
        self.memory.append(run.memory)
        limit = 1 + RPCS * rounds() // 4 if reading.starves() else 1
        if fate.lost > limit:
            fate.problems.append(f"{fate.lost} connections were lost")
        if fate.replied + fate.failed != RPCS * rounds():
            fate.problems.append(f"{fate.replied} and {fate.failed} RPCs have ended")
        if reading.unserved() == "too long" and load != "reading" and not fate.failed:
            fate.problems.append("nothing was too long")
        self.table.add(reading, f"{load}: {fate}", fate.problems)


def peer_client():
    """Our server, and a client of the text."""
    from literal_caller import LOADS
    table = Table()
    callers = Callers(table)
    chosen = of_interest(True)
    for n, reading in enumerate(r for r in chosen if r.is_defensible()):
        for load in LOADS if soak() else LOADS[n % 3:n % 3 + 1]:
            # Few RPCs are too long by chance.
            if not soak():
                load = {"too long": "mixed", "starves": "reading"}.get(reading.unserved(), load)
            callers.run(reading, load, n)
    callers.wait()
    # Who leaves messages out of the count sends too many.
    with broken_credits():
        for n, reading in enumerate(r for r in chosen if not r.is_defensible()):
            callers.run(reading, LOADS[n % 3], n)
        callers.wait()
    table.show()


# ---- The peer is a server ------------------------------------------------------------


def attempt(operation, *arguments):
    """Does an operation; returns what is wrong, if something is."""
    try:
        return None if operation(*arguments) else "short"
    except OSError as x:
        return is_errno(x.errno)


def read(path, length):
    """A direct READ of all of a file; what comes back is compared."""
    fd = os.open(f"{path}/d{length}", os.O_RDONLY | os.O_DIRECT)
    try:
        memory = mmap.mmap(-1, -(-length // 4096) * 4096)
        got = os.preadv(fd, [memory], 0)
        check(memory[:got] == pattern(("hostile", length), length)[:got], "wrong data were read")
        return got == length
    finally:
        os.close(fd)


def wrote(path, length):
    """A direct WRITE; the server compares what it got."""
    fd = os.open(f"{path}/d{length}", os.O_WRONLY | os.O_DIRECT)
    try:
        memory = mmap.mmap(-1, -(-length // 4096) * 4096)
        memory[:length] = pattern(("written", length), length)
        return os.writev(fd, [memoryview(memory)[:length]]) == length
    finally:
        os.close(fd)


def readlink(path, length):
    """A READLINK of a link of that many octets."""
    return os.readlink(f"{path}/l{length}") == "t" * length


def operations(path, seed, longest):
    """What one of three threads does: RPCs of all lengths both ways."""
    draw = random.Random(seed)
    wrong = []
    for _ in range(RPCS * rounds() // 3):
        what = draw.choice((read, read, wrote, wrote, readlink, getattr_, readdir))
        most = draw.choice((400, 4200, 14_000, 30_000, 100_000))
        length = min(draw.randrange(1, most), longest, 4000 if what is readlink else longest)
        arguments = (path,) if what in (getattr_, readdir) else (path, length)
        found = attempt(what, *arguments)
        if found:
            wrong.append(f"{what.__name__} of {length} octets: {found}")
    return wrong


def is_announced():
    """Whether the terms in force were said, also if the server has told them late. On kernels with a coarse clock
    events of two CPUs have no order."""
    with open(f"{TRACING}/trace", encoding="ascii") as f:
        events = agreed.EVENT.findall(f.read())
    shown = [c for c in connections() if c["version"] == "2"]
    if not events or not shown:
        return True
    said = [dict(word.split("=") for word in text.split()) for _, text in events]
    return any(all(event[told] == shown[-1][name] for told, name in
                   (("send_size", "inline_send"), ("receive_size", "inline_receive"),
                    ("segment_count", "segment_count"))) for event in said)


def mounted(reading, path, seed):
    """A mount of a server of that reading; returns what became of it, and the problems."""
    remote_call("read_as", **dataclasses.asdict(reading))
    remote_call("state")
    peer = os.environ["PEER_ADDR"]
    # What was found about the server is forgotten.
    write(f"{PARAMETERS}/client_version", "2")
    write(f"{TRACING}/trace", "")
    before, began = module_refs(), time.monotonic()
    options = mount_options(peer, timeo=300)
    longest = 100_000
    if reading.few:
        # What fits the segments.
        options = options.replace("131072", "8192")
        longest = 8192
    mount_raw(f"{peer}:/", path, f"addr={peer},{options}")
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        found = threads.map(lambda n: operations(path, seed * 3 + n, longest), range(3))
        wrong = [text for texts in found for text in texts]
    spoken = sorted({c["version"] for c in connections()})
    announced = is_announced()
    state = remote_call("state")
    os.sync()
    check(os.system(f"umount {path}") == 0, "umount")
    wait_for("the end of the transport", 60, lambda: module_refs() == before)
    problems = [note for note in state["notes"] if note.startswith("wrong")]
    lost = state["connections"] - 1
    if lost > 1:
        problems.append(f"{lost} connections were lost")
    # What fits too few segments goes on in Version One.
    expected = {"1"} if reading.answers_after else {"1", "2"} if reading.few else {"2"}
    if not set(spoken) <= expected:
        problems.append(f"version {spoken} in place of {expected}")
    if not announced:
        problems.append("other terms are in force than were announced")
    if not reading.unserved():
        problems += wrong
    errors = {note for note in state["notes"] if note.startswith("error")}
    what = (f"{RPCS * rounds() - len(wrong)} operations well"
            + (f", {len(wrong)} failed" if wrong else "") + f", {state['in_parts']} Replies in parts, "
            f"{state['notes'].count('call in parts')} Calls in parts"
            + (f", {state['invalidated']} invalidated" if state["invalidated"] else "")
            + (f", {lost} connections lost" if lost else "")
            + (f", version {' '.join(spoken)}" if spoken != ["2"] else "")
            + "".join(f", {e}" for e in sorted(errors)) + f", {time.monotonic() - began:.1f} s")
    return what, problems


def peer_server():
    """Our client, and a server of the text."""
    table, path = Table(), f"{ROOT}/literal"
    chosen = of_interest(False)
    check(os.system(agreed.BEGIN) == 0, "no trace events")

    def all_of(wanted):
        for n, reading in enumerate(r for r in chosen if r.is_defensible() is wanted):
            try:
                table.add(reading, *mounted(reading, path, n))
            except Failure as x:
                table.add(reading, "FAILED", [str(x)])
                os.system(f"umount -f -l {path}")
    all_of(True)
    with broken_credits():
        all_of(False)
    table.show()


def client():
    """What the variant names."""
    if os.environ["VARIANT"] == "client":
        peer_client()
    else:
        peer_server()


def server():
    """The server guest."""
    if os.environ["VARIANT"] == "client":
        nfs_server.main()
    else:
        import literal_server
        literal_server.main()


main(client, server)
