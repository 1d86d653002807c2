#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The device of a server goes away under a listener at one address, and under connects that are under way.
# mode: pair
# server: ours
# fabrics: rxe siw
# soak-variants: two one
# kernels: uml
# soak-smoke: uml-kasan
# timeout: 300 1800
# rounds: 2 20
"""Nothing of the server keeps the device from going, and it serves again when the device is back."""

import os
import sys
import threading
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Mount, NFS_PORT, ROOT, check, digest, log, pattern, read, remote,  # noqa: E402
                    remote_call, rounds, slowness, status, wait_for)
from faults import unchanged_memory  # noqa: E402

#: A port at which the server listens at its one address only.
BOUND = NFS_PORT + 1


def listen():
    """Has the server listen at its own address, beside all addresses."""
    remote_call("nfsd_stop")
    # Only a server without threads takes addresses.
    remote(f"nfsdctl listener +rdma:$OWN_ADDR:{BOUND}")
    remote_call("nfsd_start")
    check(str(BOUND) in remote("cat /proc/fs/nfsd/portlist"), "the server does not listen")


def storm(seconds):
    """Mounts that come and go until the time is over, whatever becomes of them."""
    path = f"{ROOT}/storm"
    os.makedirs(path, exist_ok=True)
    options = f"proto=rdma,vers=4.2,port={NFS_PORT},soft,timeo=5,retrans=1,retry=0"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # The server may refuse, or say nothing for want of a device.
        status("timeout", "-s", "KILL", "3", "mount", "-t", "nfs", "-o", options,
               f"{os.environ['PEER_ADDR']}:/export", path)
        status("umount", "-f", path)


def clients():
    """What the NFS client knows of servers: a line for each, below a heading."""
    return read("/proc/fs/nfsfs/servers").splitlines()[1:]


def once(n):
    """Removes the device while connections are being made, and adds it again."""
    listen()
    mounts = threading.Thread(target=storm, args=(3 * slowness(),))
    mounts.start()
    time.sleep(0.5)
    began = time.monotonic()
    # The command ends when nothing holds the device any more.
    remote("rdma link del $RDMADEV", timeout=30)
    took = time.monotonic() - began
    remote("rdma link add $RDMADEV type $FABRIC netdev $NETDEV")
    mounts.join()
    check(str(BOUND) not in remote("cat /proc/fs/nfsd/portlist"),
          "a listener without a device is still there")
    # With NFSv4.2 a mount takes over what an earlier one to the same server has left. The
    # storm's is soft: when its RECLAIM_COMPLETE has timed out the NFS client never sends
    # another, and no file can be opened.
    wait_for("the storm's NFS client to go", 60, lambda: not clients())
    with Mount("4.2") as mount:
        data = pattern(n, 300_001)
        with open(f"{mount.path}/f", "wb") as f:
            f.write(data)
        wrong = remote_call("verify", manifest={"f": [len(data), digest(data)]})
        check(not wrong, f"the server's file differs: {wrong}")
    log(f"round {n}: the device was gone after {took:.1f} s")


def client():
    """All rounds."""
    with unchanged_memory("4.2"):
        for n in range(rounds()):
            once(n)


main(client)
