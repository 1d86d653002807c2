#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The RDMA device is removed and comes back, at either end, under I/O load.
# mode: pair
# fabrics: rxe siw
# variants: 4.2
# kernels: uml
# smoke: uml-kasan debug
# timeout: 300 3600
# rounds: 1 20
"""`rdma link del` while mounted, and `rdma link add` a little later."""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, log, remote, rounds, wait_for  # noqa: E402
from faults import Load, add_device, connects, delete_device  # noqa: E402


def client():
    """Each round removes the client's device, then the server's."""
    with Mount(os.environ["VARIANT"]) as mount, Load(mount) as load:
        for n in range(rounds()):
            before = connects(mount)
            began = time.monotonic()
            log("removing the client's device")
            delete_device()
            gone = time.monotonic() - began
            check(gone < 20, f"removal took {gone:.1f} s")
            time.sleep(1)
            add_device()
            took = load.wait_progress("client's device back")
            check(connects(mount) > before, "no reconnect was seen")
            log(f"round {n}: client's device gone after {gone:.2f} s, progress after {took:.1f} s")
            before = connects(mount)
            remote("rdma link del $RDMADEV && sleep 1 && "
                   "rdma link add $RDMADEV type $FABRIC netdev $NETDEV")
            took = load.wait_progress("server's device back")
            wait_for("reconnect", 60, lambda: connects(mount) > before)
            log(f"round {n}: server's device removed, progress after {took:.1f} s")
        load.stop()


main(client)
