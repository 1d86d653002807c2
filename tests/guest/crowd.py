#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Many clients, busy once and idle then: what they keep of the server's memory, and whether all come back.
# mode: pair
# server: ours
# client: none
# fabrics: rxe
# variants: two
# soak-variants: one two
# soak-fabrics: rxe hca
# soak-variants-hca: one@ours-ours two@ours-ours
# kernels: uml
# memory: 1792M
# timeout: 300 1800
# light: yes
# rounds: 80 2000
"""`$ROUNDS` connections from user space to a server with the defaults of one with 16 GiB, in a guest that has
1,792 MiB.

Each uses all credits that it gets, up to `BUSY` Calls at once, and then does nothing but what an idle
mount of NFSv4 does: a Call now and then, here every 15 s. Send buffers that the busy time has taken are
given back within a minute, and a Receive with each Call after that. Then the service stops and starts
again, and all ask for a connection at the same moment.
"""

import functools
import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Gone, check, children, fabric, figure, log, queue_pairs, remote, remote_call,  # noqa: E402
                    rounds, wait_for)
from crowd import PATIENCE, Steps, come, make, served  # noqa: E402
from memory import server_memory  # noqa: E402
from server_credits import DEBUGFS, restart, set_memory  # noqa: E402

TWO = os.environ["VARIANT"] == "two"
#: Connections of each process.
EACH = 40
#: Calls that each has at the server at once, while it is busy.
BUSY = 16
#: How long each is busy at most, in seconds.
WORK = 2
#: MiB of Receives on a machine with 16 GiB.
RECEIVES = 1024
#: How long all are idle, in seconds, and how often each does a Call meanwhile.
REST, RENEWAL = 65, 15


def busy_once(caller):
    """Uses more and more credits, up to `BUSY`, or as many as it gets within `WORK` seconds."""
    try:
        if TWO:
            caller.widen(BUSY, WORK)
        else:
            caller.earn(BUSY, WORK)
    except Gone:
        # The server does not have that many for everybody.
        caller.check_alive()


def idle(held, step):
    """Does what idle mounts do, until the next step."""
    due = time.monotonic() + RENEWAL

    def renew():
        nonlocal due
        if time.monotonic() > due:
            due = time.monotonic() + RENEWAL
            for caller in held:
                check(served(caller, TWO), "GETATTR of an idle client is not answered")

    Steps.expect(step, meanwhile=renew)


def one_process(steps, number):
    """Has `EACH` connections, busy and idle, and then again."""
    callers = make(EACH, TWO, 2 * BUSY)
    memory = callers[0].memory
    steps.done("ready", number)
    steps.expect("go")
    held = come(callers, TWO, number, patience=4 * PATIENCE)
    steps.done("served", number)
    steps.expect("work")
    for caller in held:
        busy_once(caller)
    steps.done("busy", number)
    idle(held, "stop")
    for caller in held:
        check(not caller.given_up(), "the server has ended a connection of an idle client")
    steps.done("stopped", number)
    steps.expect("closed")
    for caller in held:
        check(caller.lost(PATIENCE), "the server has gone, and the connection has not")
        caller.close()
    callers = make(EACH, TWO, 2 * BUSY, memory)
    steps.done("back", number)
    steps.expect("again")
    held = come(callers, TWO, number, patience=4 * PATIENCE)
    steps.done("again-served", number)
    steps.expect("enough")
    for caller in held:
        check(not caller.given_up(), "the server has ended a connection that was served")
        caller.close()
    steps.expect("gone")


class Uses:
    """What the server's memory is used for, from a moment without connections."""

    def __init__(self, count):
        self.count, self.before = count, server_memory()

    def each(self, what):
        """Octets for each connection."""
        memory = server_memory()
        octets = (memory.used - self.before.used) // self.count
        log(f"{fabric()}: {octets:,} octets of the server for each of {self.count} connections "
            f"{what}, {memory.available >> 20:,} MiB are available")
        return octets


def conduct(steps):
    """Has all take their steps, and looks at the server's memory."""
    count = steps.count * EACH
    steps.wait("ready", 4 * PATIENCE)
    uses = Uses(count)
    steps.allow("go")
    figure("seconds until all connections are served", steps.wait("served", 5 * PATIENCE), "less")
    check(queue_pairs() == count, f"{queue_pairs()} connections")
    fresh = uses.each("that have done one Call")
    steps.allow("work")
    log(f"busy for {steps.wait('busy', 4 * PATIENCE):.1f} s")
    burst = uses.each("right after they were busy")
    granted = sorted(map(int, remote(f"sed -n 's/^granted: //p' {DEBUGFS}/*/credits").split()))
    log(f"credits of a connection: {granted[0]} to {granted[-1]}")
    time.sleep(REST)
    rest = uses.each(f"after {REST} s of rest")
    check(queue_pairs() == count, f"{queue_pairs()} connections after a rest")
    steps.allow("stop")
    steps.wait("stopped", 4 * PATIENCE)
    remote_call("nfsd_stop")
    steps.allow("closed")
    steps.wait("back", 4 * PATIENCE)
    remote_call("nfsd_start")
    remote("echo Y >/proc/fs/nfsd/v4_end_grace", ok=None)
    steps.allow("again")
    log(f"all are back {steps.wait('again-served', 5 * PATIENCE):.1f} s after they have asked")
    check(queue_pairs() == count, f"{queue_pairs()} connections after an outage")
    steps.allow("enough")
    wait_for("the end of the connections", PATIENCE, lambda: queue_pairs() == 0, 0.5)
    steps.allow("gone")
    log(f"fresh {fresh:,}, burst {burst:,}, rest {rest:,}")


def client():
    """As many processes as it takes."""
    restart()
    set_memory(RECEIVES)
    steps = Steps(rounds() // EACH)
    children(*(functools.partial(one_process, steps, n) for n in range(steps.count)),
             functools.partial(conduct, steps), limit=28 * PATIENCE)


main(client)
