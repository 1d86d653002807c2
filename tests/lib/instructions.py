# SPDX-License-Identifier: GPL-2.0
"""What `tools/bench --instructions` runs: guest instructions for one operation, stock and ours.

In one guest whose clock counts its instructions (`tools/guest run --icount`): the module is
inserted, an export is served and mounted through it, so that it is at both ends, and the
operations are done; then the other module has its turn. A row's value is the mean over many
operations of one kind, until the system call returns. What client, server, device, file system
and this program execute counts, and all but the transport is the same for both modules.

Options come from the environment: `ROUNDS` (3), how often each module has its turn, and `ROWS`,
a word that the names of the rows to be measured contain.
"""

import ctypes
import os
import statistics
import subprocess
import sys
import time
import traceback

import tap
from common import LIBC, Failure, check, fabric, log, module_refs, rpc_counts, run, wait_for

KIB, MIB = 1 << 10, 1 << 20
MOUNT = "/mnt"
EXPORT = "/srv/export"
#: Octets of the file that is read and written.
SPAN = 4 * MIB
#: Batches whose means are taken; the middle one counts.
BATCHES = 3
#: What may happen once in so many operations, and must not fall to one batch only: a signaled
#: Send, Receives that are posted. Batches are a multiple of it.
PERIOD = 16

AT_FDCWD = -100
AT_STATX_FORCE_SYNC = 0x2000
STATX_BASIC_STATS = 0x7ff


def shell(command):
    """Runs what `$GUEST_LIB` has."""
    return run("bash", "-c", f'. "$GUEST_LIB"; {command}', timeout=600)


class Row:
    """One row of the table: what is done, how often before it counts, and how often in a batch."""

    def __init__(self, step, batch=4 * PERIOD, batches=BATCHES, warm=4, close=lambda: None):
        self.step, self.batch, self.batches, self.warm = step, batch, batches, warm
        self.close = close

    def total(self):
        """How many steps there are in all."""
        return self.warm + self.batch * self.batches

    def measure(self):
        """Instructions for one step, and RPCs for one."""
        step, at = self.step, 0
        for at in range(self.warm):
            step(at)
        before = sum(rpc_counts(MOUNT).values())
        means = []
        for _ in range(self.batches):
            began = time.monotonic_ns()
            for at in range(at + 1, at + 1 + self.batch):
                step(at)
            means.append((time.monotonic_ns() - began) / self.batch)
        rpcs = sum(rpc_counts(MOUNT).values()) - before
        self.close()
        return statistics.median(means), rpcs / (self.batch * self.batches)


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


def rows(turn):
    """Names of rows, each with what makes the row when its turn has come."""
    top = f"{MOUNT}/turn{turn}"

    def io(size, writing):
        def make():
            direct = tap.Direct(f"{MOUNT}/data", size, writing)
            return Row(lambda i: direct.step(i * size % SPAN), (1 if size > 64 * KIB else 4) * PERIOD,
                       2 if size == MIB else BATCHES, close=direct.close)
        return make

    def lookup():
        row = Row(lambda i: os.stat(f"{top}/there{i}"))
        # Made by the server, so that the client does not know them.
        for i in range(row.total()):
            create(f"{EXPORT}/turn{turn}/there{i}")
        return row

    yield "GETATTR", lambda: Row(force_getattr(top))
    yield "LOOKUP", lookup
    for size in (4 * KIB, 8 * KIB, 64 * KIB, 256 * KIB, MIB):
        name = f"{size >> 10} KiB" if size < MIB else "1 MiB"
        yield f"{name} READ", io(size, False)
        yield f"{name} WRITE", io(size, True)
    yield "create", lambda: Row(lambda i: create(f"{top}/a{i}"))
    yield "rename", lambda: Row(lambda i: os.rename(f"{top}/a{i}", f"{top}/b{i}"))
    yield "unlink", lambda: Row(lambda i: os.unlink(f"{top}/b{i}"))


def turn(ko, number):
    """One turn of a module: row -> (instructions, RPCs)."""
    run("insmod", ko)
    shell(f"start_nfs_server; mount_nfs 4.2 {MOUNT} rsize=1048576,wsize=1048576")
    os.mkdir(f"{MOUNT}/turn{number}")
    with open(f"{MOUNT}/data", "wb") as f:
        f.write(b"\xA5" * SPAN)
    wanted = os.environ.get("ROWS") or ""
    found = {}
    for name, make in rows(number):
        # Renamed and removed is what was made before.
        if wanted in name or name in ("create", "rename", "unlink"):
            row = make()
            found[name] = row.measure()
    run("umount", MOUNT)
    shell("stop_nfs_server")
    wait_for("release of the transport", 60, lambda: module_refs() == 0)
    run("rmmod", "rpcrdma")
    return found


def mean(values):
    """Their mean, and how far the farthest is from it."""
    middle = statistics.fmean(values)
    return middle, max(abs(v - middle) for v in values)


def table(found):
    """Prints the table of what was measured: module -> list of turns."""
    print(f"\nInstructions of the guest for one operation: fabric {fabric()}, NFSv4.2, direct I/O, "
          f"the module at both ends; {len(found['ours'])} turns each.\n")
    print("| | RPCs | stock | ours | difference | ratio | spread |\n|---|---|---|---|---|---|---|")
    for name in found["ours"][0]:
        (stock, stock_off), (own, own_off) = (
            mean([turn[name][0] for turn in found[which]]) for which in ("stock", "ours"))
        rpcs = " / ".join(f"{statistics.fmean([t[name][1] for t in found[which]]):.3g}"
                          for which in ("stock", "ours"))
        print(f"| {name} | {rpcs} | {stock:,.0f} | {own:,.0f} | {own - stock:+,.0f} | "
              f"{own / stock:.4f} | {100 * max(own_off / own, stock_off / stock):.2f} % |")
    print(flush=True)


def main():
    """Measures both modules in turn, and prints the table."""
    kos = {"stock": os.environ["STOCK_KO"], "ours": os.environ["OURS_KO"]}
    check(os.path.exists(kos["ours"]), "there is no module of ours")
    for module in ("nfs", "nfsv4", "nfsd", "rdma_cm", "ib_core"):
        run("modprobe", "-q", module)
    found = {which: [] for which in kos}
    for number in range(int(os.environ.get("ROUNDS") or 3)):
        for which in (list(kos) if number % 2 == 0 else list(kos)[::-1]):
            found[which].append(turn(kos[which], f"{number}{which}"))
            log(f"round {number}, {which}: " +
                ", ".join(f"{k} {v[0]:.0f}" for k, v in found[which][-1].items()))
    table(found)


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError, subprocess.SubprocessError):
        traceback.print_exc()
        sys.exit(1)
