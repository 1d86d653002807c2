#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The cases for RDMA hardware, as tools/check --device runs them, over rxe in its place.
# mode: pair
# fabrics: rxe
# variants: x@ours-ours
# kernels: uml
# timeout: 300 900
"""Each guest is one of the two machines, and knows nothing of being a guest."""

import os
import subprocess
import sys

sys.path.insert(0, "tests/lib")
import remote_shell  # noqa: E402
from common import check, log, module_loaded, netdev, rdmadev, run, slow  # noqa: E402

#: What a machine would have of a guest.
GUESTS = ("CONTROL_SECRET", "FABRIC", "VARIANT", "MODULE", "ROUNDS", "SOAK", "RPCRDMA_VERSION")
REPORT = "/tmp/report"


def client():
    """Runs them; then nothing is left of it here."""
    shell = f"env PEER_ADDR={os.environ['PEER_ADDR']} python3 -B tests/lib/remote_shell.py"
    env = {k: v for k, v in os.environ.items() if k not in GUESTS}
    before = run("cat", "/proc/mounts")
    patterns = ["device/workload/4.2@*", "device/cycles-mount/4.2@ours-ours"]
    command = ["tools/check", "--device", rdmadev(), "--peer", os.environ["PEER_ADDR"],
               "--ko", os.environ["MODULE_KO"], "--ssh", shell, "--peer-tree", os.getcwd(),
               "--report", REPORT, *(patterns[:1] if slow() else patterns)]
    done = subprocess.run(command, env=env, check=False)
    with open(REPORT, encoding="utf-8") as f:
        report = f.read()
    log(report)
    check(done.returncode == 0, f"status {done.returncode}")
    check("0 failed" in report and netdev() in report, "the report does not say what has passed")
    check("sends" in report or "sent_pkts" in report, "no counter of the device has changed")
    check(run("cat", "/proc/mounts") == before, "mounts were left behind")
    check(not module_loaded(), "the module was left behind")


if sys.argv[1:] == ["server"]:
    print("READY", flush=True)
    remote_shell.serve()
client()
