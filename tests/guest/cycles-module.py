#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The module is inserted and removed, again and again, with and without a mount in between.
# mode: pair
# fabrics: rxe hca
# soak-fabrics: rxe siw hca
# variants-rxe: mount@ours-ours
# variants-hca: mount@ours-ours
# soak-variants: mount mount@ours-ours
# kernels: uml
# soak-smoke: uml-sanitize
# soak-smoke-variants: mount mount@ours-ours
# timeout: 300 1800
# rounds: 4 100
"""$ROUNDS insertions; with our module at both ends, of the server's as well, and over Version Two."""

import os
import sys

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, log, module_back, module_free, module_loaded, module_refs,  # noqa: E402
                    one_guest, remote, remote_call, rounds, run, wait_for)


def server_again():
    """The server's module is removed and inserted."""
    remote_call("nfsd_stop")
    wait_for("removal of the server's module", 60, lambda: remote(
        "rmmod rpcrdma 2>/dev/null; ! grep -q '^rpcrdma ' /proc/modules && echo gone || true"), 0.2)
    remote("insmod $OURS_KO")
    remote_call("nfsd_start")
    remote("echo Y > /proc/fs/nfsd/v4_end_grace", ok=None)


def client():
    """Every third cycle mounts."""
    idle = module_refs()
    for n in range(rounds()):
        if n % 3 == 0:
            with Mount("4.2" if n % 2 else "3") as mount, open(f"{mount.path}/m", "wb") as f:
                f.write(bytes(5000))
                versions.check_version()
            wait_for("release of the transport", 30, lambda: module_refs() == idle)
            if os.environ["PEER_MODULE"] == "ours" and not one_guest():
                server_again()
        module_free()
        run("rmmod", "rpcrdma")
        check(not module_loaded(), "the module is still there")
        run("insmod", os.environ["MODULE_KO"])
        module_back()
    log(f"{rounds()} cycles")


main(client)
