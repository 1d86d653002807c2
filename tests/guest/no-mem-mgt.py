#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A device without memory-management extensions: the mount fails, with a clear line.
# mode: pair
# fabrics: rxe
# kernels: uml
# timeout: 300 300
"""The device says it cannot register memory by work requests."""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
import tap  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, ROOT, check, host, log, module_refs, rdmadev, run, status,  # noqa: E402
                    wait_for)
from faults import add_device, delete_device  # noqa: E402


def client():
    """Takes the ability away, and tries to mount."""
    before = module_refs()
    delete_device()
    tap.insert("no_mem_mgt=1")
    add_device()
    path = f"{ROOT}/poor"
    os.makedirs(path, exist_ok=True)
    began = time.monotonic()
    code, out = status("mount", "-t", "nfs", "-o",
                       "proto=rdma,vers=4.2,port=20049,retry=0,soft,timeo=50,retrans=1",
                       f"{host(os.environ['PEER_ADDR'])}:/export", path, timeout=100)
    log(f"mount: {code} {out.strip()} after {time.monotonic() - began:.1f} s")
    check(code != 0, "mounted on a device that cannot register memory")
    said = [l for l in run("dmesg").splitlines() if rdmadev() in l and "rpcrdma" in l]
    log(f"said: {said}")
    if os.environ["MODULE"] == "ours":
        check(said, "no line in the log names the device")
        check(len(said) < 5, "the log is flooded")
    wait_for("release of the transport", 60, lambda: module_refs() == before)
    # A better device of the same name, and all is well.
    delete_device()
    run("sh", "-c", "echo N > /sys/module/rdmatap/parameters/no_mem_mgt")
    add_device()
    with Mount("4.2") as mount:
        with open(f"{mount.path}/x", "wb") as f:
            f.write(bytes(300_000))


main(client)
