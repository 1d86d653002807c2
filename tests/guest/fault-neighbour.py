#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The link address of an end changes under I/O load, as when a service moves to another machine.
# mode: pair
# fabrics: rxe
# soak-fabrics: rxe siw
# variants: 4.2@ours-ours
# kernels: uml
# soak-smoke: uml-sanitize
# soak-variants: 4.2 4.2@ours-ours 4.2@ours-ours-one
# soak-smoke-variants: 4.2@ours-ours 4.2@ours-ours-one
# timeout: 300 1800
# rounds: 1 10
"""A neighbour has another link address from now on, and the other end hears of it.

Over RoCE the connection manager tells a client that its server is unreachable, since a Queue Pair
sends to the link address that was resolved for it. The mount connects anew at once, and does not
wait until a request has been sent again in vain. What a Queue Pair of a server sends to follows a
client's address where the device asks the kernel for each packet, which rxe does; siw has TCP.
"""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, log, netdev, remote, rounds, run, watchdog  # noqa: E402
from faults import Load, connects, heal_device, heal_server_device, unchanged_memory  # noqa: E402

#: Locally administered, like those of the guests.
OTHER = "02:00:00:00:98:0{}"
#: Seconds until a mount goes on at most; an unanswered request is sent again for longer.
LIMIT = 5


def take_address(address, peer):
    """What an end does to have another link address; that of its peer is lost with the link."""
    return (f"ip link set $NETDEV down && ip link set $NETDEV address {address} && "
            "ip link set $NETDEV up && ip -6 addr replace $OWN_ADDR6/64 dev $NETDEV nodad && "
            f"{hear(peer)}")


def hear(address):
    """What an end does that hears of its peer's new address."""
    return ("for peer in $PEER_ADDR $PEER_ADDR6; do "
            f"ip neigh replace $peer lladdr {address} dev $NETDEV nud permanent; done")


def link_address():
    """That of this guest."""
    with open(f"/sys/class/net/{netdev()}/address", encoding="ascii") as f:
        return f.read().strip()


def move_server(mount, load, address):
    """The server has another address: the connection ends at once, and the next one is to there."""
    before = connects(mount)
    # What it answers would be acknowledged to where it is no more; and a request for a connection
    # that comes before its link is back is only sent again after 4 s.
    remote(take_address(address, link_address()), wait=False)
    time.sleep(1)
    run("bash", "-c", hear(address))
    os.environ["PEER_MAC"] = address
    heal_server_device()
    took = load.wait_progress("the server's move", heal=heal_server_device)
    log(f"the server is at {address}: progress after {took:.1f} s, "
        f"{connects(mount) - before} new connections")
    if os.environ["FABRIC"] == "rxe":
        check(connects(mount) > before, "the connection to the old address has not ended")
    check(took < LIMIT * watchdog(), "the mount has waited")


def move_client(load, address):
    """The same of the client."""
    # Nor does an answer come to where the client was.
    remote(f"sleep 0.2; {hear(address)}", wait=False)
    run("bash", "-c", take_address(address, os.environ["PEER_MAC"]))
    heal_device()
    took = load.wait_progress("the client's move", heal=heal_device)
    log(f"the client is at {address}: progress after {took:.1f} s")


def client():
    """Each round moves the server, then the client, and both back."""
    vers = os.environ["VARIANT"]
    server = os.environ["PEER_MAC"]
    own = link_address()
    with unchanged_memory(vers), Mount(vers) as mount, Load(mount) as load:
        for n in range(rounds()):
            log(f"round {n}")
            for to_server, to_client in ((OTHER.format(2), OTHER.format(1)), (server, own)):
                move_server(mount, load, to_server)
                time.sleep(0.5)
                move_client(load, to_client)
                time.sleep(0.5)
        load.stop()


main(client)
