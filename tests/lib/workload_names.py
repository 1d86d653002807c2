# SPDX-License-Identifier: GPL-2.0
"""What the matrix does to names and attributes."""

import errno
import os

from common import (Failure, LIBC, check, children, drop_caches, is_errno, remote_call, slow, soak)
from workload_tree import Tree


def names(mount):
    """5,000 entries: created, listed, renamed, listed, unlinked.

    With `make soak` the client makes, renames and removes all of them, else some hundred, and the
    server the others.
    """
    t = Tree(mount, "names")
    entries = 400 if slow() else 5000
    # Those that the client makes, and those that it renames or removes.
    created, changed = (entries, entries) if soak() else (min(entries, 400), min(entries, 800))
    jobs = 4

    def create(job):
        for i in range(job, created, jobs):
            path = t.path(f"entry-{i:05d}-{'x' * (i % 90)}")
            if i % 5 < jobs and i >= jobs:
                # Another name costs one RPC where a new file costs four.
                os.link(t.path(f"entry-{job:05d}-{'x' * job}"), path)
            else:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    def rename(job):
        for i in range(job, changed, jobs):
            if i % 2:
                os.rename(t.path(f"entry-{i:05d}-{'x' * (i % 90)}"), t.path(f"renamed-{i}"))

    def remove(job):
        for i in range(job, changed, jobs):
            os.unlink(t.path(name(i)))

    def name(i, renamed=True):
        return f"renamed-{i}" if renamed and i % 2 and i < changed else f"entry-{i:05d}-{'x' * (i % 90)}"

    children(*[lambda j=j: create(j) for j in range(jobs)])
    remote_call("make_files", directory="names",
                names=[name(i, renamed=False) for i in range(created, entries)])
    drop_caches()
    got = os.listdir(t.top)
    check(len(got) == entries and set(got) == {f"entry-{i:05d}-{'x' * (i % 90)}"
                                               for i in range(entries)}, "entries after create")
    children(*[lambda j=j: rename(j) for j in range(jobs)])
    drop_caches()
    with os.scandir(t.top) as listing:
        got = {e.name: e.stat().st_size for e in listing}
    check(got == {name(i): 0 for i in range(entries)}, "entries after rename")
    # Over an existing name, and a directory.
    os.rename(t.path(name(0)), t.path(name(1)))
    check(not os.path.exists(t.path(name(0))), "renamed over another")
    os.close(os.open(t.path(name(0)), os.O_CREAT | os.O_WRONLY))
    os.mkdir(t.path("d"))
    os.rename(t.path("d"), t.path("e"))
    os.rmdir(t.path("e"))
    children(*[lambda j=j: remove(j) for j in range(jobs)])
    remote_call("remove_files", directory="names", names=[name(i) for i in range(changed, entries)])
    drop_caches()
    check(os.listdir(t.top) == [], "entries after unlink")
    os.rmdir(t.top)


def symlinks(mount):
    """Symbolic links up to the longest there are, and hard links."""
    t = Tree(mount, "symlinks")
    # A version 4 server takes up to 4095 octets, and so does the VFS.
    for length in (1, 3, 4, 255, 1000, 1023, 1024, 3000, 4095):
        target = ("t/" * 2048)[:length - 1] + "z"
        os.symlink(target, t.path(f"s{length}"))
    drop_caches()
    for length in (1, 3, 4, 255, 1000, 1023, 1024, 3000, 4095):
        target = ("t/" * 2048)[:length - 1] + "z"
        check(os.readlink(t.path(f"s{length}")) == target, f"target of {length} octets")
    t.put("file", b"linked")
    os.link(t.path("file"), t.path("link"))
    check(os.stat(t.path("link")).st_nlink == 2, "link count")
    name = "n" * 255
    t.put(name, b"long name")
    t.files["link"] = t.files["file"]
    t.verify()


def space(mount):
    """Small procedures whose results are easy to foresee."""
    t = Tree(mount, "space")
    st = os.statvfs(t.top)
    check(st.f_blocks > 0 and st.f_bavail <= st.f_blocks, "statvfs")
    t.put("f", b"abc")
    os.chmod(t.path("f"), 0o640)
    os.chown(t.path("f"), 1234, 4321)
    # Times of a directory: those of a file are the client's own business while
    # it holds a delegation.
    os.mkdir(t.path("d"))
    os.utime(t.path("d"), (1_000_000_000, 1_234_567_890))
    drop_caches()
    st = os.stat(t.path("f"))
    check((st.st_mode & 0o7777, st.st_uid, st.st_gid) == (0o640, 1234, 4321), f"attributes: {st}")
    st = os.stat(t.path("d"))
    check((st.st_atime, st.st_mtime) == (1_000_000_000, 1_234_567_890), f"times: {st}")
    for bad, number in ((t.path("none"), errno.ENOENT), (t.path("f/x"), errno.ENOTDIR)):
        try:
            os.stat(bad)
            raise Failure(f"{bad}: exists")
        except OSError as e:
            check(e.errno == number, f"{bad}: {is_errno(e.errno)}")
    if mount.vers == "4.2":
        fd = os.open(t.path("f2"), os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(fd, 0, 100_000)
        os.pwrite(fd, b"data", 50_000)
        os.fsync(fd)
        # FALLOC_FL_PUNCH_HOLE with FALLOC_FL_KEEP_SIZE.
        if LIBC.fallocate(fd, 3, 8192, 16384) not in (0, -1):
            raise Failure("fallocate")
        src = os.open(t.path("f2"), os.O_RDONLY)
        dst = os.open(t.path("f3"), os.O_RDWR | os.O_CREAT)
        left, at = 100_000, 0
        while left:
            n = os.copy_file_range(src, dst, left, at, at)
            check(n > 0, "copy_file_range")
            left, at = left - n, at + n
        for f in (fd, src, dst):
            os.close(f)
        data = bytearray(100_000)
        data[50_000:50_004] = b"data"
        t.files["f2"] = t.files["f3"] = data
    t.verify()
