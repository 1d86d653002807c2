# SPDX-License-Identifier: GPL-2.0
"""How the strict RDMA device of `tests/kmod/hca` is made for a case."""

import glob

import hca
from common import check, log, netdev, rdmadev, read, run, write

PARAMETERS = "/sys/module/hca/parameters"
#: Of the kernel's own bounce buffers: the most slots that were in use.
SWIOTLB = "/sys/kernel/debug/swiotlb/io_tlb_used_hiwater"
#: Vendor and device of QEMU's PCI device for which an IOMMU translates.
EDU = ("0x1234", "0x11e8")


def make(profile="", memory="direct"):
    """Makes this guest's device again, before anything uses it.

    `memory` is how it reaches memory: a `dma_model`, or `swiotlb`, which is the kernel's own DMA code
    after `swiotlb=force`.
    """
    # The kernel may not have it, then the device stays as it is.
    write(f"{PARAMETERS}/dma_model", "direct" if memory == "swiotlb" else memory)
    run("rdma", "link", "del", rdmadev())
    run(*addition(profile))


def addition(profile=""):
    """The command that makes this guest's device."""
    return ["rdma", "link", "add", rdmadev(), "type", f"hca-{profile}" if profile else "hca",
            "netdev", netdev()]


def check_memory(memory):
    """Fails if memory was not reached in the way that was asked for."""
    counted = hca.counters()
    log(f"{ {k: v for k, v in counted.items() if v} }")
    if memory == "swiotlb":
        slots = int(read(SWIOTLB))
        log(f"swiotlb: {slots} slots were in use at most")
        # The buffers for the messages of one connection alone are more.
        check(slots > 100, "nothing went through the kernel's bounce buffers")
    elif memory == "iommu":
        check(domain() in ("DMA", "DMA-FQ"), f"nothing is translated: {domain()}")
    else:
        check(counted["maps"] > 100, "the device has no mappings of its own")


def domain():
    """What the IOMMU does for the PCI device."""
    for device in glob.glob("/sys/bus/pci/devices/*"):
        if (read(f"{device}/vendor").strip(), read(f"{device}/device").strip()) == EDU:
            return read(f"{device}/iommu_group/type").strip()
    return "no device"
