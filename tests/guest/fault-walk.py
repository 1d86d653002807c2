#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Each event of a device goes wrong in turn, from mount to unmount: data, time, and what is left.
# mode: pair
# fabrics: hca
# variants: 4.2@ours-ours iwarp-4.2@ours-ours
# soak-variants: 4.2@ours-ours 4.2@ours-ours-one 3@ours-ours 3@ours-ours-one
# soak-variants: iwarp-4.2@ours-ours iwarp-4.2@ours-ours-one irdma-iwarp-3@ours-ours
# soak-variants: bnxt_re-4.2@ours-ours small-4.2@ours-ours small-4.2@ours-ours-one
# soak-variants: 4.2@ours-ours-2016
# soak-smoke: uml-kasan uml-lockdep debug
# soak-smoke-variants: slot-4.2@ours-ours granule-4.2@ours-ours-one iwarp-slot-4.2@ours-ours
# soak-smoke-variants: iwarp-granule-4.2@ours-ours-one
# kernels: uml
# timeout: 200 7200
# rounds: 24 0 24 200
"""The N-th event of a kind goes wrong, for each N until there is no N-th any more.

What can go wrong is in `tests/kmod/hca/fault.c`. Data are right, an operation that must not happen
twice has happened once, and it takes no longer than a reconnect. The walk has stages: a mount is
made, is used, is used while it connects anew, and is given up; and the device has an incident at
some moment of all that. In the second and third many points share a mount. `$ROUNDS` points are
chosen by chance, the same in each run; 0 is all of them. The line of a point names it. In the
environment, `POINTS="use/write/lost/17 mount/send/*"` runs only these, and `PART="2/5"` the second
fifth. The variant is the version of NFS, behind the device's profile and its model of memory if
these are not the usual ones; where the kernel has no such models, memory is reached directly.
"""

import fnmatch
import os
import random
import sys
import time

sys.path.insert(0, "tests/lib")
import callback_setup  # noqa: E402
import hca  # noqa: E402
import hca_device  # noqa: E402
import nfs_server  # noqa: E402
from case import main  # noqa: E402
from common import (check, drop_caches, log, module_refs, pattern, rounds,  # noqa: E402
                    show_endings, wait_for)
from fault_points import FAULTS, INCIDENTS, MOMENTS, STAGES, WRONG, Point  # noqa: E402
from faults import connects, fail_sunrpc  # noqa: E402
from quick_mount import QuickMount  # noqa: E402

EXPORT = nfs_server.EXPORT
WORDS = os.environ["VARIANT"].split("-")
VERSION = WORDS.pop()
MEMORY = WORDS.pop() if WORDS and WORDS[-1] in ("bounce", "slot", "granule") else "direct"
PROFILE = "-".join(WORDS)
#: Receives are posted by the dozen, and one refused is like the next: each of so many is tried.
EACH = {"post_recv": 8}
#: So many points share a mount, or are between two mounts that nothing disturbs.
SHARE = 16
DATA = pattern("walk", 300_000)
#: A directory for each connection of the server.
SERVER = "/sys/kernel/debug/rpcrdma/server"
#: Points that have shown something, if there are so many: the first message of a connection is
#: refused, and a Receive.
ALWAYS = [("mount", "post_send", "fail", 1), ("mount", "post_recv", "fail", 193)]


def connections():
    """How many connections the server has."""
    return len(os.listdir(SERVER))


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


def use_again(mount, tag):
    """The same, and the connection is lost at the first Call."""
    fail_sunrpc(1, 1)
    try:
        use(mount, tag)
    finally:
        fail_sunrpc(1, 0)


def left_behind(tag):
    """Says what is wrong with the server's copy, which goes.

    To be called when nothing is mounted: before, this would recall the client's delegation, and NFS
    takes ten seconds to notice that the connection for the recall was lost.
    """
    wrong = []
    try:
        with open(f"{EXPORT}/{tag}.old", "rb") as f:
            if f.read() != DATA:
                wrong.append("other data at the server")
    except OSError as e:
        wrong.append(str(e))
    left = [name for name in os.listdir(EXPORT) if name.startswith(f"{tag}.")]
    if left != [f"{tag}.old"]:
        wrong.append(f"{left} are at the server")
    for name in left:
        path = f"{EXPORT}/{name}"
        (os.rmdir if name.endswith(".dir") else os.unlink)(path)
    return "; ".join(wrong)


def undisturbed():
    """A mount from begin to end."""
    with QuickMount(VERSION) as mount:
        use(mount, "after")
    wrong = left_behind("after")
    check(not wrong, wrong)


def has_run(point, function):
    """Has a point's event go wrong in what a function does, and says what came of it."""
    point.run(PROFILE, function)
    if point.fired:
        log(f"{point.name}: {point.took:.1f} s, {point.made} connections {point.said}")


class Walk:
    """What was seen of all points."""

    def __init__(self):
        self.idle, self.held = module_refs(), connections()
        self.reached, self.wrong = [], []
        self.since = 0

    def seen(self, point, later=""):
        """Notes a point; `later` is what was wrong afterwards."""
        wrong = point.judge() or later
        broken = hca.complaints()
        if broken:
            wrong = f"{wrong} complaints: {broken}"
            hca.reset("complaints")
        if point.fired:
            self.reached.append(point)
        if wrong:
            self.wrong.append(f"{point.name}: {wrong}")
            log(f"WRONG: {self.wrong[-1]}")
            show_endings()

    def outer(self, point):
        """A mount or an unmount goes wrong."""
        def whole():
            with QuickMount(VERSION) as mount:
                use(mount, point.tag)
                return connects(mount)

        def unmount():
            mount.umount()
            return 0
        if point.stage != "unmount":
            has_run(point, whole)
        else:
            with QuickMount(VERSION) as mount:
                use(mount, point.tag)
                has_run(point, unmount)
        at_server = left_behind(point.tag)
        self.seen(point, "" if point.said else at_server)
        unheard = (point.kind in ("mad", "create") and point.action == "fail" or
                   point.action == "port_down" or point.stage == "unmount")
        self.at_rest([point], unheard)

    def inner(self, points):
        """The use of one mount goes wrong in several ways, one after another."""
        done = []
        try:
            with QuickMount(VERSION) as mount:
                for point in points:
                    function = use if point.stage == "use" else use_again
                    before = connects(mount)
                    # So each use is like the first.
                    drop_caches()
                    has_run(point, lambda: function(mount, point.tag) or connects(mount) - before)
                    done.append(point)
                    if point.judge():
                        break
        except WRONG as e:
            self.wrong.append(f"{points[0].name} to {points[-1].name}: {e}")
            log(f"WRONG: {self.wrong[-1]}")
        for point in done:
            at_server = left_behind(point.tag)
            self.seen(point, "" if point.said else at_server)
        self.at_rest(done, any(p.kind in ("mad", "create") for p in done))
        if len(done) not in (0, len(points)):
            self.inner(points[len(done):])

    def at_rest(self, points, unheard):
        """Nothing is left of a mount, and now and then another one shows that all is well."""
        self.since += SHARE if points and points[0].stage == "whole" else len(points)
        try:
            self.released(unheard)
            if self.since >= SHARE:
                undisturbed()
                self.released(False)
                self.since = 0
        except WRONG as e:
            self.wrong.append(f"after {points[0].name} to {points[-1].name}: {e}")
            log(f"WRONG: {self.wrong[-1]}")
            self.idle = max(self.idle, module_refs())

    def released(self, unheard):
        """Waits until no transport is left, but for a connection of the server that is `unheard`.

        A device that has lost the message with which a client disconnects, or has no address for
        it, tells nobody; and the server leaves alone what is idle, see `vanished.py`.
        """
        if unheard:
            time.sleep(0.5)

            def unheard_of():
                """Each has its own reference, and that of its transport for callbacks."""
                return self.idle + 2 * max(connections() - self.held, 0)
            wait_for("release of all but what is unheard", 10,
                     lambda: module_refs() <= unheard_of(), 0.1)
            self.idle, self.held = max(self.idle, module_refs()), connections()
        wait_for("release of the transport", 10, lambda: module_refs() <= self.idle, 0.01)

    def walk(self, points):
        """All of them."""
        for stage in STAGES:
            some = [point for point in points if point.stage == stage]
            if stage not in ("use", "again"):
                for point in some:
                    self.outer(point)
                continue
            for n in range(0, len(some), SHARE):
                self.inner(some[n:n + SHARE])


def counted():
    """How many events of each kind there are in each stage, if none goes wrong."""
    events = {}

    def count(stage, function):
        hca.arm("send", "none", 0)
        function()
        events[stage] = hca.fault()
        log(f"events of {stage}: { {kind: events[stage][kind] for kind in FAULTS} }")
    # What is made only once.
    undisturbed()
    mount = QuickMount(VERSION)
    count("mount", mount.mount)
    use(mount, "first")
    for stage, function in (("use", use), ("again", use_again)):
        drop_caches()
        count(stage, lambda: function(mount, stage))
    count("unmount", mount.umount)
    for tag in ("first", "use", "again"):
        wrong = left_behind(tag)
        check(not wrong, wrong)
    # Of a use with a lost connection only what has to do with that.
    for kind in events["again"]:
        fresh = events["again"][kind] - events["use"][kind]
        events["again"][kind] = min(max(fresh, 0) + 4, events["again"][kind])
    events["whole"] = {"any": sum(events[stage]["any"] for stage in ("mount", "use", "unmount"))}
    return events


def chosen(events):
    """The points that are run: all of them, or as many as there are rounds, by chance."""
    points = [(stage, kind, action, number + 1) for stage in STAGES[:-1]
              for kind, actions in FAULTS.items() for action in actions
              for number in range(0, events[stage][kind], EACH.get(kind, 1))]
    moments = events["whole"]["any"]
    points += [("whole", "any", action, number + 1) for action in INCIDENTS
               for number in range(0, moments, max(moments // MOMENTS, 1))]
    log(f"{len(points)} points")
    if os.environ.get("POINTS"):
        patterns = os.environ["POINTS"].split()
        return [point for point in points
                if any(fnmatch.fnmatch("/".join(map(str, point)), p) for p in patterns)]
    if os.environ.get("PART"):
        which, of = map(int, os.environ["PART"].split("/"))
        return points[which - 1::of]
    if not rounds():
        return points
    # Of each kind of fault as many.
    rng = random.Random(f"{os.environ['VARIANT']} {os.environ.get('SEED', 1)}")
    kinds = sorted({point[:3] for point in points})
    rng.shuffle(kinds)
    some = set(ALWAYS).intersection(points)
    for n in range(rounds()):
        some.add(rng.choice([point for point in points if point[:3] == kinds[n % len(kinds)]]))
    return sorted(some, key=points.index)


def server():
    """Makes a device of the variant's profile."""
    try:
        hca_device.make(PROFILE, MEMORY)
    except OSError as e:
        # The kernel's devices have no operations of their own.
        print(f"{MEMORY}: {e}", flush=True)
        hca_device.make(PROFILE)
    nfs_server.main()


def client():
    """Walks."""
    for n in range(200):
        os.makedirs(f"{EXPORT}/many/{n:04}-{'x' * (n % 100)}", exist_ok=True)
    hca.reset("complaints")
    callback_setup.watch()
    began = time.monotonic()
    points = [Point(*point) for point in chosen(counted())]
    walk = Walk()
    walk.walk(points)
    undisturbed()
    took = time.monotonic() - began
    most = {}
    for point in walk.reached:
        most[point.kind] = max(point.made, most.get(point.kind, 0))
    log(f"most connections, by kind: {most}")
    by_stage = {stage: sum(p.stage == stage for p in walk.reached) for stage in STAGES}
    slowest = max(walk.reached, key=lambda p: p.took, default=Point("", "", "", 0))
    log(f"{len(points)} points chosen, slowest {slowest.name} with {slowest.took:.1f} s, "
        f"{sum(p.refused for p in walk.reached)} mounts refused")
    log(f"{len(walk.reached)} points reached in {took:.0f} s, {len(walk.wrong)} wrong: {by_stage}")
    refused = callback_setup.errors()
    check(not refused, f"nfsd was refused a transport for callbacks: {refused}")
    check(walk.reached, "no event went wrong")
    check(not walk.wrong, f"{len(walk.wrong)} points: {walk.wrong}")


main(client, server)
