#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Each end asks the other one for other properties while a mount lives, and takes what it is answered.
# mode: pair
# fabrics: rxe
# soak-fabrics: rxe siw
# server: ours
# variants: 4.2@ours-ours-2016
# soak-variants: 4.2@ours-ours-2016 4.2@ours-ours-one
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep debug
# soak-smoke-variants: 4.2@ours-ours-2016
# timeout: 300 900
# rounds: 1 10
"""REQPROP of the draft of 2016 is for requests for changes at the other end, by an administrator at either one.

In the variant `one` nobody is asked."""

import os
import re
import sys
import time

sys.path.insert(0, "tests/lib")
import delegations  # noqa: E402
import versions  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, TRACING, check, log, read, remote, rnr_events, rounds, run,  # noqa: E402
                    slowness, wait_for, write, xprt_stats)
from versions import server_states, state  # noqa: E402

#: The settings: of the client, for the server; and of the server, for clients.
SIZE = f"{versions.PARAMETERS}/client_request_receive_size"
INVALIDATION = f"{versions.PARAMETERS}/client_request_remote_invalidation"
CALLBACKS = f"{versions.PARAMETERS}/server_request_callbacks"
TRACE = (f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}; "
         f"echo 1 > {TRACING}/events/rpcrdma_rs/rpcrdma_rs_answered/enable; echo > {TRACING}/trace")
EVENT = re.compile(r"rpcrdma_rs_answered: .*property=(\S+) asked=(\d+) outcome=(\S+) value=(\d+)")
#: Of what the ends look at every ten seconds.
LIMIT = 30


def is_2016():
    """Whether the draft of 2016 is spoken."""
    return versions.expected() == "2016"


def events(text):
    """What a trace shows of answers: (property, what was asked for, what became of it, the value)."""
    return [(e[0], int(e[1]), e[2], int(e[3])) for e in EVENT.findall(text)]


def wait_shown(name, wanted, end=versions.connections):
    """Waits until an end shows something of the latest connection."""
    wait_for(f"{name}: {wanted}", LIMIT * slowness(), lambda: state(end).get(name) == wanted)


def ask_server(value, outcome, size):
    """Has the client ask for Receives of a size; it shows the outcome, and what it may send then."""
    began = time.monotonic()
    write(SIZE, str(value))
    wait_shown("requested_receive_size", f"{value} {outcome}")
    shown = state()
    log(f"  {value}: {outcome} after {time.monotonic() - began:.1f} s, {shown['peer_receive_size']}, sends "
        f"{shown['inline_send']}")
    check(shown["peer_receive_size"] == str(size), shown["peer_receive_size"])
    check(int(shown["inline_send"]) <= size, shown["inline_send"])


def sizes():
    """A server without callbacks takes shorter Receives when nobody waits for it, and gives the longer ones back."""
    run("sh", "-c", TRACE)
    with Mount("3") as mount:
        os.statvfs(mount.path)
        most = int(state()["peer_receive_size"])
        ask_server(1 << 20, "rejected", most)
        ask_server(5000, "done", 5000)
        os.statvfs(mount.path)
        ask_server(6000, "done", 6000)
        ask_server(1 << 20, "other", most)
        write(SIZE, "0")
        wait_for("no request", LIMIT * slowness(), lambda: "requested_receive_size" not in state())
        os.statvfs(mount.path)
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")
    seen = events(read(f"{TRACING}/trace"))
    log(f"sizes: {seen}")
    check(seen == [("receive_size", 1 << 20, "rejected", 1 << 20), ("receive_size", 5000, "done", 5000),
                   ("receive_size", 6000, "done", 6000), ("receive_size", 1 << 20, "other", most)], f"{seen}")


def invalidation():
    """A client does not want to invalidate what a server registers for its callbacks, or does."""
    with Mount(os.environ["VARIANT"]) as mount:
        delegations.first(mount)
        for value, word in (("N", "0"), ("Y", "1")):
            write(INVALIDATION, value)
            wait_shown("peer_remote_invalidation", word)
            shown = state(server_states)["own_remote_invalidation"]
            check(shown == word, f"{shown} at the server")
            log(f"  {value}: {state().get('requested_remote_invalidation')}")
        check(state()["requested_remote_invalidation"] == "1 done", f"{state()}")
        write(INVALIDATION, "any")


def callbacks():
    """A server has a client stop its service for callbacks, and asks for it back: then a delegation is recalled."""
    remote(TRACE)
    with Mount(os.environ["VARIANT"]) as mount:
        delegations.first(mount)
        for level, shown in (("none", "none"), ("general", "general")):
            remote(f"echo {level} > {CALLBACKS}")
            wait_shown("own_reverse_direction", shown)
            wait_shown("peer_reverse_direction", shown, server_states)
        name, took = delegations.recall(mount, 0)
        os.unlink(f"{mount.path}/{name}")
        log(f"recall: {took:.2f} s")
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")
    with Mount("3") as mount:
        # There is no such service.
        os.statvfs(mount.path)
        wait_shown("requested_reverse_direction", "2 rejected", server_states)
    remote(f"echo any > {CALLBACKS}")
    seen = events(remote(f"cat {TRACING}/trace"))
    log(f"callbacks: {seen}")
    for wanted in (("reverse_direction", 0, "done", 0), ("reverse_direction", 2, "done", 2),
                   ("reverse_direction", 2, "rejected", 2)):
        check(wanted in seen, f"not {wanted}")


def in_another_protocol():
    """Nobody asks, and nothing is shown."""
    run("sh", "-c", TRACE)
    write(SIZE, "8192")
    with Mount("3") as mount:
        os.statvfs(mount.path)
        time.sleep(12 * slowness())
        check("requested_receive_size" not in state(), f"{state()}")
    write(SIZE, "0")
    check(not events(read(f"{TRACING}/trace")), "an answer in another protocol")


def client():
    """Each of them, at one end after the other."""
    if not is_2016():
        in_another_protocol()
        return
    for _ in range(rounds()):
        sizes()
        invalidation()
        callbacks()
    check(rnr_events() == 0, "a message found no Receive")


main(client)
