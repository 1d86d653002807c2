#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Swap to a file on a mount over RDMA: under pressure, and while connections are lost.
# mode: pair
# fabrics: rxe
# variants: 4.2@ours-stock
# kernels: uml
# soak-variants: 3@ours-ours 4.2@ours-ours 4.2@ours-stock 4.2@stock-ours
# soak-smoke: uml-kasan uml-lockdep
# soak-smoke-variants: 4.2@ours-stock
# memory: 512M
# timeout: 300 900
# rounds: 1 6
"""A process is swapped out to a file on the server, and finds its memory as it was.

First memory is short, and the connection lasts. Then there is memory again, connections are lost,
and the pages come back over new ones. A connection that is lost while memory is short is not
tested: the RDMA CM allocates in threads of its own, which may wait for pages to be swapped out,
and so for the connection that it makes. See the administrator's guide.
"""

import contextlib
import mmap
import os
import struct
import sys
import time

sys.path.insert(0, "tests/lib")
from case import Skip, main  # noqa: E402
from common import (LIBC, Mount, check, child, drop_caches, log, netdev, read,  # noqa: E402
                    rounds, run, status, wait_for, write)
from faults import RECOVERY, connects, fail_sunrpc  # noqa: E402

MIB = 1 << 20
PAGE = 4096
#: Octets of the swap file, of what is used and may be swapped out, and of the memory for it.
SWAP, USED, ROOM = 80 * MIB, 64 * MIB, 24 * MIB
#: Octets that have to be swapped out when connections are lost.
AWAY = 8 * MIB
#: What the kernel keeps free for those that bring memory back, in KiB. The default for so little
#: memory is too small: a device in software needs memory for each packet that it receives, and
#: what SUNRPC and NFS use for swapping may leave none.
RESERVE = 32 << 10
#: MCL_CURRENT and MCL_FUTURE.
LOCKED = 3
#: Not in Python's mmap before 3.14, nor in all C libraries.
MADV_PAGEOUT = 21
#: The steps of a process: all its memory is used, or it is swapped out.
USE, SWAP_OUT = b"u", b"s"
#: PF_MEMALLOC, which lets a thread use the reserves.
PF_MEMALLOC = 0x800


def memory(name):
    """A figure of /proc/meminfo, in octets."""
    line = next(l for l in read("/proc/meminfo").splitlines() if l.startswith(name + ":"))
    return int(line.split()[1]) << 10


def area(length):
    """Anonymous memory of this process."""
    return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def page(number, turn):
    """What is in a page: no two are alike."""
    return struct.pack("<QQ", number * 0x9E3779B97F4A7C15 & (1 << 64) - 1, turn) * (PAGE // 16)


class Child:
    """A process that does a step whenever it is asked, and then says so."""

    def __init__(self, step):
        ask, self.ask = os.pipe()
        self.said, say = os.pipe()
        self.pid = child(lambda: self.serve(step, ask, say))
        os.close(ask)
        os.close(say)
        os.set_blocking(self.said, False)

    def serve(self, step, ask, say):
        """What the process does until nobody can ask any more."""
        os.close(self.ask)
        while asked := os.read(ask, 1):
            os.write(say, b"y" if step(asked) else b"n")

    def begin(self, step):
        """Asks for a step."""
        os.write(self.ask, step)

    def has_done(self):
        """Whether the step is done; fails if the child says that it failed."""
        try:
            answer = os.read(self.said, 1)
        except BlockingIOError:
            return False
        check(answer == b"y", f"a child says {answer}")
        return True

    def swapped_out(self):
        """Octets of it that are swapped out."""
        lines = read(f"/proc/{self.pid}/status").splitlines()
        return int(next(l for l in lines if l.startswith("VmSwap:")).split()[1]) << 10

    def do(self, what, limit, step=USE):
        """Has a step done. Returns how long it took."""
        self.begin(step)
        return wait_for(what, limit, self.has_done, 0.2)

    def end(self):
        """Ends the process."""
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.ask)
        os.close(self.said)


class User:
    """Memory that is used again and again, and compared with what was left there."""

    def __init__(self, length):
        self.length, self.area, self.turn = length, None, 0

    def step(self, asked):
        """Uses all of it once. Returns whether all was found as it was left."""
        if asked == SWAP_OUT:
            if self.area is not None:
                self.area.madvise(MADV_PAGEOUT)
            return True
        if self.area is None:
            # Only now is it in the process that may be swapped out.
            self.area = area(self.length)
        for at in range(0, len(self.area), PAGE):
            number = at // PAGE
            if self.turn and self.area[at:at + PAGE] != page(number, self.turn - 1):
                print(f"page {number} has changed in turn {self.turn}", flush=True)
                return False
            self.area[at:at + PAGE] = page(number, self.turn)
        self.turn += 1
        return True


class Ballast:
    """Memory that can't be swapped out, so that little is left."""

    def __init__(self):
        self.areas = []

    def step(self, _):
        """Takes all that there is, but for some. It is freed with the process."""
        LIBC.mlockall(LOCKED)
        length = memory("MemAvailable") - ROOM
        if length > PAGE:
            taken = area(length)
            for at in range(0, len(taken), PAGE):
                taken[at] = 1
            self.areas.append(taken)
        return True


@contextlib.contextmanager
def swap_file(mount):
    """Swaps to a file without holes on the mount."""
    name = f"{mount.path}/swap"
    run("dd", "if=/dev/zero", f"of={name}", "bs=1M", f"count={SWAP // MIB}", "conv=fsync",
        timeout=120)
    os.chmod(name, 0o600)
    run("mkswap", name)
    code, out = status("swapon", name)
    if code and "Invalid argument" in out and "CONFIG_NFS_SWAP=y" not in status(
            "zcat", "/proc/config.gz")[1]:
        raise Skip("this kernel does not swap over NFS")
    check(code == 0, out)
    try:
        yield
    finally:
        run("swapoff", name, timeout=120)
    os.unlink(name)


def connecting_threads():
    """The names and flags of the kernel's threads that are at long work, as connecting is."""
    found = {}
    for pid in (p for p in os.listdir("/proc") if p.isdigit()):
        with contextlib.suppress(OSError):
            name = read(f"/proc/{pid}/comm").strip()
            # A worker that is at work shows whose queue it is from: "kworker/u8:1+events_dfl_long".
            if "+events" in name and name.endswith("long"):
                found[name] = int(read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[6])
    return found


def connects_with_reserves(mount):
    """Nothing reaches the server for a while: the thread that connects may use the reserves."""
    peer, dev = os.environ["PEER_ADDR"], netdev()
    run("ip", "neigh", "replace", peer, "lladdr", "02:00:00:00:00:fe", "dev", dev, "nud",
        "permanent")
    threads = {}
    try:
        # The device gives up what this sends, and the connection with it.
        pid = child(lambda: os.statvfs(mount.path))

        def seen():
            before = connecting_threads()
            time.sleep(0.5)
            # Only what waits is at it so long.
            after = connecting_threads()
            threads.update((name, after[name]) for name in before if name in after)
            return threads
        took = wait_for("a thread that connects", RECOVERY, seen, 0.1)
    finally:
        run("ip", "neigh", "del", peer, "dev", dev)
    log(f"after {took:.1f} s: " + ", ".join(f"{n} {f:#x}" for n, f in threads.items()))
    check(os.environ["MODULE"] != "ours" or any(f & PF_MEMALLOC for f in threads.values()),
          "a connection is made without the reserves")
    took = wait_for("a connection after the outage", RECOVERY,
                    lambda: os.waitpid(pid, os.WNOHANG)[0], 0.1)
    log(f"connected again after {took:.1f} s")


def client():
    """Swaps out and in, and compares, each round; connections are lost in the second half."""
    write("/proc/sys/vm/min_free_kbytes", str(RESERVE))
    with Mount(os.environ["VARIANT"]) as mount, swap_file(mount):
        LIBC.mlockall(LOCKED)
        user = Child(User(USED).step)
        try:
            for n in range(rounds()):
                before = connects(mount)
                drop_caches()
                ballast = Child(Ballast().step)
                try:
                    for _ in range(5):
                        user.do("memory is swapped out", 120, SWAP_OUT)
                        # What is just being swapped out and freed is there a little later.
                        for _ in range(3):
                            ballast.do("memory is taken", 60)
                            time.sleep(0.5)
                        took = [user.do("memory is used while it is short", 120) for _ in range(2)]
                        out = user.swapped_out()
                        if out > AWAY:
                            break
                finally:
                    ballast.end()
                log(f"round {n}: used in {took[0]:.1f} and {took[1]:.1f} s, {out // MIB} MiB "
                    f"swapped out, {connects(mount) - before} connections lost")
                check(out > AWAY, "too little was swapped out")
                connects_with_reserves(mount)
                before = connects(mount)
                # Much of it may be back, since the process was at it when there was memory again.
                user.do("memory is swapped out", 120, SWAP_OUT)
                out = user.swapped_out()
                check(out > AWAY, f"{out} octets of the process are swapped out")
                fail_sunrpc(40, 4)
                took = user.do("memory comes back while connections are lost", RECOVERY * 2)
                fail_sunrpc(1, 0)
                lost = connects(mount) - before
                log(f"round {n}: memory came back in {took:.1f} s, of {out // MIB} MiB that were "
                    f"swapped out, {lost} connections lost")
                check(lost > 0, "no connection was lost")
        finally:
            fail_sunrpc(1, 0)
            user.end()


main(client)
