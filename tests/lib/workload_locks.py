# SPDX-License-Identifier: GPL-2.0
"""What the matrix does with locks."""

import errno
import fcntl
import os
import struct
import time

from common import check, child, children, is_errno, log, remote_call
from workload_tree import Tree

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
    pid = child(other, "locks")
    parent()
    _, st = os.waitpid(pid, 0)
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

    begun = os.pipe()

    def release():
        os.read(begun[0], 1)
        time.sleep(0.5)
        remote_call("release", name="l")

    def blocked():
        mine = os.open(path, os.O_RDWR)
        began = time.monotonic()
        os.write(begun[1], b"!")
        fcntl.fcntl(mine, fcntl.F_SETLKW, flock(fcntl.F_WRLCK, 25, 1))
        took = time.monotonic() - began
        check(took > 0.2, "a blocked lock was granted at once")
        log(f"  blocked lock granted after {took:.1f} s")

    children(release, blocked, limit=90)
    for f in (fd, *begun):
        os.close(f)
    t.verify()
