#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A mount gets larger Receives while it lives, at either end, and needs fewer chunks.
# mode: pair
# fabrics: rxe
# soak-fabrics: rxe siw
# server: ours
# variants: 4.2@ours-ours-2016 4.2@ours-ours-one
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep debug
# soak-smoke-variants: 4.2@ours-ours-2016
# timeout: 240 900
# rounds: 1 10
"""In the draft of 2016 an end may tell at any time that it takes longer messages.

A client of which `rdma_max_inline_read` is raised takes longer Replies, a server of which
`max_req_size` is raised takes longer Calls. In the variant `one` that is of use to the next
connection only. Where allocations can be made to fail, the first ones do: then it is tried again.
"""

import collections
import mmap
import os
import re
import sys
import time

sys.path.insert(0, "tests/lib")
import failslab  # noqa: E402
import versions  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, TRACING, check, drop_caches, log, pattern, read, remote,  # noqa: E402
                    rnr_events, rounds, run, slowness, wait_for, write, xprt_stats)
from capture import Capture, messages  # noqa: E402
from faults import Load  # noqa: E402

SYSCTL = "/proc/sys/sunrpc"
#: The client's settings, and the server's.
READ_SIZE, WRITE_SIZE = f"{SYSCTL}/rdma_max_inline_read", f"{SYSCTL}/rdma_max_inline_write"
SERVER_SIZE = f"{SYSCTL}/svc_rdma/max_req_size"
#: What the server takes and sends inline at most; how long a READ is.
MOST, LENGTH = 32 << 10, 16 << 10
#: How many allocations fail before, on a kernel where that can be had.
FAILURES = 3
MAY_FAIL = os.path.exists(f"{failslab.BASE}/require-start")
EVENT = re.compile(r"rpcrdma_rs_optional: xprt=\S+ xid=\S+ operation=UPDPROP receive_size=(\d+) .*sent=1")
#: What the client takes before, beside its inline threshold of Version One.
FORMER = 12 << 10
#: An UPDPROP of that size, as tshark shows it.
UPDPROP = 4
TELLS_MOST = [("direction", 0), ("opttype", UPDPROP), ("propset", None), ("prop_2016.id", 1), ("prop.value", MOST)]
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


def registered_by(move, path, data):
    """Reads or writes past the page cache, and returns how many regions that has taken."""
    memory = mmap.mmap(-1, LENGTH)
    if move == "write":
        memory[:] = data
    fd = os.open(path, (os.O_RDONLY if move == "read" else os.O_WRONLY) | os.O_DIRECT)
    try:
        before = registrations()
        moved = os.preadv(fd, [memory], 0) if move == "read" else os.pwritev(fd, [memory], 0)
        check(moved == LENGTH and memory[:] == data, f"other data after a {move}")
        return registrations() - before
    finally:
        os.close(fd)


def server_has_told(size, before=":"):
    """Has the server take longer messages, and waits until the client was told so."""
    began = time.monotonic()
    remote(f"{before}; echo {size} > {SERVER_SIZE}")
    wait_for("the server's larger size", 60,
             lambda: shown("peer_receive_size") == str(size))
    log(f"  the server has told {size} after {time.monotonic() - began:.1f} s")


def enlarge(size):
    """Sets another size, and waits until the client has told it. Returns the sizes that it has told."""
    run("sh", "-c", TRACE)
    began = time.monotonic()
    write(READ_SIZE, str(size))
    wait_for("the larger size", 60, lambda: shown("own_receive_size") == str(size))
    told = [int(size) for size in EVENT.findall(read(f"{TRACING}/trace"))]
    log(f"  told {told} after {time.monotonic() - began:.1f} s")
    return told


def check_capture(path):
    """In what has passed the larger size is told once, and only behind it comes a longer message."""
    shown = messages(path)
    told = [m for m in shown if m.ours and m.get("opttype") == UPDPROP]
    check([m.fields[4:] for m in told] == [TELLS_MOST], f"{[m.fields for m in told]}")
    # What has gone in several packets; the last one of each is not counted.
    long = collections.Counter()
    for packet in shown:
        if not packet.ours and "message_in" in packet.derived:
            long[packet.derived["message_in"]] += packet.size
    check(long and max(long.values()) > FORMER, f"no message of more than {FORMER} octets: {long}")
    check(all(size <= FORMER or frame > told[0].frame for frame, size in long.items()),
          f"a long message before frame {told[0].frame}: {long}")


def an_idle_mount():
    """A READ whose Reply needed a chunk needs none any more, on the same connection."""
    with Mount(os.environ["VARIANT"]) as mount:
        path, data = f"{mount.path}/read", pattern("read", LENGTH)
        with open(path, "wb") as f:
            f.write(data)
        drop_caches()
        check(registered_by("read", path, data) == 1, "no chunk before")
        if is_2016():
            with Capture("larger-receives") as capture:
                drop_caches()
                check(registered_by("read", path, data) == 1, "no chunk before")
                if MAY_FAIL:
                    failslab.arm(100, FAILURES)
                told = enlarge(MOST)
                check(told == [MOST], f"{told}")
                drop_caches()
                registered_by("read", path, data)
            check_capture(capture.path)
            if MAY_FAIL:
                failslab.disarm()
                check(failslab.left() == 0, "memory was there at once")
            check(shown("inline_receive") == str(MOST), shown("inline_receive"))
            check(registered_by("read", path, data) == 0, "a chunk afterwards")
        else:
            write(READ_SIZE, str(MOST))
            time.sleep(12 * slowness())
            check(registered_by("read", path, data) == 1, "a change in another protocol")
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")
        os.unlink(path)


def an_idle_server():
    """A WRITE whose Call needed a chunk needs none any more, on the same connection."""
    with Mount(os.environ["VARIANT"]) as mount:
        path = f"{mount.path}/write"
        data = [pattern(f"write {n}", LENGTH) for n in range(2)]
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        check(registered_by("write", path, data[0]) == 1, "no chunk before")
        if is_2016():
            program = "python3 -B tests/lib/failslab.py"
            server_has_told(MOST, f"{program} arm 100 {FAILURES}" if MAY_FAIL else ":")
            if MAY_FAIL:
                remote(f"{program} disarm")
                left = remote(f"{program} left").strip()
                check(left == "0", f"memory was there at once: {left}")
            check(shown("inline_send") == str(MOST), shown("inline_send"))
            check(registered_by("write", path, data[1]) == 0, "a chunk afterwards")
        else:
            remote(f"echo {MOST} > {SERVER_SIZE}")
            time.sleep(12 * slowness())
            check(registered_by("write", path, data[1]) == 1, "a change in another protocol")
        drop_caches()
        registered_by("read", path, data[1])
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


def a_busy_server():
    """The same while many RPCs are under way."""
    with Mount(os.environ["VARIANT"]) as mount, Load(mount) as load:
        for n in range(rounds()):
            server_has_told(MOST // 2 + 4096 * (n + 1) // rounds())
            load.wait_progress("after the change")
            load.alive()
        load.stop()
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")


def client():
    """One end takes and sends long messages from the beginning, the other one later."""
    before = {name: read(name).strip() for name in (READ_SIZE, WRITE_SIZE)}
    size = remote(f"cat {SERVER_SIZE}").strip()
    try:
        write(WRITE_SIZE, str(MOST))
        an_idle_server()
        if is_2016():
            remote(f"echo {size} > {SERVER_SIZE}")
            a_busy_server()
        write(WRITE_SIZE, before[WRITE_SIZE])
        remote(f"echo {MOST} > {SERVER_SIZE}")
        an_idle_mount()
        if is_2016():
            under_load()
    finally:
        for name, value in before.items():
            write(name, value)
        remote(f"echo {size} > {SERVER_SIZE}")
    check(rnr_events() == 0, "a message found no Receive")


main(client)
