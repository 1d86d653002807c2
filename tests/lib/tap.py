# SPDX-License-Identifier: GPL-2.0
"""The counting module of `tests/kmod`, and I/O to count."""

import mmap
import os
import time

from common import check, remote, run, write

#: Where its figures are.
FILE = "/sys/kernel/debug/rdmatap"


def module_path():
    """Where the module is: beside ours."""
    path = os.environ.get("TAP_KO") or f"{os.path.dirname(os.environ['OURS_KO'])}/rdmatap.ko"
    check(os.path.exists(path), f"no {path}")
    return path


def insert(*parameters):
    """Inserts it, once."""
    if not os.path.isdir("/sys/module/rdmatap"):
        run("insmod", module_path(), *parameters)


def parsed(text):
    """Figures by name."""
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


def counters():
    """All figures by name."""
    with open(FILE, encoding="ascii") as f:
        return parsed(f.read())


def reset():
    """Sets all figures to zero."""
    write(FILE, "0")


class Server:
    """The same module in the server guest."""

    @staticmethod
    def insert():
        """Inserts it, once."""
        remote(f"[ -d /sys/module/rdmatap ] || insmod {module_path()}")

    @staticmethod
    def counters():
        """All figures by name."""
        return parsed(remote(f"cat {FILE}"))

    @staticmethod
    def reset():
        """Sets all figures to zero."""
        remote(f"echo 0 > {FILE}")


class Direct:
    """Direct I/O on one file in steps of one size, from memory that is page-aligned."""

    def __init__(self, path, size, writing):
        self.size, self.writing = size, writing
        self.fd = os.open(path, (os.O_RDWR if writing else os.O_RDONLY) | os.O_DIRECT)
        self.memory = mmap.mmap(-1, size)
        self.memory[:] = b"\x5A" * size
        self.view = memoryview(self.memory)

    def step(self, at):
        """One read or write."""
        n = (os.pwritev if self.writing else os.preadv)(self.fd, [self.view], at)
        check(n == self.size, f"{n} octets of {self.size}")

    def close(self):
        """Closes the file."""
        self.view.release()
        self.memory.close()
        os.close(self.fd)


def counted(step, count, ends):
    """Work requests and the like for one step, as means over `count` of them, at each of `ends`.

    An end is what has `reset` and `counters`: this module, or `Server`.
    """
    time.sleep(0.1)
    for end in ends:
        end.reset()
    for _ in range(count):
        step()
    # The last completions may still be on their way.
    time.sleep(0.1)
    return [{name: value / count for name, value in end.counters().items()} for end in ends]


def per_operation(path, size, writing, ends, count=16, span=8 << 20):
    """As `counted`, for one direct read or write."""
    io = Direct(path, size, writing)
    # The first steps open what has to be opened.
    for _ in range(4):
        io.step(0)
    places = iter([i * size % span for i in range(count)])
    found = counted(lambda: io.step(next(places)), count, ends)
    io.close()
    return found


def work_requests(found):
    """What was posted to the Send Queue."""
    return sum(found[k] for k in ("sends", "registrations", "local_invs", "sends_with_inv",
                                  "rdma_reads", "rdma_writes", "others"))
