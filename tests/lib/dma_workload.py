# SPDX-License-Identifier: GPL-2.0
"""The workload where a device reaches memory by mappings alone.

The variant is how memory is reached, see `hca_device.make`, and the version of NFS or the flavour of
Kerberos. After the workload requests go wrong under load, so that regions and buffers are unmapped
at the end of a connection. Then the module goes, and no mapping is left.
"""

import os

import hca
import hca_device
import kerberos
import nfs_server
import workload
from common import Mount, check, log, module_free, module_refs, run, wait_for
from faults import RECOVERY, Load, connects

MEMORY, _, VERSION = os.environ["VARIANT"].partition("-")
KERBEROS = VERSION.startswith("krb5")
#: What the workload over Kerberos needs not repeat: see krb5.py.
BRIEF = (workload.tree, workload.odd, workload.direct, workload.names)
#: What goes wrong under load, see tests/kmod/hca/fault.c: the NUMBER-th from when it is armed. With
#: a checksum over the payload messages in parts take the place of chunks.
FAULTS = [("send", "lost"), ("send", "remote")]
if not KERBEROS:
    FAULTS += [("read", "half"), ("write", "lost"), ("write", "remote"), ("reg_mr", "fail")]
NUMBER = 20


def server():
    """Makes the variant's device."""
    hca_device.make(memory=MEMORY)
    if KERBEROS:
        kerberos.server(VERSION)
    else:
        nfs_server.main()


def fail_requests(mount):
    """Requests go wrong under load, and with each its connection; what it has done is right."""
    with Load(mount) as load:
        before = connects(mount)
        for kind, action in FAULTS:
            hca.arm(kind, action, NUMBER)
            wait_for(f"{kind} {action}", RECOVERY, lambda: not load.alive() and hca.fault()["fired"])
            load.wait_progress(f"after {kind} {action}")
        lost = connects(mount) - before
        steps = load.stop()
    log(f"{steps} steps of load, {lost} connections lost by {len(FAULTS)} faults")
    check(lost >= len(FAULTS), "a connection was not lost")


def mounted():
    """The mount of the variant."""
    if not KERBEROS:
        return Mount(VERSION)
    kerberos.client()
    return Mount("4.2", options=f"sec={VERSION}", address=kerberos.SERVER)


def client():
    """The workload, lost connections, and the module's removal."""
    idle = module_refs()
    hca.reset()
    with mounted() as mount:
        workload.everything(mount, BRIEF if KERBEROS else workload.ALL)
        fail_requests(mount)
    hca_device.check_memory(MEMORY)
    wait_for("release of the transports", 60, lambda: module_refs() <= idle)
    module_free()
    run("rmmod", "rpcrdma")
    check(not hca.complaints(), f"complaints: {hca.complaints()}")
