#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A mount with eight connections: all of them carry I/O, and all go with the mount.
# mode: pair
# fabrics: rxe siw
# variants-rxe: 4.2@ours-ours
# variants-siw: 4.2
# interop-variants: 4.2 4.2@ours-ours 4.2@ours-ours-one 4.2@stock-ours
# control-variants: 4.2@stock-stock
# device-variants: 4.2@ours-ours 4.2@ours-ours-one
# kernels: uml
# soak-variants: 3 4.2 4.2@ours-ours 4.2@ours-ours-one 4.2@ours-ours-2016 4.2@stock-ours
# timeout: 300 300
"""nconnect=8."""

import os
import sys

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
import workload  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, module_refs, wait_for, xprt_stats  # noqa: E402


def client():
    """Eight transports in mountstats, each of which has sent something."""
    before = module_refs()
    with Mount(os.environ["VARIANT"], options="nconnect=8") as mount:
        workload.everything(mount, (workload.tree, workload.direct, workload.processes))
        versions.check_version()
        lines = xprt_stats(mount.path, total=False)
        log(f"sends: {[l['sends'] for l in lines]}")
        check(len(lines) == 8, f"{len(lines)} transports")
        check(all(l["sends"] > 0 for l in lines), "a transport was never used")
        check(sum(l["write_chunks"] > 0 for l in lines) > 1, "one transport did all the reading")
        check(module_refs() >= before + 8, f"{module_refs() - before} module references")
    wait_for("release of the transports", 30, lambda: module_refs() == before)


main(client)
