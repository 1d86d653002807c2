#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Allocations of the transport fail under I/O load: errors at most, never other data.
# mode: pair
# fabrics: rxe
# variants: 4.2
# kernels: debug
# timeout: 300 3600
# rounds: 1 20 1 3
"""failslab, narrowed by its stack trace filter to the transport module.

Afterwards the transport has to do what it always does. Since a kernel with all checks takes long
to boot, that part is also the smoke test of the workload there.
"""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
import workload  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, module_refs, read, rounds, wait_for, write  # noqa: E402
from faults import Load, connects, fail_sunrpc  # noqa: E402
from workload_data import direct, mapped, processes, tree  # noqa: E402
from workload_locks import locks  # noqa: E402
from workload_xattrs import acls, xattrs  # noqa: E402

BASE = "/sys/kernel/debug/failslab"


def text_range():
    """Where the module's code is."""
    sections = "/sys/module/rpcrdma/sections"
    start = int(read(f"{sections}/.text"), 16)
    size = int(read("/sys/module/rpcrdma/coresize"))
    return start, start + size


def arm(probability, times):
    """Lets allocations below the module's code fail, with a probability in percent."""
    start, end = text_range()
    write(f"{BASE}/require-start", hex(start))
    write(f"{BASE}/require-end", hex(end))
    write(f"{BASE}/stacktrace-depth", "32")
    for name, value in (("ignore-gfp-wait", "N"), ("cache-filter", "N"), ("verbose", "0"),
                        ("task-filter", "N"), ("interval", "1"), ("times", str(times)),
                        ("probability", str(probability))):
        write(f"{BASE}/{name}", value)


def disarm():
    """No more failures."""
    write(f"{BASE}/probability", "0")


def client():
    """Fails allocations of a running transport, of one that reconnects, and of a new one."""
    check(os.path.exists(f"{BASE}/require-start"), "failslab cannot be narrowed to a module")
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
            left = int(read(f"{BASE}/times"))
            failed += 200 - left
            took = load.wait_progress("after the failures")
            log(f"round {n}: {200 - left} failures with {connects(mount) - before} reconnects, "
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
    with Mount(os.environ["VARIANT"]) as mount:
        workload.everything(mount, (tree, direct, mapped, acls, xattrs, locks, processes))
    wait_for("release of the transport", 60, lambda: module_refs() == idle)
    check(module_refs() == idle, "references were lost")


main(client)
