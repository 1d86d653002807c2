#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Clients that crash in the middle of a message: the shared Receives that the device loses with them come back.
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
# rounds: 200 3000
"""`$ROUNDS` connections end when the first packet of a message has come, and nothing is missing then.

The server has fewer Receives to share than that, and a mount beside them that must not wait for one.
In the second half of the rounds one more connection has begun with a message and says nothing more:
what was lost after its message can be told from what it holds only when it has gone.
"""

import sys
import time

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, rnr_events, rounds, wait_for  # noqa: E402
from faults import Load, connects  # noqa: E402
from server_credits import connections, restart, show  # noqa: E402

#: Receives that are shared.
SHARED = 128
#: A look at the server every so many connections.
LOOK = 10


def caller(memory=None):
    """A connection that has done one Call."""
    from hostile_caller import Caller
    from hostile_two_caller import TwoCaller

    made = (Caller if versions.wanted() == "1" else TwoCaller)(receives=8, memory=memory)
    check(made.null(), "NULL is not answered")
    return made


def crash(count, memory, mounted):
    """So many connections crash. Returns the most Receives that were missing at a look."""
    from torn import tear

    most = 0
    for n in range(count):
        one = caller(memory)
        tear(one)
        # Otherwise the end may overtake it.
        time.sleep(0.005)
        one.close()
        if n % LOOK == 0:
            receives = show("receives", mounted)
            check(receives["pool_buffers"] <= SHARED, f"{receives}")
            most = max(most, receives["pool_lost"])
    return most


def client():
    """Crashes beside a mount, without and with a connection that holds a Receive."""
    from torn import tear

    restart(SHARED)
    with Mount("4.2") as mount, Load(mount, jobs=2) as load:
        (mounted,) = connections()
        former, waited = connects(mount), rnr_events()
        before = show("receives", mounted)
        log(f"before: {before}")
        first = caller()
        memory = first.memory
        first.close()
        lost = crash(rounds() // 2, memory, mounted)
        log(f"at most {lost} lost at once: {show('receives', mounted)}")
        silent = caller(memory)
        tear(silent)
        lost = crash(rounds() // 2, memory, mounted)
        log(f"beside a silent one at most {lost} lost at once: {show('receives', mounted)}")
        check(lost > 0, "nothing is lost, so the server's device has not taken the packets")
        check(silent.given_up(), "who holds what is missing was not ended")
        silent.close()
        wait_for("the end of all others", 60, lambda: connections() == {mounted})
        load.wait_progress("after all of them")
        wait_for("the last of what was lost", 10, lambda: not show("receives", mounted)["pool_lost"])
        after = show("receives", mounted)
        log(f"after: {after}")
        check(connects(mount) == former, "the mount had to connect again")
        check(rnr_events() == waited, "a message found no Receive")
        load.stop()


main(client)
