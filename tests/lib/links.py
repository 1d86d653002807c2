# SPDX-License-Identifier: GPL-2.0
"""Two links between the guests, each with a network, an RDMA device and a cable of its own.

A guest has one network device. It becomes a port of a bridge, and so does the far end of a `veth`
pair for each link: that end is the port of a switch. When it is taken out, either end of the link
stays up and is told nothing; with a link that goes down rxe would lose its connection manager, see
`faults.heal_device`. The guests' own addresses stay on the bridge, so that they can always talk.
"""

import os

from common import remote, run

#: How many there are.
LINKS = range(2)


def address(link, host):
    """The address of an end of a link: host 1 is the server, 2 the client."""
    return f"10.77.{link}.{host}"


def lladdr(link, host):
    """The link address of that end."""
    return f"02:00:00:77:{link:02x}:{host:02x}"


def make():
    """Makes this guest's ends, in place of its RDMA device."""
    device, kind = os.environ["NETDEV"], os.environ["FABRIC"]
    with open(f"/sys/class/net/{device}/address", encoding="ascii") as f:
        own = f.read().strip()
    with open(f"/sys/class/net/{device}/mtu", encoding="ascii") as f:
        mtu = f.read().strip()
    host, peer = (1, 2) if os.environ["ROLE"] == "server" else (2, 1)
    run("rdma", "link", "del", os.environ["RDMADEV"])
    run("ip", "link", "add", "switch", "address", own, "mtu", mtu, "type", "bridge",
        "forward_delay", "0")
    run("ip", "addr", "flush", "dev", device)
    run("ip", "link", "set", device, "master", "switch")
    run("ip", "link", "set", "switch", "up")
    run("ip", "addr", "add", f"{os.environ['OWN_ADDR']}/24", "dev", "switch")
    run("ip", "neigh", "replace", os.environ["PEER_ADDR"], "lladdr", os.environ["PEER_MAC"],
        "dev", "switch", "nud", "permanent")
    for link in LINKS:
        run("ip", "link", "add", f"link{link}", "address", lladdr(link, host), "mtu", mtu,
            "type", "veth", "peer", "name", f"port{link}", "mtu", mtu)
        run("ip", "link", "set", f"port{link}", "master", "switch")
        for name in (f"link{link}", f"port{link}"):
            run("ip", "link", "set", name, "up")
        run("ip", "addr", "add", f"{address(link, host)}/24", "dev", f"link{link}")
        run("ip", "neigh", "replace", address(link, peer), "lladdr", lladdr(link, peer),
            "dev", f"link{link}", "nud", "permanent")
        run("rdma", "link", "add", f"{kind}{link}", "type", kind, "netdev", f"link{link}")


def cut(link, end="server"):
    """Takes the port at that end out of the switch."""
    _port(link, end, "nomaster")


def mend(link, end="server"):
    """Puts it back."""
    _port(link, end, "master switch")


def _port(link, end, words):
    """Changes the port of the switch at an end of a link."""
    command = f"ip link set port{link} {words}"
    if end == "server":
        remote(command)
    else:
        run(*command.split())
