#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The module is inserted and removed, again and again, with and without a mount in between.
# mode: pair
# fabrics: rxe siw
# kernels: uml
# smoke: uml-kasan
# timeout: 300 1800
# rounds: 4 100
"""$ROUNDS insertions."""

import os
import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, log, module_loaded, module_refs, rounds, run, wait_for  # noqa: E402


def client():
    """Every third cycle mounts."""
    for n in range(rounds()):
        if n % 3 == 0:
            with Mount("4.2" if n % 2 else "3") as mount, open(f"{mount.path}/m", "wb") as f:
                f.write(bytes(5000))
            wait_for("release of the transport", 30, lambda: module_refs() == 0)
        run("rmmod", "rpcrdma")
        check(not module_loaded(), "the module is still there")
        run("insmod", os.environ["MODULE_KO"])
    log(f"{rounds()} cycles")


main(client)
