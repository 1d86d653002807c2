#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Each setting of a client with each setting of a server: what they speak, on the first connection.
# mode: pair
# fabrics: rxe
# soak-fabrics: rxe siw
# server: ours
# variants: 4.2
# soak-variants: 3 4.0 4.1 4.2
# timeout: 300 600
"""Version One, the draft of 2016 and -07, at either end.

Two ends that want different protocols with version number two fall back to Version One, on the
connection that they have if the server says what it does not speak, else on the next one.
"""

import itertools
import os
import sys

sys.path.insert(0, "tests/lib")
import delegations  # noqa: E402
import versions  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, drop_caches, log, pattern, read, remote, rnr_events,  # noqa: E402
                    write, xprt_stats)

#: What a client is told, by what it is to offer.
CLIENTS = {"one": {"client_version": "1", "client_dialect": "07"},
           "07": {"client_version": "2", "client_dialect": "07"},
           "2016": {"client_version": "2", "client_dialect": "2016"}}
#: What a server is told, by what it is to accept beside Version One.
SERVERS = {"one": {"server_version": "1", "server_2016": "N"},
           "07": {"server_version": "2", "server_2016": "N"},
           "2016": {"server_version": "2", "server_2016": "Y"}}
#: What is spoken by a client, a row, and a server, a column. A server of 2016 speaks -07 as well.
SPOKEN = {"one": ("rfc8166", "rfc8166", "rfc8166"),
          "07": ("rfc8166", "draft-07", "draft-07"),
          "2016": ("rfc8166", "rfc8166", "draft-2016")}

#: Of recalls, since nfsd does not delegate again for a while what it has recalled.
RECALLS = itertools.count()


def states():
    """What both ends show of their connection."""
    here = versions.connections()
    there = [dict(line.split(": ", 1) for line in text.splitlines())
             for text in remote(f"cd {versions.DEBUGFS}/server && for n in *; do cat $n/state; echo; done",
                                ok=None).split("\n\n") if text.strip()]
    check(len(here) == len(there) == 1, f"connections: {here}, {there}")
    return here[0], there[0]


def use(mount):
    """Something of each kind: a callback, inline, with a chunk each way, a long Reply."""
    if os.environ["VARIANT"] in ("4.1", "4.2"):
        delegations.first(mount)
        name, took = delegations.recall(mount, next(RECALLS))
        log(f"  recall: {took:.2f} s")
        os.unlink(f"{mount.path}/{name}")
    for length in (1, 3000, 5000, 300_000):
        path = f"{mount.path}/use{length}"
        data = pattern("use", length)
        with open(path, "wb") as f:
            f.write(data)
        drop_caches()
        with open(path, "rb") as f:
            check(f.read() == data, f"{length} octets: other data read than written")
        os.unlink(path)
    names = {f"name.{n:03}.{'x' * 30}" for n in range(100)}
    for name in names:
        with open(f"{mount.path}/{name}", "wb"):
            pass
    drop_caches()
    check(names <= set(os.listdir(mount.path)), "names are missing")
    for name in names:
        os.unlink(f"{mount.path}/{name}")


def combination(client, server, expected):
    """One client with one server."""
    for name, value in CLIENTS[client].items():
        write(f"{versions.PARAMETERS}/{name}", value)
    for name, value in SERVERS[server].items():
        remote(f"echo {value} > {versions.PARAMETERS}/{name}")
    with Mount(os.environ["VARIANT"]) as mount:
        here, there = states()
        check(here["dialect"] == there["dialect"] == expected,
              f"{client} with {server}: {here['dialect']} and {there['dialect']}, not {expected}")
        use(mount)
        stats = xprt_stats(mount.path)
        check(stats["connect_count"] == 1, f"{client} with {server}: connected {stats['connect_count']} times")
        check(stats["bad_xids"] == 0 and stats["bad_reply"] == 0, f"bad Replies: {stats}")
        # They do not change what they speak.
        check([s["dialect"] for s in states()] == [expected] * 2, "another protocol at the end")
    check(rnr_events() == 0, "a message found no Receive")
    log(f"client {client}, server {server}: {expected}")


def settings():
    """Values that make no sense are refused, and change nothing."""
    for name, default, bad in (("client_dialect", "07", ("7", "2017", "", "one")),
                               ("server_2016", "N", ("maybe", "2016", ""))):
        path = f"{versions.PARAMETERS}/{name}"
        for value in bad:
            try:
                write(path, value + "\n")
            except OSError:
                continue
            check(False, f"{name} may be {value!r}")
        check(read(path).strip() == default, f"{name} is {read(path).strip()}, and not {default}")


def client():
    """All of them, one after the other; each setting makes the client forget what it knows."""
    settings()
    for offered, row in SPOKEN.items():
        for accepted, expected in zip(SERVERS, row):
            combination(offered, accepted, expected)


main(client)
