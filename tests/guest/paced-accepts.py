#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Silent TCP connections to the NFS port do not slow the accepting of connections over RDMA.
# mode: pair
# server: ours
# client: ours
# fabrics: rxe
# variants: one
# soak-variants: one two
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep
# timeout: 240 900
# rounds: 20 200
"""SUNRPC counts connections of all transports whose peers have not shown a file handle, and ends the
oldest when there are more than 64. The listener pauses before it accepts another one while too many of
these are its own. The server counts the pauses, so nothing here is judged by a clock."""

import contextlib
import os
import socket
import sys
import threading

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, log, remote, rounds, xprt_stats  # noqa: E402
from quick_mount import QuickMount  # noqa: E402

#: Monitors and scanners that say nothing: as many as would be a crowd over RDMA, and fewer than SUNRPC ends.
SILENT = 40
#: How many more than SUNRPC lets be, at least. Then it ends one for each that comes.
RENEWED = 80
COUNTER = "/proc/sys/sunrpc/svc_rdma/accepts_paced"


def paced():
    """How often the listener has paused."""
    return int(remote(f"cat {COUNTER}"))


def silent():
    """A TCP connection to the NFS port."""
    return socket.create_connection((os.environ["PEER_ADDR"], 2049), timeout=60)


def mounts(what):
    """Mounts in a row, and some with many connections each; returns how often the listener paused."""
    before = paced()
    for n in range(rounds()):
        with QuickMount("4.2", where="quick") as mount:
            os.stat(f"{mount.path}")
        if n % 10 == 0:
            with Mount("4.1", where="wide", options="nconnect=8") as mount:
                for _ in range(32):
                    os.statvfs(mount.path)
                stats = xprt_stats(mount.path, total=False)
                check(len(stats) == 8, f"{len(stats)} transports")
    pauses = paced() - before
    log(f"{what}: {rounds()} mounts, {pauses} pauses")
    return pauses


class Renewed(threading.Thread):
    """TCP connections that keep coming: the oldest goes when the next one has come."""

    def __init__(self):
        super().__init__(daemon=True)
        self.sockets, self.come, self.stop = [silent() for _ in range(RENEWED)], 0, False

    def run(self):
        while not self.stop:
            with contextlib.suppress(OSError):
                self.sockets.append(silent())
                self.come += 1
            self.sockets.pop(0).close()


def crowd():
    """Connections over RDMA that say nothing: for those the listener pauses as before."""
    from hostile_caller import Caller
    before = paced()
    first = Caller(receives=1)
    others = [first]
    for _ in range(30):
        others.append(Caller(receives=1, memory=first.memory))
    pauses = paced() - before
    log(f"{len(others)} silent connections over RDMA: {pauses} pauses")
    check(0 < pauses <= len(others), "the listener did not pause, or too often")
    for other in others:
        other.close()


def client():
    """Mounts without, beside silent ones, and beside those that keep coming."""
    check(mounts("no TCP connections") == 0, "paused without a crowd")
    connections = [silent() for _ in range(SILENT)]
    check(mounts(f"{SILENT} silent TCP connections") == 0, "paused for TCP connections")
    for connection in connections:
        connection.close()
    renewed = Renewed()
    renewed.start()
    pauses = mounts("TCP connections that keep coming")
    renewed.stop = True
    renewed.join()
    log(f"{renewed.come} TCP connections came meanwhile")
    check(renewed.come > RENEWED, "hardly any TCP connection came")
    # Only while the oldest newcomer was one over RDMA.
    check(pauses <= rounds() * 2, "paused for each connection")
    for connection in renewed.sockets:
        connection.close()
    crowd()


main(client)
