#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# NFSv3 with the port asked from the server's rpcbind, and a port where nobody listens.
# mode: pair
# fabrics: rxe
# kernels: uml
# timeout: 120 300
"""rpcbind knows the RDMA listener under the netids rdma and rdma6."""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Failure, Mount, check, host, log, remote, run, slowness, status,  # noqa: E402
                    wait_for, module_refs, ROOT)


def client():
    """port=0 makes the transport ask; another port is refused quickly."""
    before = module_refs()
    listed = remote("rpcinfo")
    if "rdma" not in listed:
        # The server of Linux does not register its RDMA listener: do what another would.
        remote("rpcinfo >/dev/null; python3 tests/lib/rpcb_set.py rdma 20049")
        log("registered the listener by hand")
    check(" rdma " in remote("rpcinfo"), "rpcbind does not know the listener")
    mount = Mount("3", where="rpcb", port=None, options="port=0")
    with mount:
        log(f"mounted: {','.join(mount.shown)}")
        with open(f"{mount.path}/x", "w", encoding="ascii") as f:
            f.write("x")
        os.unlink(f"{mount.path}/x")
    wait_for("release of the transport", 30, lambda: module_refs() == before)
    began = time.monotonic()
    path = f"{ROOT}/refused"
    os.makedirs(path, exist_ok=True)
    code, out = status("mount", "-t", "nfs", "-o",
                       "proto=rdma,vers=4.2,port=20050,retry=0,soft,timeo=50,retrans=1",
                       f"{host(os.environ['PEER_ADDR'])}:/export", path, timeout=100)
    took = time.monotonic() - began
    check(code != 0, "mounted where nobody listens")
    check(took < 90 * slowness(), f"took {took:.0f} s to fail")
    log(f"no listener: {out.strip()} after {took:.1f} s")
    wait_for("release of the transport", 30, lambda: module_refs() == before)


main(client)
