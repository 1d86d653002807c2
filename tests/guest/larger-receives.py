#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A mount gets larger Receives while it lives, and its Replies need fewer chunks.
# mode: pair
# fabrics: rxe
# soak-fabrics: rxe siw
# server: ours
# variants: 4.2@ours-ours-2016 4.2@ours-ours-one
# kernels: uml
# soak-smoke: uml-kasan debug
# soak-smoke-variants: 4.2@ours-ours-2016
# timeout: 240 900
# rounds: 1 10
"""In the draft of 2016 an end may tell at any time that it takes longer messages.

In the variant `one` a larger `rdma_max_inline_read` is of use to the next connection only.
"""

import mmap
import os
import re
import sys
import time

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, TRACING, check, drop_caches, log, pattern, read, remote,  # noqa: E402
                    rnr_events, rounds, run, slowness, wait_for, write, xprt_stats)
from faults import Load  # noqa: E402

SYSCTL = "/proc/sys/sunrpc"
#: The client's setting, and the server's.
READ_SIZE, SERVER_SIZE = f"{SYSCTL}/rdma_max_inline_read", f"{SYSCTL}/svc_rdma/max_req_size"
#: What the server takes and sends inline at most; how long a READ is.
MOST, LENGTH = 32 << 10, 16 << 10
EVENT = re.compile(r"rpcrdma_rs_optional: xprt=\S+ xid=\S+ operation=UPDPROP receive_size=(\d+) .*sent=1")
TRACE = (f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}; "
         f"echo 1 > {TRACING}/events/rpcrdma_rs/rpcrdma_rs_optional/enable; echo > {TRACING}/trace")


def is_2016():
    """Whether the draft of 2016 is spoken."""
    return versions.expected() == "2016"


def shown(name):
    """What the client shows of its latest connection."""
    return versions.connections()[-1][name]


def registrations():
    """How many regions the only transport of the client has registered."""
    numbers = [d for d in os.listdir(versions.DEBUGFS) if d.isdigit()]
    check(len(numbers) == 1, f"transports: {numbers}")
    lines = read(f"{versions.DEBUGFS}/{numbers[0]}/counters").splitlines()
    return int(dict(line.split(": ", 1) for line in lines)["registrations"])


def registered_by_read(path, data):
    """Reads past the page cache, and returns how many regions that has taken."""
    memory = mmap.mmap(-1, LENGTH)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        before = registrations()
        check(os.preadv(fd, [memory], 0) == LENGTH and memory[:] == data, "other data read than written")
        return registrations() - before
    finally:
        os.close(fd)


def enlarge(size):
    """Sets another size, and waits until the client has told it. Returns the sizes that it has told."""
    run("sh", "-c", TRACE)
    began = time.monotonic()
    write(READ_SIZE, str(size))
    wait_for("the larger size", 30 * slowness(), lambda: shown("own_receive_size") == str(size))
    told = [int(size) for size in EVENT.findall(read(f"{TRACING}/trace"))]
    log(f"  told {told} after {time.monotonic() - began:.1f} s")
    return told


def an_idle_mount():
    """A READ whose Reply needed a chunk needs none any more, on the same connection."""
    with Mount(os.environ["VARIANT"]) as mount:
        path, data = f"{mount.path}/read", pattern("read", LENGTH)
        with open(path, "wb") as f:
            f.write(data)
        drop_caches()
        check(registered_by_read(path, data) == 1, "no chunk before")
        if is_2016():
            told = enlarge(MOST)
            check(told == [MOST], f"{told}")
            check(shown("inline_receive") == str(MOST), shown("inline_receive"))
            check(registered_by_read(path, data) == 0, "a chunk afterwards")
        else:
            write(READ_SIZE, str(MOST))
            time.sleep(12 * slowness())
            check(registered_by_read(path, data) == 1, "a change in another protocol")
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")
        os.unlink(path)


def under_load():
    """The same while many RPCs are under way, several times on one connection."""
    with Mount(os.environ["VARIANT"]) as mount, Load(mount) as load:
        for n in range(rounds()):
            enlarge(MOST + 4096 * (n + 1) // rounds())
            load.wait_progress("after the change")
            load.alive()
        load.stop()
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")


def client():
    """The server takes and sends long messages from the beginning."""
    before = read(READ_SIZE).strip()
    size = remote(f"cat {SERVER_SIZE}").strip()
    remote(f"echo {MOST} > {SERVER_SIZE}")
    try:
        an_idle_mount()
        if is_2016():
            under_load()
    finally:
        write(READ_SIZE, before)
        remote(f"echo {size} > {SERVER_SIZE}")
    check(rnr_events() == 0, "a message found no Receive")


main(client)
