#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Memory behind bounce buffers, or an IOMMU of smaller pages: data, and mappings.
# mode: pair
# fabrics: hca
# kernels: debian
# kernel-options: swiotlb=force,track_hiwater
# variants: slot@ours-ours-one
# soak-variants: swiotlb@ours-ours swiotlb@ours-ours-one iwarp-swiotlb@ours-ours
# soak-variants: bounce@ours-ours slot@ours-ours granule@ours-ours
# soak-variants: bounce@ours-ours-one slot@ours-ours-one granule@ours-ours-one
# soak-variants: iwarp-bounce@ours-ours iwarp-granule@ours-ours
# soak-variants: iwarp-slot@ours-ours iwarp-slot@ours-ours-one
# soak-smoke: debug
# soak-smoke-variants: bounce@ours-ours slot@ours-ours granule@ours-ours-one
# soak-smoke-variants: iwarp-slot@ours-ours-one iwarp-granule@ours-ours
# arm64: arm64 arm64-16k arm64-64k
# arm64-variants: slot@ours-ours granule@ours-ours-one
# timeout: 120 240
"""Direct I/O from memory at any offset, pages, names and links; then each mapping fails once.

The variant is how memory is reached, see `hca_device.make`, behind the device's profile if it is not the
usual one: over iWARP a server's Reads go to regions. Both ends are in this guest, so what a client
has read is compared with the exported file itself.
"""

import mmap
import os
import sys

sys.path.insert(0, "tests/lib")
import hca  # noqa: E402
import hca_device  # noqa: E402
import nfs_server  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, drop_caches, is_errno, log, module_back,  # noqa: E402
                    module_free, pattern, wait_for, write)

EXPORT = nfs_server.EXPORT
PROFILE, _, MEMORY = os.environ["VARIANT"].rpartition("-")
PAGE = mmap.PAGESIZE
#: Places in memory, modulo a page, and lengths, of direct I/O.
PLACES = (0, 1, 511, 1000, PAGE // 2, PAGE - 1000, PAGE - 1)
LENGTHS = (512, 1500, 4096, 5000, 8192, 65536, 100_001, 300_000, 4 * PAGE + 100)
#: Mappings that are made to fail one by one, at most.
MAPPINGS = 60


def server():
    """Makes the variant's device."""
    hca_device.make(PROFILE, MEMORY)
    nfs_server.main()


def read_at(path, place, length):
    """Reads a file's begin into memory at a place in a page, and says what came."""
    with mmap.mmap(-1, place + length) as memory, memoryview(memory) as view:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            with view[place:place + length] as part:
                n = os.preadv(fd, [part], 0)
                return bytes(part[:n])
        finally:
            os.close(fd)


def write_at(path, place, data):
    """Writes a file from memory at a place in a page."""
    with mmap.mmap(-1, place + len(data)) as memory, memoryview(memory) as view:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
        try:
            with view[place:place + len(data)] as part:
                part[:] = data
                check(os.pwritev(fd, [part], 0) == len(data), "a short write")
        finally:
            os.close(fd)


def exported(name):
    """A file as the server has it."""
    with open(f"{EXPORT}/{name}", "rb") as f:
        return f.read()


def attempt(what, wrong, function):
    """Notes what goes wrong, and goes on."""
    try:
        if not function():
            wrong.append(f"{what}: other octets")
    except OSError as e:
        wrong.append(f"{what}: {is_errno(e.errno)}")


def direct(mount, wrong):
    """Direct reads and writes from each place, of each length."""
    data = pattern("dma", max(LENGTHS))
    with open(f"{EXPORT}/read", "wb") as f:
        f.write(data)
    for place in PLACES:
        for length in LENGTHS:
            part = data[:length]
            attempt(f"read of {length} to {place}", wrong,
                    lambda: read_at(f"{mount.path}/read", place, length) == part)

            def written():
                write_at(f"{mount.path}/written", place, part)
                return exported("written") == part
            attempt(f"write of {length} from {place}", wrong, written)


def buffered(mount, wrong):
    """Pages of the page cache, both ways."""
    data = pattern("pages", 3 << 20)

    def there():
        with open(f"{mount.path}/pages", "wb") as f:
            f.write(data)
        return exported("pages") == data

    def back():
        drop_caches()
        with open(f"{mount.path}/pages", "rb") as f:
            return f.read() == data
    attempt("buffered write", wrong, there)
    attempt("buffered read", wrong, back)


def names(mount, wrong):
    """A directory that takes several READDIRs, and a long link."""
    directory = f"{EXPORT}/many"
    os.makedirs(directory, exist_ok=True)
    wanted = sorted(f"{n:04}-{'x' * (n % 200)}" for n in range(600))
    for name in wanted:
        os.close(os.open(f"{directory}/{name}", os.O_CREAT | os.O_WRONLY))
    os.symlink("y" * 1000, f"{EXPORT}/link")
    drop_caches()
    attempt("readdir", wrong, lambda: sorted(os.listdir(f"{mount.path}/many")) == wanted)
    attempt("readlink", wrong, lambda: os.readlink(f"{mount.path}/link") == "y" * 1000)


def failing(mount):
    """Each mapping of a direct read and write fails in turn; the next ones are right."""
    data = pattern("failing", 5 * PAGE - 480)
    with open(f"{EXPORT}/failing", "wb") as f:
        f.write(data)
    failed = 0
    for n in range(1, MAPPINGS):
        write(hca.path("fail_map"), str(n))
        for function in (lambda: read_at(f"{mount.path}/failing", 100, len(data)) == data,
                         lambda: write_at(f"{mount.path}/again", 100, data) or True):
            try:
                check(function(), f"other octets when mapping {n} fails")
            except OSError:
                failed += 1
        with open(hca.path("fail_map"), encoding="ascii") as f:
            left = int(f.read())
        if left:
            break
        check(read_at(f"{mount.path}/failing", 100, len(data)) == data, f"read after mapping {n}")
        write_at(f"{mount.path}/again", 100, data)
        check(exported("again") == data, f"written after mapping {n}")
    write(hca.path("fail_map"), "0")
    log(f"{n - 1} mappings have failed in turn, and {failed} calls with them")
    check(n > 1, "nothing was mapped")


def mapped():
    """How many mappings the device has."""
    with open(hca.path("mapped"), encoding="ascii") as f:
        return int(f.read())


def client():
    """Everything on one mount; then nothing may be mapped that was not before."""
    module_free()
    idle = mapped()
    module_back()
    hca.reset()
    wrong = []
    with Mount("4.2") as mount:
        for part in (direct, buffered, names):
            part(mount, wrong)
            log(f"{part.__name__}: {len(wrong)} wrong")
        # The kernel's own mappings cannot be made to fail.
        if not wrong and MEMORY != "swiotlb":
            failing(mount)
    hca_device.check_memory(MEMORY)
    for text in wrong:
        log(text)
    check(not wrong, f"{len(wrong)} differ or fail")
    module_free()
    wait_for(f"the end of all but {idle} mappings", 10, lambda: mapped() == idle)
    check(not hca.complaints(), f"complaints: {hca.complaints()}")


main(client, server)
