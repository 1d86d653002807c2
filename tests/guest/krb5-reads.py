#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# READs with sec=krb5i that end on a page boundary, from several readers at once: none fails.
# mode: pair
# server: ours
# client: ours
# fabrics: rxe
# variants: 1 8
# kernels: uml
# soak-fabrics: rxe siw
# soak-smoke: uml-kasan uml-lockdep
# timeout: 200 900
# rounds: 12 100
# See krb5.py.
# kernel-options: init_on_alloc=1
"""The variant is the number of nfsd threads.

The checksum of such a READ is in a page of its own, which SUNRPC does not count. The network is slow,
so that a thread makes the Reply to the next READ while the device has yet to send the page: a page that is
still the thread's then has the checksum of the other READ, and the client fails the first one with EIO.
"""

import collections
import mmap
import os
import sys

sys.path.insert(0, "tests/lib")
import kerberos  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, children, is_errno, log, remote, rounds,  # noqa: E402
                    xprt_stats)

THREADS = int(os.environ["VARIANT"])
#: Each has a file of its own.
READERS = max(4, THREADS)
#: What the server sends arrives this much later.
DELAY = "10ms"
SIZE, COUNT = 1 << 20, 4


def reader(path, which):
    """Returns a function that reads a file over and over, past the page cache."""
    def reads():
        wanted = bytes([65 + which]) * SIZE
        memory, found = mmap.mmap(-1, SIZE), collections.Counter()
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        for i in range(rounds()):
            try:
                length = os.preadv(fd, [memory], i % COUNT * SIZE)
                found["right" if length == SIZE and memory[:] == wanted else "other data"] += 1
            except OSError as e:
                found[is_errno(e.errno)] += 1
        os.close(fd)
        log(f"reader {which}: {dict(found)}")
        check(found["right"] == rounds(), f"{rounds() - found['right']} READs failed")
    return reads


def client():
    """All readers at once, after their files were written."""
    kerberos.client()
    remote(f"tc qdisc add dev $NETDEV root netem delay {DELAY} limit 20000")
    with Mount("4.2", options="sec=krb5i", address=kerberos.SERVER) as mount:
        check(remote("cat /proc/fs/nfsd/threads").strip() == str(THREADS), "other threads")
        paths = [f"{mount.path}/f{which}" for which in range(READERS)]
        for which, path in enumerate(paths):
            with open(path, "wb") as f:
                f.write(bytes([65 + which]) * (SIZE * COUNT))
        children(*(reader(path, which) for which, path in enumerate(paths)))
        stats = xprt_stats(mount.path)
        check(stats["reply_chunks"] >= READERS * rounds(), "the data did not go to Reply chunks")
        check(stats["connect_count"] == 1, f"connected {stats['connect_count']} times")


main(client, server=lambda: kerberos.server("krb5i", THREADS))
