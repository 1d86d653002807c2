#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Interrupts that are late, each queue's by another time, and a last Receive of which a device tells late or never.
# mode: pair
# fabrics: hca
# variants: late@ours-ours
# soak-variants: prompt@ours-ours late@ours-ours never@ours-ours
# soak-variants: late@ours-ours-one never@ours-ours-one
# soak-smoke: uml-kasan uml-lockdep debug
# soak-smoke-variants: late@ours-ours never@ours-ours
# kernels: uml
# timeout: 200 900
# rounds: 1 10 1 3
"""I/O and lost connections on a device that moderates its interrupts.

So the Reply's Receive is often seen before the completion of the Send of its Call, and the last
completions of a connection long after its end has begun. The variant is the device's `last_wqe`,
see tests/kmod/hca/qp.c.
"""

import os
import sys

sys.path.insert(0, "tests/lib")
import hca  # noqa: E402
import hca_device  # noqa: E402
import nfs_server  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, log, module_refs, rounds, slow, wait_for, write)
from faults import lose_connections  # noqa: E402

#: Microseconds that an interrupt waits at most: some are behind those of many later requests.
MODERATION = 3000


def server():
    """Makes a device with the variant's ways."""
    write(f"{hca_device.PARAMETERS}/moderation", str(MODERATION))
    write(f"{hca_device.PARAMETERS}/last_wqe", os.environ["VARIANT"])
    hca_device.make()
    nfs_server.main()


def client():
    """Load, disconnects under load, mounts that come and go; nothing is left behind."""
    idle = module_refs()
    hca.reset("complaints")
    for n in range(rounds()):
        with Mount("4.2") as mount:
            steps, lost = lose_connections(mount)
        for version in ("3", "4.2") * (1 if slow() else 3):
            with Mount(version) as mount, open(f"{mount.path}/m", "wb") as f:
                f.write(bytes(100_000))
        log(f"round {n}: {steps} steps, {lost} connections lost")
    took = wait_for("release of the transports", 60, lambda: module_refs() <= idle)
    counted = hca.counters()
    log(f"all released after {took:.2f} s; {counted['last_wqe_events']} events of a last Receive")
    if os.environ["VARIANT"] == "never":
        check(not counted["last_wqe_events"], "the device has told of a last Receive")
    check(not hca.complaints(), f"complaints: {hca.complaints()}")


main(client, server)
