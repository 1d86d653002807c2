#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Files, names, attributes and locks over every NFS version; every octet compared.
# mode: pair
# fabrics: rxe siw hca
# variants-rxe: 4.2 3 4.2@ours-ours 4.2@stock-ours
# variants-hca: 4.2@ours-ours 4.2@ours-ours-2016
# variants-siw: 4.0 3@ours-ours
# device-variants: 4.2@ours-ours 3@ours-ours-one 4.0@ours-ours 4.2@ours-ours-one
# kernels: uml
# kernel-options: dma_debug=off
# smoke: uml-kasan uml-lockdep debian
# soak-smoke: uml-kasan uml-lockdep uml-versions debug debian cfi
# smoke-fabrics: rxe
# smoke-variants: 4.2@ours-ours
# soak-smoke-fabrics: rxe siw
# soak-smoke-variants: 3 4.2 4.2@ours-ours 4.2@ours-ours-one 4.2@ours-ours-2016
# interop-variants: 3 4.0 4.1 4.2
# interop-variants: 3@ours-ours 4.0@ours-ours 4.1@ours-ours 4.2@ours-ours
# interop-variants: 3@ours-ours-one 4.0@ours-ours-one 4.1@ours-ours-one 4.2@ours-ours-one
# interop-variants: 3@ours-ours-2016 4.0@ours-ours-2016 4.1@ours-ours-2016 4.2@ours-ours-2016
# interop-variants: 4.2@ours-stock-2016 4.2@stock-ours-2016
# interop-variants: 3@stock-ours 4.0@stock-ours 4.1@stock-ours 4.2@stock-ours
# arm64: arm64 arm64-16k arm64-64k
# arm64-fabrics: rxe
# arm64-variants: 4.2@ours-ours 3@ours-ours-one 4.2@ours-stock 4.2@stock-ours
# control-variants: 3@stock-stock 4.0@stock-stock 4.1@stock-stock 4.2@stock-stock
# timeout: 300 900
"""The matrix: the whole workload on one mount."""

import os
import sys

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
import workload  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, rnr_events, slow, xprt_stats  # noqa: E402


def client():
    """Runs it, and looks at the transport's own counters at the end."""
    with Mount(os.environ["VARIANT"]) as mount:
        log(f"mounted: {','.join(mount.shown)}")
        workload.everything(mount)
        versions.check_version()
        versions.check_examined()
        stats = xprt_stats(mount.path)
        log(f"counters: {stats}")
        # An emulated client may answer too late for the server's device, which gives up then.
        check(slow() or stats["connect_count"] == 1, f"connected {stats['connect_count']} times")
        check(stats["sends"] >= stats["recvs"] > 0, "sends and receives")
        check(stats["bad_xids"] == 0 and stats["bad_reply"] == 0, "bad Replies")
        # Not at the stock module's end either: we keep to what it grants.
        check(rnr_events() == 0, "a message found no Receive")
        check(stats["read_chunks"] and stats["write_chunks"] and stats["reply_chunks"],
              "a kind of chunk was never used")


main(client)
