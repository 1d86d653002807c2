#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# An outage that passes is no end of the network: a hard mount that would give up for that waits.
# mode: pair
# fabrics: rxe
# variants: neighbour@ours-ours namespace@ours-ours
# soak-variants: neighbour neighbour@ours-ours neighbour@ours-ours-one
# soak-variants: namespace@ours-ours silent@ours-ours
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep
# soak-smoke-variants: neighbour@ours-ours
# light: yes
# timeout: 200 400
"""With `fatal_neterrors=ENETUNREACH:ENETDOWN`, the default outside of the first network namespace,
an RPC that meets one of these errors ends with an I/O error. An attempt to connect that gets no
answer must not end with them.

neighbour   the server's entry among the neighbours is wrong for a moment, as in a failover. When it
            changes, the connection manager says that the peer is unreachable: of the connection at
            first, and then of the attempt to connect that is under way.
namespace   the same in a network namespace, without the option
silent      the server does not answer for longer than an attempt takes
"""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Mount, check, log, netdev, rounds, run, slowness, wait_for)  # noqa: E402
from containers import in_namespace  # noqa: E402
from faults import Load, connects  # noqa: E402

WHAT = os.environ["VARIANT"]
#: Nobody has this link address.
NOBODY = "02:00:00:00:98:99"
#: Seconds for which the server is silent; an attempt takes 30.
SILENCE = 80
FATAL = "fatal_neterrors=ENETUNREACH:ENETDOWN"


def look_for_server(address):
    """The server has this link address from now on."""
    run("ip", "neigh", "replace", os.environ["PEER_ADDR"], "lladdr", address, "dev", netdev(),
        "nud", "permanent")


def is_asking():
    """Whether the client has sent a request for a connection, which nobody has answered."""
    return "type RC state INIT" in run("rdma", "res", "show", "qp", quiet=True)


def outage():
    """What happens, until all is as it was."""
    if WHAT == "silent":
        run("tc", "qdisc", "change", "dev", netdev(), "root", "netem", "loss", "100%")
        time.sleep(SILENCE)
        run("tc", "qdisc", "change", "dev", netdev(), "root", "netem", "loss", "0%")
        return
    look_for_server(NOBODY)
    # The connection ends at once, and the request for the next one goes to nobody.
    wait_for("an attempt to connect", 30 * slowness(), is_asking)
    time.sleep(1)
    look_for_server(os.environ["PEER_MAC"])


def body():
    """Has processes write, read and compare during outages. The first error fails the case."""
    if WHAT == "silent":
        # A queueing discipline that is added under load may stop rxe's sending for good.
        run("tc", "qdisc", "add", "dev", netdev(), "root", "netem", "loss", "0%")
    options = "hard" if WHAT == "namespace" else f"hard,{FATAL}"
    with Mount("4.2", options=options) as mount:
        check("fatal_neterrors=ENETDOWN:ENETUNREACH" in mount.shown, f"shown: {mount.shown}")
        with Load(mount) as load:
            for n in range(rounds() if WHAT == "silent" else 3 * rounds()):
                before = connects(mount)
                outage()
                took = load.wait_progress("the end of the outage")
                check(connects(mount) > before, "the connection was not lost")
                log(f"outage {n}: progress after {took:.1f} s")
            load.stop()


def client():
    """Does so in the first namespace, or in one of its own."""
    if WHAT == "namespace":
        in_namespace(body)
    else:
        body()


main(client, rnr="the device was in a namespace" if WHAT == "namespace" else None)
