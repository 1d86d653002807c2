#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The dissector of tools/wireshark: what tshark shows of Version Two in captured frames.
# mode: pair
# server: ours
# fabrics: rxe siw
# variants: two
# kernels: uml
# timeout: 300 900
"""Frames of sessions are captured in the client's guest, and dissected there.

A client in user space knows each message that it has sent and received: tshark has to show all of
them, with every field. Of mounts tshark has to show what has been done, and what the module has
counted."""

import mmap
import os
import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Mount, check, drop_caches, fabric, log, pattern, read, remote, write,  # noqa: E402
                    xprt_stats)
from capture import Capture, messages, tshark  # noqa: E402
from rpcrdma2_header import CALL_MIDDLE, CONNPROP_FINAL, ERROR, VERS  # noqa: E402
import shown  # noqa: E402

DEBUGFS = "/sys/kernel/debug/rpcrdma"
SYSCTL = "/proc/sys/sunrpc"
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


def by_hand():
    """A client in user space: all header types, chunks and errors, field by field."""
    import recorded
    with Mount("4.2") as mount:
        recorded.prepare(mount.path)
    with Capture("by-hand") as capture:
        connection = recorded.session()
        connection.close()
    found = messages(capture.path)
    shown.check_recorded(found, connection.messages, connection.broken)
    # What the dissector of NFS makes of data in parts, and of those that went by RDMA.
    of = {m.get("xid"): m for m in found if m.number("rpc.msgtyp") == 0}
    replies = {m.get("xid"): m for m in found if m.number("rpc.msgtyp") == 1}
    check(shown.octets(of[connection.written], "nfs.data") == recorded.data()[:9000],
          "WRITE in parts has other data")
    check(shown.octets(replies[connection.read], "nfs.data") == recorded.data()[8:10_008],
          "READ in parts has other data")
    absent = [m.derived["absent"] for m in found if "absent" in m.derived]
    check(absent == [50_001, 6000] and any(m.rpc.get("nfs.write.data_length") == ["6000"] for m in found),
          f"data that went by RDMA: {absent}")


def mounted():
    """A mount with the usual sizes: chunks, and messages in parts."""
    with Capture("mount") as capture, Mount("4.2", options="sync") as mount:
        for length in (100_000, 4096):
            path = f"{mount.path}/file{length}"
            direct(path, os.O_WRONLY | os.O_CREAT, length, DATA[:length])
            direct(path, os.O_RDONLY, length)
        for n in range(60):
            with open(f"{mount.path}/name.{n:03}.{'x' * 30}", "wb"):
                pass
        drop_caches()
        check(len(os.listdir(mount.path)) >= 62, "names are missing")
        counters, stats = debugfs("counters"), xprt_stats(mount.path)
    check(stats["connect_count"] == 1, "connected more than once")
    found = messages(capture.path)
    shown.check_credits(found)
    shown.check_answers(found)
    ours = [m for m in found if m.ours and "sent_again" not in m.derived]
    check(ours[0].get("htype") == CONNPROP_FINAL and ours[0].count("prop.id") >= 4,
          f"properties: {ours[0].fields}")
    parts = sum(m.get("htype") == CALL_MIDDLE for m in ours)
    check(parts == int(counters["parts"]) > 0, f"{parts} parts are shown, {counters['parts']} were sent")
    [big, small] = shown.with_operation(found, shown.WRITE)
    check(big.count("read_list") and big.count("handle") and big.derived.get("absent") == 100_000,
          f"{big}: {big.fields}, {big.derived}")
    check(big.get("inv_handle") in (0, big.get("handle")), f"{big}: {big.fields}")
    check(small.derived.get("parts") == 2 and shown.octets(small, "nfs.data") == DATA[:4096],
          f"{small}: {small.derived}")
    big, small = shown.with_operation(found, shown.READ)
    check(big.count("write_chunk") == 1 and big.get("handle"), f"{big}: {big.fields}")
    replies = shown.with_operation(found, shown.READ, call=False)
    check([m.derived.get("absent") for m in replies][0] == 100_000
          and shown.octets(replies[1], "nfs.data") == DATA[:4096], f"{replies}")
    for operation in (shown.EXCHANGE_ID, shown.CREATE_SESSION, shown.OPEN, shown.READDIR):
        check(shown.with_operation(found, operation), f"operation {operation} is not shown")


def in_packets():
    """Messages that are longer than the packets of the network."""
    sizes = {f"{SYSCTL}/rdma_max_inline_read": "16384", f"{SYSCTL}/rdma_max_inline_write": "16384"}
    before = {name: read(name) for name in sizes}
    size = remote(f"cat {SYSCTL}/svc_rdma/max_req_size")
    for name, value in sizes.items():
        write(name, value)
    remote(f"echo 16384 > {SYSCTL}/svc_rdma/max_req_size")
    with Capture("in-packets") as capture, Mount("4.2", options="sync") as mount:
        log(f"state: {debugfs('state')}")
        path = f"{mount.path}/file12000"
        direct(path, os.O_WRONLY | os.O_CREAT, 12_000, DATA[:12_000])
        direct(path, os.O_RDONLY, 12_000)
    for name, value in before.items():
        write(name, value)
    remote(f"echo {size} > {SYSCTL}/svc_rdma/max_req_size")
    found = messages(capture.path)
    packets = [m for m in found if not m.fields]
    whole = [m for m in found if m.fields]
    shown.check_credits(whole)
    shown.check_answers(whole)
    # tshark itself puts together what iWARP has taken apart.
    check(len(packets) >= (4 if fabric() == "rxe" else 0)
          and all("message_in" in m.derived for m in packets), f"packets: {packets}")
    for operation, call in ((shown.WRITE, True), (shown.READ, False)):
        [message] = shown.with_operation(whole, operation, call)
        check(shown.octets(message, "nfs.data") == DATA[:12_000] and "parts" not in message.derived
              and sum(m.derived["message_in"] == message.frame for m in packets)
              >= (2 if fabric() == "rxe" else 0), f"{message}: {message.fields}")


def other_version():
    """A server that speaks Version One only says so; what follows is not of Version Two."""
    remote("echo 1 > /sys/module/rpcrdma/parameters/server_version")
    with Capture("version-one") as capture, Mount("4.2") as mount:
        os.listdir(mount.path)
    remote("echo 2 > /sys/module/rpcrdma/parameters/server_version")
    found = messages(capture.path)
    check([m.get("htype") for m in found] == [CONNPROP_FINAL, ERROR], f"{found}")
    refused = dict(found[1].fields)
    check((refused["err"], refused["err.vers_low"], refused["err.vers_high"]) == (VERS, 1, 1),
          f"{refused}")
    later = tshark(capture.path, "-Y", "rpcordma and rpc", "-T", "fields", "-e", "frame.number")
    frames = [int(w) for w in later.split() if w.isdigit()]
    check(len(frames) > 10 and min(frames) > found[1].frame, f"Version One: {frames}")


def client():
    """All of it."""
    by_hand()
    mounted()
    in_packets()
    other_version()


main(client)
