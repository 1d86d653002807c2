#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Devices that can do what those of a driver can, and no more: data, lost connections, unload, and what is refused.
# mode: pair
# fabrics: hca
# variants: mlx5@ours-ours bnxt_re@ours-ours-one iwarp@ours-ours iwarp@ours-ours-one
# soak-variants: mlx5@ours-ours mlx4@ours-ours bnxt_re@ours-ours irdma@ours-ours irdma3@ours-ours
# soak-variants: hns@ours-ours ocrdma@ours-ours small@ours-ours mana@ours-ours
# soak-variants: mlx5@ours-ours-one mlx4@ours-ours-one bnxt_re@ours-ours-one irdma@ours-ours-one
# soak-variants: irdma3@ours-ours-one hns@ours-ours-one ocrdma@ours-ours-one small@ours-ours-one
# soak-variants: iwarp@ours-ours irdma-iwarp@ours-ours i40iw@ours-ours cxgb4@ours-ours
# soak-variants: erdma@ours-ours
# soak-variants: iwarp@ours-ours-one irdma-iwarp@ours-ours-one i40iw@ours-ours-one
# soak-variants: cxgb4@ours-ours-one erdma@ours-ours-one iwarp@stock-stock
# kernels: uml
# kernel-options: dma_debug=off
# soak-smoke: uml-sanitize debug
# soak-smoke-variants: small@ours-ours ocrdma@ours-ours-one hns@ours-ours iwarp@ours-ours
# timeout: 300 900
# rounds: 1 5 1 2
"""The whole workload over a device of a profile, then connections are lost under load.

At last the module is removed. The variant is the profile, see tests/kmod/hca/profile.c. No rule is
broken on any of them. A device that has not what is needed is refused, with a line that names it.
"""

import os
import sys

sys.path.insert(0, "tests/lib")
import hca  # noqa: E402
import hca_device  # noqa: E402
import nfs_server  # noqa: E402
import workload  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, log, module_free, module_refs, rounds, run,  # noqa: E402
                    wait_for)
from faults import lose_connections  # noqa: E402
from unfit import refused  # noqa: E402

#: The profile, and those that have no memory management extensions.
PROFILE = os.environ["VARIANT"]
UNFIT = ("mana",)


def server():
    """Makes a device of the variant's profile."""
    hca_device.make(PROFILE)
    nfs_server.main()


def client():
    """What the profile allows; nothing is left behind, and no rule was broken."""
    idle = module_refs()
    hca.reset("complaints")
    if PROFILE in UNFIT:
        refused()
    else:
        for n in range(rounds()):
            with Mount("3" if n % 2 else "4.2") as mount:
                workload.everything(mount)
                steps, lost = lose_connections(mount)
                for name in os.listdir(mount.path):
                    run("rm", "-rf", f"{mount.path}/{name}")
            log(f"round {n}: {steps} steps of load, {lost} connections lost")
    wait_for("release of the transports", 60, lambda: module_refs() <= idle)
    module_free()
    run("rmmod", "rpcrdma")
    check(not hca.complaints(), f"complaints: {hca.complaints()}")


main(client, server)
