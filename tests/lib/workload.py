# SPDX-License-Identifier: GPL-2.0
"""The workload of the matrix: one function for each thing done to a mount.

What is written comes from `pattern`, so that every octet read back can be
compared, here and in the server guest. A `Tree` remembers what each file must
hold.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import random
import struct
import time

from common import (Failure, LIBC, Wire, check, children, digest, drop_caches, is_errno, log,
                    pattern, remote_call, slow)

MIB = 1 << 20
#: Sizes around every limit of the transport and of XDR.
SIZES = (0, 1, 2, 3, 4, 5, 511, 1000, 1023, 1025, 2047, 3500, 4095, 4096, 4097, 8191, 12289,
         32767, 65535, 65536, 65537, 131071, 131073, 262145, MIB - 1, MIB, MIB + 1, 3 * MIB + 5,
         20_000_003)
SLOW_SIZES = (0, 1, 3, 1023, 4095, 4097, 12289, 65537, 262145, MIB + 1)
O_DIRECT = os.O_DIRECT


class Tree:
    """A directory on the mount and what its files must contain."""

    def __init__(self, mount, name):
        self.mount, self.name = mount, name
        self.top = f"{mount.path}/{name}"
        self.files = {}
        os.mkdir(self.top)

    def path(self, name):
        """Full path of a file."""
        return f"{self.top}/{name}"

    def put(self, name, data):
        """Writes a whole file through the page cache and remembers it."""
        with open(self.path(name), "wb", buffering=0) as f:
            write_all(f.fileno(), data)
            os.fsync(f.fileno())
        self.files[name] = bytearray(data)

    def same(self, name):
        """Reads a file and compares every octet."""
        with open(self.path(name), "rb") as f:
            compare(f"{self.name}/{name}", f.read(), self.files[name])

    def verify(self):
        """Compares every file, from the server over the wire and in the server."""
        drop_caches()
        for name in self.files:
            self.same(name)
        wrong = remote_call("verify", manifest={
            f"{self.name}/{n}": [len(d), digest(d)] for n, d in self.files.items()})
        check(not wrong, "the server's files differ: " + "; ".join(wrong))


def write_all(fd, data, offset=None):
    """Writes all of `data`, whatever the size of the steps."""
    view = memoryview(data)
    done = 0
    while done < len(view):
        part = view[done:done + 4 * MIB]
        n = os.write(fd, part) if offset is None else os.pwrite(fd, part, offset + done)
        done += n


def compare(what, got, expected):
    """Fails with the first octet that differs."""
    if bytes(got) == bytes(expected):
        return
    if len(got) != len(expected):
        raise Failure(f"{what}: {len(got)} octets, {len(expected)} expected")
    at = next(i for i, (a, b) in enumerate(zip(got, expected)) if a != b)
    raise Failure(f"{what}: differs at {at}: {bytes(got[at:at + 8]).hex()}, expected "
                  f"{bytes(expected[at:at + 8]).hex()}")


def sizes():
    """The sizes this guest has time for."""
    return SLOW_SIZES if slow() else SIZES


def tree(mount):
    """Files of every size, written through the cache and read back from the server."""
    t = Tree(mount, "tree")
    total = sum(sizes())
    with Wire("tree written", sent=total):
        for size in sizes():
            t.put(f"f{size}", pattern(("tree", size), size))
    drop_caches()
    with Wire("tree read", received=total):
        for size in sizes():
            t.same(f"f{size}")
    t.verify()
    for size in sizes():
        check(os.stat(t.path(f"f{size}")).st_size == size, f"size of f{size}")


def odd(mount):
    """Offsets and lengths that are multiples of nothing, buffered and direct."""
    rng = random.Random(7)
    count = 12 if slow() else 60
    length = MIB // 2 if slow() else 3 * MIB
    for flags, name in ((0, "buffered"), (O_DIRECT, "direct")):
        t = Tree(mount, f"odd-{name}")
        data = bytearray(pattern(name, length + 13))
        t.put("f", data)
        data = t.files["f"]
        # Memory whose start is a multiple of nothing either.
        memory = mmap.mmap(-1, 2 * MIB)
        fd = os.open(t.path("f"), os.O_RDWR | flags)
        moved = 0
        before = Wire(f"odd {name}")
        with before:
            for i in range(count):
                size = min(int(2 ** rng.uniform(0, 19.5)), len(data) - 1)
                at = rng.randrange(len(data) - size)
                start = rng.randrange(1, 5000)
                view = memoryview(memory)[start:start + size]
                if i % 2:
                    view[:] = pattern((name, i), size)
                    n = os.pwritev(fd, [view], at)
                    check(n == size, f"odd {name}: wrote {n} of {size}")
                    data[at:at + size] = view
                    moved += size
                else:
                    view[:] = bytes(size)
                    n = os.preadv(fd, [view], at)
                    compare(f"odd {name} at {at}, {size}", view[:n], data[at:at + size])
            # Beyond the end, a hole, and a read across the end.
            os.pwrite(fd, b"tail", len(data) + 10_001)
            data += bytes(10_001) + b"tail"
            os.fsync(fd)
            before.sent = moved if flags else moved // 4
            end = os.pread(fd, 4096, len(data) - 3)
            compare(f"odd {name} at the end", end, data[-3:])
            check(os.pread(fd, 100, len(data) + 1) == b"", "read beyond the end")
        # Many small pieces at once: each its own page and offset.
        pieces = [memoryview(memory)[i * 8192 + 3 * i + 1:i * 8192 + 3 * i + 1 + 37 * (i + 1)]
                  for i in range(30)]
        for i, p in enumerate(pieces):
            p[:] = pattern((name, "piece", i), len(p))
        joined = b"".join(pieces)
        check(os.pwritev(fd, pieces, 777) == len(joined), "short vector write")
        data[777:777 + len(joined)] = joined
        for p in pieces:
            p[:] = bytes(len(p))
        check(os.preadv(fd, pieces, 777) == len(joined), "short vector read")
        compare(f"vector {name}", b"".join(pieces), joined)
        os.ftruncate(fd, length - 5)
        del data[length - 5:]
        os.close(fd)
        t.verify()


def direct(mount):
    """Large direct I/O: every octet crosses the wire, each way, once at least."""
    total = MIB if slow() else 8 * MIB
    t = Tree(mount, "direct")
    data = bytearray(pattern("direct", total))
    fd = os.open(t.path("f"), os.O_RDWR | os.O_CREAT | O_DIRECT)
    memory = mmap.mmap(-1, MIB)
    view = memoryview(memory)
    with Wire("direct write", sent=total):
        for at in range(0, total, MIB):
            view[:] = data[at:at + MIB]
            check(os.pwritev(fd, [view], at) == MIB, "short direct write")
    with Wire("direct read", received=total):
        for at in range(0, total, MIB):
            view[:] = bytes(MIB)
            check(os.preadv(fd, [view], at) == MIB, "short direct read")
            compare(f"direct at {at}", view, data[at:at + MIB])
    os.close(fd)
    t.files["f"] = data
    t.verify()


def mapped(mount):
    """Reads and writes through a shared mapping."""
    t = Tree(mount, "mapped")
    length = 300_007
    t.put("f", pattern("mapped", length))
    data = t.files["f"]
    drop_caches()
    rng = random.Random(11)
    fd = os.open(t.path("f"), os.O_RDWR)
    m = mmap.mmap(fd, length)
    compare("mapping", m[:], data)
    for i in range(100):
        at = rng.randrange(length - 1000)
        n = rng.randrange(1, 1000)
        m[at:at + n] = data[at:at + n] = pattern(("mapped", i), n)
    m[length - 1:] = data[length - 1:] = b"!"
    m.flush()
    m.close()
    os.close(fd)
    t.verify()


def names(mount):
    """5,000 entries: created, listed, renamed, listed, unlinked."""
    t = Tree(mount, "names")
    entries = 400 if slow() else 5000
    jobs = 4

    def create(job):
        for i in range(job, entries, jobs):
            path = t.path(f"entry-{i:05d}-{'x' * (i % 90)}")
            if i % 5 < jobs and i >= jobs:
                # Another name costs one RPC where a new file costs four.
                os.link(t.path(f"entry-{job:05d}-{'x' * job}"), path)
            else:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    def rename(job):
        for i in range(job, entries, jobs):
            if i % 2:
                os.rename(t.path(f"entry-{i:05d}-{'x' * (i % 90)}"), t.path(f"renamed-{i}"))

    def remove(job):
        for i in range(job, entries, jobs):
            os.unlink(t.path(name(i)))

    def name(i):
        return f"renamed-{i}" if i % 2 else f"entry-{i:05d}-{'x' * (i % 90)}"

    children(*[lambda j=j: create(j) for j in range(jobs)])
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


def posix_acl(users):
    """A POSIX ACL with an entry for each of `users`, as an extended attribute."""
    entry = struct.Struct("<HHI")
    none = 0xFFFFFFFF
    out = struct.pack("<I", 2) + entry.pack(0x01, 6, none)
    for u in users:
        out += entry.pack(0x02, 4, u)
    return out + entry.pack(0x04, 4, none) + entry.pack(0x10, 7, none) + entry.pack(0x20, 4, none)


def nfs4_acl(users):
    """An NFSv4 ACL that lets each of `users` read, as an extended attribute."""
    def ace(who, mask):
        name = who.encode()
        return (struct.pack(">IIII", 0, 0, mask, len(name)) + name + bytes(-len(name) % 4))
    aces = [ace("OWNER@", 0x1601BF)] + [ace(str(u), 0x120081) for u in users]
    aces += [ace("GROUP@", 0x120081), ace("EVERYONE@", 0x120081)]
    return struct.pack(">I", len(aces)) + b"".join(aces)


def nfs4_users(raw):
    """Which numeric users an NFSv4 ACL allows to read."""
    (count,), at, users = struct.unpack_from(">I", raw), 4, set()
    for _ in range(count):
        kind, flag, mask, length = struct.unpack_from(">IIII", raw, at)
        who = raw[at + 16:at + 16 + length].decode()
        at += 16 + length + -length % 4
        if kind == 0 and mask & 1 and who.isdigit() and not flag & 0x40:
            users.add(int(who))
    check(at == len(raw), "trailing octets in an NFSv4 ACL")
    return users


def acls(mount):
    """ACLs as large as the protocols carry."""
    t = Tree(mount, "acls")
    t.put("f", b"acl")
    if mount.vers == "3":
        # The protocol says 1024 entries; the server of Linux 7.3 fails above a
        # third of that, over TCP as well (one page of ACL).
        for count in (1, 50, 250):
            acl = posix_acl(range(10_000, 10_000 + count))
            os.setxattr(t.path("f"), "system.posix_acl_access", acl)
            drop_caches()
            check(os.getxattr(t.path("f"), "system.posix_acl_access") == acl, f"ACL of {count}")
        # Both ACLs of a directory, set by a process of the server.
        for which in ("access", "default"):
            remote_call("set_xattr", path="acls", name=f"system.posix_acl_{which}",
                        value=acl.hex())
        drop_caches()
        for which in ("access", "default"):
            check(os.getxattr(t.top, f"system.posix_acl_{which}") == acl, f"largest {which} ACL")
        t.put("inherited", b"x")
        got = os.getxattr(t.path("inherited"), "system.posix_acl_access")
        check(len(got) == len(acl), "inherited ACL")
    else:
        # What a server can pass on: 170 entries is the Linux server's NFS4_ACL_MAX.
        for count in (1, 20, 80, 160):
            users = range(20_000, 20_000 + count)
            os.setxattr(t.path("f"), "system.nfs4_acl", nfs4_acl(users))
            drop_caches()
            got = os.getxattr(t.path("f"), "system.nfs4_acl")
            check(nfs4_users(got) == set(users), f"NFSv4 ACL of {count}: {len(got)} octets")


def get_xattr(path, name):
    """Reads an attribute as most programs do: first its size, then its value.

    A buffer that is too small from the start is another matter: no Reply chunk
    can then take what the server sends.
    """
    size = LIBC.getxattr(path.encode(), name.encode(), None, 0)
    if size < 0:
        raise OSError(ctypes.get_errno(), f"size of {name}")
    memory = ctypes.create_string_buffer(size + 1)
    got = LIBC.getxattr(path.encode(), name.encode(), memory, size + 1)
    if got < 0:
        raise OSError(ctypes.get_errno(), f"value of {name}")
    check(got == size, f"{name}: {got} octets, {size} announced")
    return memory.raw[:got]


def xattrs(mount):
    """Extended attributes of every size up to the largest, and a long list of them."""
    if mount.vers != "4.2":
        return
    t = Tree(mount, "xattrs")
    t.put("f", b"xattr")
    for size in (0, 1, 3, 1023, 4095, 4097, 32767, 65535, 65536):
        value = pattern(("xattr", size), size)
        os.setxattr(t.path("f"), f"user.s{size}", value)
        drop_caches()
        compare(f"xattr of {size}", get_xattr(t.path("f"), f"user.s{size}"), value)
        os.removexattr(t.path("f"), f"user.s{size}")
    try:
        os.setxattr(t.path("f"), "user.big", bytes(65537))
        raise Failure("an attribute above the limit was taken")
    except OSError as e:
        check(e.errno == errno.E2BIG, f"attribute above the limit: {is_errno(e.errno)}")
    wanted = {f"user.{'n' * 200}{i:03d}" for i in range(40 if slow() else 280)}
    for n in wanted:
        os.setxattr(t.path("f"), n, n.encode())
    drop_caches()
    got = os.listxattr(t.path("f"))
    check({n for n in got if n.startswith("user.")} == wanted, f"list of {len(got)} names")
    # A list of other sizes than a whole buffer, as the kernel's callers ask for.
    for n in sorted(wanted)[::40]:
        check(get_xattr(t.path("f"), n) == n.encode(), n)
    t.verify()


F_OFD_SETLK, F_OFD_SETLKW = 37, 38


def flock(kind, start, length, owner=0):
    """A `struct flock`."""
    return struct.pack("hhqqixxxx", kind, os.SEEK_SET, start, length, owner)


def locks(mount):
    """Locks between processes, between open files, and against the server's own."""
    t = Tree(mount, "locks")
    t.put("f", bytes(100))
    path = t.path("f")

    def denied(fd, *what, op=fcntl.F_SETLK):
        try:
            fcntl.fcntl(fd, op, flock(*what))
        except OSError as e:
            check(e.errno in (errno.EAGAIN, errno.EACCES), is_errno(e.errno))
            return True
        return False

    # POSIX locks between two processes of this client.
    fd = os.open(path, os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETLK, flock(fcntl.F_WRLCK, 0, 10))

    def other():
        mine = os.open(path, os.O_RDWR)
        check(denied(mine, fcntl.F_WRLCK, 5, 10), "overlapping lock was granted")
        check(not denied(mine, fcntl.F_WRLCK, 10, 10), "neighbouring lock was denied")
        got = fcntl.fcntl(mine, fcntl.F_GETLK, flock(fcntl.F_WRLCK, 0, 1))
        kind, _, start, length, pid = struct.unpack("hhqqixxxx", got)
        check((kind, start, length, pid) == (fcntl.F_WRLCK, 0, 10, os.getppid()),
              f"F_GETLK said {(kind, start, length, pid)}")
        os.write(ready[1], b"x")
        # Granted only when the parent lets go.
        fcntl.fcntl(mine, fcntl.F_SETLKW, flock(fcntl.F_WRLCK, 0, 10))
        check(os.pread(mine, 1, 0) == b"!", "lock granted too early")

    def parent():
        os.read(ready[0], 1)
        time.sleep(0.3)
        os.pwrite(fd, b"!", 0)
        fcntl.fcntl(fd, fcntl.F_SETLK, flock(fcntl.F_UNLCK, 0, 10))

    ready = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            other()
            code = 0
        except BaseException as e:  # noqa: BLE001
            print(f"locks: {e}", flush=True)
        finally:
            os._exit(code)
    parent()
    _, st = os.waitpid(child, 0)
    check(st == 0, "the other process failed")
    t.files["f"][0:1] = b"!"
    # Locks of open files, in one process.
    a, b = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    fcntl.fcntl(a, F_OFD_SETLK, flock(fcntl.F_WRLCK, 50, 5))
    check(denied(b, fcntl.F_WRLCK, 50, 1, op=F_OFD_SETLK), "lock of another open file ignored")
    fcntl.fcntl(a, F_OFD_SETLK, flock(fcntl.F_UNLCK, 50, 5))
    check(not denied(b, fcntl.F_WRLCK, 50, 1, op=F_OFD_SETLK), "lock of an open file denied")
    for f in (a, b, fd):
        os.close(f)
    # A lock of the whole file.
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    # Against a process of the server: the answer can only have come over the wire.
    remote_call("hold_lock", name="l", path="locks/f", start=20, length=10)
    fd = os.open(path, os.O_RDWR)
    check(denied(fd, fcntl.F_WRLCK, 25, 1), "the server's own lock was ignored")
    check(not denied(fd, fcntl.F_WRLCK, 40, 1), "a free range was denied")

    def release():
        time.sleep(0.5)
        remote_call("release", name="l")

    def blocked():
        mine = os.open(path, os.O_RDWR)
        began = time.monotonic()
        fcntl.fcntl(mine, fcntl.F_SETLKW, flock(fcntl.F_WRLCK, 25, 1))
        took = time.monotonic() - began
        check(took > 0.2, "a blocked lock was granted at once")
        log(f"  blocked lock granted after {took:.1f} s")

    children(release, blocked, limit=90)
    os.close(fd)
    t.verify()


def processes(mount):
    """Eight processes at once, each with its files, and all with one."""
    t = Tree(mount, "processes")
    t.put("shared", pattern("shared", MIB + 17))
    steps = 6 if slow() else 30
    plan = {}
    for job in range(8):
        rng = random.Random(job)
        plan[job] = [(i, int(2 ** rng.uniform(0, 18)), rng.random() < 0.5) for i in range(steps)]

    def work(job):
        shared = os.open(t.path("shared"), os.O_RDONLY | (O_DIRECT if job % 2 else 0))
        for i, size, odirect in plan[job]:
            data = pattern((job, i), size)
            fd = os.open(t.path(f"p{job}-{i}"), os.O_RDWR | os.O_CREAT
                         | (O_DIRECT if odirect else 0))
            write_all(fd, data, 0)
            at = (job * 131 + i * 7919) % MIB
            compare("shared", os.pread(shared, 5000, at), t.files["shared"][at:at + 5000])
            compare(f"p{job}-{i}", os.pread(fd, size + 1, 0), data)
            os.close(fd)
            if i % 3 == 0:
                os.rename(t.path(f"p{job}-{i}"), t.path(f"q{job}-{i}"))

    children(*[lambda j=j: work(j) for j in range(8)])
    for job in range(8):
        for i, size, _ in plan[job]:
            t.files[f"{'q' if i % 3 == 0 else 'p'}{job}-{i}"] = pattern((job, i), size)
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


#: Everything, in the order in which it is done.
ALL = (tree, odd, direct, mapped, names, symlinks, acls, xattrs, locks, processes, space)


def everything(mount, only=ALL):
    """Runs the whole workload and says how long each part took."""
    for part in only:
        began = time.monotonic()
        part(mount)
        log(f"{part.__name__}: {time.monotonic() - began:.1f} s")
