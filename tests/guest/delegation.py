#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# NFSv4 callbacks over the mount: delegations are granted, and recalled by the server.
# mode: pair
# fabrics: rxe siw
# variants: 4.1 4.1@ours-ours
# kernels: uml
# smoke: uml-kasan
# soak-variants: 4.1 4.2 4.1@ours-ours 4.2@ours-ours 4.1@stock-ours
# soak-smoke: uml-kasan debug
# smoke-variants: 4.1
# soak-smoke-variants: 4.1 4.1@ours-ours
# timeout: 300 1800
# rounds: 2 100 1 5
"""The reverse direction: CB_RECALL comes as a Call from the server on the same connection."""

import itertools
import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Mount, check, drop_caches, log, remote, rounds, rpc_counts,  # noqa: E402
                    slowness, wait_for, xprt_stats)


def granted(mount):
    """Whether the server grants a delegation for a file that nobody else has open."""
    path = f"{mount.path}/first"
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii") as f:
            f.write("x")
    with open(path, encoding="ascii"):
        if "type: deleg" in remote("cat /proc/fs/nfsd/clients/*/states"):
            return True
    time.sleep(1)
    return False


def held_file(mount, n):
    """A new file, open with a delegation: its name, and the open file.

    The server grants none for a file that it has recalled one for, which it remembers in
    a table of bits for 30 to 60 s. After many recalls that hits other files, too.
    """
    end = time.monotonic() + 90
    for attempt in itertools.count():
        name = f"d{n}.{attempt}"
        path = f"{mount.path}/{name}"
        with open(path, "w", encoding="ascii") as f:
            f.write(f"version {n}\n")
        f = open(path, encoding="ascii")
        check(f.read() == f"version {n}\n", "contents")
        held = remote("cat /proc/fs/nfsd/clients/*/states")
        if name in held and "type: deleg" in held:
            return name, f
        f.close()
        os.unlink(path)
        # The table is empty before the first recall.
        check(n > 0 and time.monotonic() < end, f"no delegation was granted:\n{held}")
        time.sleep(1)


def client():
    """Holds a file open, has the server open it too, and waits for the recall to be answered."""
    with Mount(os.environ["VARIANT"]) as mount:
        worst = 0
        # Not before the server's lock manager has ended its grace period.
        wait_for("a first delegation", 60, lambda: granted(mount))
        # Its delegation goes with it, so that the ones below are told apart.
        os.unlink(f"{mount.path}/first")
        check("type: deleg" not in remote("cat /proc/fs/nfsd/clients/*/states"), "still held")
        for n in range(rounds()):
            name, f = held_file(mount, n)
            with f:
                before = rpc_counts(mount.path)["DELEGRETURN"]
                began = time.monotonic()
                # The server's own writer conflicts: it waits until the recall is answered.
                remote(f"echo changed {n} > {mount_export()}/{name}", timeout=60)
                took = time.monotonic() - began
                worst = max(worst, took)
                check(took < 5 * slowness(), f"the recall took {took:.1f} s")
                # Its Reply may still be on its way.
                wait_for("DELEGRETURN", 5,
                         lambda: rpc_counts(mount.path)["DELEGRETURN"] > before)
            drop_caches()
            with open(f"{mount.path}/{name}", encoding="ascii") as f:
                check(f.read() == f"changed {n}\n", "the server's change is not seen")
            os.unlink(f"{mount.path}/{name}")
        log(f"{rounds()} recalls, the slowest took {worst:.2f} s")
        stats = xprt_stats(mount.path)
        check(stats["connect_count"] == 1, f"connected {stats['connect_count']} times")


def mount_export():
    """The exported directory in the server guest."""
    from nfs_server import EXPORT
    return EXPORT


main(client)
