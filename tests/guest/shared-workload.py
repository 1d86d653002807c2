#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The workload over a mount whose server shares all Receives.
# mode: pair
# fabrics: rxe hca
# variants-rxe: 4.2@ours-ours
# variants-hca: 4.2@ours-ours-one
# soak-variants: 4.2@ours-ours 3@ours-ours-one 4.2@ours-ours-2016 4.0@stock-ours
# soak-smoke: uml-kasan uml-lockdep
# soak-smoke-variants: 4.2@ours-ours
# timeout: 300 900
"""With `own_receive_queues=0` each connection uses the Shared Receive Queue of its device."""

import os
import sys

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
import workload  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, slow, xprt_stats  # noqa: E402
from server_credits import all_share, is_shared, show  # noqa: E402


def client():
    """Runs it, and looks at the counters at the end."""
    all_share()
    with Mount(os.environ["VARIANT"]) as mount:
        check(is_shared(), "Receives of its own")
        workload.everything(mount)
        versions.check_version()
        receives, stats = show("receives"), xprt_stats(mount.path)
        log(f"{receives}, {stats}")
        check(slow() or stats["connect_count"] == 1, f"connected {stats['connect_count']} times")
        check(receives["queue_connections"] == 1 and receives["held"] == 0, f"{receives}")
        check(receives["queue_overtaken"] == 0, "a Receive is lost")


main(client, rnr="Receives are shared")
