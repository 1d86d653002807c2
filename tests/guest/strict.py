#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The device of tests/kmod/hca does what it says: for each rule that is broken an error and a complaint.
# fabrics: hca
# module: none
# kernels: uml
# soak-smoke: uml-kasan debug debian
# timeout: 120 120
"""The device's own test, in the kernel, in each model of DMA that the kernel can have."""

import os
import sys

sys.path.insert(0, "tests/lib")
import hca  # noqa: E402
from common import check, log, netdev, rdmadev, run, write  # noqa: E402

PARAMETER = "/sys/module/hca/parameters/dma_model"
#: RoCE and iWARP.
TYPES = ("hca", "hca-iwarp")
MODELS = ("direct", "bounce", "slot", "granule")


def selftest():
    """Runs it, and returns how many tests there were, and those that failed."""
    with open(hca.path("selftest"), encoding="ascii") as f:
        lines = f.read().splitlines()
    return len(lines) - 1, [line for line in lines[:-1] if not line.startswith("ok ")]


def main():
    """Makes the device again for each model."""
    numbers = {}
    for model in MODELS:
        try:
            write(PARAMETER, model)
        except OSError as e:
            log(f"{model}: {e}")
            check(model != "direct", "there is always the kernel's own DMA")
            continue
        for kind in TYPES:
            run("rdma", "link", "del", rdmadev())
            run("rdma", "link", "add", rdmadev(), "type", kind, "netdev", netdev())
            numbers[model], failed = selftest()
            log(f"{kind}, {model}: {numbers[model]} tests, {len(failed)} failed")
            for line in failed:
                log(line)
            check(not failed, f"{kind}, {model}: {len(failed)} tests have failed")
        run("rdma", "link", "del", rdmadev())
        run("rdma", "link", "add", rdmadev(), "type", "hca", "netdev", netdev())
    check(os.environ["KERNEL"] != "debian" or len(numbers) == len(MODELS), f"only {list(numbers)}")
    run("rdma", "link", "del", rdmadev())
    run("rmmod", "hca")


main()
