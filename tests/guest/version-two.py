#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Version Two: between two ends of ours, and what becomes of the offer elsewhere.
# mode: pair
# fabrics: rxe siw
# variants: 4.2@ours-ours 3@ours-ours 4.2@ours-stock 4.2@stock-ours
# kernels: uml
# smoke: uml-kasan
# smoke-fabrics: rxe
# smoke-variants: 4.2@ours-ours
# timeout: 300 900
"""Both versions are allowed at the ends that are ours; what is spoken is what both can do.

With our module at both ends the whole workload goes over Version Two. With the stock module at
one end everything is as it was, on the first connection, and debugfs says so.
"""

import mmap
import os
import sys

sys.path.insert(0, "tests/lib")
import delegations  # noqa: E402
import nfs_server  # noqa: E402
import workload  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, digest, drop_caches, log, pattern, read,  # noqa: E402
                    remote, remote_call, rnr_events, run, slow, soak, wait_for, write,
                    xprt_stats)

PARAMETERS = "/sys/module/rpcrdma/parameters"
DEBUGFS = "/sys/kernel/debug/rpcrdma"
#: All queue pairs of a guest's device.
QPS = "rdma res show qp link $RDMADEV"
#: What this guest's client and that guest's server may speak.
CLIENT = f"{PARAMETERS}/client_version"
SERVER = f"{PARAMETERS}/server_version"


def show(name):
    """A file of the only transport of the client in debugfs."""
    numbers = [d for d in os.listdir(DEBUGFS) if d.isdigit()]
    check(len(numbers) == 1, f"transports: {numbers}")
    return dict(line.split(": ", 1) for line in read(f"{DEBUGFS}/{numbers[0]}/{name}").splitlines())


def version():
    """The version that the only transport speaks, or nothing while it has no connection."""
    return show("state").get("version")


def parameters():
    """Values that make no sense are refused, and change nothing."""
    before = read(CLIENT)
    for value in ("0", "3", "two", "-1"):
        try:
            write(CLIENT, value)
        except OSError:
            continue
        check(False, f"client_version may be {value}")
    check(read(CLIENT) == before, "client_version has changed")


def both(ours_at_server):
    """One mount, the whole workload; returns what was spoken.

    With the stock module at one end it is what the matrix does anyway: for `make soak`.
    """
    wanted = workload.ALL
    if not soak() and not (ours_at_server and os.environ["MODULE"] == "ours"):
        wanted = (workload.tree, workload.acls, workload.xattrs, workload.locks)
    with Mount(os.environ["VARIANT"]) as mount:
        workload.everything(mount, wanted)
        stats = xprt_stats(mount.path)
        log(f"counters: {stats}")
        check(slow() or stats["connect_count"] == 1, f"connected {stats['connect_count']} times")
        check(stats["bad_xids"] == 0 and stats["bad_reply"] == 0, "bad Replies")
        check(rnr_events() == 0, "a message found no Receive")
        check(stats["read_chunks"] and stats["write_chunks"], "a kind of chunk was never used")
        if "ours" != os.environ["MODULE"]:
            return "1"
        spoken = version()
        log(f"state: {show('state')}, credits: {show('credits')}")
        if spoken == "2":
            check(ours_at_server, "Version Two with the stock server")
            counters = show("counters")
            # What had one handle was invalidated by the server.
            check(int(counters["remote_invalidations"]) > int(counters["local_invalidations"]),
                  f"hardly any remote invalidations: {counters}")
        return spoken


#: How long a file is read and written, and how many messages a WRITE of that takes.
SIZES = {100: 1, 4096: 2, 8192: 3}


def direct(path, flags, length, data=None):
    """Reads or writes a whole file past the page cache."""
    fd = os.open(path, flags | os.O_DIRECT, 0o644)
    memory = mmap.mmap(-1, 16384)
    try:
        if data is not None:
            memory[:length] = data
            check(os.writev(fd, [memoryview(memory)[:length]]) == length, "short write")
            return None
        check(os.readv(fd, [memoryview(memory)[:length]]) == length, "short read")
        return memory[:length]
    finally:
        os.close(fd)


def parts():
    """A few KiB travel in messages alone: nothing is registered for them, nothing read or written by RDMA."""
    names = ("registrations", "local_invalidations", "read_segments", "write_segments",
             "reply_segments")
    with Mount(os.environ["VARIANT"], options="sync") as mount:
        for length, messages in SIZES.items():
            path = f"{mount.path}/part{length}"
            data = pattern("part", length)
            before = show("counters")
            direct(path, os.O_WRONLY | os.O_CREAT, length, data)
            between = show("counters")
            check(direct(path, os.O_RDONLY, length) == data, "other data read than written")
            after = show("counters")
            used = {n: int(after[n]) - int(before[n]) for n in names}
            check(not any(used.values()), f"{length} octets: {used}")
            sent = int(between["parts"]) - int(before["parts"])
            check(sent == messages - 1, f"{length} octets: {sent} messages before the last")
            check(remote_call("verify", manifest={f"part{length}": [length, digest(data)]}) == [],
                  "the server has other data")
            os.unlink(path)
        # A Reply that may be too long for one message, and is: 300 names.
        names = {f"name.{n:03}.{'x' * 30}" for n in range(300)}
        for name in names:
            with open(f"{mount.path}/{name}", "wb"):
                pass
        drop_caches()
        # The workload may have left others.
        listed = [name for name in os.listdir(mount.path) if name.startswith("name.")]
        check(len(listed) == len(names) and set(listed) == names,
              f"{len(listed)} names, missing {len(names - set(listed))}: {os.listdir(mount.path)}")
        for name in names:
            os.unlink(f"{mount.path}/{name}")
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")
        check(rnr_events() == 0, "a message found no Receive")


def queue_pairs():
    """Both ends use reliable connections, and nothing else but what the connection manager has (4.2)."""
    with Mount(os.environ["VARIANT"]) as mount:
        os.statvfs(mount.path)
        for where, text in (("here", run("sh", "-c", QPS)), ("there", remote(QPS))):
            kinds = [line.split(" type ")[1].split()[0] for line in text.splitlines() if " type " in line]
            log(f"queue pairs {where}: {kinds}")
            check("RC" in kinds and set(kinds) <= {"RC", "GSI", "SMI"}, f"queue pairs {where}: {kinds}")


def callbacks():
    """Calls of the server, and our Replies, over Version Two."""
    with Mount(os.environ["VARIANT"]) as mount:
        delegations.first(mount)
        for n in range(5):
            name, took = delegations.recall(mount, n)
            os.unlink(f"{mount.path}/{name}")
            log(f"recall: {took:.2f} s")
        check(version() == "2", "another version")
        check(int(show("counters")["reverse_calls"]) >= 5, "no Call of the server's")
        check(xprt_stats(mount.path)["connect_count"] == 1, "connected more than once")


def reconnects():
    """A connection that is lost is made anew in the same version."""
    with Mount(os.environ["VARIANT"]) as mount:
        path = f"{mount.path}/again"
        before = xprt_stats(mount.path)["connect_count"]
        for n in range(3):
            with open(path, "wb") as f:
                f.write(bytes([n]) * 70_000)
            remote("rpc.nfsd 0")
            remote(f"rpc.nfsd -V 4.2 8; grep -q rdma {nfs_server.NFSD}/portlist || "
                   f"echo 'rdma 20049' > {nfs_server.NFSD}/portlist")
            wait_for("contents", 60, lambda: len(open(path, "rb").read()) == 70_000)
            wait_for("the version", 60, lambda: version() == "2")
        connects = xprt_stats(mount.path)["connect_count"]
        check(connects >= before + 3, f"{connects} connections, no reconnect")
        os.unlink(path)


def client():
    """What is to be expected follows from whose modules there are."""
    ours_here = os.environ["MODULE"] == "ours"
    ours_there = os.path.basename(remote("cat /run/whose").strip()) == "ours"
    if ours_here:
        check(read(CLIENT).strip() == "1", "Version Two is not off by default")
        parameters()
        write(CLIENT, "2")
    expected = "2" if ours_here and ours_there else "1"
    spoken = both(ours_there)
    check(spoken == expected, f"version {spoken} is spoken, and not {expected}")
    if not (ours_here and ours_there):
        return

    queue_pairs()
    parts()
    if os.environ["VARIANT"] != "3":
        callbacks()
    reconnects()
    # The client speaks what the server accepts, and the next mount asks again.
    remote(f"echo 1 > {SERVER}")
    with Mount(os.environ["VARIANT"]) as mount:
        check(version() == "1", "the server accepts Version One only")
        check(xprt_stats(mount.path)["connect_count"] == 1, "not on the same connection")
    remote(f"echo 2 > {SERVER}")
    # What one mount has found out holds for the next ones.
    with Mount(os.environ["VARIANT"]):
        check(version() == "1", "a server that did not speak Version Two was asked again")
    write(CLIENT, "2")
    with Mount(os.environ["VARIANT"]):
        check(version() == "2", "the server accepts Version Two again")
    write(CLIENT, "1")
    with Mount(os.environ["VARIANT"]):
        check(version() == "1", "the client offers Version One only")


def server():
    """Accepts Version Two if the module is ours; says whose it is."""
    write_whose = os.environ["MODULE"]
    with open("/run/whose", "w", encoding="ascii") as f:
        f.write(write_whose)
    if write_whose == "ours":
        write(SERVER, "2")
    nfs_server.main()


main(client, server)
