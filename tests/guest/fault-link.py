#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The network goes down and comes up, at either end, under I/O load.
# mode: pair
# fabrics: rxe siw
# variants: 4.2@ours-ours
# kernels: uml
# soak-smoke: uml-sanitize
# soak-variants: 4.2 4.2@ours-ours 4.2@ours-ours-one 4.2@ours-ours-2016
# soak-smoke-variants: 4.2 4.2@ours-ours 4.2@ours-ours-2016
# timeout: 300 3600
# rounds: 1 20
"""Short and long interruptions of the link, of which the long ones end connections."""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, log, netdev, remote, rounds, run  # noqa: E402
from faults import Load, heal_device, heal_server_device, unchanged_memory  # noqa: E402


def client():
    """Each round takes the client's link away for a moment and for long, then the server's."""
    vers = os.environ["VARIANT"]
    with unchanged_memory(vers), Mount(vers) as mount, Load(mount) as load:
        for n in range(rounds()):
            for seconds in (0.3, 6):
                log(f"link down for {seconds} s")
                run("ip", "link", "set", netdev(), "down")
                time.sleep(seconds)
                run("ip", "link", "set", netdev(), "up")
                took = load.wait_progress(f"client's link back after {seconds} s", heal=heal_device)
                log(f"round {n}: client's link down for {seconds} s, progress after {took:.1f} s")
            remote("ip link set $NETDEV down; sleep 4; ip link set $NETDEV up", wait=False)
            time.sleep(5)
            took = load.wait_progress("server's link back", heal=heal_server_device)
            log(f"round {n}: server's link down for 4 s, progress after {took:.1f} s")
        load.stop()


main(client)
