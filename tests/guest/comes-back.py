#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# After an outage a mount comes back, though others have come before it and take more memory than all should.
# mode: pair
# server: ours
# fabrics: rxe
# variants: one two
# soak-fabrics: rxe siw
# soak-smoke: uml-kasan uml-lockdep
# soak-smoke-variants: one two
# timeout: 120 300
"""The service stops and starts again while the mount has nothing to do and its lease is long.

So clients at another address come first. Their Receives alone are more than there should be; the mount is
not refused for that, and has the credits that each connection begins with.
"""

import os
import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, child, log, netdev, remote, remote_call, run, watchdog, wait_for  # noqa: E402
from server_credits import FIRST, OTHERS, connections, restart, set_memory, show  # noqa: E402

#: Clients that come first, in so many connections: each has 20 KiB of Receives or more, and there should be 1 MiB.
STRANGERS = 60
#: Where they are, and the lease in seconds.
OTHER, LEASE = os.environ["OWN_ADDR"].rsplit(".", 1)[0] + ".77", 3600
TAKEN, STOP = "/run/rpcrdma-taken", "/run/rpcrdma-stop"


def put(path, text):
    """Makes a small file."""
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def strangers():
    """Connects as often as that, which it says in a file, and stays."""
    from hostile_caller import Caller

    callers = [Caller(source=OTHER) for _ in range(STRANGERS)]
    put(TAKEN, "")
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
    restart()
    set_memory(1)
    again()
    with Mount("4.1") as mount:
        put(f"{mount.path}/file", "before")
        again()
        check(not connections(), "the mount has come first")
        pid = child(strangers, "strangers")
        wait_for("the others", 60, lambda: os.path.exists(TAKEN))
        others = connections()
        check(len(others) == STRANGERS, f"{len(others)} others are connected")
        run("dd", "if=/dev/zero", f"of={mount.path}/file", "bs=4096", "count=1", timeout=30 * watchdog())
        number, = connections() - others
        wait_for("callbacks", 10, lambda: show("receives", number)["target"] >= FIRST + OTHERS)
        credits, receives = show("credits", number), show("receives", number)
        log(f"the mount is back: {credits}, {receives}")
        check(credits["granted"] == FIRST, f"{credits}")
        check(receives["all_octets"] > 1 << 20, "there is memory for all")
        put(STOP, "")
        check(os.waitpid(pid, 0)[1] == 0, "the others were not served")
    wait_for("end of the connections", 30, lambda: not connections())


main(client)
