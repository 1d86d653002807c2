#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The client's RDMA device is removed and comes back under I/O load.
# mode: pair
# fabrics: rxe siw
# variants-rxe: 4.2@ours-ours
# variants-siw: 4.2
# kernels: uml
# smoke: uml-sanitize
# smoke-variants: 4.2@ours-ours-2016
# soak-variants: 3 4.2 4.2@ours-ours 4.2@ours-ours-one 4.2@ours-ours-2016
# soak-smoke: uml-sanitize debug cfi
# soak-smoke-variants: 4.2 4.2@ours-ours 4.2@ours-ours-2016
# timeout: 300 3600
# rounds: 1 20 1 3
"""`rdma link del` while mounted, and `rdma link add` a little later."""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, log, rounds, watchdog  # noqa: E402
from faults import Load, add_device, connects, delete_device  # noqa: E402


def client():
    """Each round removes the device, adds it again, and wants I/O to go on."""
    with Mount(os.environ["VARIANT"]) as mount, Load(mount) as load:
        for n in range(rounds()):
            before = connects(mount)
            began = time.monotonic()
            log("removing the client's device")
            delete_device()
            gone = time.monotonic() - began
            check(gone < 20 * watchdog(), f"removal took {gone:.1f} s")
            time.sleep(1)
            add_device()
            took = load.wait_progress("client's device back")
            check(connects(mount) > before, "no reconnect was seen")
            log(f"round {n}: client's device gone after {gone:.2f} s, progress after {took:.1f} s")
        load.stop()


main(client)
