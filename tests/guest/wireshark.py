#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The dissector of tools/wireshark: what tshark shows of Version Two in captured frames.
# mode: pair
# server: ours
# fabrics: rxe
# soak-fabrics: rxe siw
# variants: two
# variants-rxe: 2016
# soak-variants: two 2016
# kernels: uml
# timeout: 300 900
"""Frames of sessions are captured in the client's guest, and dissected there.

A client in user space knows each message that it has sent and received: tshark has to show all of
them, with every field. Of mounts tshark has to show what has been done, and what the module has
counted."""

import contextlib
import mmap
import os
import socket
import sys
import threading

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Mount, check, drop_caches, netdev, pattern, read, remote, run,  # noqa: E402
                    write, xprt_stats)
from capture import Capture, messages  # noqa: E402
import shown  # noqa: E402
import shown_2016  # noqa: E402

DEBUGFS = "/sys/kernel/debug/rpcrdma"
SYSCTL = "/proc/sys/sunrpc"
#: What the other guest's server may speak.
SERVER = "/sys/module/rpcrdma/parameters/server_version"
DATA = pattern("wireshark", 100_000)


def debugfs(name):
    """A file of the only transport of this client."""
    number = next(d for d in os.listdir(DEBUGFS) if d.isdigit())
    return dict(line.split(": ", 1) for line in read(f"{DEBUGFS}/{number}/{name}").splitlines())


def direct(path, flags, length, data=None):
    """Reads or writes the beginning of a file past the page cache."""
    fd = os.open(path, flags | os.O_DIRECT, 0o666)
    memory = mmap.mmap(-1, 131072)
    try:
        if data is None:
            check(os.readv(fd, [memoryview(memory)[:length]]) == length, "short read")
            check(memory[:length] == DATA[:length], "other data were read")
        else:
            memory[:length] = data
            check(os.writev(fd, [memoryview(memory)[:length]]) == length, "short write")
    finally:
        os.close(fd)


@contextlib.contextmanager
def slow_network():
    """What iWARP sends waits for acknowledgements meanwhile, so that several messages share a segment."""
    slow = os.environ["FABRIC"] == "siw"
    if slow:
        run("tc", "qdisc", "add", "dev", netdev(), "root", "netem", "delay", "40ms")
    yield
    if slow:
        run("tc", "qdisc", "del", "dev", netdev(), "root")


def by_hand():
    """A client in user space: all header types, chunks and errors, field by field."""
    import recorded
    with Mount("4.2") as mount:
        recorded.prepare(mount.path)
    with slow_network(), Capture("by-hand") as capture:
        connection = recorded.session()
        connection.close()
    shown.check_by_hand(capture.path, connection.notes)


def mounted():
    """A mount with the usual sizes: chunks, and messages in parts."""
    with Capture("mount") as capture, Mount("4.2", options="sync") as mount:
        for length in (100_000, 4096):
            path = f"{mount.path}/file{length}"
            direct(path, os.O_WRONLY | os.O_CREAT, length, DATA[:length])
            direct(path, os.O_RDONLY, length)
        # Too long for one message, and not for a chunk of its own.
        os.setxattr(path, "user.long", DATA[:16384])
        for n in range(60):
            with open(f"{mount.path}/name.{n:03}.{'x' * 30}", "wb"):
                pass
        drop_caches()
        check(len(os.listdir(mount.path)) >= 62, "names are missing")
        counters, stats = debugfs("counters"), xprt_stats(mount.path)
    check(stats["connect_count"] == 1, "connected more than once")
    shown.check_mounted(capture.path, DATA, int(counters["parts"]))


def in_packets():
    """Messages that are longer than the packets of the network."""
    sizes = {f"{SYSCTL}/rdma_max_inline_read": "16384", f"{SYSCTL}/rdma_max_inline_write": "16384"}
    before = {name: read(name) for name in sizes}
    size = remote(f"cat {SYSCTL}/svc_rdma/max_req_size")
    for name, value in sizes.items():
        write(name, value)
    remote(f"echo 16384 > {SYSCTL}/svc_rdma/max_req_size")
    with Capture("in-packets") as capture, Mount("4.2", options="sync") as mount:
        check(debugfs("state")["inline_send"] == "16384", "the usual size of messages")
        path = f"{mount.path}/file12000"
        direct(path, os.O_WRONLY | os.O_CREAT, 12_000, DATA[:12_000])
        direct(path, os.O_RDONLY, 12_000)
    for name, value in before.items():
        write(name, value)
    remote(f"echo {size} > {SYSCTL}/svc_rdma/max_req_size")
    shown.check_in_packets(capture.path, DATA[:12_000])


def other_version():
    """A server that speaks Version One only says so; what follows is not of Version Two."""
    remote(f"echo 1 > {SERVER}")
    with Capture("version-one") as capture, Mount("4.2") as mount:
        os.listdir(mount.path)
    remote(f"echo 2 > {SERVER}")
    shown.check_other_version(capture.path)


def of_2016():
    """The protocol of 2016: messages that a client in user space has sent and received, and a mount."""
    with Capture("of-2016") as capture:
        sent, received = shown_2016.session()
    shown_2016.check_by_hand(capture.path, sent, received)
    with Capture("mount-of-2016") as capture, Mount("4.2", options="sync") as mount:
        path = f"{mount.path}/file"
        direct(path, os.O_WRONLY | os.O_CREAT, 100_000, DATA)
        direct(path, os.O_RDONLY, 100_000)
        for n in range(60):
            with open(f"{mount.path}/name.{n:03}.{'x' * 30}", "wb"):
                pass
        drop_caches()
        check(len(os.listdir(mount.path)) >= 61, "names are missing")
        check(debugfs("state")["dialect"] == "draft-2016", "another protocol")
    shown_2016.check_mounted(capture.path, DATA)


def beside_others():
    """Frames that are none of a capture's, while it begins: it ends, and has all of its own."""
    done = threading.Event()

    def send():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not done.is_set():
                sender.sendto(b"other", (os.environ["PEER_ADDR"], 10))

    others = threading.Thread(target=send)
    others.start()
    try:
        with Capture("beside-others") as capture:
            done.set()
            with Mount("4.2") as mount:
                os.listdir(mount.path)
    finally:
        done.set()
        others.join()
    shown.check_answers(messages(capture.path))


def client():
    """All of it."""
    if os.environ["VARIANT"] == "2016":
        of_2016()
        return
    beside_others()
    by_hand()
    mounted()
    in_packets()
    other_version()


main(client)
