#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# An NFS server inside a network namespace, with its own network and RDMA device.
# mode: pair
# server: ours
# fabrics: rxe
# variants: 4.2@ours-ours
# interop-fabrics: rxe siw
# interop-variants: 4.2@ours-stock 4.2@ours-ours 4.2@ours-ours-one 4.2@stock-ours
# control-variants: 4.2@stock-stock
# kernels: uml
# soak-variants: 4.2@ours-ours 3@ours-ours 4.2@ours-ours-one 4.2@stock-ours
# soak-smoke: uml-sanitize
# soak-smoke-variants: 4.2@ours-ours
# timeout: 300 300
"""All of the server's processes are in a namespace of their own: it listens there, takes its
connections from there, and calls its clients back from there."""

import os
import sys

sys.path.insert(0, "tests/lib")
import delegations  # noqa: E402
import nfs_server  # noqa: E402
import versions  # noqa: E402
import workload  # noqa: E402
from case import main  # noqa: E402
from common import (LIBC, Mount, check, child, log, netdev, rdmadev, remote,  # noqa: E402
                    remote_call, run, wait_for, xprt_stats)

CLONE_NEWNET = 0x40000000


def move_device(pid, ready):
    """Moves the network device to the namespace of a process, as soon as that has one."""
    os.read(ready, 1)
    run("ip", "link", "set", netdev(), "netns", str(pid))


def server():
    """Makes the namespace, has the device come there, and then does what every server does."""
    run("rdma", "link", "del", rdmadev())
    ready, tell = os.pipe()
    me = os.getpid()
    mover = child(lambda: move_device(me, ready), "mover")
    check(LIBC.unshare(CLONE_NEWNET) == 0, "unshare")
    os.write(tell, b"x")
    _, st = os.waitpid(mover, 0)
    check(st == 0, "the device did not come")
    run("ip", "link", "set", "lo", "up")
    run("ip", "addr", "add", os.environ["OWN_ADDR"] + "/24", "dev", netdev())
    run("ip", "-6", "addr", "add", os.environ["OWN_ADDR6"] + "/64", "dev", netdev(), "nodad")
    run("ip", "link", "set", netdev(), "up")
    for address in ("PEER_ADDR", "PEER_ADDR6"):
        run("ip", "neigh", "replace", os.environ[address], "lladdr", os.environ["PEER_MAC"],
            "dev", netdev(), "nud", "permanent")
    run("rdma", "link", "add", rdmadev(), "type", os.environ["FABRIC"], "netdev", netdev())
    nfs_server.main()


def connections():
    """How many Queue Pairs the server's device has for connections."""
    return int(remote("rdma res show qp link $RDMADEV | grep -c 'type RC'", ok=(0, 1)))


def use(mount, n):
    """Data both ways, and a Call of the server's, all over one connection."""
    # First, since the workload leaves delegations behind.
    if mount.vers != "3":
        delegations.first(mount)
        name, took = delegations.recall(mount, n)
        os.unlink(f"{mount.path}/{name}")
        log(f"a recall took {took:.2f} s")
    workload.everything(mount, (workload.tree, workload.direct))
    versions.check_version()
    check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")


def client():
    """Mounts, and does so again when the service has ended and begun anew."""
    remote("test $(readlink /proc/self/ns/net) != $(readlink /proc/1/ns/net)")
    with Mount(os.environ["VARIANT"]) as mount:
        use(mount, 0)
    remote_call("clean")
    remote_call("nfsd_stop")
    wait_for("the end of all connections", 30, lambda: connections() == 0)
    check("rdma" in remote_call("nfsd_start"), "the listener did not come back")
    remote("echo Y > /proc/fs/nfsd/v4_end_grace", ok=None)
    with Mount(os.environ["VARIANT"]) as mount:
        use(mount, 1)


main(client, server)
