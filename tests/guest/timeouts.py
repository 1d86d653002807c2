#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# NFSv3 Calls with chunks time out again and again, and are encoded anew: all data arrive.
# mode: pair
# server: ours
# fabrics: rxe
# variants: 3
# soak-variants: 3 3@ours-ours-one 3@ours-stock
# soak-smoke: uml-sanitize
# kernels: uml
# light: yes
# timeout: 120 240
"""The server's file system is frozen for longer than it takes WRITEs to time out.

Each timeout ends the connection. The regions of the Call were registered until then, and the task has
the same memory encoded into again.
"""

import mmap
import os
import sys
import threading
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (ROOT, Mount, check, drop_caches, log, pattern, remote, slowness, watchdog,  # noqa: E402
                    xprt_stats)

#: The timeout, in tenths of a second, and how long nothing is written, in seconds.
TIMEOUT, FROZEN = 15, 9
SIZE, WRITERS = 1 << 20, 6
#: A file system that can be frozen, and the file that it is in.
DISK, IMAGE = f"{ROOT}/frozen", f"{ROOT}/frozen.ext4"


def put(path, number, failed):
    """Writes a file at once, from memory that is given to the device as it is."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    with mmap.mmap(-1, SIZE) as memory:
        memory[:] = pattern(f"timeouts {number}", SIZE)
        try:
            if os.pwritev(fd, [memory], 0) != SIZE:
                failed.append(f"{number}: a short write")
        except OSError as e:
            failed.append(f"{number}: {e}")
        finally:
            os.close(fd)


def client():
    """Writes while the file system is frozen."""
    remote(f"truncate -s 64M {IMAGE} && mkfs.ext4 -qF {IMAGE} && mkdir {DISK} && "
           f"mount -o loop {IMAGE} {DISK} && chmod 777 {DISK} && "
           f"exportfs -o rw,async,no_root_squash,insecure,no_subtree_check,fsid=7 '*:{DISK}'")
    with Mount("3", options=f"noac,hard,timeo={TIMEOUT},wsize={SIZE}", export=DISK) as mount:
        paths = [f"{mount.path}/{number}" for number in range(WRITERS)]
        for path in paths:
            with open(path, "wb"):
                pass
        failed = []
        writers = [threading.Thread(target=put, args=(path, number, failed))
                   for number, path in enumerate(paths)]
        remote(f"fsfreeze -f {DISK}")
        try:
            for writer in writers:
                writer.start()
            time.sleep(FROZEN * slowness())
            check(all(writer.is_alive() for writer in writers), "a WRITE came through")
        finally:
            remote(f"fsfreeze -u {DISK}")
        for writer in writers:
            writer.join(60 * watchdog())
        check(not any(writer.is_alive() for writer in writers), "a WRITE does not end")
        check(not failed, "; ".join(failed))
        drop_caches()
        for number, path in enumerate(paths):
            with open(path, "rb") as f:
                check(f.read() == pattern(f"timeouts {number}", SIZE), f"{number}: other octets")
        connected = xprt_stats(mount.path)["connect_count"]
        log(f"connected {connected} times")
        check(connected > 1, "nothing has timed out")


main(client)
