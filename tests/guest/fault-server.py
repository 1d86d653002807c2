#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The NFS server is stopped and started under I/O load.
# mode: pair
# fabrics: rxe siw
# variants-rxe: 4.2@ours-ours
# variants-siw: 4.2
# kernels: uml
# soak-variants: 3 4.2 4.2@ours-ours 4.2@ours-ours-one 4.2@ours-ours-2016
# soak-smoke: uml-sanitize debug
# soak-smoke-variants: 4.2 4.2@ours-ours 4.2@ours-ours-2016
# timeout: 300 3600
# rounds: 1 20 1 3
"""The server's threads, listeners and connections go, and come back later."""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, log, remote_call, rounds  # noqa: E402
from faults import Load, connects, unchanged_memory  # noqa: E402


def client():
    """Each round has the server down for two seconds."""
    vers = os.environ["VARIANT"]
    with unchanged_memory(vers), Mount(vers) as mount, Load(mount) as load:
        for n in range(rounds()):
            before = connects(mount)
            log(f"round {n}: stopping the server")
            remote_call("nfsd_stop")
            log("stopped")
            time.sleep(2)
            check("rdma" in remote_call("nfsd_start"), "the listener did not come back")
            took = load.wait_progress("after the server's restart")
            check(connects(mount) > before, "no reconnect was seen")
            log(f"round {n}: progress {took:.1f} s after the server was back")
        load.stop()


main(client)
