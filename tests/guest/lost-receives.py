#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Shared Receives that a device loses with clients which crash in the middle of a message; and a queue that fails.
# mode: pair
# server: ours
# fabrics: hca
# soak-fabrics: rxe hca
# variants: two
# soak-variants: one two
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep
# soak-smoke-variants: one two
# timeout: 120 900
# rounds: 60 1000
"""`$ROUNDS` connections end when the first packet of a message has come. A mount beside them goes on.

The device loses a Receive with each. What is lost is replaced, until it is an eighth of the queue: then no further
connection shares it, so that none can lose any more.
"""

import sys
import time

sys.path.insert(0, "tests/lib")
import hca  # noqa: E402
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, fabric, log, rounds, wait_for  # noqa: E402
from faults import Load, connects  # noqa: E402
from server_credits import all_share, connections, is_shared, restart, set_memory, show  # noqa: E402

#: Receives of the smallest queue.
DEPTH = 64


def caller(memory=None):
    """A connection that has done one Call."""
    from hostile_caller import Caller
    from hostile_two_caller import TwoCaller

    made = (Caller if versions.wanted() == "1" else TwoCaller)(receives=8, memory=memory)
    check(made.null(), "NULL is not answered")
    return made


def crashes():
    """Connections crash beside a mount."""
    from torn import tear

    with Mount("4.2") as mount, Load(mount, jobs=2) as load:
        mounted, = connections()
        former = connects(mount)
        check(is_shared(mounted) and show("receives", mounted)["queue_depth"] == DEPTH, "another queue")
        memory, sharing = None, 0
        for _ in range(rounds()):
            one = caller(memory)
            memory = one.memory
            others = connections() - {mounted}
            sharing += sum(is_shared(number) for number in others)
            tear(one)
            # Otherwise the end may overtake it.
            time.sleep(0.005)
            one.close()
            wait_for("the end of the others", 60, lambda: connections() == {mounted})
        load.wait_progress("after all of them")
        load.stop()
        receives = show("receives", mounted)
        log(f"{sharing} of {rounds()} shared the queue: {receives}")
        check(DEPTH // 8 < sharing < rounds(), "not as many as the queue can stand")
        check(DEPTH // 8 < receives["queue_overtaken"] <= sharing, "not as many are lost")
        check(receives["queue_available"] >= DEPTH // 2 and receives["held"] == 0, f"{receives}")
        check(connects(mount) == former, "the mount had to connect again")
    wait_for("the end of all", 60, lambda: not connections())


def failure():
    """The queue fails. Its connections end at once, and the next ones have another."""
    with Mount("4.2") as mount, Load(mount, jobs=2) as load:
        mounted, = connections()
        check(is_shared(mounted) and show("receives", mounted)["queue_overtaken"] <= DEPTH // 8, "the former queue")
        former = connects(mount)
        hca.arm("any", "srq_error", 20)
        wait_for("another connection", 60, lambda: connects(mount) > former)
        check(hca.disarm(), "the queue has not failed")
        load.wait_progress("with another queue")
        load.stop()
        wait_for("the end of the former connection", 30, lambda: len(connections()) == 1)
        number, = connections()
        check(number != mounted and is_shared(number), "not another queue")


def client():
    """Both, where the device can do both."""
    restart()
    all_share()
    set_memory(1)
    crashes()
    if fabric() == "hca":
        failure()


main(client, rnr="Receives are shared")
