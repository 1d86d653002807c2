#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A host that answers no RDMA: mounting it and following a referral to it take one attempt.
# mode: pair
# fabrics: rxe
# variants: mount@ours-ours
# soak-variants: mount mount@ours-ours mount@ours-ours-one referral@ours-ours referral
# control-variants: mount@stock-stock referral@stock-stock
# kernels: uml
# light: yes
# timeout: 200 600
"""Tasks that fail without a connection fail after one attempt, which takes 30 s if nobody answers.

mount       mount(2) of an address whose host has no RDMA device there
referral    a process walks into a referral to that address. The kernel tries RDMA first, then TCP
"""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (ROOT, TRACING, Failure, Mount, check, log, mount_raw,  # noqa: E402
                    netdev, read, remote, run, status)
from nfs_server import EXPORT  # noqa: E402

SILENT = "10.99.0.53"
#: Where the referral is, below the root of the exports.
PLACE = "elsewhere"


def attempts():
    """The errors of all attempts to connect to that address."""
    return [line.rsplit("error=", 1)[1] for line in read(f"{TRACING}/trace").splitlines()
            if "rpcrdma_rs_connect:" in line and f"[{SILENT}]" in line]


def mount_it():
    """mount(2) itself: mount.nfs would try again for two minutes."""
    options = (f"proto=rdma,port=20049,vers=4.2,addr={SILENT},clientaddr={os.environ['OWN_ADDR']}")
    try:
        mount_raw(f"{SILENT}:/", f"{ROOT}/dead", options)
    except Failure as e:
        log(str(e))
        check("EHOSTUNREACH" in str(e) or os.environ["MODULE"] != "ours", str(e))
        return
    raise Failure("a host without RDMA is mounted")


def follow():
    """The export has a directory that is on the other host, says the server."""
    remote(f"touch {EXPORT}/inside; mkdir {ROOT}/{PLACE}; "
           f"mount --bind {ROOT}/{PLACE} {ROOT}/{PLACE}; "
           "exportfs -i -o rw,no_root_squash,insecure,no_subtree_check,fsid=53,"
           f"refer=/export@{SILENT} '*:{ROOT}/{PLACE}'")
    with Mount("4.2", export="/") as mount:
        code, out = status("ls", f"{mount.path}/{PLACE}/", timeout=240)
        check(not code and "inside" in out, out)
        run("umount", f"{mount.path}/{PLACE}")


def client():
    """The address is one of the server, which has no RDMA device on it."""
    remote(f"ip addr add {SILENT}/32 dev lo")
    run("ip", "neigh", "replace", SILENT, "lladdr", os.environ["PEER_MAC"], "dev", netdev(),
        "nud", "permanent")
    began = time.monotonic()
    {"mount": mount_it, "referral": follow}[os.environ["VARIANT"]]()
    log(f"over after {time.monotonic() - began:.1f} s; attempts ended with {attempts()}")
    # The stock module's are not seen.
    if os.environ["MODULE"] == "ours":
        check(len(attempts()) == 1, f"{len(attempts())} attempts")


main(client)
