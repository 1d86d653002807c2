#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Processes killed in mid-I/O: they die at once, their memory is safe, the mount goes on.
# mode: pair
# fabrics: rxe siw
# variants-rxe: 3@ours-ours
# variants-siw: 3
# kernels: uml
# soak-variants: 3 4.2 3@ours-ours 4.2@ours-ours 3@ours-ours-one 3@ours-ours-2016
# soak-smoke: uml-sanitize debug
# soak-smoke-variants: 3 3@ours-ours 3@ours-ours-2016
# timeout: 300 1800
# rounds: 3 200 1 10
"""SIGKILL while direct reads and writes are under way."""

import mmap
import os
import random
import signal
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Failure, Mount, log, pattern, rounds, slow, watchdog  # noqa: E402
from faults import Load, stacks, unchanged_memory  # noqa: E402

#: How much the victim has in flight at a time.
SIZE = 1 << 20


def victim(path, reading):
    """Reads or writes directly, for ever."""
    fd = os.open(path, (os.O_RDONLY if reading else os.O_RDWR) | os.O_DIRECT)
    memory = mmap.mmap(-1, SIZE)
    if not reading:
        memory[:] = pattern("victim", SIZE)
    while True:
        if reading:
            os.preadv(fd, [memory], 0)
        else:
            os.pwritev(fd, [memory], 0)


def client():
    """Kills readers and writers at random moments, beside a load that must not notice."""
    rng = random.Random(5)
    worst = 0
    vers = os.environ["VARIANT"]
    with unchanged_memory(vers), Mount(vers) as mount, Load(mount, jobs=2) as load:
        path = f"{mount.path}/victim"
        with open(path, "wb") as f:
            f.write(pattern("victim", SIZE))
        for n in range(rounds()):
            pids = []
            for reading in (True, False, True, False):
                pid = os.fork()
                if pid == 0:
                    try:
                        victim(path, reading)
                    finally:
                        os._exit(1)
                pids.append(pid)
            time.sleep(rng.uniform(0.05, 1 if slow() else 0.3))
            began = time.monotonic()
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            for pid in pids:
                while True:
                    done, st = os.waitpid(pid, os.WNOHANG)
                    if done:
                        break
                    if time.monotonic() - began > 20 * watchdog():
                        raise Failure(f"a killed process does not end\n{stacks([pid])}")
                    time.sleep(0.002)
                if not os.WIFSIGNALED(st):
                    raise Failure(f"the victim ended by itself: {st}")
            worst = max(worst, time.monotonic() - began)
            if n % 3 == 0:
                load.kill(n % 2)
                load.start(n % 2)
        log(f"{rounds()} rounds, the slowest death took {worst:.2f} s")
        load.wait_progress("after the last death")
        with open(path, "rb") as f:
            if f.read() != pattern("victim", SIZE):
                raise Failure("the victims' file has other contents")
        load.stop()


main(client)
