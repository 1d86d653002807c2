#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A busy server that accepts nobody for a while: a hard mount to which ENETUNREACH is fatal waits.
# mode: pair
# fabrics: siw rxe
# variants: 4.2@ours-ours
# soak-variants: 4.2@ours-ours 3@ours-ours 4.2
# kernels: uml
# soak: only
# light: yes
# timeout: 200 400
"""All threads of the server wait for a frozen file system, and the client loses its connection.

siw ends an attempt to connect that was not accepted within 10 s, and the connection manager says
that the server is unreachable.
"""

import os
import subprocess
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import ROOT, Mount, check, log, remote  # noqa: E402
from faults import Load, connects, fail_sunrpc, fail_sunrpc_left  # noqa: E402

#: More processes than the server has threads.
JOBS = 24
#: Seconds for which the file system is frozen.
FROZEN = 40
#: A file system that can be frozen, and the file that it is in.
DISK, IMAGE = f"{ROOT}/frozen", f"{ROOT}/frozen.ext4"


def client():
    """Writes while the file system is frozen, and ends the connection meanwhile."""
    vers = os.environ["VARIANT"]
    remote(f"truncate -s 300M {IMAGE} && mkfs.ext4 -qF {IMAGE} && mkdir {DISK} && "
           f"mount -o loop {IMAGE} {DISK} && chmod 777 {DISK} && "
           f"exportfs -o rw,async,no_root_squash,insecure,no_subtree_check,fsid=7 '*:{DISK}'")
    export = DISK if vers == "3" else "/frozen"
    options = "hard,fatal_neterrors=ENETUNREACH:ENETDOWN"
    with Mount(vers, options=options, export=export) as mount, Load(mount, jobs=JOBS) as load:
        before = connects(mount)
        remote(f"fsfreeze -f {DISK}")
        try:
            time.sleep(3)
            fail_sunrpc(1, 1)
            began = time.monotonic()
            while fail_sunrpc_left() and time.monotonic() - began < 10:
                # Something has to be sent, or nothing looks whether to fail.
                subprocess.Popen(["stat", f"{mount.path}/x{time.monotonic()}"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(0.5)
            check(not fail_sunrpc_left(), "the connection was not cut")
            time.sleep(FROZEN)
        finally:
            remote(f"fsfreeze -u {DISK}")
        took = load.wait_progress("the thaw")
        check(connects(mount) > before, "the connection was not lost")
        log(f"progress {took:.1f} s after the thaw")
        load.alive()


main(client, rnr="connections were cut")
