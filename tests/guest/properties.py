#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Properties that change while a mount lives: callbacks that are taken, memory that may be invalidated.
# mode: pair
# fabrics: rxe
# soak-fabrics: rxe siw
# server: ours
# variants: 4.2@ours-ours-2016 4.2@ours-ours-one
# soak-variants: 4.1@ours-ours-2016 4.2@ours-ours-2016 4.2@ours-ours-one
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep debug
# soak-smoke-variants: 4.2@ours-ours-2016
# timeout: 300 900
# rounds: 1 30
"""What the draft of 2016 has and Version One lacks: each end may tell at any time what it has changed.

In the variant `one` the same is done, and nothing is told or changed before the next connection.
"""

import mmap
import os
import re
import sys
import time

sys.path.insert(0, "tests/lib")
import delegations  # noqa: E402
import versions  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, TRACING, check, drop_caches, log, pattern, read,  # noqa: E402
                    rnr_events, rounds, run, slowness, wait_for, write, xprt_stats)
from faults import Load  # noqa: E402
from versions import server_states, state  # noqa: E402

#: The client's setting.
SWITCH = f"{versions.PARAMETERS}/client_remote_invalidation"
EVENT = re.compile(r"rpcrdma_rs_optional: xprt=(\S+) xid=\S+ operation=(\S+) receive_size=\d+ "
                   r"remote_invalidation=(\d) reverse=(\d) sent=(\d)")
TRACE = (f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}; echo counter > {TRACING}/trace_clock; "
         f"for e in optional reverse_call post_call; do "
         f"echo 1 > {TRACING}/events/rpcrdma_rs/rpcrdma_rs_$e/enable; done; echo > {TRACING}/trace")
#: How many READs, and how long each is.
READS, LENGTH = 100, 64 << 10


def is_2016():
    """Whether the draft of 2016 is spoken."""
    return versions.expected() == "2016"


def counters():
    """The counters of the only transport of the client."""
    numbers = [d for d in os.listdir(versions.DEBUGFS) if d.isdigit()]
    check(len(numbers) == 1, f"transports: {numbers}")
    lines = read(f"{versions.DEBUGFS}/{numbers[0]}/counters").splitlines()
    return {name: int(value) for name, value in (line.split(": ", 1) for line in lines) if value.isdigit()}


def events(text):
    """The OPTIONAL messages in a trace: (operation, invalidation, reverse, sent), in order."""
    return [(e[1], e[2], e[3], e[4]) for e in EVENT.findall(text)]


def trace():
    """The lines of the client's trace."""
    return read(f"{TRACING}/trace")


def without_callbacks():
    """A mount that has no service for callbacks says so, and never anything else."""
    run("sh", "-c", TRACE)
    with Mount("3") as mount:
        os.statvfs(mount.path)
        shown = [state()["reverse_direction"] if is_2016() else None,
                 state(server_states)["reverse_direction"] if is_2016() else None]
    seen = events(trace())
    log(f"vers=3: {seen}, {shown}")
    if not is_2016():
        check(not seen, f"OPTIONAL messages in another protocol: {seen}")
        return
    check(shown == ["none", "none"], f"{shown}")
    check([e[0] for e in seen if e[3] == "1"] == ["CONNPROP"] and {e[2] for e in seen if e[3] == "1"} == {"0"},
          f"{seen}")


def with_callbacks():
    """One that has such a service says so before the server can call, and takes it back when the service ends."""
    run("sh", "-c", TRACE)
    with Mount(os.environ["VARIANT"]) as mount:
        delegations.first(mount)
        name, took = delegations.recall(mount, 0)
        os.unlink(f"{mount.path}/{name}")
        log(f"recall: {took:.2f} s")
        if is_2016():
            shown = [state()["reverse_direction"], state(server_states)["reverse_direction"],
                     state(server_states)["peer_reverse_direction"]]
            check(shown == ["general"] * 3, f"{shown}")
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")
        during = trace()
    after = events(trace())
    calls = [n for n, line in enumerate(during.splitlines()) if "rpcrdma_rs_reverse_call:" in line]
    check(calls, "no Call of the server's was seen")
    if not is_2016():
        check(not after, f"OPTIONAL messages in another protocol: {after}")
        return
    told = [n for n, line in enumerate(during.splitlines())
            if "operation=UPDPROP" in line and "reverse=2 sent=1" in line]
    check(len(told) == 1 and told[0] < calls[0], f"told in lines {told}, called in {calls}")
    sent = [(e[0], e[2]) for e in after if e[3] == "1" and e[0] != "REQPROP"]
    log(f"told: {sent}")
    check(sent == [("CONNPROP", "0"), ("UPDPROP", "2"), ("UPDPROP", "0")], f"{sent}")


def reads(path, data):
    """Reads as often as it is counted, past the page cache. Returns what was invalidated, and by whom."""
    before = counters()
    memory = mmap.mmap(-1, LENGTH)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        for _ in range(READS):
            check(os.preadv(fd, [memory], 0) == LENGTH and memory[:] == data, "other data read than written")
    finally:
        os.close(fd)
    after = counters()
    return tuple(after[n] - before[n] for n in ("remote_invalidations", "local_invalidations"))


def switch(value):
    """Sets it and waits until the server knows, and the client knows that; that takes a look of the client at its
    settings. In another protocol there is nothing to wait for."""
    write(SWITCH, value)
    if not is_2016():
        time.sleep(12 * slowness())
        return
    flag = "1" if value == "Y" else "0"
    began = time.monotonic()
    wait_for("the client's word", 15, lambda: state()["own_remote_invalidation"] == flag)
    wait_for("the server's knowledge", 5, lambda: state(server_states)["peer_remote_invalidation"] == flag)
    log(f"  told after {time.monotonic() - began:.1f} s")


def invalidation():
    """The server invalidates, or the client does it itself, as the client wants on this connection."""
    with Mount(os.environ["VARIANT"]) as mount:
        path = f"{mount.path}/read"
        data = pattern("read", LENGTH)
        with open(path, "wb") as f:
            f.write(data)
        drop_caches()
        for value in ("Y", "N", "Y"):
            if value != read(SWITCH).strip():
                switch(value)
            remotely, locally = reads(path, data)
            log(f"{value}: {remotely} by the server, {locally} by the client")
            if value == "Y" or not is_2016():
                check(remotely >= READS * 9 // 10 and locally <= READS // 5, "hardly any by the server")
            else:
                check(remotely == 0 and locally >= READS, "the client does not invalidate itself")
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")
        os.unlink(path)


def under_load():
    """The same while many RPCs are under way: no Reply that was sent before the server knew is taken amiss, and none
    sent afterwards has an invalidation, which would end the connection."""
    with Mount(os.environ["VARIANT"]) as mount, Load(mount) as load:
        for _ in range(rounds()):
            for value in ("N", "Y"):
                switch(value)
                load.wait_progress("after the switch")
                load.alive()
        load.stop()
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")


def client():
    """Each of them twice, since a transport may be used again."""
    for _ in range(2):
        without_callbacks()
        with_callbacks()
    invalidation()
    if is_2016():
        under_load()
    check(rnr_events() == 0, "a message found no Receive")


main(client)
