#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Receives of each connection's own: what all others do takes little of a mount's credits, and a rude client takes nothing.
# mode: pair
# server: ours
# light: yes
# fabrics: rxe siw
# variants-rxe: one
# variants-siw: two
# soak-variants: one two
# soak-smoke: uml-kasan uml-lockdep
# soak-smoke-variants: one two
# timeout: 240 600
"""The same part of its credits for each connection, which follows from the memory that all Receives take.

Nothing is judged by a clock: the server's debugfs shows the fewest credits that a connection was granted since a
file was written to, and how many Receives there are; no client that keeps to its credits finds no Receive.
"""

import concurrent.futures
import contextlib
import os
import sys

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import broken_credits, main  # noqa: E402
from common import Mount, check, fabric, log, netdev, remote, run, wait_for, xprt_stats  # noqa: E402
from server_credits import (DEBUGFS, EACH, FIRST, MOST, OTHERS, connections, restart, set_memory, show,  # noqa: E402
                            use_all)

#: MiB for two busy mounts and for clients that are idle: enough for half of all credits and more.
MEMORY, IDLE = 8, 20
#: Fewer than that are left to nobody, however late the others come.
LEAST = MOST // 2
#: Mounts that come and go, and clients that come then.
DEPARTED, NEWCOMERS = 6, 40
#: Octets of a message in Version One.
INLINE = 4096
NET = os.environ["OWN_ADDR"].rsplit(".", 1)[0]


@contextlib.contextmanager
def idle_clients(count, source=None):
    """So many connections from user space that have done a Call and do nothing then."""
    from hostile_caller import Caller

    callers = []
    for _ in range(count):
        callers.append(Caller(source=source))
        check(callers[-1].null(), "NULL is not answered")
    yield callers
    for caller in callers:
        check(not caller.given_up(), "the server has ended an idle connection")
        caller.close()


def are_there(number):
    """Whether a connection has the Receives that its peer may count on, and none of withdrawn credits."""
    credits, receives = show("credits", number), show("receives", number)
    check(receives["there"] >= receives["target"], f"Receives are missing: {receives}")
    return credits["withdrawn"] == 0 and receives["own"] <= receives["target"] + max(receives["target"] // 8, 1)


def forget_least(number):
    """Has the server forget the fewest credits of a connection."""
    remote(f"echo > {DEBUGFS}/{number}/credits")


def both(mounts):
    """Uses all credits of all mounts at once."""
    with concurrent.futures.ThreadPoolExecutor(len(mounts)) as threads:
        list(threads.map(use_all, mounts, ("file", "other")))


def second_is_busy():
    """A mount that comes later takes a part of the free memory, and so a little from the first one."""
    set_memory(MEMORY)
    with idle_clients(IDLE), Mount("4.2") as mount:
        first = max(connections(), key=int)
        wait_for("half of the credits", 120, lambda: use_all(mount) or show("credits", first)["granted"] >= LEAST)
        for _ in range(3):
            use_all(mount)
        forget_least(first)
        with Mount("3", where="m1") as other:
            second = max(connections(), key=int)
            wait_for("as many for the second one", 120,
                     lambda: both((mount, other)) or show("credits", second)["granted"] >= LEAST)
            for _ in range(3):
                both((mount, other))
            credits = show("credits", first)
            log(f"the first one: {credits}, {show('receives', first)}")
            check(LEAST <= credits["least_granted"] <= credits["granted"] < MOST, "not a part of what is free")
            shortage((mount, other), (first, second))
    wait_for("end of the connections", 30, lambda: not connections())


def shortage(mounts, numbers):
    """There is less memory, then there is enough: credits go and come back while they are used."""
    for memory, suits in ((1, lambda granted: FIRST <= granted < LEAST), (1000, lambda granted: granted == MOST)):
        set_memory(memory)
        wait_for(f"the credits with {memory} MiB", 120, lambda: both(mounts) or all(
            suits(show("credits", number)["granted"]) and are_there(number) for number in numbers))
        log(f"with {memory} MiB: {[show('receives', number) for number in numbers]}")
    for mount in mounts:
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")
    # Another one asks for the most credits of all.
    receives = show("receives", numbers[0])
    check(receives["target"] >= EACH * MOST + 1, f"{receives}")


def departed():
    """Nothing is kept for clients that have gone: new ones are accepted, also beyond what all should take."""
    set_memory(1)
    for n in range(DEPARTED):
        address = f"{NET}.{101 + n}"
        run("ip", "addr", "add", f"{address}/24", "dev", netdev())
        run("ip", "route", "replace", f"{os.environ['PEER_ADDR']}/32", "dev", netdev(), "src", address)
        with Mount("4.1") as mount:
            os.listdir(mount.path)
        wait_for("end of the connection", 30, lambda: not connections())
    run("ip", "route", "del", f"{os.environ['PEER_ADDR']}/32")
    with Mount("4.1") as mount:
        number, = connections()
        wait_for("callbacks", 30, lambda: show("receives")["target"] >= EACH * FIRST + OTHERS)
        with idle_clients(NEWCOMERS, f"{NET}.{101}"):
            check(len(connections()) == NEWCOMERS + 1, f"{connections()}")
            use_all(mount)
            # Each has what it began with, and the one that is busy a part of what is left.
            granted = {n: show("credits", n)["granted"] for n in connections()}
            check(FIRST <= granted.pop(number) < LEAST and are_there(number), "not a part of what is free")
            check(set(granted.values()) == {FIRST}, f"granted: {granted}")
    wait_for("end of the connections", 30, lambda: not connections())


def one_at_a_time():
    """A mount with many Calls gets all credits, though never two of them are with the server: those of a client
    far away are on their way."""
    with Mount("3", options="actimeo=0") as mount:
        number, = connections()
        wait_for("all credits", 120, lambda: any(os.stat(mount.path) is None for _ in range(64 * FIRST)) or (
            show("credits")["granted"] == MOST))
        log(f"one at a time: {show('credits')}")
        check(are_there(number), "not the Receives for them")
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")
    wait_for("end of the connections", 30, lambda: not connections())


def sizes():
    """Receives become as short as the messages of what is spoken."""
    from hostile_caller import Caller

    with Mount("4.1") as mount:
        number, = connections()
        expected = INLINE if versions.expected() == "1" else 3 * INLINE
        wait_for("Receives of one size", 60, lambda: os.statvfs(mount.path) and (
            show("receives", number)["other_size"] == 0))
        receives = show("receives", number)
        check(receives["size"] == expected, f"{receives}")
        # What is counted is what there is.
        check(receives["all_octets"] == receives["own"] * expected, f"{receives}")
    wait_for("end of the connection", 30, lambda: not connections())
    caller = Caller()
    check(caller.null() and show("receives")["all_octets"] > 0, "not counted")
    caller.close()
    wait_for("end of the connection", 30, lambda: not connections())


def rude():
    """One that ignores its credits waits for its own Receives, and is served; the mount does not notice."""
    from hostile_caller import Caller, XIDS
    from rpcrdma_header import encode
    from rpc_message import null_rpc

    with Mount("4.2") as mount:
        number, = connections()
        use_all(mount)
        with broken_credits():
            caller = Caller(receives=MOST)
            xids = [next(XIDS) for _ in range(MOST)]
            for i, xid in enumerate(xids):
                caller.qp.post_send(caller.send_request(encode(xid) + null_rpc(xid), at=128 * i))
            if fabric() == "siw":
                # Perhaps the server was as fast as that.
                log(f"the connection has ended: {caller.lost(5)}")
            else:
                check(all(caller.answer(xid) for xid in xids), "a Call is not answered")
                check(show("counters", (connections() - {number}).pop())["refused"] == 0, "cut off")
            use_all(mount)
            caller.close()
        check(xprt_stats(mount.path)["connect_count"] == 1, "the mount had to connect again")
        check(show("counters", number)["refused"] == 0, "the mount was cut off")
    wait_for("end of the connections", 30, lambda: not connections())


def client():
    """Each of them, with a server that has no parameters."""
    restart()
    second_is_busy()
    departed()
    set_memory(1000)
    one_at_a_time()
    sizes()
    rude()


main(client)
