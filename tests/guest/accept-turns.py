#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A host asks for many connections and never says anything: a client at another one does not wait for all of them.
# mode: pair
# server: ours
# client: none
# fabrics: rxe
# kernels: uml
# memory: 1792M
# timeout: 120 300
# soak: only
"""A hundred connections are asked for from one address, and none is completed.

So there is a crowd of newcomers at the server until SUNRPC ends the oldest ones, and the listener waits
a tenth of a second with each further one. Then a client at another address asks, and has its turn next.
Under RoCE an address is a GID, which is what tells hosts apart.
"""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import check, figure, log, netdev, queue_pairs, run, watchdog, wait_for  # noqa: E402

#: The address of the silent ones.
SILENT = os.environ["OWN_ADDR"].rsplit(".", 1)[0] + ".77"
#: How many they are. The kernel of a client has no more than 128 requests under way.
COUNT = 100
#: How long the other one may take, in seconds. To wait for all takes twice as long at least.
LIMIT = 4


def client():
    """Asks for many, and for one more from elsewhere."""
    from hostile_caller import Caller

    run("ip", "addr", "add", f"{SILENT}/24", "dev", netdev())
    first = Caller(receives=2)
    check(first.null(), "NULL is not answered")
    silent = [Caller(receives=1, memory=first.memory, asks=False, source=SILENT)
              for _ in range(COUNT)]
    for one in silent:
        one.call_in()
    wait_for("a crowd", 20, lambda: queue_pairs() > 24, 0.1)
    slowest = 0
    for turn in range(3):
        began = time.monotonic()
        other = Caller(receives=2, memory=first.memory)
        check(other.null(), "NULL is not answered")
        took = time.monotonic() - began
        log(f"turn {turn}: {took:.2f} s, {queue_pairs()} connections at the server")
        slowest = max(slowest, took)
        check(took < LIMIT * watchdog(), f"it took {took:.1f} s")
        other.close()
    figure("seconds until another host is served", slowest, "less")
    check(not any(one.events.pending() for one in silent[-COUNT // 10:]), "there was no queue")
    for one in [*silent, first]:
        one.close()


main(client)
