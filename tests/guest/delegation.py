#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# NFSv4 callbacks over the mount: delegations are granted, and recalled by the server.
# mode: pair
# fabrics: rxe siw
# variants: 4.1@ours-ours
# variants-rxe: 4.1
# kernels: uml
# soak-variants: 4.1 4.2 4.1@ours-ours 4.2@ours-ours 4.1@ours-ours-one 4.1@stock-ours
# soak-smoke: uml-kasan debug
# soak-smoke-variants: 4.1 4.1@ours-ours
# timeout: 300 1800
# rounds: 2 100 1 5
"""The reverse direction: CB_RECALL comes as a Call from the server on the same connection."""

import os
import sys

sys.path.insert(0, "tests/lib")
import delegations  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, drop_caches, log, rounds, xprt_stats  # noqa: E402


def client():
    """Each round is one recall."""
    with Mount(os.environ["VARIANT"]) as mount:
        worst = 0
        delegations.first(mount)
        for n in range(rounds()):
            name, took = delegations.recall(mount, n)
            worst = max(worst, took)
            drop_caches()
            with open(f"{mount.path}/{name}", encoding="ascii") as f:
                check(f.read() == f"changed {n}\n", "the server's change is not seen")
            os.unlink(f"{mount.path}/{name}")
        log(f"{rounds()} recalls, the slowest took {worst:.2f} s")
        stats = xprt_stats(mount.path)
        check(stats["connect_count"] == 1, f"connected {stats['connect_count']} times")


main(client)
