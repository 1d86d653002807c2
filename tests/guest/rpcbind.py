#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# NFSv3 with the port asked from the server's rpcbind, and a port where nobody listens.
# mode: pair
# fabrics: rxe
# kernels: uml
# timeout: 300 300
"""The transport is not bound when it is made, and asks for its port."""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (NFS_PORT, ROOT, check, host, is_v6, log,  # noqa: E402
                    module_refs, mount_raw, read, remote, run, watchdog, status, wait_for, xprt_stats)
from nfs_server import EXPORT  # noqa: E402


def lookup(peer, port):
    """Mounts with port 0, for which the kernel asks the server's rpcbind."""
    six = "6" if is_v6(peer) else ""
    path = f"{ROOT}/rpcb{six}"
    mount_raw(f"{host(peer)}:{EXPORT}", path,
              f"addr={peer},vers=3,proto=rdma{six},mountproto=tcp{six},mountvers=3,"
              f"mountaddr={peer},port=0,nolock")
    shown = [l for l in read("/proc/mounts").splitlines() if l.split()[1] == path][0]
    log(f"mounted: {shown}")
    check(f"proto=rdma{six}," in shown, "not mounted over RDMA")
    stats = xprt_stats(path)
    check(stats["bind_count"] > 0, "the port was not asked for")
    info = remote("cat /proc/fs/nfsd/portlist")
    check(f"rdma {port}" in info, info)
    with open(f"{path}/x", "w", encoding="ascii") as f:
        f.write("x")
    os.unlink(f"{path}/x")
    run("umount", path)


def client():
    """port=0 makes the transport ask; another port is refused quickly."""
    before = module_refs()
    # Over IPv4 SUNRPC asks with version 2, which knows only protocols, and so gets
    # the port of TCP: the RDMA listener must be there too.
    remote("echo 'rdma 2049' > /proc/fs/nfsd/portlist")
    lookup(os.environ["PEER_ADDR"], 2049)
    # Over IPv6 it asks for the netid.
    remote(f"python3 tests/lib/rpcb_set.py rdma6 {NFS_PORT}")
    check("rdma6" in remote("rpcinfo"), "rpcbind does not know the listener")
    lookup(os.environ["PEER_ADDR6"], NFS_PORT)
    wait_for("release of the transport", 30, lambda: module_refs() == before)
    began = time.monotonic()
    path = f"{ROOT}/refused"
    os.makedirs(path, exist_ok=True)
    code, out = status("mount", "-t", "nfs", "-o",
                       "proto=rdma,vers=4.2,port=20050,retry=0,soft,timeo=50,retrans=1",
                       f"{host(os.environ['PEER_ADDR'])}:/export", path, timeout=100)
    took = time.monotonic() - began
    check(code != 0, "mounted where nobody listens")
    check(took < 90 * watchdog(), f"took {took:.0f} s to fail")
    log(f"no listener: {out.strip()} after {took:.1f} s")
    wait_for("release of the transport", 30, lambda: module_refs() == before)


main(client)
