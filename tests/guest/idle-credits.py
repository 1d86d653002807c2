#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A server takes credits back from mounts that are idle, and from those that are not, while they live.
# mode: pair
# fabrics: rxe
# soak-fabrics: rxe siw
# server: ours
# variants: 4.2@ours-ours-2016 4.2@ours-ours-one
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep debug
# soak-smoke-variants: 4.2@ours-ours-2016
# timeout: 300 900
# rounds: 1 20
# soak: only
"""A grant that becomes smaller, and a client that has heard of it.

In the draft of 2016 a client can be told at any time, and says so. In Version One, the variant `one`, a Reply tells
it: so a mount that is idle has to do something, as one of NFSv4 does every minute, and the server waits for a while
before it counts on that. What an administrator sets later is for new connections there.
"""

import os
import sys
import threading
import time

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, remote, rnr_events, rounds, wait_for, xprt_stats  # noqa: E402
from server_credits import BATCH, FIRST, MOST, OTHERS, connections, restart, show, use_all  # noqa: E402

#: All credits of one connection fit into three quarters of this, and nobody else gets more than at first.
SHARED = 104 + BATCH
#: Connections that are idle, and Receives for them and another one.
IDLE, FOR_NINE = 8, 192
#: Credits of each while nine share those: a quarter and a batch are kept for who has few.
SHARE = (FOR_NINE - (FOR_NINE - BATCH) // 4 - BATCH) // (IDLE + 1) - OTHERS
#: The administrator's setting, and what he lowers it to.
SETTING = "/proc/sys/sunrpc/svc_rdma/max_requests"
FEW = 8
#: The server looks every ten seconds.
LIMIT = 25


def is_2016():
    """Whether the draft of 2016 is spoken."""
    return versions.expected() == "2016"


def allow(credits):
    """Sets how many credits a client may have."""
    remote(f"echo {credits} > {SETTING}")


def is_granted(credits, number):
    """Whether a connection is granted so many, and there are Receives for no more."""
    now = show("credits", number)
    return now["granted"] == credits and now["withdrawn"] == 0


def use_until(what, mount, done, connections=1, idle=None, others=1):
    """Uses all credits of so many connections until something is so.

    In Version One a mount that is idle does something meanwhile over each of its connections, one at a time.
    """
    def step():
        use_all(mount, connections=connections)
        for _ in range(others if idle and not is_2016() else 0):
            os.statvfs(idle.path)
        return done()

    wait_for(what, 120, step)


def alone(mount):
    """Has the mount granted all, and returns the number of its connection."""
    number, = connections()
    use_until("all credits", mount, lambda: is_granted(MOST, number))
    return number


def fewer():
    """The administrator wants clients to have fewer credits. An idle mount gives the others back."""
    with Mount(os.environ["VARIANT"]) as mount:
        number = alone(mount)
        before = show("receives", number)["asked"]
        allow(FEW)
        if is_2016():
            wait_for("fewer credits", LIMIT, lambda: is_granted(FEW, number))
        else:
            time.sleep(LIMIT)
        credits, asked = show("credits", number), show("receives", number)["asked"]
        log(f"{before} Receives were asked for, {asked} are; {credits}")
        left = FEW if is_2016() else MOST
        check(credits["granted"] == left and before - asked == MOST - left, f"{credits}, {before}, {asked}")
        # With load there are no more than that.
        use_all(mount)
        check(is_granted(left, number), f"{show('credits', number)}")
        if is_2016():
            allow(MOST)
            use_until("all credits again", mount, lambda: is_granted(MOST, number))
            check(show("receives", number)["asked"] == before, "not as many Receives as before")
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")
    if not is_2016():
        # It takes another connection.
        wait_for("end of the connection", 30, lambda: not connections())
        with Mount(os.environ["VARIANT"]) as mount:
            number, = connections()
            for _ in range(3):
                use_all(mount)
            check(is_granted(FEW, number), f"{show('credits', number)}")
    allow(MOST)


def shortage():
    """A mount has nearly all Receives and is idle, another one wants some."""
    with Mount(os.environ["VARIANT"]) as mount:
        first = alone(mount)
        with Mount("3", where="m1") as other:
            second, = connections() - {first}
            began = time.monotonic()
            use_until("more credits than at first", other,
                      lambda: show("credits", second)["granted"] > 2 * FIRST, idle=mount)
            log(f"after {time.monotonic() - began:.1f} s")
            idle, busy = show("credits", first), show("credits", second)
            log(f"{idle}, {busy}, {show('receives', first)}")
            check(show("counters", second)["grants_denied"] > 0, "there was no shortage")
            check(FIRST <= idle["granted"] < MOST and idle["withdrawn"] == 0, f"{idle}")
            for one in (mount, other):
                use_all(one)
                check(xprt_stats(one.path)["connect_count"] == 1, "connected more than once")
    wait_for("end of the connections", 30, lambda: not connections())


def ninth():
    """Eight connections have had all the Receives they could get and are idle, a ninth one wants some."""
    with Mount(os.environ["VARIANT"], options=f"nconnect={IDLE}") as mount:
        eight = connections()
        check(len(eight) == IDLE, f"connections: {eight}")
        more = set()

        def is_short():
            granted = {number: show("credits", number)["granted"] for number in eight}
            # A connection that did not use all of them since may have given some back.
            more.update(number for number in eight if granted[number] > FIRST)
            denied = sum(show("counters", number)["grants_denied"] for number in eight)
            log(f"{sorted(granted.values())}, denied {denied} times")
            return more == eight and denied and sum(granted.values()) > IDLE * SHARE

        use_until("a shortage", mount, is_short, IDLE)
        before = {number: show("credits", number)["granted"] for number in eight}
        with Mount("3", where="m1") as other:
            number, = connections() - eight
            began = time.monotonic()
            use_until("more credits than at first", other,
                      lambda: show("credits", number)["granted"] > FIRST, idle=mount, others=IDLE)
            log(f"the ninth after {time.monotonic() - began:.1f} s")
            after = {number: show("credits", number)["granted"] for number in eight}
            log(f"{sorted(before.values())}, {sorted(after.values())}, {show('credits', number)}")
            check(sum(after.values()) < sum(before.values()), "nothing was taken back")
            for one in (mount, other):
                use_all(one)
            check(xprt_stats(mount.path)["connect_count"] == IDLE, "connected more than once")
            check(xprt_stats(other.path)["connect_count"] == 1, "connected more than once")
    wait_for("end of the connections", 30, lambda: not connections())


def under_load():
    """The same with all credits in use: no Call that was sent before the client knew is one too many."""
    with Mount(os.environ["VARIANT"]) as mount:
        number = alone(mount)
        running, failed = [True], []

        def load():
            try:
                while running:
                    use_all(mount)
            except OSError as x:
                failed.append(x)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            for _ in range(rounds()):
                for credits in (FEW, MOST):
                    allow(credits)
                    wait_for(f"{credits} credits", 2 * LIMIT, lambda: is_granted(credits, number))
        finally:
            running.clear()
            thread.join()
        check(not failed, f"{failed}")
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")
        counters = show("counters", number)
        check(counters["refused"] == 0, f"{counters}")
    wait_for("end of the connection", 30, lambda: not connections())


def client():
    """Each of them."""
    restart(SHARED)
    fewer()
    wait_for("end of the connections", 30, lambda: not connections())
    shortage()
    if is_2016():
        under_load()
    restart(FOR_NINE)
    ninth()
    check(rnr_events() == 0, "a message found no Receive")


main(client)
