#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# All clients of a server come back at the same moment: it rejects none of them, and serves them all.
# mode: pair
# server: ours
# client: none
# fabrics: rxe hca
# variants-rxe: one
# variants-hca: two@ours-ours
# soak-variants: one two
# soak-variants-hca: one@ours-ours two@ours-ours
# kernels: uml
# soak-smoke: uml-sanitize
# memory: 2560M
# timeout: 150 600
# rounds: 320 1000
"""`$ROUNDS` connections from user space, for which all asks are sent before the first one is answered.

SUNRPC ends the oldest of more than 64 connections that have not shown a file handle, over any transport. Our
listener has the others wait before it comes to that, long enough for clients that take three seconds.
Over iWARP each connection has Receives of its own, for which a guest has too little memory.
"""

import functools
import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import check, children, fabric, log, queue_pairs, rounds, wait_for  # noqa: E402
from crowd import PATIENCE, Steps, come, make  # noqa: E402
from memory import server_memory  # noqa: E402

#: Connections of each process.
EACH = 40
#: How long every eighth process does nothing after it has asked, in seconds.
SLOW = 3
TWO = os.environ["VARIANT"] == "two"


def one_process(steps, number):
    """Has `EACH` connections ask at once, and serves each as soon as it is accepted."""
    callers = make(EACH, TWO, 8 if TWO else 2)
    steps.done("ready", number)
    steps.expect("go")
    held = come(callers, TWO, number, 0 if number % 8 else SLOW)
    steps.done("served", number)
    steps.expect("enough")
    for caller in held:
        check(not caller.given_up(), "the server has ended a connection that was served")
        caller.close()
    # The message that ends a connection is sent again only as long as there is who has sent it.
    steps.expect("gone")


def conduct(steps):
    """Starts the storm when all are ready, and looks at the server."""
    steps.wait("ready")
    before = server_memory()
    began = time.monotonic()
    steps.allow("go")
    steps.wait("served", PATIENCE)
    count = steps.count * EACH
    log(f"{count} connections are served {time.monotonic() - began:.1f} s after they have asked")
    grown = server_memory().used - before.used
    log(f"{fabric()}: {grown >> 20} MiB of the server's memory, {grown // count:,} octets for each")
    check(queue_pairs() == count, f"{queue_pairs()} connections")
    steps.allow("enough")
    wait_for("the end of the connections", PATIENCE, lambda: queue_pairs() == 0, 0.5)
    steps.allow("gone")


def client():
    """As many processes as it takes."""
    steps = Steps(rounds() // EACH)
    children(*(functools.partial(one_process, steps, n) for n in range(steps.count)),
             functools.partial(conduct, steps), limit=6 * PATIENCE)


main(client)
