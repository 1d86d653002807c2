#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Mount and unmount, again and again; memory and references come back.
# mode: pair
# fabrics: siw
# soak-fabrics: rxe siw hca
# variants: 4.2
# device-variants: 4.2@ours-ours 4.2@ours-ours-one
# kernels: uml
# soak-variants: 3 4.2 4.2@ours-ours 4.2@ours-ours-one
# soak-smoke: uml-sanitize
# soak-smoke-variants: 4.2 4.2@ours-ours
# timeout: 300 1800
# rounds: 10 200
"""$ROUNDS mounts, each with a little I/O."""

import os
import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, log, module_refs, pattern, read, rounds, wait_for  # noqa: E402


def slab():
    """Kernel memory in slabs that cannot be reclaimed, in KiB."""
    return next(int(l.split()[1]) for l in read("/proc/meminfo").splitlines()
                if l.startswith("SUnreclaim"))


def client():
    """Compares what is read each time, and the kernel's memory at the end."""
    before = module_refs()
    base = 0
    for n in range(rounds()):
        with Mount(os.environ["VARIANT"]) as mount:
            data = pattern(n, 30_001)
            with open(f"{mount.path}/c", "wb") as f:
                f.write(data)
            fd = os.open(f"{mount.path}/c", os.O_RDONLY | os.O_DIRECT)
            check(os.pread(fd, 40_000, 0) == data, f"contents in cycle {n}")
            os.close(fd)
        wait_for("release of the transport", 30, lambda: module_refs() == before)
        if n == min(9, rounds() // 2):
            base = slab()
    grown = slab() - base
    log(f"{rounds()} cycles, unreclaimable slab memory grew by {grown} KiB")
    # A transport is more than 1 MiB; a leak of one per cycle is far above this.
    check(grown < 4096 + 64 * rounds(), f"{grown} KiB of kernel memory have not come back")


main(client)
