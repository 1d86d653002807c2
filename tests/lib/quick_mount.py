# SPDX-License-Identifier: GPL-2.0
"""A mount that no program makes, for cases that mount some thousand times."""

import ctypes
import os
import time

from common import (LIBC, NFS_PORT, Failure, Mount, host, is_errno, is_v6, mount_raw,
                    watchdog)


#: Seconds for which a server may refuse a connection: mount(8) tries again for two minutes.
REFUSED = 3


class QuickMount(Mount):
    """The same by mount(2) and umount(2): programs take longer to begin than the kernel needs."""

    def mount(self, timeout=150, ok=(0,)):
        """Mounts."""
        peer, six = self.address, "6" if is_v6(self.address) else ""
        options = f"addr={peer},proto=rdma{six},vers={self.vers},port={NFS_PORT}"
        if self.vers == "3":
            options += f",mountaddr={peer},mountproto=tcp{six}"
        else:
            options += f",clientaddr={os.environ['OWN_ADDR']}"
        end = time.monotonic() + REFUSED * watchdog()
        while True:
            try:
                return mount_raw(f"{host(peer)}:{self.export}", self.path, options)
            except Failure as e:
                if "ECONNREFUSED" not in str(e) or time.monotonic() > end:
                    raise
            time.sleep(0.2)

    def umount(self, *flags, timeout=60):
        """Unmounts; busy is retried for a moment, as there."""
        for _ in range(40):
            if not LIBC.umount2(self.path.encode(), 0):
                return
            error = is_errno(ctypes.get_errno())
            if error != "EBUSY":
                break
            time.sleep(0.1)
        raise Failure(f"umount {self.path}: {error}")
