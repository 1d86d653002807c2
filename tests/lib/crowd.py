# SPDX-License-Identifier: GPL-2.0
"""Many connections from user space, in several processes that go from step to step together."""

import os
import time

from common import check, log, watchdog, wait_for

#: How long a client tries, in seconds.
PATIENCE = 60


def write_new(path):
    """Makes an empty file."""
    with open(path, "x", encoding="ascii"):
        pass


class Steps:
    """The steps that `count` processes take, each when all have taken the one before."""

    def __init__(self, count):
        self.count = count

    def done(self, step, number):
        """A process has taken a step."""
        write_new(f"/run/{step}-{number}")

    def wait(self, step, limit=2 * PATIENCE):
        """Waits, in seconds, until all have taken it. Returns how long that was."""
        return wait_for(f"all to be {step}", limit, lambda: all(
            os.path.exists(f"/run/{step}-{n}") for n in range(self.count)), 0.02)

    @staticmethod
    def allow(step):
        """Has all of them take a step."""
        write_new(f"/run/{step}")

    @staticmethod
    def expect(step, limit=6 * PATIENCE, meanwhile=lambda: None):
        """Waits until a step is allowed."""
        def allowed():
            meanwhile()
            return os.path.exists(f"/run/{step}")

        wait_for(f"the step {step}", limit, allowed, 0.02)


def make(count, two, receives, memory=None):
    """Makes connections that have not asked yet, all of which use the memory of the first."""
    import hostile_qp
    from hostile_caller import Caller
    from hostile_two_caller import TwoCaller

    hostile_qp.SENDS = 2 * receives + 8
    made = []
    for _ in range(count):
        made.append((TwoCaller if two else Caller)(receives=receives, memory=memory, asks=False))
        memory = made[-1].memory
    return made


def served(caller, two):
    """Whether the server answers a Call that shows a file handle.

    SUNRPC ends the oldest of more than 64 connections that have not shown one.
    """
    from hostile_caller import XIDS
    from rpc_message import compound, getattr_, to_file

    if two and not caller.received:
        caller.open()
    xid = next(XIDS)
    answer = caller.request(xid, compound(xid, *to_file(), getattr_()))
    return bool(answer) and answer.kind == "reply"


def come(callers, two, name, pause=0, patience=PATIENCE):
    """Has all ask at once, and each do a Call as soon as it is accepted. Returns those that are served.

    `pause` is for how many seconds they do not look at whether they are; `patience` is how many it may
    take.
    """
    from common import Gone
    from hostile_caller import Refused
    from pyverbs.pyverbs_error import PyverbsError

    waiting, held, rejected, ended = list(callers), [], 0, 0
    began = time.monotonic()
    for caller in waiting:
        caller.call_in()
    time.sleep(pause)
    while waiting and time.monotonic() - began < patience * watchdog():
        for caller in list(waiting):
            if not caller.events.pending():
                continue
            waiting.remove(caller)
            try:
                caller.establish()
                check(served(caller, two), "GETATTR is not answered")
                held.append(caller)
            except Refused as x:
                log(f"{name}: {x}")
                rejected += 1
            except (Gone, PyverbsError) as x:
                log(f"{name}: {x}")
                ended += 1
                caller.close()
        time.sleep(0.001)
    log(f"{name}: {len(held)} served after {time.monotonic() - began:.1f} s")
    check(not rejected, f"{rejected} were rejected")
    check(not ended, f"{ended} were accepted and then ended")
    check(not waiting, f"{len(waiting)} have got no answer")
    return held
