#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The workload on a device behind an IOMMU, with the kernel's own DMA code for that.
# mode: pair
# fabrics: hca
# kernels: debian
# qemu: -device intel-iommu -device edu
# variants: 4.2@ours-ours 3@ours-ours-one
# soak-variants: 3@ours-ours 4.2@ours-ours 3@ours-ours-one 4.2@ours-ours-one 4.2@stock-stock
# timeout: 120 300
# rounds: 1 3
"""The device's dma_model is iommu, see tests/kmod/hca/dma.c.

What the core's rdma_rw maps in one piece only behind an IOMMU, and addresses that a device reaches
after they were unmapped, are seen only here.
"""

import glob
import os
import sys

sys.path.insert(0, "tests/lib")
import hca  # noqa: E402
import nfs_server  # noqa: E402
import workload  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, log, module_free, module_refs, netdev, rdmadev, read,  # noqa: E402
                    rounds, run, wait_for, write)

#: Vendor and device of QEMU's PCI device.
EDU = ("0x1234", "0x11e8")


def server():
    """Makes the device again, behind the IOMMU, before anything uses it."""
    run("rdma", "link", "del", rdmadev())
    write("/sys/module/hca/parameters/dma_model", "iommu")
    run("rdma", "link", "add", rdmadev(), "type", "hca", "netdev", netdev())
    nfs_server.main()


def domain():
    """What the IOMMU does for the PCI device."""
    for path in glob.glob("/sys/bus/pci/devices/*"):
        if (read(f"{path}/vendor").strip(), read(f"{path}/device").strip()) == EDU:
            return read(f"{path}/iommu_group/type").strip()
    return "no device"


def client():
    """The workload, and the module's removal."""
    log(f"domain: {domain()}")
    check(domain() in ("DMA", "DMA-FQ"), "nothing is translated")
    idle = module_refs()
    hca.reset()
    for _ in range(rounds()):
        with Mount(os.environ["VARIANT"]) as mount:
            workload.everything(mount)
    log(f"{ {k: v for k, v in hca.counters().items() if v} }")
    wait_for("release of the transports", 60, lambda: module_refs() <= idle)
    module_free()
    run("rmmod", "rpcrdma")
    check(not hca.complaints(), f"complaints: {hca.complaints()}")


main(client, server)
