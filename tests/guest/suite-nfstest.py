#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# nfstest on mounts over RDMA: POSIX calls, locks, several versions at once, cached attributes.
# soak: only
# mode: pair
# fabrics: rxe
# variants: 4.2@ours-ours 4.2@stock-stock
# kernels: uml
# setup: suites
# timeout: 3600 3600
"""nfstest mounts by itself; what it says is compared with what is known of the stock module."""

import os
import shutil
import sys
import threading

sys.path.insert(0, "tests/lib")
import nfs_server  # noqa: E402
import nfstest  # noqa: E402
import remote_shell  # noqa: E402
import suites  # noqa: E402
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount  # noqa: E402

#: A name, a program, and its arguments.
#: nfstest reads a mapping as a C string. A file that fills its last page has no end there, and
#: what comes behind it need not be mapped; one octet less leaves a zero.
PARTS = [
    ("posix", "nfstest_posix", ["--runtest", "^mmap,munmap"]),
    ("posix-mmap", "nfstest_posix", ["--runtest", "mmap,munmap", "--filesize", "65535"]),
    ("lock", "nfstest_lock", ["--unlock-delay", "0.2"]),
    # It mounts with 3, 4.0 and 4.1 by itself.
    ("interop", "nfstest_interop", ["--trcdelay", "0.1"]),
    ("cache", "nfstest_cache",
     ["--client", os.environ["PEER_ADDR"], "--acmin", "5", "--acmax", "10"]),
]
#: Where the program is that nfstest takes for ssh, in and outside of its root.
SSH = "/tmp/ssh"


def make_ssh():
    """nfstest's second client is the server's guest, where it runs commands with ssh."""
    os.mkdir(SSH)
    shutil.copy("tests/lib/remote_shell.py", SSH)
    with open(f"{SSH}/ssh", "w", encoding="ascii") as f:
        f.write(f"""#!/bin/sh
while [ "$1" = -t ]; do shift; done
shift
exec env PEER_ADDR={os.environ["PEER_ADDR"]} python3 -B {SSH}/remote_shell.py "$@"
""")
    os.chmod(f"{SSH}/ssh", 0o755)


def server():
    """The NFS server, and what ssh would reach."""
    threading.Thread(target=remote_shell.serve, daemon=True).start()
    nfs_server.main()


def client():
    """Runs each program in turn."""
    version = os.environ["VARIANT"]
    results = suites.Results("nfstest")
    # It mounts as nfstest does, and shows that RDMA carries it.
    with Mount(version) as mount:
        versions.check_version()
        options = f"hard,rsize={mount.option('rsize')},wsize={mount.option('wsize')}"
    nfstest.prepare()
    make_ssh()
    for name, program, arguments in PARTS:
        nfstest.run(results, name, program, version, ["--mtopts", options, *arguments],
                    path=f"{SSH}:{nfstest.PATH}")
    results.finish()


main(client, server)
