#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The server's file system is frozen, as for a snapshot: clients whose WRITEs wait there are not disconnected.
# mode: pair
# server: ours
# fabrics: rxe
# variants: 3
# soak-variants: 3 3@ours-ours-one 3@stock-ours
# kernels: uml
# light: yes
# timeout: 240 400
"""All threads of the server wait for the file system, and what was read from clients fills its memory.

Clients that answer no RDMA Reads are disconnected when memory is short. These have answered all: it is
the server who keeps it.
"""

import subprocess
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (ROOT, Failure, Mount, check, log, remote, watchdog, wait_for,  # noqa: E402
                    xprt_stats)

DEBUGFS = "/sys/kernel/debug/rpcrdma/server"
SYSCTL = "/proc/sys/sunrpc/svc_rdma/transfer_memory"
#: What all connections may have, in MiB.
MEMORY = 16
#: How long nothing is written, in seconds: longer than it takes to disconnect who keeps memory.
FROZEN = 50
CONNECTIONS = 8
#: What is written at a time, and how many WRITEs are under way.
SIZE, JOBS = 1 << 20, 64
#: A file system that can be frozen, and the file that it is in.
DISK, IMAGE = f"{ROOT}/frozen", f"{ROOT}/frozen.ext4"


def short():
    """Whether more than half of the memory is in use."""
    # A connection may end while it is read.
    text = remote(f"cat {DEBUGFS}/*/transfers 2>/dev/null", ok=None)
    pages = max((int(l.split(": ")[1]) for l in text.splitlines() if l.startswith("all_pages: ")), default=0)
    return pages > MEMORY << 7


def freeze():
    """Freezes the file system at a moment when memory is short, and stays so.

    What had been read just before may have been written, and no thread is left that would read more.
    """
    for _ in range(20):
        wait_for("memory to be short", 30, short, 0.01)
        remote(f"fsfreeze -f {DISK}")
        time.sleep(1)
        if short():
            return
        remote(f"fsfreeze -u {DISK}")
    raise Failure("memory is not short whenever the file system is frozen")


def client():
    """Writes before, while and after the file system is frozen."""
    remote("mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")
    remote(f"echo {MEMORY} > {SYSCTL}")
    remote(f"truncate -s 300M {IMAGE} && mkfs.ext4 -qF {IMAGE} && mkdir {DISK} && "
           f"mount -o loop {IMAGE} {DISK} && chmod 777 {DISK} && "
           f"exportfs -o rw,async,no_root_squash,insecure,no_subtree_check,fsid=7 '*:{DISK}'")
    with Mount("3", options=f"noac,timeo=1800,nconnect={CONNECTIONS},wsize={SIZE}", export=DISK) as mount:
        with open(f"{mount.path}/data", "wb") as f:
            f.write(bytes(2 * SIZE * JOBS))
        load = subprocess.Popen(
            ["fio", "--name=data", f"--filename={mount.path}/data", "--rw=write", f"--bs={SIZE}",
             "--direct=1", "--ioengine=libaio", f"--iodepth={JOBS}", f"--size={2 * SIZE * JOBS}",
             "--overwrite=1", f"--runtime={FROZEN}", "--time_based"], stdout=subprocess.DEVNULL)
        freeze()
        try:
            begun = time.monotonic()
            while time.monotonic() - begun < FROZEN:
                check(short(), f"memory is not short any more {time.monotonic() - begun:.0f} s later")
                time.sleep(5)
        finally:
            remote(f"fsfreeze -u {DISK}")
        check(load.wait(100 * watchdog()) == 0, "who writes has failed")
        transports = xprt_stats(mount.path, total=False)
        log(f"connected {[t['connect_count'] for t in transports]}, sends {[t['sends'] for t in transports]}")
        check(len(transports) == CONNECTIONS, "not all connections")
        check(all(t["connect_count"] == 1 for t in transports), "a client was disconnected")


main(client)
