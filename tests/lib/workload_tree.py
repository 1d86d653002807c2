# SPDX-License-Identifier: GPL-2.0
"""A directory on a mount, and what its files must contain.

What is written comes from `pattern`, so that every octet read back can be
compared, here and in the server guest.
"""

import os

from common import Failure, check, digest, drop_caches, remote_call

MIB = 1 << 20


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
