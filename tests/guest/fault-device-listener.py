#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The device of a server goes away under a listener at one address, with and without threads, and under connects.
# mode: pair
# server: ours
# fabrics: rxe
# soak-fabrics: rxe siw
# soak-variants: two one
# kernels: uml
# soak-smoke: uml-sanitize
# timeout: 300 1800
# rounds: 2 20
"""Nothing of the server keeps the device from going, and it serves again when the device is back: where it
listens at all addresses, and where it listens at that of the device."""

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


def remove():
    """Removes the server's device. Returns how long it took."""
    began = time.monotonic()
    # The command ends when nothing holds the device any more.
    remote("rdma link del $RDMADEV", timeout=30)
    return time.monotonic() - began


def add():
    """Has the server's device back."""
    remote("rdma link add $RDMADEV type $FABRIC netdev $NETDEV")


def listen(early):
    """Has the server listen at its own address, beside all addresses.

    The device goes away and comes back before the server has threads, if it is that `early`.
    """
    remote_call("nfsd_stop")
    # Only a server without threads takes addresses.
    remote(f"nfsdctl listener +rdma:$OWN_ADDR:{BOUND}")
    if early:
        log(f"without threads the device was gone after {remove():.1f} s")
        add()
    remote_call("nfsd_start")
    check(str(BOUND) in remote("cat /proc/fs/nfsd/portlist"), "the server does not listen")
    if early:
        use(BOUND, "early")


def use(port, name):
    """Writes a file through this port, as soon as somebody listens there."""
    # With NFSv4.2 a mount takes over what an earlier one to the same server has left, and its
    # connection. The storm's is soft: when its RECLAIM_COMPLETE has timed out the NFS client
    # never sends another, and no file can be opened.
    wait_for("the former NFS client to go", 60, lambda: not clients())

    def mounted():
        """Whether there is a mount now."""
        out = mount.mount(ok=None)
        return os.path.ismount(mount.path) or log(out.strip())

    mount = Mount("4.2", port=port, options="retry=0")
    wait_for(f"a mount through port {port}", 60, mounted)
    data = pattern(name, 300_001)
    with open(f"{mount.path}/{name}", "wb") as f:
        f.write(data)
    mount.umount()
    wrong = remote_call("verify", manifest={name: [len(data), digest(data)]})
    check(not wrong, f"the server's file differs: {wrong}")


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
    listen(early=n % 2 == 0)
    mounts = threading.Thread(target=storm, args=(3 * slowness(),))
    mounts.start()
    time.sleep(0.5)
    took = remove()
    add()
    mounts.join()
    for port in (NFS_PORT, BOUND):
        use(port, f"through-{port}")
    log(f"round {n}: the device was gone after {took:.1f} s")


def client():
    """All rounds."""
    with unchanged_memory("4.2"):
        for n in range(rounds()):
            once(n)


main(client)
