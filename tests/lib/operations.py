# SPDX-License-Identifier: GPL-2.0
"""Operations whose cost is measured, one RPC each where that can be: what is done how often.

Each is a `Row`. What has to be there before is made by the server itself, of what it makes the
client knows nothing.
"""

import contextlib
import ctypes
import os
import statistics
import time

import tap
from common import LIBC, check, rpc_counts, write
from versions import DIALECTS, SETTINGS

KIB, MIB = 1 << 10, 1 << 20
#: Octets of the file that is read and written, named `data`.
SPAN = 4 * MIB
#: Sizes of reads and writes.
SIZES = (1, 4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
#: Batches whose means are taken; the middle one counts.
BATCHES = 3
#: What may happen once in so many operations, and must not fall to one batch only: a signaled
#: Send, Receives that are posted. Batches are a multiple of it.
PERIOD = 16
#: Entries of a directory that is listed, and octets of an attribute that is read.
ENTRIES, VALUE = 1000, 32 * KIB

AT_FDCWD = -100
AT_STATX_FORCE_SYNC = 0x2000
STATX_BASIC_STATS = 0x7ff


class Row:
    """One row: what is done, how often before it counts, how often in a batch, and in how many."""

    def __init__(self, step, batch=4 * PERIOD, batches=BATCHES, warm=4, close=lambda: None):
        self.step, self.batch, self.batches, self.warm = step, batch, batches, warm
        self.close = close

    def total(self):
        """How many steps there are in all, those for `count` included."""
        return self.warm + self.batch * self.batches + PERIOD

    def measure(self, mount, around=None):
        """Nanoseconds for one step, and RPCs for one, of the mount at a path.

        The steps are done within the context `around`.
        """
        step = self.step
        for at in range(self.warm):
            step(at)
        before = sum(rpc_counts(mount).values())
        means, at = [], self.warm
        with around or contextlib.nullcontext():
            for _ in range(self.batches):
                began = time.monotonic_ns()
                for _ in range(self.batch):
                    step(at)
                    at += 1
                means.append((time.monotonic_ns() - began) / self.batch)
        rpcs = sum(rpc_counts(mount).values()) - before
        return statistics.median(means), rpcs / (self.batch * self.batches)

    def count(self, ends):
        """What one more step takes at Queue Pairs, after `measure`: see `tap.counted`."""
        first = self.warm + self.batch * self.batches
        steps = iter(range(first, first + PERIOD))
        return tap.counted(lambda: self.step(next(steps)), PERIOD, ends)


def force_getattr(path):
    """A step that asks the server for attributes, whatever the client knows."""
    buffer, name = ctypes.create_string_buffer(256), path.encode()

    def step(_):
        check(LIBC.statx(AT_FDCWD, name, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, buffer) == 0,
              f"statx {path}")

    return step


def create(path):
    """Makes a file and closes it."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def forget():
    """Has the client forget the files it knows, and give their delegations back.

    It would do so later by itself, while something else is measured.
    """
    write("/proc/sys/vm/drop_caches", "2")


def listed(path):
    """Lists a directory."""
    check(len(os.listdir(path)) == ENTRIES, f"{path}: not {ENTRIES} entries")


def size_name(size):
    """A size as people write it."""
    if size < KIB:
        return f"{size} B"
    return f"{size >> 10} KiB" if size < MIB else f"{size >> 20} MiB"


def rows(mount, export, turn, server, batches=BATCHES):
    """Names of rows, each with what makes the row when its turn has come.

    `mount` is where the client has what the server calls `export`; `turn` is a word of this turn's
    own, and `server` runs a shell command at the server.
    """
    top, there = f"{mount}/turn{turn}", f"{export}/turn{turn}"
    server(f"mkdir -p {there}; cd {export}; [ -e data ] || truncate -s {SPAN} data")

    def io(size, writing):
        def make():
            direct = tap.Direct(f"{mount}/data", size, writing)
            return Row(lambda i: direct.step(i * size % SPAN), (1 if size > 64 * KIB else 4) * PERIOD,
                       min(batches, 2) if size == MIB else batches, close=direct.close)
        return make

    def unknown(word, step):
        """A row whose steps take files that the client does not know."""
        def make():
            row = Row(lambda i: step(f"{top}/{word}{i}"), batches=batches, close=forget)
            server(f"cd {there}; seq -f {word}%g 0 {row.total() - 1} | xargs touch")
            return row
        return make

    def readdir():
        row = Row(lambda i: listed(f"{mount}/many{i}"), 4, batches, 1)
        server(f"cd {export}; for d in $(seq 0 {row.total() - 1}); do [ -d many$d ] || "
               f"(mkdir many$d; cd many$d; seq -f entry-%g {ENTRIES} | xargs touch); done")
        return row

    def getxattr():
        memory = ctypes.create_string_buffer(VALUE)

        def step(i):
            path = f"{mount}/attribute{i}"
            got = LIBC.getxattr(path.encode(), b"user.large", memory, VALUE)
            check(got == VALUE, f"{path}: {got} octets")

        row = Row(step, PERIOD, batches)
        server(f"cd {export}; [ -e attribute0 ] || python3 -c \"import os\n"
               f"for i in range({row.total()}):\n"
               f" open(f'attribute{{i}}', 'w').close()\n"
               f" os.setxattr(f'attribute{{i}}', 'user.large', os.urandom({VALUE}))\"")
        # One RPC each is to be measured, so the client may know the files.
        for i in range(row.total()):
            os.stat(f"{mount}/attribute{i}")
        return row

    yield "GETATTR", lambda: Row(force_getattr(top), batches=batches)
    yield "LOOKUP", unknown("there", os.stat)
    yield "OPEN", unknown("open", lambda path: os.close(os.open(path, os.O_RDONLY)))
    yield f"READDIR of {ENTRIES:,}", readdir
    yield f"GETXATTR {size_name(VALUE)}", getxattr
    for size in SIZES:
        yield f"{size_name(size)} READ", io(size, False)
        yield f"{size_name(size)} WRITE", io(size, True)
    # Renamed and removed is what was made before.
    yield "create", lambda: Row(lambda i: create(f"{top}/a{i}"), batches=batches)
    yield "rename", lambda: Row(lambda i: os.rename(f"{top}/a{i}", f"{top}/b{i}"), batches=batches)
    yield "unlink", lambda: Row(lambda i: os.unlink(f"{top}/b{i}"), batches=batches)


class Side:
    """A module, and how it is inserted."""

    def __init__(self, module, version=""):
        self.ko = f"{module.upper()}_KO"
        self.parameters = [f"{name}={value}" for name, value in SETTINGS[version].items()]
        #: What debugfs calls the protocol that is spoken where it is at both ends.
        self.dialect = DIALECTS.get(version)

    def arguments(self):
        """For insmod, in this guest."""
        ko = os.environ[self.ko]
        check(ko and os.path.exists(ko), f"there is no module ${self.ko}")
        return [ko, *self.parameters]

    def command(self):
        """The whole command, for the shell of any guest."""
        return f"insmod ${self.ko} {' '.join(self.parameters)}"


#: What is compared, by the names that tables have.
SIDES = {"stock": Side("stock"), "ours": Side("ours", "1"), "two": Side("ours", "2"),
         "2016": Side("ours", "2016"),
         # A client of Version One, and a server with the defaults.
         "one-default": Side("ours", "1-default")}
