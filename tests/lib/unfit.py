# SPDX-License-Identifier: GPL-2.0
"""A device without memory management extensions: its mount fails, and says why."""

import os
import time

from common import ROOT, check, host, log, rdmadev, run, status


def refused():
    """Mounts over the device, which fails soon, with a line that names the device."""
    path = f"{ROOT}/unfit"
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
