#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# After an outage a mount comes back, though others have asked before it for all Receives that there are.
# mode: pair
# server: ours
# fabrics: rxe
# variants: one two
# soak-fabrics: rxe siw
# soak-smoke: uml-sanitize
# soak-smoke-variants: one two
# timeout: 120 300
"""The server keeps for a mount what its connection had.

The service stops and starts again while the mount has nothing to do and its lease is long, so that clients
at another address come first. They take all that they get, and keep it; the mount gets what it had
nevertheless.
"""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, child, log, netdev, remote, remote_call, run, watchdog, wait_for  # noqa: E402
from server_credits import BATCH, FIRST, OTHERS, connections, restart, show  # noqa: E402

#: Clients that come first, in so many connections.
STRANGERS = 6
#: All that there may be: for those, for what the mount has at first, and not for one more.
LIMIT = BATCH + STRANGERS * (FIRST + 1) + FIRST + OTHERS + FIRST
#: Where they are, and the lease in seconds.
OTHER, LEASE = os.environ["OWN_ADDR"].rsplit(".", 1)[0] + ".77", 3600
TAKEN, STOP = "/run/rpcrdma-taken", "/run/rpcrdma-stop"


def put(path, text):
    """Makes a small file."""
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def strangers():
    """Connects as often as the server lets it, which it says in a file, and stays."""
    from hostile_caller import Caller, Refused

    callers = []
    try:
        while len(callers) < LIMIT:
            callers.append(Caller(source=OTHER))
    except Refused as x:
        log(f"{len(callers)} other clients, then: {x}")
    put(f"{TAKEN}.new", str(len(callers)))
    os.rename(f"{TAKEN}.new", TAKEN)
    wait_for("the end of the test", 100, lambda: os.path.exists(STOP), 0.2)
    check(all(caller.null() for caller in callers), "no Reply")
    for caller in callers:
        caller.close()


def again():
    """Has the service end, and begin anew."""
    remote_call("nfsd_stop")
    remote_call("nfsd_start", lease=LEASE)
    remote("echo Y >/proc/fs/nfsd/v4_end_grace", ok=None)


def client():
    """The mount, the others, and the mount once more."""
    run("ip", "addr", "add", f"{OTHER}/24", "dev", netdev())
    restart(LIMIT)
    again()
    with Mount("4.1") as mount:
        put(f"{mount.path}/file", "before")
        wait_for("the callback's Receives", 10, lambda: show("receives")["asked"] >= FIRST + OTHERS)
        log(f"{show('receives')}")
        again()
        check(not connections(), "the mount has come first")
        pid = child(strangers, "strangers")
        wait_for("the others", 60, lambda: os.path.exists(TAKEN))
        with open(TAKEN, encoding="ascii") as f:
            taken = int(f.read())
        check(taken == STRANGERS, f"{taken} others are connected, not {STRANGERS}")
        began = time.monotonic()
        run("dd", "if=/dev/zero", f"of={mount.path}/file", "bs=4096", "count=1", timeout=30 * watchdog())
        log(f"the mount was back after {time.monotonic() - began:.1f} s")
        check(len(connections()) == STRANGERS + 1, f"{connections()}")
        pool = show("receives", min(connections()))
        check(pool["pool_connections"] == STRANGERS + 1, f"the mount has other Receives: {pool}")
        put(STOP, "")
        check(os.waitpid(pid, 0)[1] == 0, "the others were not served")
    # It has gone as if it had lost its connection: what it had is kept for it.
    wait_for("end of the connections", 30, lambda: not connections())
    with Mount("4.1"):
        wait_for("what was kept to be claimed", 10, lambda: show("receives")["pool_kept"] == 0)


main(client)
