#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The server's RDMA Reads and Writes go through memory regions, as an administrator may have it.
# mode: pair
# fabrics: rxe
# variants: 4.2@stock-ours
# soak-variants: 4.2@ours-ours 3@ours-ours-one 3@stock-ours
# kernels: uml
# kernel-options: ib_core.force_mr=1
# timeout: 300 900
"""`force_mr` of ib_core: no device needs regions for RDMA Writes, so nothing else has a Reply wait for
regions. Sixteen processes at a time write and read. A stock client has nine segments in a READ, so
that regions are few.
"""

import concurrent.futures
import mmap
import os
import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, log, pattern, remote, soak, xprt_stats  # noqa: E402

#: Processes.
JOBS = 16
#: Octets of a file, and of one READ or WRITE.
SIZE = 4 << 20
STEP = 1 << 20


def work(path, seed):
    """Writes a file and reads it, past the cache, as often as counts."""
    buffer = mmap.mmap(-1, STEP)
    for n in range(20 if soak() else 4):
        data = pattern((seed, n), SIZE)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
        try:
            for at in range(0, SIZE, STEP):
                buffer[:] = data[at:at + STEP]
                check(os.pwritev(fd, [buffer], at) == STEP, f"{path}: a short write")
            for at in range(0, SIZE, STEP):
                check(os.preadv(fd, [buffer], at) == STEP, f"{path}: a short read")
                check(buffer[:] == data[at:at + STEP], f"{path}: differs from {at} on")
        finally:
            os.close(fd)


def client():
    """Many processes; what they read is what they wrote, and the connection stays."""
    with Mount(os.environ["VARIANT"]) as mount:
        with concurrent.futures.ProcessPoolExecutor(JOBS) as pool:
            for done in [pool.submit(work, f"{mount.path}/forced-{n}", n) for n in range(JOBS)]:
                done.result()
        stats = xprt_stats(mount.path)
        log(f"counters: {stats}")
        check(stats["connect_count"] == 1, f"connected {stats['connect_count']} times")
        regions = int(remote("rdma res show mr | grep -c mrn"))
        waits = remote("grep -rh out_of_regions /sys/kernel/debug/rpcrdma/server | sort -u")
        log(f"the server has {regions} regions; {waits.strip()}")
        check(regions >= 8, "the server uses no regions")


main(client)
