#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A server that nobody here wrote, nfs-ganesha: our client and the stock one have the same files.
# mode: pair
# fabrics: rxe
# server: none
# variants: 3@ours-none 4.0@ours-none 4.1@ours-none 4.2@ours-none defects@ours-none
# variants: 3@ours-none-one 4.0@ours-none-one 4.1@ours-none-one 4.2@ours-none-one
# variants: 3@ours-none-2016 4.2@ours-none-2016
# control-variants: 3@stock-none 4.0@stock-none 4.1@stock-none 4.2@stock-none defects@stock-none
# kernels: uml
# memory: 1792M
# setup: ganesha
# soak: only
# timeout: 600 600
"""The server is one of Version One, in user space, without callbacks over RDMA.

It refuses the first message of Version Two, and of the protocol of 2016, by its version: the
connection goes on with Version One. What the server does wrong is in `defects`, with each client;
the other variants leave that out.
"""

import mmap
import os
import re
import signal
import sys

sys.path.insert(0, "tests/lib")
import ganesha  # noqa: E402
import versions  # noqa: E402
import workload_data  # noqa: E402
from case import main  # noqa: E402
from common import (Failure, Mount, TRACING, check, child, children, drop_caches, is_errno,  # noqa: E402
                    log, pattern, read, remote_call, rnr_events, wait_for, write, xprt_stats)
from workload_tree import MIB, Tree, compare  # noqa: E402

#: Sizes of files: all but the one that the server does not survive, see `crash`.
SIZES = [size for size in workload_data.SIZES if size != MIB - 1]
#: How many octets of four a READ or WRITE has, which get rests of 0 to 3 more.
FOURS = (0, 1, 2, 3, 60, 120, 180, 200, 220, 240, 255, 256, 300, 1023, 4095, 16384, 65535, 262_100)
#: The trace event of the client's module for a message that has come, and the name of its size.
SYSTEM, EVENT, SIZE = (("rpcrdma_rs", "rpcrdma_rs_reply", "len")
                       if os.environ["MODULE"] == "ours" else
                       ("rpcrdma", "xprtrdma_wc_receive", "received"))
#: Names in a directory.
NAMES = 600
#: How long a name or a target of a symbolic link may be, over any version.
TARGETS = (1, 3, 4, 255, 600)


def mounted(vers):
    """A mount of the server with this version of NFS."""
    return Mount(vers, export="/export", options=ganesha.V3 if vers == "3" else "")


def rests(mount):
    """Reads and writes past the page cache whose lengths are no multiples of four."""
    t = Tree(mount, "rests")
    length = 4 * FOURS[-1] + 3
    data = bytearray(pattern("rests", length + 1000))
    t.put("f", data)
    fd = os.open(t.path("f"), os.O_RDWR | os.O_DIRECT)
    memory = memoryview(mmap.mmap(-1, 2 * MIB))
    for fours in FOURS:
        for rest in range(4):
            size = 4 * fours + rest
            view = memory[rest:rest + size]
            for at in (0, 13, 997):
                view[:] = pattern((at, size), size)
                data[at:at + size] = view
                check(os.pwritev(fd, [view], at) == size, f"wrote less than {size} at {at}")
                view[:] = bytes(size)
                check(os.preadv(fd, [view], at) == size, f"read less than {size} at {at}")
                compare(f"{size} octets at {at}", view, data[at:at + size])
    os.close(fd)
    t.files["f"] = data
    t.verify()


def names(mount):
    """Names are made, listed, with and without attributes, given others, and removed."""
    t = Tree(mount, "names")
    jobs = 4
    name = [f"entry-{i:05d}-{'x' * (i % 90)}" for i in range(NAMES)]

    def create(job):
        for i in range(job, NAMES, jobs):
            with open(t.path(name[i]), "wb") as f:
                f.write(b"n" * (i % 7))

    def rename(job):
        for i in range(job, NAMES, jobs):
            if i % 2:
                os.rename(t.path(name[i]), t.path(f"renamed-{i}"))

    def remove(job):
        for i in range(job, NAMES, jobs):
            os.unlink(t.path(name[i]))

    children(*[lambda j=j: create(j) for j in range(jobs)])
    drop_caches()
    got = os.listdir(t.top)
    check(len(got) == NAMES and set(got) == set(name), f"{len(got)} names after create")
    children(*[lambda j=j: rename(j) for j in range(jobs)])
    name = [f"renamed-{i}" if i % 2 else n for i, n in enumerate(name)]
    drop_caches()
    with os.scandir(t.top) as listing:
        got = {e.name: e.stat().st_size for e in listing}
    check(got == {n: i % 7 for i, n in enumerate(name)}, f"{len(got)} names after rename")
    children(*[lambda j=j: remove(j) for j in range(jobs)])
    drop_caches()
    check(os.listdir(t.top) == [], "names after unlink")
    os.rmdir(t.top)


def links(mount):
    """Symbolic links, and a second name of a file."""
    t = Tree(mount, "links")
    targets = {length: ("t/" * length)[:length - 1] + "z" for length in TARGETS}
    for length, target in targets.items():
        os.symlink(target, t.path(f"s{length}"))
    drop_caches()
    for length, target in targets.items():
        check(os.readlink(t.path(f"s{length}")) == target, f"target of {length} octets")
    t.put("file", b"linked")
    os.link(t.path("file"), t.path("link"))
    t.files["link"] = t.files["file"]
    t.verify()


def tree(mount):
    """Files of every size."""
    workload_data.tree(mount, SIZES)


PARTS = (tree, workload_data.odd, workload_data.direct, rests, workload_data.mapped,
         workload_data.processes, names, links)


def refused():
    """How often the server has refused another version than One."""
    return remote_call("ganesha_log").count("rdma_vers 2?")


def files(vers):
    """One mount and all that is done to it."""
    with mounted(vers) as mount:
        log(f"mounted: {','.join(mount.shown)}")
        for part in PARTS:
            part(mount)
            log(f"{part.__name__}: done")
        versions.check_version()
        # Our client offers Version Two once, the stock one never.
        offers = os.environ["MODULE"] == "ours" and versions.wanted() != "1"
        check(refused() == offers, f"another version was refused {refused()} times")
        stats = xprt_stats(mount.path)
        log(f"counters: {stats}")
        check(stats["connect_count"] == 1, f"connected {stats['connect_count']} times")
        check(stats["bad_xids"] == 0 and stats["bad_reply"] == 0, "bad Replies")
        check(rnr_events() == 0, "a message found no Receive")
        check(stats["read_chunks"] and stats["write_chunks"] and stats["reply_chunks"],
              "a kind of chunk was never used")


def message_sizes(action):
    """The sizes of the messages that came meanwhile, as the client's module tells them."""
    with open(f"{TRACING}/trace", "w", encoding="ascii"):
        pass
    action()
    return [int(n) for n in re.findall(f" {EVENT}: .* {SIZE}=(\\d+)", read(f"{TRACING}/trace"))]


def padding(mount):
    """The data of a READ that come inline are padded by n mod 4 octets, and not by -n mod 4.

    A message is too short or too long by two then. The data are right all the same.
    """
    memory = memoryview(mmap.mmap(-1, 4096))
    sizes = []
    for rest in range(4):
        size = 200 + rest
        data = pattern("padding", size)
        with open(f"{mount.path}/padding", "wb") as f:
            f.write(data)
        fd = os.open(f"{mount.path}/padding", os.O_RDONLY | os.O_DIRECT)

        def read_it():
            check(os.preadv(fd, [memory[:size]], 0) == size, f"less than {size} octets")

        sizes.append(max(message_sizes(read_it)))
        os.close(fd)
        compare(f"{size} octets", memory[:size], data)
    more = [size - sizes[0] for size in sizes]
    log(f"NFSv{mount.vers}: Replies with 200 to 203 octets have {more} octets more than the first")
    check(more == [0, 2, 4, 6], "another padding than is known")


def targets(mount):
    """Over NFSv4 no symbolic link can be made whose target travels in a Read chunk, if its length
    is no multiple of four: the server does not put the padding in that is left out there.
    """
    for length in (1000, 1001, 1002, 1003, 4092, 4093, 4094, 4095):
        target = ("t/" * length)[:length - 1] + "z"
        path = f"{mount.path}/s{mount.vers}-{length}"
        outcome = None
        try:
            os.symlink(target, path)
            drop_caches()
            check(os.readlink(path) == target, f"target of {length} octets")
        except OSError as e:
            outcome = is_errno(e.errno)
        log(f"NFSv{mount.vers}: a target of {length} octets: {outcome or 'made'}")
        expected = "EIO" if mount.vers != "3" and length % 4 else None
        check(outcome == expected, f"{expected} is known")


def crash(vers):
    """A READ of 1,048,575 octets into a Write chunk of one segment ends the server.

    Data and padding, of three octets in place of one, are more than the 1 MiB of its buffer. So
    there are two parts to be written, and it has memory for as many as there are segments. Our
    client makes one of 1 MiB of memory, the stock one several.
    """
    size = MIB - 1
    data = pattern("crash", size)
    memory = memoryview(mmap.mmap(-1, MIB))
    with mounted(vers) as mount:
        with open(f"{mount.path}/crash", "wb") as f:
            f.write(data)

        def read_it():
            fd = os.open(f"{mount.path}/crash", os.O_RDONLY | os.O_DIRECT)
            check(os.preadv(fd, [memory[:size]], 0) == size, f"less than {size} octets")
            os.close(fd)
            compare(f"{size} octets", memory[:size], data)

        if os.environ["MODULE"] == "stock":
            read_it()
            log(f"NFSv{vers}: a READ of {size} octets is answered")
            return
        reader = child(read_it, "reader")
        wait_for("the end of the server", 60, lambda: remote_call("ganesha_ended") is not None)
        status = remote_call("ganesha_ended")
        log(f"NFSv{vers}: a READ of {size} octets ended the server with {status}")
        check(status == -signal.SIGSEGV, "another end than is known")
        os.kill(reader, signal.SIGKILL)
        # The files are gone, but with a server the mount can go.
        remote_call("ganesha_stop")
        remote_call("ganesha_start")
        os.waitpid(reader, 0)


def registered():
    """How much memory the server has registered for its connections, as it says itself."""
    return int(re.findall(r"total_rdma_reg_mem (\d+) registered", remote_call("ganesha_log"))[-1])


def leak(vers):
    """The server keeps memory of connections that are lost: these here, for what it could not read.

    It is another process for each version, since the guest has not enough for all of them.
    """
    with mounted(vers) as mount:
        one = registered()
        padding(mount)
        targets(mount)
        lost = xprt_stats(mount.path)["connect_count"] - 1
        now = registered()
    log(f"NFSv{vers}: {lost} connections lost, memory for {now / one:.1f} registered, {one} for one")
    check((lost > 0) == (vers != "3"), "more or fewer connections are lost than is known")
    check((now > one) == (lost > 0), "the memory of lost connections is not what is known")
    remote_call("ganesha_stop")
    remote_call("ganesha_start")


def defects():
    """What the server does wrong, with either client."""
    write(f"{TRACING}/events/{SYSTEM}/{EVENT}/enable", "1")
    for vers in ("3", "4.0", "4.1", "4.2"):
        leak(vers)
    write(f"{TRACING}/events/{SYSTEM}/{EVENT}/enable", "0")
    for vers in ("3", "4.0", "4.2"):
        crash(vers)


def client():
    """Runs the variant."""
    vers = os.environ["VARIANT"]
    try:
        if vers == "defects":
            defects()
        else:
            files(vers)
        check(remote_call("ganesha_ended") is None, "the server has ended")
    except (Failure, OSError):
        log(f"the server has ended: {remote_call('ganesha_ended')}; its log:")
        lines = remote_call("ganesha_log").splitlines()
        print("\n".join([line for line in lines if ":EVENT :" not in line][-20:]))
        raise


main(client, ganesha.server)
