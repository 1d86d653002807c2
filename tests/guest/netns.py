#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A mount inside a network namespace, with its own network and RDMA device.
# mode: pair
# fabrics: rxe
# variants: 4.2@ours-ours
# interop-variants: 4.2 4.2@ours-ours 4.2@ours-ours-one 4.2@stock-ours
# control-variants: 4.2@stock-stock
# kernels: uml
# timeout: 300 300
"""The network device is moved into a namespace, where the mount is made.

siw makes its connections in the namespace of whoever works for the RDMA core, which is the first
one, so that no module can do this over it.
"""

import os
import signal
import sys
import time

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
import workload  # noqa: E402
from case import check_receives, main  # noqa: E402
from common import (LIBC, Mount, check, child, log, module_refs, netdev, rdmadev, run,  # noqa: E402
                    wait_for)

CLONE_NEWNET = 0x40000000


def configure():
    """Gives the device its addresses and its RDMA device, in the namespace it is in now."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "set", netdev(), "up")
    run("ip", "addr", "add", os.environ["OWN_ADDR"] + "/24", "dev", netdev())
    run("rdma", "link", "add", rdmadev(), "type", os.environ["FABRIC"], "netdev", netdev())


def inside():
    """Everything that happens in the namespace."""
    before = module_refs()
    check(LIBC.unshare(CLONE_NEWNET) == 0, "unshare")
    with open("/run/ns-ready", "w", encoding="ascii"):
        pass
    wait_for("device in the namespace", 20,
             lambda: os.path.exists("/run/ns-moved"))
    configure()
    with Mount(os.environ["VARIANT"], where="ns") as mount:
        workload.everything(mount, (workload.tree, workload.direct))
        versions.check_version()
    # SUNRPC ends a transport some time after it was unmounted. The stock one may not survive it that its device goes at
    # the same moment: then the removal never ends.
    wait_for("release of the transport", 30, lambda: module_refs() == before)
    # From the first namespace the server can't be asked any more.
    check_receives()
    # The server's view of this client must end before the device goes back.
    run("rdma", "link", "del", rdmadev())


def client():
    """The device goes there, the mount is made and goes, and the device comes back."""
    before = module_refs()
    run("rdma", "link", "del", rdmadev())
    pid = child(inside, "namespace")
    try:
        wait_for("the namespace", 20, lambda: os.path.exists("/run/ns-ready"))
        # Nothing reaches the server from here.
        run("ip", "link", "set", netdev(), "netns", str(pid))
        with open("/run/ns-moved", "w", encoding="ascii"):
            pass
        _, st = os.waitpid(pid, 0)
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
    check(st == 0, "the namespace's process failed")
    wait_for("release of the transport", 30, lambda: module_refs() == before)
    log("namespace left")
    time.sleep(0.2)


main(client, rnr="it was, in the namespace")
