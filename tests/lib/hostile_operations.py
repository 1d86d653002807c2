# SPDX-License-Identifier: GPL-2.0
"""What is done to a mount of the hostile server."""

import mmap
import os
import time

from common import check, drop_caches, is_errno, pattern

#: Length of the file that is read, of what is written, of a link, and entries of the root.
READ, WRITE, LINK, ENTRIES = 70_001, 50_003, 100, 300
#: What is read and written where it shall go without chunks in the end.
FEW = 20_003
#: A WRITE of so many octets fits eight messages.
IN_PARTS = 20_000
#: Where the hostile server listens for RDMA, and for the MOUNT protocol.
RDMA_PORT, MOUNT_PORT = 20050, 20051


def mount_options(address, timeo=20, how="soft"):
    """What a mount of the server at an address is told, since the server has no rpcbind."""
    return (f"vers=3,proto=rdma,port={RDMA_PORT},mountaddr={address},mountproto=tcp,mountvers=3,"
            f"mountport={MOUNT_PORT},nolock,noac,nordirplus,{how},timeo={timeo},retrans=1,"
            "rsize=131072,wsize=131072")


def getattr_(path):
    """A GETATTR of the root."""
    return os.stat(path).st_nlink == 2


def read(path, length=READ):
    """A direct READ; what comes back is compared."""
    fd = os.open(f"{path}/d{length}", os.O_RDONLY | os.O_DIRECT)
    try:
        memory = mmap.mmap(-1, 131072 if length == READ else -(-length // 4096) * 4096)
        n = os.preadv(fd, [memory], 0)
        check(n > 0, "an empty READ")
        check(memory[:n] == pattern(("hostile", length), length)[:n], "wrong data were read")
        return n == length
    finally:
        os.close(fd)


def write(path, length=WRITE):
    """A direct WRITE; the server compares what it got."""
    fd = os.open(f"{path}/d{length}", os.O_WRONLY | os.O_DIRECT)
    try:
        return os.write(fd, pattern(("written", length), length)) == length
    finally:
        os.close(fd)


def short_write(path):
    """A WRITE without a chunk."""
    fd = os.open(f"{path}/d{IN_PARTS}", os.O_WRONLY | os.O_DIRECT)
    try:
        return os.write(fd, pattern(("written", IN_PARTS), IN_PARTS)) == IN_PARTS
    finally:
        os.close(fd)


def readdir(path):
    """A READDIR of the root."""
    names = os.listdir(path)
    check(all(n[:1] == "d" and n[1:].isdigit() for n in names), f"wrong names: {names[:5]}")
    return len(names) == ENTRIES


def readlink(path):
    """A READLINK."""
    return os.readlink(f"{path}/l{LINK}") == "t" * LINK


def read_few(path):
    """A READ that may come in parts."""
    return read(path, FEW)


def write_few(path):
    """A WRITE that may go in parts."""
    return write(path, FEW)


def small_write(path):
    """A WRITE that needs a Receive of more than 6000 octets, or a chunk."""
    return write(path, 6000)


OPERATIONS = {"GETATTR": getattr_, "SMALL WRITE": small_write, "READ": read, "WRITE": write, "READDIR": readdir,
              "READLINK": readlink, "SHORT WRITE": short_write}


def attempt(operation, path):
    """Does one operation; returns what happened and how long it took."""
    if operation in (readdir, readlink):
        drop_caches()
    began = time.monotonic()
    try:
        outcome = "ok" if operation(path) else "short"
    except OSError as e:
        outcome = is_errno(e.errno)
    return outcome, time.monotonic() - began
