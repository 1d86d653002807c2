#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Work requests for each RPC, counted at the client's Queue Pair, ours and stock.
# mode: pair
# fabrics: rxe
# kernels: uml
# timeout: 300 300
"""One registration for an aligned 1 MiB over rxe, and fewer requests than the stock module."""

import os
import sys

sys.path.insert(0, "tests/lib")
import tap  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, fabric, log, module_refs, run, wait_for  # noqa: E402

SIZES = (4096, 65536, 131072, 262144, 524288, 1 << 20)


def measure(ko):
    """The figures of one module: (size, writing) -> counters for each operation."""
    # SUNRPC ends a transport some time after it was unmounted.
    wait_for("release of the transport", 30, lambda: module_refs() == 0)
    run("rmmod", "rpcrdma")
    run("insmod", ko)
    result = {}
    with Mount("4.2") as mount:
        path = f"{mount.path}/counted"
        with open(path, "wb") as f:
            f.write(bytes(8 << 20))
        for size in SIZES:
            for writing in (False, True):
                (result[size, writing],) = tap.per_operation(path, size, writing, [tap])
    return result


def client():
    """Compares what both modules post."""
    tap.insert()
    stock = measure(os.environ["STOCK_KO"])
    own = measure(os.environ["MODULE_KO"])
    for (size, writing), found in own.items():
        name = f"{size >> 10} KiB {'write' if writing else 'read'}"
        other = stock[size, writing]
        log(f"{name}: " + ", ".join(
            f"{k} {found[k]:.1f} ({other[k]:.1f})" for k in
            ("sends", "registrations", "local_invs", "remote_invs", "completions", "recvs")))
        check(found["errors"] == 0, f"{name}: completions in error")
        check(found["sends"] >= 1 and found["completions"] >= 1, f"{name}: no message was sent")
        check(found["mapped"] >= (size if size > 4096 else 0), f"{name}: memory was not mapped")
        if os.environ["MODULE"] == "stock":
            continue
        if size > 131072:
            check(tap.work_requests(found) < tap.work_requests(other),
                  f"{name}: {tap.work_requests(found)} requests, stock {tap.work_requests(other)}")
        if size == 1 << 20 and fabric() == "rxe":
            check(found["registrations"] == 1, f"{name}: {found['registrations']} registrations")
            check(found["remote_invs"] == 1, f"{name}: {found['remote_invs']} remote invalidations")
            check(found["local_invs"] == 0, f"{name}: {found['local_invs']} local invalidations")


main(client)
