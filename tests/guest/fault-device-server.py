#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The server's RDMA device is removed and comes back under I/O load.
# mode: pair
# fabrics: rxe siw
# variants: 4.2@ours-ours
# kernels: uml
# smoke: uml-sanitize
# soak-smoke: uml-sanitize
# soak-variants: 4.2 4.2@ours-ours 4.2@ours-ours-one 4.2@ours-ours-2016
# soak-smoke-variants: 4.2 4.2@ours-ours 4.2@ours-ours-2016
# timeout: 300 3600
# rounds: 1 20
# expect: rdma_restrack_clean
# expect: tainted
"""The client reconnects. The stock server warns when its device goes, hence `expect`."""

import os
import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, log, remote, rounds, wait_for  # noqa: E402
from faults import Load, connects, unchanged_memory  # noqa: E402


def client():
    """Each round removes the device, adds it again, and wants I/O to go on."""
    vers = os.environ["VARIANT"]
    with unchanged_memory(vers), Mount(vers) as mount, Load(mount) as load:
        for n in range(rounds()):
            before = connects(mount)
            remote("rdma link del $RDMADEV && sleep 1 && "
                   "rdma link add $RDMADEV type $FABRIC netdev $NETDEV")
            took = load.wait_progress("server's device back")
            wait_for("reconnect", 60, lambda: connects(mount) > before)
            log(f"round {n}: progress {took:.1f} s after the device was back")
        load.stop()


main(client)
