#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Allocations of the transport fail under I/O load: errors at most, never other data.
# mode: pair
# fabrics: rxe
# variants: 4.2
# soak-variants: 4.2 4.2@ours-ours
# kernels: debug
# soak: only
# timeout: 300 3600
# rounds: 1 20 1 3
"""Allocations below the code of the transport module fail, and only those.

Afterwards the transport has to do what it always does. Since a kernel with all checks takes long
to boot, that part is also the smoke test of the workload there.
"""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
import workload  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, module_refs, rounds, soak, wait_for  # noqa: E402
from failslab import arm, disarm, left  # noqa: E402
from faults import Load, connects, fail_sunrpc  # noqa: E402
from workload_data import direct, mapped, processes, tree  # noqa: E402
from workload_locks import locks  # noqa: E402
from workload_xattrs import acls, xattrs  # noqa: E402


def client():
    """Fails allocations of a running transport, of one that reconnects, and of a new one."""
    idle = module_refs()
    failed = 0
    for n in range(rounds()):
        with Mount(os.environ["VARIANT"]) as mount, Load(mount, tolerant=True) as load:
            arm(20, 200)
            time.sleep(3)
            load.alive()
            # And while connections are made.
            before = connects(mount)
            fail_sunrpc(40, 5)
            arm(10, 200)
            time.sleep(5)
            fail_sunrpc(1, 0)
            disarm()
            missed = 200 - left()
            failed += missed
            took = load.wait_progress("after the failures")
            log(f"round {n}: {missed} failures with {connects(mount) - before} reconnects, "
                f"progress after {took:.1f} s")
            load.stop()
        # Mounting itself.
        for attempt in range(4):
            arm(5, 20)
            mount = Mount(os.environ["VARIANT"], where="slab", options="retry=0")
            try:
                mount.mount(ok=None)
            finally:
                disarm()
            if os.path.ismount(mount.path):
                mount.umount()
            else:
                log(f"mount {attempt} failed, as it may")
        wait_for("release of the transports", 60, lambda: module_refs() == idle)
    check(failed > 0, "no allocation failed")
    # While many guests share a CPU, an emulated one takes in a megabyte more slowly than the server's
    # device waits for it, and each time gets all of it again.
    options = "" if soak() else "rsize=262144,wsize=262144"
    with Mount(os.environ["VARIANT"], options=options) as mount:
        workload.everything(mount, (tree, direct, mapped, acls, locks,
                                    *((xattrs, processes) if soak() else ())))
    wait_for("release of the transport", 60, lambda: module_refs() == idle)
    check(module_refs() == idle, "references were lost")


main(client)
