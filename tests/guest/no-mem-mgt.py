#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A device without memory-management extensions: the mount fails, with a clear line.
# mode: pair
# fabrics: rxe
# kernels: uml
# timeout: 300 300
"""The device says it cannot register memory by work requests."""

import sys

sys.path.insert(0, "tests/lib")
import tap  # noqa: E402
from case import main  # noqa: E402
from common import Mount, module_refs, run, wait_for  # noqa: E402
from faults import add_device, delete_device  # noqa: E402
from unfit import refused  # noqa: E402


def client():
    """Takes the ability away, and tries to mount."""
    before = module_refs()
    delete_device()
    tap.insert("no_mem_mgt=1")
    add_device()
    refused()
    wait_for("release of the transport", 60, lambda: module_refs() == before)
    # A better device of the same name, and all is well.
    delete_device()
    run("sh", "-c", "echo N > /sys/module/rdmatap/parameters/no_mem_mgt")
    add_device()
    with Mount("4.2") as mount:
        with open(f"{mount.path}/x", "wb") as f:
            f.write(bytes(300_000))


main(client)
