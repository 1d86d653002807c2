#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# shared_receives: the server has no more Receives than that, at least 33; by default each connection has its own.
# mode: pair
# fabrics: rxe
# server: ours
# variants: one two
# soak-fabrics: rxe siw
# soak-smoke: uml-kasan uml-lockdep
# soak-smoke-variants: one two
# timeout: 120 300
"""What the connections of a server share is bounded, and what they are granted with it."""

import concurrent.futures
import functools
import sys

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, children, log, remote, wait_for  # noqa: E402
from server_credits import BATCH, FIRST, MOST, OTHERS, PARAMETER, connections, restart, show, use_all  # noqa: E402

#: The fewest that are shared.
FEWEST = 2 * BATCH + 1
#: Enough for 16 credits of one connection and two, but not for 32; and a quarter, which is for those
#: who come.
BOUND = (16 + OTHERS + 2) * 4 // 3 + BATCH
#: All credits of one connection fit into three quarters of this, those of two do not.
SHARED = 112 + BATCH
VERS = "4.1"


def client():
    """Once for each version."""
    if versions.wanted() == "1":
        one()
    else:
        two()


def one():
    """With a few Receives to share, with fewer than can be shared, with none."""
    restart(BOUND)
    with Mount(VERS) as mount:
        bounded(mount)
    wait_for("end of the connection", 30, lambda: not connections())
    restart(1)
    said = remote(f"dmesg | grep {PARAMETER}=")
    check(f"using {FEWEST}" in said, f"said: {said}")
    with Mount(VERS):
        receives = show("receives")
        check(receives["shared"] == 1 and receives["pool_limit"] == FEWEST, f"{receives}")
    wait_for("end of the connection", 30, lambda: not connections())
    restart(0)
    with Mount(VERS) as mount:
        own(mount)
    wait_for("end of the connection", 30, lambda: not connections())


def two():
    """Who has many Receives gives some back when others want more than there are."""
    restart(SHARED)
    with Mount(VERS) as mount:
        first, = connections()
        wait_for("all credits", 60, lambda: use_all(mount) or show("credits")["granted"] == MOST)
        with Mount("3", where="m1") as other:
            second, = connections() - {first}
            fair(mount, first, other, second)
    wait_for("end of the connections", 30, lambda: not connections())


def fair(mount, first, other, second):
    """Both are used at the same time, until both have their share."""
    share = (SHARED - BATCH) * 3 // 4 // 2
    # There are no callbacks over the second one.
    most = {first: share - OTHERS, second: share - 1}
    lowest = [MOST]

    def shared():
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            list(threads.map(use_all, (mount, other), ("file", "other")))
        credits = {number: show("credits", number) for number in most}
        lowest[0] = min(lowest[0], credits[first]["granted"])
        log(", ".join(f"{c['granted']} granted, {c['withdrawn']} withdrawn"
                      for c in credits.values()))
        return all(c["granted"] == most[number] and c["withdrawn"] == 0
                   for number, c in credits.items())

    wait_for("fair shares", 60, shared)
    check(lowest[0] >= most[first], f"only {lowest[0]} were left to the first one")
    receives = show("receives", first)
    log(f"{receives}")
    check(receives["pool_asked"] == 2 * share, "more are asked for than are used")


def bounded(mount):
    """The grant grows as far as there are Receives for it, and so does the number of clients."""
    def denied():
        use_all(mount)
        return show("counters")["grants_denied"] > 0

    wait_for("a grant that is denied", 60, denied)
    credits, receives = show("credits"), show("receives")
    log(f"{credits} {receives}")
    most = (BOUND - BATCH) * 3 // 4 - OTHERS
    check(FIRST < credits["granted"] <= most and credits["limit"] == MOST, f"{credits}")
    check(receives["shared"] == 1 and receives["pool_limit"] == BOUND, "not what was said")
    check(receives["pool_asked"] >= credits["granted"] + OTHERS, "too few are asked for")
    check(receives["pool_buffers"] <= BOUND, f"{receives['pool_buffers']} buffers")
    check(show("counters")["refused"] == 0, "refused")
    # pyverbs frees its objects in no safe order, so not in this process.
    room = (BOUND - BATCH - receives["pool_asked"]) // (FIRST + 1)
    check(room >= 1, "room for no other client")
    for _ in range(2):
        children(functools.partial(others, room), limit=60)
        wait_for("end of the others", 60, lambda: len(connections()) == 1)
        check(show("receives")["asked"] == show("receives")["pool_asked"], "not given back")
    use_all(mount)


def others(room):
    """There is room for so many other clients, and then for none."""
    from hostile_caller import Caller, Refused

    callers = []
    try:
        while len(callers) <= room:
            callers.append(Caller())
    except Refused as x:
        log(f"refused: {x}")
    check(len(callers) == room, f"{len(callers)} other clients, there is room for {room}")
    check(all(caller.null() for caller in callers), "no Reply")
    check(len(connections()) == 1 + room, f"{connections()}")
    for caller in callers:
        caller.close()


def own(mount):
    """Nothing is shared, and nothing is denied."""
    credits, receives = show("credits"), show("receives")
    check(FIRST <= credits["granted"] < credits["limit"] == MOST, f"{credits}")
    check(receives["shared"] == 0, f"{receives}")
    wait_for("all credits", 60, lambda: use_all(mount) or show("credits")["granted"] == MOST)
    check(show("counters")["grants_denied"] == 0, "denied")


main(client)
