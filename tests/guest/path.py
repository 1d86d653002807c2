#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A mount over two links goes on when one of them is cut, with rpcrdma-pathd, and uses it again.
# mode: pair
# fabrics: rxe
# variants: 4.2@ours-ours
# soak-variants: 3@ours-ours 4.1@ours-ours 4.2@ours-ours 4.2@ours-ours-one
# control-variants: 3@stock-stock 4.2@stock-stock
# kernels: uml
# timeout: 240 1800
# rounds: 1 2
"""Each link carries one of the mount's two transports, and each is cut in turn, under load.

The link is cut in the middle: both ends stay up, and nobody is told. `make soak` also cuts it at
the client's end, removes the client's RDMA device, cuts both links and mends one of them, tries two
mounts that share their transports (`max_connect`), and shows what happens without the service. With
the stock module at both ends the times are only shown.

Without the service, one write gives a transport another address in the middle of an attempt to
connect.
"""

import glob
import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, "tests/lib")
import links  # noqa: E402
import nfs_server  # noqa: E402
from case import main  # noqa: E402
from common import (Failure, Mount, check, log, read, rounds, run, watchdog,  # noqa: E402
                    soak, wait_for, write, xprt_stats)
from faults import Load  # noqa: E402

#: Seconds that an application waits at most.
LIMIT = 10
#: The same if no path was there, from when one is back. An attempt to connect takes 30 s here, and
#: nobody can give a transport another address meanwhile.
LATER = 45
#: Seconds until a path that is back is used again.
RETURN = 20
#: Seconds for which a link is cut if nothing makes the mount go on without it, and seconds that the
#: stock module is given.
CUT, STOCK = 20, 90
SERVER = [links.address(link, 1) for link in links.LINKS]
CONFIG, LOG, AWAY = "/run/paths", "/run/pathd.log", "/run/pathd.json"


def transports():
    """The directories of the mount's transports in sysfs, in the order of mountstats."""
    found = glob.glob("/sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma")
    return sorted(found, key=lambda path: int(re.search(r"xprt-(\d+)-", path)[1]))


def leads():
    """Which address of the server each transport has."""
    return [read(f"{path}/dstaddr").strip() for path in transports()]


def sources():
    """Over which device each goes, as `rpcctl` shows it."""
    return [read(f"{path}/srcaddr").strip() for path in transports()]


class Pathd:
    """The service. It is told these addresses, unless it has to find them out."""

    def __init__(self, addresses=()):
        self.addresses = addresses

    def __enter__(self):
        with open(CONFIG, "w", encoding="ascii") as f:
            f.write("# One server.\n" + " ".join(self.addresses) + "\n")
        with open(LOG, "w", encoding="ascii") as out:
            self.process = subprocess.Popen(
                ["tools/rpcrdma-pathd", "--config", CONFIG, "--away", AWAY], stdout=out, stderr=out)
        return self

    def __exit__(self, kind, value, traceback):
        running = self.process.poll() is None
        self.process.terminate()
        self.process.wait(10)
        log("rpcrdma-pathd:\n" + read(LOG))
        if kind is None:
            check(running, "rpcrdma-pathd has ended")


class Standstill:
    """The longest time without a step of a process of the load, during the block."""

    def __init__(self, load):
        self.load, self.worst, self.over = load, 0.0, False
        self.thread = threading.Thread(target=self.measure, daemon=True)

    def measure(self):
        """Looks at all of them."""
        while not self.over:
            for job in self.load.pids:
                step, ended = self.load.cell(job)
                # Not if it is just being written.
                if (step, ended) == self.load.cell(job) and ended:
                    self.worst = max(self.worst, time.monotonic() - ended)
            time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, value, traceback):
        self.over = True
        self.thread.join()


def ours():
    """Whether the client is ours. The stock one has no limits here."""
    return os.environ["MODULE"] == "ours"


def patiently(wait, limit):
    """Waits for something; with the stock module only so long, and then goes on without."""
    try:
        return wait(limit if ours() else STOCK)
    except Failure as e:
        if ours():
            raise
        log(str(e).split("\n", maxsplit=1)[0])
        return STOCK


def go_on(load, what, limit):
    """All processes of the load go on."""
    patiently(lambda limit: load.wait_progress(what, steps=4, limit=limit), limit)


def lead(what, where, limit):
    """All transports lead to these addresses. Returns how long that took."""
    return patiently(lambda limit: wait_for(what, limit, lambda: leads() == where), limit)


def back(mount, load, what):
    """Every link is there: all are used again, by their transports."""
    with Standstill(load) as still:
        took = lead("the links in use again", SERVER, RETURN)
        go_on(load, "on both links", LIMIT)
    before = xprt_stats(mount.path, total=False)
    go_on(load, "on both links", LIMIT)
    sent = [b["sends"] - a["sends"] for a, b in zip(before, xprt_stats(mount.path, total=False))]
    log(f"{what}: in use again after {took:.1f} s, with a standstill of {still.worst:.1f} s; "
        f"{sent} Calls")
    if ours():
        check(min(sent) > 0, "a transport is not used")
        wait_for("both connections", 10,
                 lambda: sources() == [links.address(link, 2) for link in links.LINKS])


def cut(mount, load, what, link, break_it, mend):
    """Cuts a link, has the load go on over the other one, mends it, and has it used again."""
    with Standstill(load) as still:
        break_it()
        go_on(load, f"{what} is cut", 4 * LIMIT)
        lead("all transports on the other link", [SERVER[1 - link]] * 2, LIMIT)
    log(f"{what}: a standstill of {still.worst:.1f} s")
    if ours():
        check(still.worst < LIMIT * watchdog(), f"the load has waited for {still.worst:.1f} s")
        wait_for("its connections", 10, lambda: sources() == [links.address(1 - link, 2)] * 2)
    mend()
    back(mount, load, what)


def cut_both(mount, load, link):
    """Cuts both until no transport is connected, and mends one: all go on over that."""
    for each in links.LINKS:
        links.cut(each)
    # If a client has nothing under way but waits for Replies, only the timeout of an RPC tells it.
    wait_for("the loss of both connections", 90, lambda: sources() == ["<closed>"] * 2)
    with Standstill(load) as still:
        began = time.monotonic()
        links.mend(link)
        go_on(load, f"link {link} is back", LATER)
        took = time.monotonic() - began
        lead("all transports on it", [SERVER[link]] * 2, LIMIT)
    log(f"both links, then link {link}: a standstill of {still.worst:.1f} s, which ended "
        f"{took:.1f} s after that was back")
    links.mend(1 - link)
    back(mount, load, "both links")


def faults():
    """What is done to links: a text, which link, and how it is broken and mended."""
    for link in reversed(links.LINKS):
        yield (f"link {link}, at the server", link, lambda link=link: links.cut(link),
               lambda link=link: links.mend(link))
    if not soak():
        return
    device = f"{os.environ['FABRIC']}1"
    yield ("link 1, at the client", 1, lambda: links.cut(1, "client"),
           lambda: links.mend(1, "client"))
    yield ("the device of link 1", 1, lambda: run("rdma", "link", "del", device),
           lambda: run("rdma", "link", "add", device, "type", os.environ["FABRIC"],
                       "netdev", "link1"))


def with_nconnect(version):
    """A mount of one address, whose transports the service spreads over both."""
    with Mount(version, address=SERVER[0], options="nconnect=2") as mount, Pathd(SERVER):
        log(f"a transport on each link after {lead('one on each link', SERVER, RETURN):.1f} s")
        with Load(mount) as load:
            for n in range(rounds()):
                log(f"round {n}")
                for fault in faults():
                    cut(mount, load, *fault)
                if soak():
                    cut_both(mount, load, n % 2)
            load.stop()


def with_trunking(version):
    """Mounts of two addresses that share their transports; the service is told of no address."""
    log("max_connect")
    with Mount(version, address=SERVER[0], options="max_connect=2") as mount, \
            Mount(version, "m1", address=SERVER[1]), Pathd():
        lead("one on each link", SERVER, RETURN)
        with Load(mount) as load:
            for fault in faults():
                cut(mount, load, *fault)
            load.stop()


def write_address(path, address, limit):
    """Gives a transport another address, with a single write. Returns how long that took."""
    with subprocess.Popen(["sh", "-c", 'echo "$1" >"$2"', "-", address,
                           f"{path}/dstaddr"]) as process:
        try:
            took = wait_for("the write", limit, lambda: process.poll() is not None)
        finally:
            process.kill()
    check(process.returncode == 0, "the write has failed")
    return took


def write_once(version):
    """Who writes an address while tasks wait has to wait for the attempt under way, and no longer.

    The tasks would go on for ever: each gets the lock from another.
    """
    log("one write")
    with Mount(version, address=SERVER[1]) as mount, Load(mount) as load:
        path, = transports()
        switch = f"{os.path.dirname(path)}/xprt_switch_info"
        links.cut(1)
        try:
            wait_for("an attempt to connect", 30,
                     lambda: "CONNECTING" in read(f"{path}/xprt_state"))
            time.sleep(1)
            queue = int(re.search(r"queue_len=(\d+)", read(switch))[1])
            check(queue > 1, f"{queue} tasks wait")
            check("CONNECTING" in read(f"{path}/xprt_state"), "no attempt is under way")
            took = write_address(path, SERVER[0], LATER)
            log(f"written after {took:.1f} s, while {queue} tasks waited")
            go_on(load, "at the other address", LIMIT)
        finally:
            # Or nobody could unmount.
            links.mend(1)
        load.stop()


def without_service(version):
    """Shows that the service is needed: who waits for a link waits until it is back."""
    log("without the service")
    with Mount(version, address=SERVER[0], options="nconnect=2") as mount:
        write(f"{transports()[1]}/dstaddr", SERVER[1])
        with Load(mount) as load:
            with Standstill(load) as still:
                links.cut(1)
                time.sleep(CUT)
                links.mend(1)
                load.wait_progress("the link is back", steps=4, limit=STOCK)
            log(f"cut for {CUT} s: a standstill of {still.worst:.1f} s")
            load.stop()


def client():
    """Each fault in turn; in the end everything is as it should be."""
    version = os.environ["VARIANT"]
    links.make()
    with_nconnect(version)
    if ours():
        write_once(version)
    if soak():
        if version != "3":
            with_trunking(version)
        without_service(version)


def server():
    """The usual server, behind two links."""
    links.make()
    nfs_server.main()


main(client, server)
