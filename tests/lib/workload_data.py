# SPDX-License-Identifier: GPL-2.0
"""What the matrix does to the contents of files."""

import mmap
import os
import random

from common import Wire, check, children, drop_caches, pattern, slow
from workload_tree import MIB, Tree, compare, write_all

#: Sizes around every limit of the transport and of XDR.
SIZES = (0, 1, 2, 3, 4, 5, 511, 1000, 1023, 1025, 2047, 3500, 4095, 4096, 4097, 8191, 12289,
         32767, 65535, 65536, 65537, 131071, 131073, 262145, MIB - 1, MIB, MIB + 1, 3 * MIB + 5,
         20_000_003)
SLOW_SIZES = (0, 1, 3, 1023, 4095, 4097, 12289, 65537, 262145, MIB + 1)
O_DIRECT = os.O_DIRECT


def sizes():
    """The sizes this guest has time for."""
    return SLOW_SIZES if slow() else SIZES


def tree(mount, lengths=None):
    """Files of every size, or of these, written through the cache and read back from the server."""
    t = Tree(mount, "tree")
    lengths = lengths or sizes()
    total = sum(lengths)
    with Wire("tree written", sent=total):
        for size in lengths:
            t.put(f"f{size}", pattern(("tree", size), size))
    drop_caches()
    with Wire("tree read", received=total):
        for size in lengths:
            t.same(f"f{size}")
    t.verify()
    for size in lengths:
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


def processes(mount):
    """Eight processes at once, each with its files, and all with one."""
    t = Tree(mount, "processes")
    t.put("shared", pattern("shared", MIB + 17))
    steps = 3 if slow() else 30
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
