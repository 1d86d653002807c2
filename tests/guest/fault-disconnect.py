#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Injected disconnects under I/O load: no octet is lost, no RPC hangs.
# mode: pair
# fabrics: rxe siw
# variants-rxe: 4.2@ours-ours
# variants-siw: 3@ours-ours-2016
# variants-rxe: 4.2
# kernels: uml
# smoke: uml-kasan uml-lockdep
# smoke-variants: 4.2@ours-ours
# soak-variants: 3 4.2 4.2@ours-ours 4.2@ours-ours-one 4.2@ours-ours-2016
# soak-smoke: uml-kasan uml-lockdep debug
# soak-smoke-variants: 4.2 4.2@ours-ours 4.2@ours-ours-2016
# timeout: 300 1800
# rounds: 2 20 1 3
"""SUNRPC's own fault injection cuts the connection again and again."""

import os
import sys

sys.path.insert(0, "tests/lib")
from case import Skip, main  # noqa: E402
from common import Mount, check, log, rounds, wait_for  # noqa: E402
from faults import (Load, RECOVERY, connects, fail_sunrpc, fail_sunrpc_left,  # noqa: E402
                    unchanged_memory)


def client():
    """Each round injects five disconnects and waits until all have come."""
    if not os.path.isdir("/sys/kernel/debug/fail_sunrpc"):
        raise Skip("this kernel has no fail_sunrpc")
    vers = os.environ["VARIANT"]
    with unchanged_memory(vers), Mount(vers) as mount, Load(mount) as load:
        for n in range(rounds()):
            before = connects(mount)
            fail_sunrpc(150, 5)
            took = wait_for("injected disconnects", 5 * RECOVERY,
                            lambda: not load.alive() and fail_sunrpc_left() == 0)
            fail_sunrpc(1, 0)
            again = load.wait_progress("after the disconnects")
            check(connects(mount) > before, "no disconnect was seen")
            log(f"round {n}: {connects(mount) - before} reconnects in {took:.1f} s, "
                f"progress after {again:.2f} s")
        load.stop()


main(client)
