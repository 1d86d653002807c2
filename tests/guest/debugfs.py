#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The debugfs files of transports are read without end while mounts come, work and go.
# mode: pair
# fabrics: rxe
# variants: 4.2@ours-ours
# soak-variants: 4.2 4.2@ours-ours
# kernels: uml
# soak-smoke: uml-sanitize
# soak-smoke-variants: 4.2 4.2@ours-ours
# timeout: 300 1800
# rounds: 3 200
"""Readers against mount, I/O, umount; and a module that is removed afterwards."""

import glob
import os
import re
import sys
import threading
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from agreed import Agreed  # noqa: E402
from common import (Mount, check, log, module_refs, pattern, read, remote, rounds,  # noqa: E402
                    status, wait_for)
import versions  # noqa: E402

DEBUGFS = "/sys/kernel/debug/rpcrdma"
SYSFS = "/sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma"
FILES = {"state", "limits", "credits", "regions", "counters", "latency"}


def transports():
    """The client's transports that debugfs has."""
    return [d for d in os.listdir(DEBUGFS) if d.isdigit()]


def sysfs():
    """Which way a connection goes, as `rpcctl xprt show` says it."""
    places = glob.glob(SYSFS)
    check(len(places) == 1, f"{places}")
    address = read(f"{places[0]}/srcaddr").strip()
    check(address == os.environ["OWN_ADDR"], f"the address of this end is {address}")
    port = re.search(r"^src_port=(\d+)$", read(f"{places[0]}/xprt_info"), re.MULTILINE)
    check(int(port[1]) > 0, "no port of this end")


def figures(text):
    """The values of a file, by their names."""
    return {name: int(value) for name, value in (line.split(": ") for line in text.splitlines())}


def times(number):
    """Each Reply was counted by the time it took, at either end, and none as taking none."""
    def agree(cat, place, counter):
        latency = figures(cat(f"{place}/latency"))
        replies = figures(cat(f"{place}/counters"))[counter]
        spent, longer = latency.pop("total_ns"), latency.pop("longer")
        check(latency["below_1024_ns"] == 0, f"{place}: Replies at once: {latency}")
        # All of a step took less than this, and at least half of it.
        most = sum(int(name.split("_")[1]) * count for name, count in latency.items())
        if longer == 0:
            check(most / 2 <= spent < most, f"{place}: {spent} ns: {latency}")
        return sum(latency.values()) + longer == replies > 0

    # Others may be on their way.
    wait_for("as many times as Replies", 20,
             lambda: agree(read, f"{DEBUGFS}/{number}", "receives"))
    if os.environ["PEER_MODULE"] == "ours":
        wait_for("as many times as Replies at the server", 20,
                 lambda: agree(lambda path: remote(f"cat {path}"),
                               remote(f"ls -d {DEBUGFS}/server/*").strip(), "replies"))


class Reader(threading.Thread):
    """Reads every file there is, over and over. Each may go at any time."""

    def __init__(self):
        super().__init__(daemon=True)
        self.reads = self.gone = 0
        self.wrong = []
        self.stop = False

    def run(self):
        while not self.stop:
            for number in transports():
                for name in FILES:
                    self.one(f"{DEBUGFS}/{number}/{name}")

    def one(self, path):
        """One file: whole lines of the right form, or none since it has gone."""
        try:
            with open(path, encoding="ascii") as f:
                text = f.read()
        except (FileNotFoundError, OSError):
            self.gone += 1
            return
        self.reads += 1
        for line in text.splitlines():
            name, _, value = line.partition(": ")
            if not name.replace("_", "").isalnum() or not value:
                self.wrong.append(f"{path}: {line!r}")


class ServerReader:
    """The same in the other guest, of the files of our server, if it is ours."""

    #: A line for each time that all files were read (appended, so that it can be counted at any
    #: moment), lines of another form, and a file that ends this.
    TURNS, WRONG, STOP = (f"/run/debugfs-{name}" for name in ("turns", "wrong", "stop"))

    def __init__(self):
        self.ours = os.environ["PEER_MODULE"] == "ours"
        if self.ours:
            remote("mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")
            remote(f"while [ ! -e {self.STOP} ]; do "
                   f"cat {DEBUGFS}/server/*/* 2>/dev/null | "
                   f"grep -v '^[a-z0-9_]*: .' >>{self.WRONG}; "
                   f"echo >>{self.TURNS}; done", wait=False)

    def turns(self):
        """How often all files were read."""
        return int(remote(f"cat {self.TURNS} | wc -l"))

    def end(self):
        """Ends it, and looks at what it has found."""
        if not self.ours:
            return
        turns = self.turns()
        remote(f"touch {self.STOP}")
        wrong = remote(f"sort {self.WRONG} | uniq -c | head -5")
        check(not wrong, f"of the server: {wrong}")
        log(f"the server's files were read {turns} times")
        check(turns > rounds(), "the server's files were hardly read")
        wait_for("the server's files to go", 60, lambda: not remote(f"ls {DEBUGFS}/server"))


def client():
    """Each round is one mount."""
    agreed, at_server = Agreed(), ServerReader()
    readers = [Reader() for _ in range(3)]
    for reader in readers:
        reader.start()
    data = pattern("debugfs", 300_000)
    before = module_refs()
    for n in range(rounds()):
        with Mount(os.environ["VARIANT"]) as mount:
            numbers = transports()
            check(len(numbers) == 1, f"{len(numbers)} transports in debugfs")
            check(set(os.listdir(f"{DEBUGFS}/{numbers[0]}")) == FILES, "other files")
            if n == 0:
                agreed.check(versions.expected())
                sysfs()
            path = f"{mount.path}/file{n}"
            with open(path, "wb") as f:
                f.write(data)
            with open(path, "rb") as f:
                check(f.read() == data, "other data read than written")
            if n == 0:
                times(numbers[0])
            os.unlink(path)
        wait_for("end of the transport", 30, lambda: not transports())
    for reader in readers:
        reader.stop = True
    for reader in readers:
        reader.join(20)
        check(not reader.is_alive(), "a reader hangs")
        check(not reader.wrong, "; ".join(reader.wrong[:5]))
    log(f"{sum(r.reads for r in readers)} reads, {sum(r.gone for r in readers)} came too late")
    check(sum(r.reads for r in readers) > rounds() * len(FILES), "hardly anything was read")
    at_server.end()

    # A file kept open keeps the module, and only the module.
    with Mount(os.environ["VARIANT"]):
        held = os.open(f"{DEBUGFS}/{transports()[0]}/state", os.O_RDONLY)
    wait_for("end of the transport", 30, lambda: not transports())
    wait_for("release", 30, lambda: module_refs() == before + 1)
    check(status("rmmod", "rpcrdma")[0] != 0, "the module went away under an open file")
    os.close(held)
    wait_for("release", 10, lambda: module_refs() == before)
    time.sleep(0.1)
    check(status("rmmod", "rpcrdma")[0] == 0, "the module cannot be removed")
    check(not os.path.exists(DEBUGFS), "debugfs has a directory of a module that has gone")


main(client)
