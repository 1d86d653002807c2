#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Version Two: between two ends of ours, and what becomes of the offer elsewhere.
# mode: pair
# fabrics: rxe siw
# variants-rxe: 4.2@ours-ours 4.2@ours-stock
# variants-siw: 3@ours-ours
# interop-variants: 4.2@stock-ours 4.2@ours-stock
# soak-variants: 4.2@ours-ours 3@ours-ours 4.2@ours-stock 4.2@stock-ours
# kernels: uml
# smoke-fabrics: rxe
# smoke-variants: 4.2@ours-ours
# soak-smoke: uml-kasan uml-lockdep debug
# timeout: 300 1500
"""No setting is touched: two ends of ours speak Version Two with each other.

With the stock module at one end Version One is spoken on the first connection, and debugfs says
so. A server may be replaced by another one at any time.
"""

import ctypes
import errno
import mmap
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, "tests/lib")
import delegations  # noqa: E402
import nfs_server  # noqa: E402
import versions  # noqa: E402
import workload  # noqa: E402
from agreed import Agreed  # noqa: E402
from case import main  # noqa: E402
from common import (LIBC, Mount, TRACING, check, digest, drop_caches, log, pattern,  # noqa: E402
                    read, remote, remote_call, rnr_events, run, slow, soak, wait_for, write,
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


#: A part of the workload. All of it, over both versions, is what `workload.py` is for.
PART = (workload.tree, workload.acls, workload.xattrs, workload.locks)


def both():
    """One mount and a part of the workload; returns what was spoken."""
    agreed = Agreed()
    with Mount(os.environ["VARIANT"]) as mount:
        agreed.check(versions.expected())
        workload.everything(mount, workload.ALL if soak() else PART)
        stats = xprt_stats(mount.path)
        log(f"counters: {stats}")
        check(slow() or stats["connect_count"] == 1, f"connected {stats['connect_count']} times")
        check(stats["bad_xids"] == 0 and stats["bad_reply"] == 0, "bad Replies")
        # Not at the stock module's end either: we keep to what it grants.
        check(rnr_events() == 0, "a message found no Receive")
        check(stats["read_chunks"] and stats["write_chunks"], "a kind of chunk was never used")
        versions.check_version()
        spoken = versions.connections()[0]["version"]
        if "ours" != os.environ["MODULE"]:
            return spoken
        log(f"state: {show('state')}, credits: {show('credits')}")
        if spoken == "2":
            counters = show("counters")
            # Most of what had one handle was invalidated by the server. Of several handles all but one are left to the
            # client, and all of what it offered for a Reply that came inline, which small loads have much of.
            check(3 * int(counters["remote_invalidations"]) > int(counters["local_invalidations"]),
                  f"hardly any remote invalidations: {counters}")
            check(show("state")["reverse_direction"] != "none", f"state: {show('state')}")
        return spoken


#: How long a file is read and written.
SIZES = (100, 4096, 8192)

#: An extended attribute that takes two messages, since nothing in it may go into a chunk of its own.
XATTR_SIZE = 16 << 10

#: How many Calls find too little room, and how many at a time.
ERRORS, ASKERS = 400, 16

#: One that is longer than what comes in parts.
LONG_XATTR = 60_000


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


def too_long(path):
    """A program that asks for less of an attribute than there is gets ERANGE: the Reply fits what was offered for it, but
    not the memory for it, nor what may come in parts."""
    value = pattern("long", LONG_XATTR)
    os.setxattr(path, "user.long", value)

    def ask(size):
        buffer = ctypes.create_string_buffer(size)
        got = LIBC.getxattr(path.encode(), b"user.long", buffer, size)
        error = ctypes.get_errno() if got < 0 else 0
        check((got, error) == ((LONG_XATTR, 0) if size > LONG_XATTR else (-1, errno.ERANGE)),
              f"{got} octets, {os.strerror(error)}")
        check(got < 0 or buffer.raw[:got] == value, "another attribute read than written")

    drop_caches()
    # Many at a time, each with a buffer of its own.
    with ThreadPoolExecutor(ASKERS) as pool:
        list(pool.map(ask, [128] * ERRORS))
    ask(65536)


def parts():
    """A few KiB travel in messages alone: nothing is registered for them, nothing read or written by RDMA. Data comes in
    one message, other things may come in more."""
    names = ("registrations", "local_invalidations", "read_segments", "write_segments",
             "reply_segments")
    version = os.environ["VARIANT"]
    # NFSv3 asks for access control lists, which may be longer than the client has room for: such a Reply has a buffer.
    with Mount(version, options="sync,noacl" if version == "3" else "sync") as mount:
        def used(before, parts, what):
            after = show("counters")
            for name in names:
                check(after[name] == before[name], f"{what}: {name} {before[name]} to {after[name]}")
            sent = int(after["parts"]) - int(before["parts"])
            check(sent == parts, f"{what}: {sent} messages before the last")

        for length in SIZES:
            path = f"{mount.path}/part{length}"
            data = pattern("part", length)
            before = show("counters")
            direct(path, os.O_WRONLY | os.O_CREAT, length, data)
            check(direct(path, os.O_RDONLY, length) == data, "other data read than written")
            used(before, 0, f"{length} octets")
            check(remote_call("verify", manifest={f"part{length}": [length, digest(data)]}) == [],
                  "the server has other data")
            os.unlink(path)
        if version == "4.2":
            path = f"{mount.path}/attribute"
            with open(path, "wb"):
                pass
            value = pattern("attribute", XATTR_SIZE)
            before = show("counters")
            os.setxattr(path, "user.long", value)
            used(before, 1, "an extended attribute")
            drop_caches()
            check(os.getxattr(path, "user.long") == value, "another attribute read than written")
            too_long(path)
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


def restart_server(module=None):
    """Stops the NFS server and starts it again, with another module if one is named."""
    remote_call("nfsd_stop")
    if module:
        wait_for("removal of the server's module", 60, lambda: remote(
            "rmmod rpcrdma 2>/dev/null; ! grep -q '^rpcrdma ' /proc/modules && echo gone || true"), 0.2)
        remote(f"insmod ${module}_KO")
    remote_call("nfsd_start")
    remote(f"echo Y > {nfs_server.NFSD}/v4_end_grace", ok=None)


def before_the_first_call(lines):
    """How many messages the client had received when a connection was ready."""
    up = next(i for i, l in enumerate(lines) if "rpcrdma_rs_connect:" in l and "error=0" in l)
    begin = max(i for i, l in enumerate(lines[:up]) if "event=ESTABLISHED" in l)
    check(not any("rpcrdma_rs_post_call:" in l for l in lines[begin:up]), "a Call in between")
    return sum("rpcrdma_rs_receive:" in l and "status=SUCCESS" in l for l in lines[begin:up])


def traced():
    """The lines of the trace since the last call."""
    lines = [l for l in read(f"{TRACING}/trace").splitlines() if "rpcrdma_rs" in l]
    # Opening it like this empties it.
    with open(f"{TRACING}/trace", "w", encoding="ascii"):
        return lines


def served():
    """A stock client's first message is a Call, and nothing comes before the answer to it: no round trip more."""
    remote(f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}; echo counter > {TRACING}/trace_clock; "
           f"echo 1 > {TRACING}/events/rpcrdma_rs/enable; echo > {TRACING}/trace")
    with Mount(os.environ["VARIANT"]):
        # Ordered by a counter, so that two CPUs agree.
        lines = [l for l in remote(f"cat {TRACING}/trace").splitlines() if "xprt=server/" in l]
    remote(f"echo 0 > {TRACING}/events/rpcrdma_rs/enable; echo > {TRACING}/trace")
    number = next(l for l in lines if "rpcrdma_rs_accept:" in l).split("xprt=")[1].split()[0]
    lines = [l for l in lines if f"xprt={number} " in l]
    first = next(i for i, l in enumerate(lines) if "rpcrdma_rs_call:" in l)
    answer = next(i for i, l in enumerate(lines) if "rpcrdma_rs_post_reply:" in l)
    arrived = sum("rpcrdma_rs_receive:" in l and "status=SUCCESS" in l for l in lines[:first])
    sent = [l for l in lines[:answer] if "rpcrdma_rs_sent:" in l or "rpcrdma_rs_error:" in l]
    log(f"the first Call was message {arrived}; {len(sent)} were sent before its Reply")
    check(arrived == 1 and not sent, "\n".join(lines[:answer + 1]))


def forget():
    """The client asks every server anew which version it speaks."""
    write(CLIENT, "2")


def refused():
    """A server of Version One costs a round trip, once; what it was taken for is remembered, and by whom."""
    if not os.path.ismount(TRACING):
        run("mount", "-t", "tracefs", "tracefs", TRACING)
    # The guest's clock is too coarse to tell in which order two CPUs did something.
    write(f"{TRACING}/trace_clock", "counter")
    for event in ("cm_event", "connect", "receive", "post_call"):
        write(f"{TRACING}/events/rpcrdma_rs/rpcrdma_rs_{event}/enable", "1")
    traced()
    forget()
    with Mount(os.environ["VARIANT"]) as mount:
        path = f"{mount.path}/refused"
        data = pattern("refused", 100_000)

        def use():
            with open(path, "wb") as f:
                f.write(data)
            drop_caches()
            with open(path, "rb") as f:
                check(f.read() == data, "other data read than written")

        use()
        messages = before_the_first_call(traced())
        log(f"the first connection was ready after {messages} message")
        check(messages == 1, f"{messages} messages before the first Call")
        check(xprt_stats(mount.path)["connect_count"] == 1, "not on the same connection")
        # It remembers, even if the server is another one now.
        for module in (None, "OURS"):
            restart_server(module)
            use()
            messages = before_the_first_call(traced())
            log(f"another connection was ready after {messages} messages")
            check(messages == 0, "Version Two was offered again")
            check(version() == "1", "another version")
        if soak():
            # Ten minutes later it has forgotten.
            log("waiting for ten minutes")
            for _ in range(41):
                time.sleep(15)
                log("still waiting")
            restart_server()
            use()
            check(version() == "2", "Version Two is not offered again")
    if not soak():
        # So does who mounts anew, until the setting is made again.
        with Mount(os.environ["VARIANT"]):
            check(version() == "1", "a new mount offers Version Two again")
    forget()
    with Mount(os.environ["VARIANT"]):
        check(version() == "2", "a new mount does not offer Version Two")
    restart_server("STOCK")


def replaced():
    """A server of Version Two that comes back as one of Version One is served as such, and the reverse."""
    with Mount(os.environ["VARIANT"]) as mount:
        path = f"{mount.path}/replaced"
        check(version() == "2", "another version")
        for n, (module, spoken) in enumerate((("STOCK", "1"), ("OURS", "1"))):
            data = pattern(n, 100_000)
            with open(path, "wb") as f:
                f.write(data)
            before = xprt_stats(mount.path)["connect_count"]
            restart_server(module)
            drop_caches()
            with open(path, "rb") as f:
                check(f.read() == data, "other data read than written")
            check(version() == spoken, f"version {version()} with the server {module}")
            check(xprt_stats(mount.path)["connect_count"] == before + 1, "connected more than once")
        os.unlink(path)
    forget()
    with Mount(os.environ["VARIANT"]):
        check(version() == "2", "a new mount does not offer Version Two")


def client():
    """What is to be expected follows from whose modules there are; no setting is touched at first."""
    ours_here, ours_there = (os.environ[m] == "ours" for m in ("MODULE", "PEER_MODULE"))
    if ours_here:
        check(read(CLIENT).strip() == "2", "Version Two is not the default")
        parameters()
    if ours_there:
        check(remote(f"cat {SERVER}").strip() == "2", "Version Two is not the server's default")
    expected = "2" if ours_here and ours_there else "1"
    if not ours_here:
        served()
    spoken = both()
    check(spoken == expected, f"version {spoken} is spoken, and not {expected}")
    if not ours_there:
        refused()
    if not (ours_here and ours_there):
        return

    queue_pairs()
    parts()
    if os.environ["VARIANT"] != "3":
        callbacks()
    reconnects()
    if not slow():
        replaced()
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


main(client)
