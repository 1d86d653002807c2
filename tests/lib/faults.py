# SPDX-License-Identifier: GPL-2.0
"""I/O load that goes on while something breaks, and faults to break it with."""

import contextlib
import mmap
import os
import random
import signal
import struct
import sys
import time

import versions
from common import (Failure, Mount, check, digest, drop_caches, log, module_refs, netdev, pattern,
                    rdmadev, read, remote, remote_call, run, slow, soak, status, wait_for, watchdog,
                    write, xprt_stats)
from memory import both_memories, check_memories

#: Seconds after which I/O must go on once the cause of a stall is gone. SUNRPC
#: waits up to 30 s between two attempts to connect, and a restarted server has
#: a grace period of 10 s.
RECOVERY = 60


class Load:
    """Processes that write, read and compare until they are stopped.

    Each process has a cell in shared memory: how many steps it has done, and when
    it finished the last one. Every third step is direct, and every file is left
    as the last step wrote it, so that the server's copy can be compared at the end.
    After each step they pause, for `pause` seconds, or not in `make soak`: that leaves time to what
    is tested beside them.
    """

    CELL = struct.Struct("Qd")

    def __init__(self, mount, jobs=4, name="load", tolerant=False, pause=0.005):
        self.mount, self.jobs, self.name, self.tolerant = mount, jobs, name, tolerant
        self.pause = 0 if soak() else pause
        self.top = f"{mount.path}/{name}"
        self.shared = mmap.mmap(-1, 4096)
        self.pids = {}
        os.makedirs(self.top, exist_ok=True)

    def __enter__(self):
        for job in range(self.jobs):
            self.start(job)
        self.wait_progress("start of the load", steps=2)
        return self

    def __exit__(self, kind, value, traceback):
        if self.pids:
            for pid in self.pids.values():
                os.kill(pid, signal.SIGKILL)
            self.reap(20)

    def start(self, job):
        """Starts one process, or starts it again after it was killed."""
        self.beat(job, 0)
        self.shared[4095] = 0
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self.work(job)
                code = 0
            except BaseException as e:  # noqa: BLE001 - the child must not return
                print(f"load {job}: {type(e).__name__}: {e}", flush=True)
            finally:
                os._exit(code)
        self.pids[job] = pid

    def beat(self, job, step):
        """Records that a step is done."""
        self.CELL.pack_into(self.shared, job * self.CELL.size, step, time.monotonic())

    def cell(self, job):
        """Steps done by a process and when the last one ended."""
        return self.CELL.unpack_from(self.shared, job * self.CELL.size)

    @staticmethod
    def contents(job, step):
        """What a file holds after a step."""
        rng = random.Random(job * 100_003 + step)
        return pattern((job, step), int(2 ** rng.uniform(0, 15 if slow() else 18.5)))

    def path(self, job, slot):
        """The file a process uses in every eighth step."""
        return f"{self.top}/j{job}-{slot}"

    def work(self, job):
        """The loop of one process."""
        step = 0
        while not self.shared[4095]:
            step += 1
            data = self.contents(job, step)
            try:
                self.step(self.path(job, step % 8), data, step % 3 == 0)
            except OSError as e:
                if not self.tolerant:
                    raise
                # What a failed step left behind is unknown: the next one starts anew.
                try:
                    os.unlink(self.path(job, step % 8))
                except OSError:
                    pass
                time.sleep(0.01)
                if e.errno is None:
                    raise
            self.beat(job, step)
            time.sleep(self.pause)

    @staticmethod
    def step(path, data, direct):
        """Writes a file, forgets it, reads and compares it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | (os.O_DIRECT if direct else 0)
        fd = os.open(path, flags, 0o644)
        try:
            at = 0
            while at < len(data):
                at += os.pwrite(fd, data[at:at + 100_001], at)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            got = b""
            while len(got) < len(data):
                part = os.pread(fd, 262_144, len(got))
                if not part:
                    break
                got += part
        finally:
            os.close(fd)
        if got != data:
            at = next((i for i, (a, b) in enumerate(zip(got, data)) if a != b), len(got))
            raise AssertionError(f"{path}: differs at {at} of {len(data)}")

    def alive(self):
        """Fails if a process of the load has ended by itself."""
        for job, pid in list(self.pids.items()):
            done, st = os.waitpid(pid, os.WNOHANG)
            if done:
                del self.pids[job]
                raise Failure(f"load {job} ended with wait status {st}")

    def wait_progress(self, what, steps=2, limit=RECOVERY, heal=None):
        """Waits until every process has done some steps more; returns how long that took.

        `heal` is called every few seconds meanwhile.
        """
        self.alive()
        target = {job: self.cell(job)[0] + steps for job in self.pids}
        began = healed = time.monotonic()
        while any(self.cell(job)[0] < n for job, n in target.items()):
            self.alive()
            if time.monotonic() - began > limit * watchdog():
                stuck = [f"{j}: {self.cell(j)[0]} of {n}" for j, n in target.items()]
                raise Failure(f"{what}: no progress within {limit * watchdog()} s: "
                              + ", ".join(stuck) + "\n" + stacks(self.pids.values()))
            if heal and time.monotonic() > healed + 3:
                heal()
                healed = time.monotonic()
            time.sleep(0.02)
        return time.monotonic() - began

    def reap(self, limit):
        """Waits for the processes to end; returns their wait statuses."""
        deadline = time.monotonic() + limit * watchdog()
        result = {}
        while self.pids:
            for job, pid in list(self.pids.items()):
                done, st = os.waitpid(pid, os.WNOHANG)
                if done:
                    result[job] = st
                    del self.pids[job]
            if time.monotonic() > deadline:
                where = stacks(self.pids.values())
                self.pids.clear()
                raise Failure(f"processes of the load do not end:\n{where}")
            time.sleep(0.02)
        return result

    def stop(self, limit=RECOVERY):
        """Stops the load, then compares every file in the server guest and over the wire."""
        self.shared[4095] = 1
        steps = {job: pid for job, pid in self.pids.items()}
        result = self.reap(limit)
        check(not any(result.values()), f"a process of the load failed: {result}")
        drop_caches()
        manifest, total = {}, 0
        for job in steps:
            last = self.cell(job)[0]
            total += last
            for step in range(max(1, last - 7), last + 1):
                data = self.contents(job, step)
                path = self.path(job, step % 8)
                if self.tolerant and not os.path.exists(path):
                    continue
                with open(path, "rb") as f:
                    got = f.read()
                if self.tolerant and got != data:
                    # The step failed half way; that is allowed, other octets are not.
                    continue
                check(got == data, f"{path}: differs after the fault")
                manifest[f"{self.name}/j{job}-{step % 8}"] = [len(data), digest(data)]
        wrong = remote_call("verify", manifest=manifest)
        check(not wrong, "the server's files differ: " + "; ".join(wrong))
        spoken = sorted({state["dialect"] for state in versions.connections()})
        log(f"  {total} steps, {len(manifest)} files compared, {' '.join(spoken)}")
        return total

    def kill(self, job):
        """Kills one process with SIGKILL and fails unless it ends soon."""
        pid = self.pids.pop(job)
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() - began > 20 * watchdog():
                raise Failure(f"killed process does not end:\n{stacks([pid])}")
            time.sleep(0.005)
        return time.monotonic() - began


def stacks(pids):
    """Kernel stacks of some processes, for a report."""
    out = []
    for pid in pids:
        try:
            out.append(f"-- {pid} {read(f'/proc/{pid}/comm').strip()}\n"
                       + read(f"/proc/{pid}/stack"))
        except OSError:
            pass
    return "".join(out)


def connects(mount):
    """How often the mount's transport has connected."""
    return xprt_stats(mount.path)["connect_count"]


def add_device():
    """Makes the RDMA device again, after `rdma link del`."""
    kind = os.environ["FABRIC"]
    run("rdma", "link", "add", rdmadev(), "type", kind, "netdev", netdev())


def delete_device():
    """Takes the RDMA device away."""
    run("rdma", "link", "del", rdmadev())


#: Whether the queue pair that carries the connection manager's messages is dead.
GSI_DEAD = "rdma res show qp link $RDMADEV | grep -q 'type GSI state ERR'"


def heal_device():
    """Makes the client's rxe device again if its link going down has broken it.

    When rxe sends a datagram while its link is down, the queue pair of the
    connection manager goes into the error state and never leaves it: nothing
    connects any more over that device, whoever tries. Returns whether it was so.
    """
    if status("bash", "-c", GSI_DEAD)[0]:
        return False
    delete_device()
    add_device()
    log("  rxe had lost its connection manager: device made again")
    return True


def heal_server_device():
    """The same in the server guest."""
    remote(f"! {GSI_DEAD} || {{ rdma link del $RDMADEV && "
           "rdma link add $RDMADEV type $FABRIC netdev $NETDEV; }")


def fail_sunrpc(interval, times):
    """Lets SUNRPC drop the client's connection after every `interval`-th check."""
    base = "/sys/kernel/debug/fail_sunrpc"
    write(f"{base}/ignore-server-disconnect", "1")
    write(f"{base}/ignore-client-disconnect", "0")
    if os.path.exists(f"{base}/ignore-cache-wait"):
        write(f"{base}/ignore-cache-wait", "1")
    write(f"{base}/verbose", "0")
    write(f"{base}/interval", str(interval))
    write(f"{base}/times", str(times))
    write(f"{base}/probability", "100" if times else "0")


def fail_sunrpc_left():
    """How many injected disconnects are still to come."""
    return int(read("/sys/kernel/debug/fail_sunrpc/times"))


def at_rest(references):
    """What both guests have in use without a mount and without the service.

    Then there are no threads with their pages, nothing of clients and of Replies is remembered, and
    connections whose end a server has not heard of have ended nevertheless.
    """
    wait_for("release of the transport", 60, lambda: module_refs() == references)
    remote_call("nfsd_stop")
    wait_for("the end of the server's connections", 60,
             lambda: remote("cat /sys/module/rpcrdma/refcnt").strip() == "0", 0.2)
    return both_memories()


@contextlib.contextmanager
def unchanged_memory(vers):
    """Fails if a guest has more memory in use after the block, which unmounts all, than before.

    A load before it has everything made that is made only once. In the end the service is stopped.
    Not where our module is at one end only; nor on the slow kernels: KASAN keeps what was freed for
    a while, and kmemleak looks for itself.
    """
    if slow() or {os.environ["MODULE"], os.environ["PEER_MODULE"]} != {"ours"}:
        yield
        return
    references = module_refs()
    with Mount(vers) as mount, Load(mount) as load:
        # So that there are all files.
        load.wait_progress("the load beforehand", steps=6)
        load.stop()
    before = at_rest(references)
    remote_call("nfsd_start")
    # Nobody has state from before that is worth a wait.
    remote("echo Y > /proc/fs/nfsd/v4_end_grace", ok=None)
    log("both guests were at rest")
    yield
    check_memories(before, at_rest(references))


def lose_connections(mount):
    """Connections end under load, and what it has done is right; how many steps, and how many were lost."""
    with Load(mount) as load:
        load.wait_progress("load", steps=10)
        before = connects(mount)
        fail_sunrpc(100, 5)
        wait_for("injected disconnects", 5 * RECOVERY,
                 lambda: not load.alive() and fail_sunrpc_left() == 0)
        fail_sunrpc(1, 0)
        load.wait_progress("after the disconnects")
        lost = connects(mount) - before
        check(lost, "no disconnect was seen")
        return load.stop(), lost
