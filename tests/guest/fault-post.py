#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A device that refuses to invalidate a region, or to send a Reply: the connection ends, and no RPC is lost.
# mode: pair
# server: ours
# client: ours
# fabrics: rxe
# variants: 4.2 two
# kernels: uml
# soak-smoke: uml-sanitize
# timeout: 150 300
# rounds: 1 20
"""RFC 8166, 4.5.4, and 7.4 of the draft of Version Two: who can't do it ends the connection."""

import os
import sys

sys.path.insert(0, "tests/lib")
import tap  # noqa: E402
from case import main, set_version  # noqa: E402
from common import (Mount, check, digest, log, pattern, read, remote, remote_call, rounds, run,  # noqa: E402
                    wait_for, write, xprt_stats)

PARAMETERS = "/sys/module/rdmatap/parameters"
#: Octets of a file: of many regions. The server can invalidate one of those of a Call.
LENGTH = 1 << 20


def store(mount, n):
    """Writes a file, so that it is at the server when this returns; its name and what is in it."""
    name, data = f"refused{n}", pattern(f"refused {n}", LENGTH)
    fd = os.open(f"{mount.path}/{name}", os.O_WRONLY | os.O_CREAT | os.O_SYNC)
    with os.fdopen(fd, "wb", buffering=0) as f:
        check(f.write(data) == LENGTH, "short write")
    return name, data


def stored(name, data):
    """Compares what the server has."""
    check(remote_call("verify", manifest={name: [LENGTH, digest(data)]}) == [], "the server has other data")


def invalidation(mount, n):
    """The client's device takes no LOCAL_INV, once."""
    connects = xprt_stats(mount.path)["connect_count"]
    before = tap.counters()["local_invs"]
    stored(*store(mount, 1000 + n))
    check(tap.counters()["local_invs"] > before, "nothing is invalidated here")
    check(xprt_stats(mount.path)["connect_count"] == connects, "the connection was lost before")
    write(f"{PARAMETERS}/refuse_local_invs", "1")
    stored(*store(mount, n))
    check(read(f"{PARAMETERS}/refuse_local_invs").strip() == "0", "no LOCAL_INV was refused")
    wait_for("another connection", 60, lambda: xprt_stats(mount.path)["connect_count"] > connects)


def reply(mount, _n):
    """The server's device takes no Send, once."""
    connects = xprt_stats(mount.path)["connect_count"]
    remote(f"echo 1 > {PARAMETERS}/refuse_sends")
    wait_for("the refusal", 30, lambda: os.statvfs(mount.path) and
             remote(f"cat {PARAMETERS}/refuse_sends").strip() == "0")
    wait_for("another connection", 60, lambda: xprt_stats(mount.path)["connect_count"] > connects)
    os.statvfs(mount.path)


def client():
    """Both, one after the other, on one mount."""
    tap.insert()
    tap.Server.insert()
    run("rmmod", "rpcrdma")
    run("insmod", os.environ["MODULE_KO"], "max_region_pages=32")
    set_version()
    with Mount("4.2") as mount:
        for n in range(rounds()):
            invalidation(mount, n)
            reply(mount, n)
            log(f"round {n}: {xprt_stats(mount.path)['connect_count']} connections")


main(client)
