#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Another member of a bond takes over under I/O load, with its link address: CM's address change.
# mode: pair
# fabrics: hca
# variants: 4.2@ours-ours
# soak-variants: 4.2@ours-ours 4.2@ours-ours-one 4.2@stock-stock
# kernels: debian
# timeout: 200 900
# rounds: 3 30
# soak: only
"""The device is that of a bond whose address is that of its active member.

When another one becomes active, the connection manager tells each client, server and listener with
the bond's address that it has changed. Connections end and are made anew, and nobody waits for a
timeout; listeners go on.
"""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
import hca  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, rdmadev, rounds, run, watchdog  # noqa: E402
from faults import Load, connects, unchanged_memory  # noqa: E402

#: Of `Documentation/networking/bonding.rst`: the bond has the address of its active member.
OPTIONS = ["mode", "active-backup", "fail_over_mac", "active"]
MEMBERS = ["bonded0", "bonded1"]
#: Seconds until a mount goes on at most.
LIMIT = 5


def bond():
    """The guest's device, made again on a bond that has the guest's addresses."""
    run("rdma", "link", "del", rdmadev())
    run("ip", "link", "del", os.environ["NETDEV"])
    run("modprobe", "bonding", "max_bonds=0")
    run("ip", "link", "add", "bond0", "type", "bond", *OPTIONS)
    run("ip", "link", "set", "bond0", "mtu", "4200")
    for member in MEMBERS:
        run("ip", "link", "add", member, "type", "dummy")
        run("ip", "link", "set", member, "mtu", "4200", "master", "bond0")
    run("ip", "addr", "add", f"{os.environ['OWN_ADDR']}/24", "dev", "bond0")
    run("ip", "link", "set", "bond0", "up")
    run("rdma", "link", "add", rdmadev(), "type", "hca", "netdev", "bond0")


def take_over(mount, load, member):
    """Makes a member of the bond the active one."""
    before = connects(mount)
    run("ip", "link", "set", "bond0", "type", "bond", "active_slave", member)
    took = load.wait_progress(f"{member} is active")
    log(f"{member} is active: progress after {took:.1f} s, {connects(mount) - before} new connections")
    check(connects(mount) > before, "the connection with the old address has not ended")
    check(took < LIMIT * watchdog(), "the mount has waited")


def client():
    """Each round has the other member take over, and the first one again."""
    bond()
    vers = os.environ["VARIANT"]
    with unchanged_memory(vers), Mount(vers) as mount, Load(mount) as load:
        for n in range(rounds()):
            log(f"round {n}")
            for member in reversed(MEMBERS):
                take_over(mount, load, member)
                time.sleep(0.3)
        load.stop()
    check(not hca.complaints(), f"the device complains: {hca.complaints()}")


main(client)
