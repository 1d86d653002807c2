# SPDX-License-Identifier: GPL-2.0
"""Delegations: to get one, and to have the server recall it."""

import itertools
import os
import time

from common import check, remote, rpc_counts, watchdog, wait_for
from nfs_server import EXPORT


def states():
    """What the server holds for its clients, a line for each state."""
    return remote("cat /proc/fs/nfsd/clients/*/states").splitlines()


def is_held(name):
    """Whether a client has a delegation of this file. The client may hold others, long after close."""
    return any("type: deleg" in state and f"/{name}\"" in state for state in states())


def granted(mount):
    """Whether the server grants a delegation for a file that nobody else has open."""
    path = f"{mount.path}/first"
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii") as f:
            f.write("x")
    with open(path, encoding="ascii"):
        if is_held("first"):
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
        if is_held(name):
            return name, f
        f.close()
        os.unlink(path)
        # The table is empty before the first recall.
        check(n > 0 and time.monotonic() < end, f"no delegation was granted:\n{states()}")
        time.sleep(1)


def first(mount):
    """Waits until the server grants delegations at all: not before its grace period has ended."""
    wait_for("a first delegation", 60, lambda: granted(mount))
    # Its delegation goes with it, so that others are told apart.
    os.unlink(f"{mount.path}/first")
    check(not any("type: deleg" in state for state in states()), "still held")


def recall(mount, n, meanwhile=lambda: None):
    """Holds a file open, has the server open it too, and waits for the recall to be answered.

    In between it does something else. Returns the file's name and how long the recall took.
    """
    name, f = held_file(mount, n)
    with f:
        meanwhile()
        before = rpc_counts(mount.path)["DELEGRETURN"]
        began = time.monotonic()
        # The server's own writer conflicts: it waits until the recall is answered.
        remote(f"echo changed {n} > {EXPORT}/{name}", timeout=60)
        took = time.monotonic() - began
        check(took < 5 * watchdog(), f"the recall took {took:.1f} s")
        # Its Reply may still be on its way.
        wait_for("DELEGRETURN", 5, lambda: rpc_counts(mount.path)["DELEGRETURN"] > before)
    return name, took
