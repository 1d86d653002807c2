#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The module is held by mounts, goes at once afterwards, and never loads beside the stock one.
# mode: pair
# fabrics: rxe
# soak-fabrics: rxe hca
# variants-hca: @ours-ours @stock-stock
# kernels: uml
# smoke: debian
# timeout: 300 600
"""Reference count, unloading, and a second module of the same name."""

import errno
import os
import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Mount, check, log, module_back, module_free, module_loaded, module_refs,  # noqa: E402
                    one_guest, run, status, wait_for)


def client():
    """rmmod is refused while mounted, and succeeds as soon as the mount is gone."""
    start = module_refs()
    check(start == 0 or one_guest(), f"the idle module has {start} references")
    for vers in ("4.2", "3"):
        with Mount(vers) as mount:
            check(module_refs() > start, "a mount holds no reference")
            code, out = status("rmmod", "rpcrdma")
            check(code != 0 and "in use" in out, f"rmmod while mounted: {code} {out}")
            with open(f"{mount.path}/x", "wb") as f:
                f.write(bytes(100_000))
        took = wait_for("release of the transport", 30, lambda: module_refs() == start)
        log(f"vers={vers}: last reference gone {took:.2f} s after the unmount")
    # The same name again: the kernel refuses before any code of the second runs.
    for ko in {os.environ["STOCK_KO"], os.environ.get("OURS_KO") or os.environ["STOCK_KO"]}:
        if os.path.exists(ko):
            code, out = status("insmod", ko)
            check(code != 0 and os.strerror(errno.EEXIST) in out, f"second module: {code} {out}")
    with Mount("4.2"):
        pass
    module_free()
    run("rmmod", "rpcrdma")
    check(not module_loaded(), "the module is still there")
    for line in run("ps", "axo", "comm").splitlines():
        check("rpcrdma" not in line and "xprtrdma" not in line, f"a worker was left behind: {line}")
    run("insmod", os.environ["MODULE_KO"])
    module_back()
    with Mount("4.2") as mount, open(f"{mount.path}/x", "rb") as f:
        check(f.read() == bytes(100_000), "contents after the module came back")


main(client)
