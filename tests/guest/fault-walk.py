#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Each event of a device goes wrong in turn, from mount to unmount: data, time, and what is left.
# mode: pair
# fabrics: hca
# variants: 4.2@ours-ours iwarp-4.2@ours-ours
# soak-variants: 4.2@ours-ours 4.2@ours-ours-one 3@ours-ours 3@ours-ours-one
# soak-variants: iwarp-4.2@ours-ours iwarp-4.2@ours-ours-one irdma-iwarp-3@ours-ours
# soak-variants: bnxt_re-4.2@ours-ours small-4.2@ours-ours small-4.2@ours-ours-one
# soak-smoke: uml-kasan
# soak-smoke-variants: 4.2@ours-ours 4.2@ours-ours-one iwarp-4.2@ours-ours
# kernels: uml
# timeout: 200 7200
# rounds: 24 0
"""The N-th event of a kind goes wrong, for each N until there is no N-th any more.

What can go wrong is in `tests/kmod/hca/fault.c`. At each point a mount is made, used and given up.
Its data are right, an operation that must not happen twice has happened once, and it takes no
longer than a reconnect. `$ROUNDS` points are chosen by chance, the same in each run; 0 is all of
them. The line of a point names it: `POINTS="write/lost/17 send/*"` in the environment runs only
these. The variant is the version of NFS, behind the device's profile if it is not the usual one.
"""

import fnmatch
import os
import random
import shlex
import subprocess
import sys
import time

sys.path.insert(0, "tests/lib")
import hca  # noqa: E402
import hca_device  # noqa: E402
import nfs_server  # noqa: E402
from case import main  # noqa: E402
from common import (Failure, Mount, check, log, module_refs, pattern,  # noqa: E402
                    rounds, run, show_endings, slowness, wait_for)
from faults import connects  # noqa: E402

EXPORT = nfs_server.EXPORT
PROFILE, _, VERSION = os.environ["VARIANT"].rpartition("-")
#: What goes wrong, by kind of event.
FAULTS = {
    "post_send": ("fail",),
    "post_recv": ("fail",),
    "send": ("fail", "lost", "remote", "late"),
    "read": ("fail", "lost", "half", "remote", "late"),
    "write": ("fail", "lost", "half", "remote", "late"),
    "reg_mr": ("fail", "late"),
    "local_inv": ("fail", "late"),
    "mad": ("fail", "twice", "late", "reject"),
    "create": ("fail",),
    "modify": ("fail",),
    "any": ("qp_fatal", "shared_fatal", "srq_error", "port_down", "device_fatal", "removal"),
}
#: Where a device is gone afterwards. It comes back soon.
GONE = ("device_fatal", "removal")
#: An incident of a device happens at so many moments of a mount: at each event it would be thousands.
MOMENTS = 40
#: Where a mount may fail with an error: the first connection could not be made.
MAY_FAIL = ("create", "modify", "mad", "post_recv", "any")
#: So many are the first messages of a connection, one of each end: without them there is none.
FIRST = 2
#: Seconds that one mount may take with its use: the first reconnect has no delay.
LIMIT = 5
#: Where the connection manager sends again, or another attempt to connect comes later. Or where a
#: Call was sent again while nfsd was busy with the first: NFS waits for 15 seconds then.
LONG_LIMIT = 60
DATA = pattern("walk", 300_000)
#: A directory for each connection of the server.
SERVER = "/sys/kernel/debug/rpcrdma/server"
#: Points that have shown something: the first message of a connection is refused.
ALWAYS = [("post_send", "fail", 1)]


def connections():
    """How many connections the server has."""
    return len(os.listdir(SERVER))


def exported(name):
    """A file as the server has it."""
    with open(f"{EXPORT}/{name}", "rb") as f:
        return f.read()


def use(mount, tag):
    """Calls of every kind of chunk, and what must not happen twice."""
    path = mount.path
    fd = os.open(f"{path}/{tag}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        check(os.pwrite(fd, DATA, 0) == len(DATA), "a short write")
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        check(os.pread(fd, len(DATA), 0) == DATA, "other data")
    finally:
        os.close(fd)
    os.rename(f"{path}/{tag}.new", f"{path}/{tag}.old")
    os.mkdir(f"{path}/{tag}.dir")
    os.symlink("y" * 1000, f"{path}/{tag}.link")
    check(os.readlink(f"{path}/{tag}.link") == "y" * 1000, "another link")
    check(len(os.listdir(f"{path}/many")) == 200, "another directory")
    os.unlink(f"{path}/{tag}.link")
    os.rmdir(f"{path}/{tag}.dir")


def once(tag, version):
    """Mounts, uses and unmounts; how many connections there were, and the time up to the unmount.

    The server's copy is looked at afterwards: before, that would recall the client's delegation,
    and NFS takes ten seconds to notice that the connection for the recall was lost. Nor does the
    time of the unmount count: for ten seconds NFS tries to destroy a client whose session it could
    not destroy, because the Reply was lost.
    """
    began = time.monotonic()
    with Mount(version, options="retry=0") as mount:
        use(mount, tag)
        made = connects(mount)
        took = time.monotonic() - began
    check(exported(f"{tag}.old") == DATA, "other data at the server")
    os.unlink(f"{EXPORT}/{tag}.old")
    left = [name for name in os.listdir(EXPORT) if name.startswith(f"{tag}.")]
    check(not left, f"{left} is still there")
    return made, took


class Comeback:
    """Makes the device again when it is gone.

    It is a process from before the mount: one that was begun later would have files of the mount to
    close, for which it would wait.
    """

    def __init__(self):
        # A driver takes longer than this to start a card anew.
        add = shlex.join(hca_device.addition(PROFILE))
        self.process = subprocess.Popen(
            ["sh", "-c", f"while [ -e {hca.path('fault')} ]; do sleep 0.02; done; sleep 0.3; {add}"])

    def end(self):
        """Waits until the device is back, and returns whether it was gone."""
        try:
            reached = hca.fault()["fired"]
        except OSError:
            reached = True
        if not reached and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            return False
        check(self.process.wait(LIMIT * slowness()) == 0, "the device cannot be made again")
        return True


class Walk:
    """What was seen of all points."""

    def __init__(self, version):
        self.version = version
        self.idle, self.held = module_refs(), connections()
        self.points = self.refused = self.slowest = 0
        self.most = {}
        self.wrong = []

    def point(self, kind, action, number):
        """One point; returns whether it was reached."""
        name = f"{kind}/{action}/{number}"
        began = time.monotonic()
        said = ""
        hca.arm(kind, action, number)
        comeback = Comeback() if action in GONE else None
        try:
            made, took = once("walk", self.version)
            self.most[kind, action] = max(made, self.most.get((kind, action), 0))
        except (Failure, OSError, subprocess.SubprocessError) as e:
            said = str(e)
            made, took = 0, time.monotonic() - began
        whole = time.monotonic() - began
        fired = comeback.end() if comeback else hca.fault()["fired"]
        hca.arm("send", "none", 0)
        if not fired:
            check(not said, f"{name}, which was not reached: {said}")
            return False
        self.points += 1
        self.slowest = max(self.slowest, whole)
        log(f"{name}: {took:.1f} s, {made} connections {said}")
        if took > LIMIT * slowness():
            show_endings()
        try:
            mount_failed = said.startswith("mount ")
            may_fail = kind in MAY_FAIL or (kind in ("send", "post_send") and number <= FIRST)
            check(not said or (mount_failed and may_fail), said)
            self.refused += mount_failed
            limit = LONG_LIMIT if kind in MAY_FAIL else LIMIT
            check(took < limit * slowness(), f"took {took:.1f} s")
            check(whole < LONG_LIMIT * slowness(), f"took {whole:.1f} s with the unmount")
            once("after", self.version)
            self.released(kind in ("mad", "create") and action == "fail")
            check(not hca.complaints(), f"complaints: {hca.complaints()}")
        except (Failure, OSError, subprocess.SubprocessError) as e:
            for leftover in os.listdir(EXPORT):
                if leftover.startswith("walk."):
                    subprocess.run(["rm", "-rf", f"{EXPORT}/{leftover}"], check=False)
            self.wrong.append(f"{name}: {e}")
            log(f"WRONG: {self.wrong[-1]}")
            hca.reset("complaints")
            self.idle = max(self.idle, module_refs())
        return True

    def released(self, unheard):
        """Waits until no transport is left, but for a connection of the server that is `unheard`.

        A device that has lost the message with which a client disconnects, or has no address for
        it, tells nobody; and the server leaves alone what is idle, see `vanished.py`.
        """
        if unheard:
            time.sleep(0.5)
            held, left = connections(), module_refs()
            # Each has its own reference, and that of its transport for callbacks.
            most = self.idle + 2 * max(held - self.held, 0)
            check(left <= most, f"{left - self.idle} references are left")
            self.idle, self.held = max(self.idle, left), held
        wait_for("release of the transport", 10, lambda: module_refs() <= self.idle)


def chosen(walk):
    """The points that are run: all of them, or as many as there are rounds, by chance."""
    hca.arm("send", "none", 0)
    once("count", walk.version)
    counts = hca.fault()
    log(f"events of one mount: {counts}")
    points = [(kind, action, number + 1) for kind, actions in FAULTS.items() for action in actions
              for number in range(0, counts[kind], max(counts[kind] // MOMENTS, 1) if kind == "any" else 1)]
    log(f"{len(points)} points")
    if os.environ.get("POINTS"):
        return [(k, a, n) for k, a, n in points
                if any(fnmatch.fnmatch(f"{k}/{a}/{n}", p) for p in os.environ["POINTS"].split())]
    if not rounds():
        return points
    # Of each kind of fault as many.
    rng = random.Random(f"{os.environ['VARIANT']} {os.environ.get('SEED', 1)}")
    kinds = [(kind, action) for kind, actions in FAULTS.items() for action in actions]
    rng.shuffle(kinds)
    some = list(ALWAYS)
    for n in range(rounds()):
        kind, action = kinds[n % len(kinds)]
        some.append((kind, action, rng.randint(1, max(counts[kind], 1))))
    return some


def server():
    """Makes a device of the variant's profile."""
    hca_device.make(PROFILE)
    nfs_server.main()


def client():
    """Walks."""
    for n in range(200):
        os.makedirs(f"{EXPORT}/many/{n:04}-{'x' * (n % 100)}", exist_ok=True)
    walk = Walk(VERSION)
    hca.reset("complaints")
    reached = sum(walk.point(*point) for point in chosen(walk))
    log(f"{reached} points, {walk.refused} mounts refused, the slowest took {walk.slowest:.1f} s")
    log(f"most connections: {walk.most}")
    check(reached, "no event went wrong")
    check(not walk.wrong, f"{len(walk.wrong)} points: {walk.wrong}")


main(client, server)
