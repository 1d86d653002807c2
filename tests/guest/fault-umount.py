#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Forced and lazy unmounts in mid-I/O; nothing of the mount stays behind.
# mode: pair
# fabrics: rxe siw
# variants-rxe: 4.2@ours-ours
# variants-siw: 4.2
# kernels: uml
# soak-variants: 3 4.2 4.2@ours-ours 4.2@ours-ours-one
# soak-smoke: uml-kasan debug
# soak-smoke-variants: 4.2 4.2@ours-ours
# timeout: 300 1800
# rounds: 2 20 1 3
"""umount -f and umount -l while a load runs."""

import os
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, log, module_refs, rounds, run, status, wait_for  # noqa: E402
from faults import Load  # noqa: E402


def client():
    """Each round mounts anew; the module's count must be what it was before."""
    before = module_refs()
    for n in range(rounds()):
        for flag in ("-f", "-l"):
            mount = Mount(os.environ["VARIANT"], where=f"u{n}{flag}")
            mount.mount()
            load = Load(mount, jobs=3, tolerant=True)
            with load:
                time.sleep(0.3)
                began = time.monotonic()
                # A busy mount cannot go: -f says so, but ends the RPCs under way.
                status("umount", flag, mount.path)
                load.kill(0)
                load.kill(1)
                load.kill(2)
            if os.path.ismount(mount.path):
                mount.umount()
            took = time.monotonic() - began
            wait_for("release of the transport", 30, lambda: module_refs() == before)
            log(f"round {n}: umount {flag} took {took:.2f} s")
    run("true")
    check(module_refs() == before, "the module is still in use")


main(client)
