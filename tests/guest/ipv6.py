#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A mount over IPv6, which is netid rdma6.
# mode: pair
# fabrics: rxe
# variants: 4.2
# kernels: uml
# soak-fabrics: rxe siw
# soak-variants: 3 4.2 4.2@ours-ours 4.2@ours-ours-one
# timeout: 300 300
"""proto=rdma6."""

import os
import sys

sys.path.insert(0, "tests/lib")
import workload  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log  # noqa: E402


def client():
    """The mount shows rdma6 and works like any other."""
    with Mount(os.environ["VARIANT"], address=os.environ["PEER_ADDR6"]) as mount:
        log(f"mounted: {','.join(mount.shown)}")
        check("proto=rdma6" in mount.shown, "the netid is not rdma6")
        workload.everything(mount, (workload.tree, workload.direct, workload.locks))


main(client)
