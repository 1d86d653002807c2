#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A server takes credits back from mounts that are idle, and from those that are not, when its administrator says so.
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

In the draft of 2016 a client can be told at any time, and says so. In Version One, the variant `one`, what an
administrator sets later is for new connections.
"""

import os
import sys
import threading
import time

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, remote, rnr_events, rounds, wait_for, xprt_stats  # noqa: E402
from server_credits import EACH, MOST, connections, restart, show, use_all  # noqa: E402

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


def use_until(what, mount, done):
    """Uses all credits until something is so."""
    wait_for(what, 120, lambda: use_all(mount) or done())


def alone(mount):
    """Has the mount granted all, and returns the number of its connection."""
    number, = connections()
    use_until("all credits", mount, lambda: is_granted(MOST, number))
    return number


def fewer():
    """The administrator wants clients to have fewer credits. An idle mount gives the others back."""
    with Mount(os.environ["VARIANT"]) as mount:
        number = alone(mount)
        before = show("receives", number)["target"]
        allow(FEW)
        if is_2016():
            wait_for("fewer credits", LIMIT, lambda: is_granted(FEW, number))
        else:
            time.sleep(LIMIT)
        credits, now = show("credits", number), show("receives", number)["target"]
        log(f"{before} Receives were promised, {now} are; {credits}")
        left = FEW if is_2016() else MOST
        check(credits["granted"] == left and before - now == EACH * (MOST - left), f"{credits}, {before}, {now}")
        # With load there are no more than that.
        use_all(mount)
        check(is_granted(left, number), f"{show('credits', number)}")
        if is_2016():
            allow(MOST)
            use_until("all credits again", mount, lambda: is_granted(MOST, number))
            check(show("receives", number)["target"] == before, "not as many Receives as before")
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
    restart()
    fewer()
    wait_for("end of the connections", 30, lambda: not connections())
    if is_2016():
        under_load()
    check(rnr_events() == 0, "a message found no Receive")


main(client)
