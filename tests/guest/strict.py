#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The device of tests/kmod/hca does what it says: for each rule that is broken an error and a complaint.
# fabrics: hca
# module: none
# kernels: uml
# soak-smoke: uml-sanitize debug debian
# arm64: arm64 arm64-16k arm64-64k
# timeout: 120 120
"""The device's own test, in the kernel, in each model of DMA that the kernel can have."""

import os
import sys

sys.path.insert(0, "tests/lib")
import hca  # noqa: E402
import hca_device  # noqa: E402
from common import check, log, rdmadev, run, write  # noqa: E402

#: RoCE and iWARP.
PROFILES = ("", "iwarp")
MODELS = ("direct", "bounce", "slot", "granule")
#: Whose mappings the kernel checks itself. The device breaks rules on purpose here.
FILTER = "/sys/kernel/debug/dma-api/driver_filter"


def selftest():
    """Runs it, and returns how many tests there were, and those that failed."""
    with open(hca.path("selftest"), encoding="ascii") as f:
        lines = f.read().splitlines()
    return len(lines) - 1, [line for line in lines[:-1] if not line.startswith("ok ")]


def main():
    """Makes the device again for each model."""
    numbers = {}
    if os.path.exists(FILTER):
        write(FILTER, "none")
    for model in MODELS:
        for profile in PROFILES:
            try:
                hca_device.make(profile, model)
            except OSError as e:
                log(f"{model}: {e}")
                check(model != "direct", "there is always the kernel's own DMA")
                break
            numbers[model], failed = selftest()
            what = f"{profile or 'RoCE'}, {model}"
            log(f"{what}: {numbers[model]} tests, {len(failed)} failed")
            for line in failed:
                log(line)
            check(not failed, f"{what}: {len(failed)} tests have failed")
    check(os.environ["KERNEL"] != "debian" or len(numbers) == len(MODELS), f"only {list(numbers)}")
    run("rdma", "link", "del", rdmadev())
    run("rmmod", "hca")


main()
