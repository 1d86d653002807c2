#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# nfstest on mounts over RDMA, judged by captured frames: direct I/O, delegations, ALLOCATE.
# soak: only
# mode: pair
# fabrics: rxe
# variants: 4.2@ours-ours-one 4.2@stock-stock
# kernels: uml
# setup: suites
# timeout: 3600 3600
"""nfstest decodes RPC-over-RDMA Version One in frames of RoCEv2, and nothing of Version Two.

Frames are long enough here that no message is cut into several, whose chunks it would not see.
"""

import os
import sys

sys.path.insert(0, "tests/lib")
import nfstest  # noqa: E402
import suites  # noqa: E402
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount, remote  # noqa: E402
from nfs_server import EXPORT  # noqa: E402

#: tcpdump gets frames from the kernel once a second.
COMMON = ["--trcdelay", "1.5", "--iodelay", "0.02"]
#: Its second client is in this guest too, over TCP and with 4.0. It does not know the delegations
#: that the server gives with 4.2, which come with times.
DELEGATIONS = [("dio", "nfstest_dio", "4.1"), ("delegation", "nfstest_delegation", "4.1")]
#: It fills the file system, and takes quadratic time to make what it writes there. A block has
#: `wsize` octets: one is always free beyond what it counts, and the file that is to be too large
#: is larger by 64 KiB only. Whether ALLOCATE is faster than zeros is left out.
ALLOCATE = ["--free-blocks", "8", "--runtest", "alloc,dealloc"]
ALLOCATE_SIZE, ALLOCATE_IO = "16m", 32768


def client():
    """Runs each program in turn."""
    results = suites.Results("nfstest-packets")
    # It mounts as nfstest does, and shows that RDMA carries it.
    with Mount(os.environ["VARIANT"]) as mount:
        versions.check_version()
        size = mount.option("wsize")
    nfstest.prepare()
    for name, program, version in DELEGATIONS:
        nfstest.run(results, name, program, version,
                    [*COMMON, "--mtopts", f"hard,rsize={size},wsize={size}"])
    # No delegations: it would not find the stateid in use, and it tries locks only without them.
    remote(f"echo 0 > /proc/sys/fs/leases-enable && mount -o remount,size={ALLOCATE_SIZE} {EXPORT}")
    nfstest.run(results, "alloc", "nfstest_alloc", os.environ["VARIANT"],
                [*COMMON, *ALLOCATE, "--mtopts", f"hard,rsize={ALLOCATE_IO},wsize={ALLOCATE_IO}"])
    results.finish()


main(client)
