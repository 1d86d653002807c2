#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Clients that answer no RDMA Reads keep memory of the server: a mount beside them is served nearly as before.
# mode: pair
# server: ours
# fabrics: hca
# soak-fabrics: siw hca
# variants: one
# soak-variants: one two
# kernels: uml
# soak-smoke: uml-sanitize
# soak-smoke-variants: one two
# timeout: 160 400
"""Some clients without credentials send as many Calls with Read chunks as they may, and are gone then.

They are out of reach over siw, as the network drops what is sent to them, which TCP repeats for long;
over the strict device their Queue Pairs fall silent, and it is told to wait. What the server reads into
stays theirs. A mount that reads, and asks for attributes all the time, goes on meanwhile; Calls without
chunks wait for nobody. After a while the server has half of its memory back at least. In the variant
`two` every second client speaks Version Two.
"""

import contextlib
import functools
import itertools
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, "tests/lib")
import hca  # noqa: E402
import versions  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, child, children, fabric, figure, is_timed, log,  # noqa: E402
                    remote, run, slow, wait_for, watchdog, write)

DEBUGFS = "/sys/kernel/debug/rpcrdma/server"
#: Of the strict device: for how many seconds it waits for an answer.
PATIENCE = "/sys/module/hca/parameters/patience"
SYSCTL = "/proc/sys/sunrpc/svc_rdma/transfer_memory"
#: What all connections may have, in MiB.
MEMORY = 16
PAGE = 4096
#: Clients, and how much is to be read for each of their Calls.
CLIENTS, CHUNK = 10, 512 << 10
#: The most messages of each of them, as TCP sends without hearing of any; the last ones have no chunks.
CALLS, PLAIN = 8, 2
#: How long the load is measured, in seconds, and its Reads. A slow guest has few in a second.
SECONDS, READ, DEPTH = 12 if slow() else 4, 128 << 10, 8
#: Segments of each Call of one client over iWARP, where each RDMA Read takes a region: of these a few Calls use up all
#: that there are.
SEGMENTS = 32
#: Processes that ask for attributes.
ASKERS = 2
#: Where the clients say that they have sent what they could, and are told to come to an end.
READY, STOP = "/run/rpcrdma-ready", "/run/rpcrdma-stop"


def transfers():
    """The budgets, as each connection of the server shows them."""
    # A connection may end while it is read.
    text = remote(f"cat {DEBUGFS}/*/transfers 2>/dev/null", ok=None)
    found = [line.split(": ") for line in text.splitlines() if ": " in line]
    return {key: max(int(v) for k, v in found if k == key) for key, _ in found}


def nulls():
    """How many NULL Calls the server has answered."""
    lines = remote("cat /proc/net/rpc/nfsd").splitlines()
    return sum(int(l.split()[2]) for l in lines if l.startswith(("proc3 ", "proc4 ")))


def tell(path):
    """Tells other processes, by an empty file."""
    with open(path, "w", encoding="utf-8"):
        pass


def pieces(segment, count):
    """The same memory as so many segments."""
    handle, length, offset = segment
    step = length // count
    return [(handle, step, offset + n * step) for n in range(count)]


def calls(connection, two, count, segments):
    """NULL Calls that are followed by data in so many segments, which the server reads first; and plain ones behind
    them.

    In Version Two it is one, which comes in as many parts.
    """
    from hostile_caller import CHUNKS, XIDS
    from rpc_message import null_rpc
    from rpcrdma2_header import call as two_call
    from rpcrdma_header import encode

    for _ in range(count):
        xid = next(XIDS)
        rpc = null_rpc(xid)
        reads = [(len(rpc), *piece) for piece in pieces(connection.segment(CHUNK, CHUNKS), segments)]
        yield two_call(xid, connection.credit(), rpc, reads=reads) if two else encode(xid, reads=reads) + rpc
    if two:
        rpc = null_rpc(xid := next(XIDS))
        yield from connection.in_parts(xid, rpc, len(rpc) // PLAIN)
        return
    for xid in itertools.islice(XIDS, PLAIN):
        yield encode(xid) + null_rpc(xid)


def hostage(number, two):
    """Connects, waits to be cut off, and uses all credits that it has."""
    from hostile_caller import Caller
    from hostile_two_caller import TwoCaller

    if fabric() == "siw":
        os.environ["PEER_ADDR"] = os.environ["PEER_ADDR6"]
    caller = (TwoCaller if two else Caller)()
    check(caller.null(), "no answer to a NULL Call")
    tell(f"{READY}-{number}")
    wait_for("the end of the road", 60, lambda: os.path.exists(f"{READY}-cut"))
    if fabric() == "hca":
        write(hca.path("silent"), str(caller.qp.qp_num))
    at = 0
    most = caller.room() if two else caller.granted
    segments = SEGMENTS if fabric() == "siw" and number == 0 else 1
    for message in calls(caller, two, min(most, CALLS) - PLAIN, segments):
        caller.qp.post_send(caller.send_request(message, at=at))
        at += len(message)
    tell(f"{READY}-{number}-sent")
    wait_for("the end of the test", 100, lambda: os.path.exists(STOP), 0.2)
    os._exit(0)


def ask(mount, counts):
    """Asks for attributes until the load is over, and says how often."""
    count, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        os.stat(f"{mount.path}/data")
        count += 1
    os.write(counts, f"{count}\n".encode())


def measure(mount):
    """Reads, and attributes asked for at the same time, both per second."""
    ours, theirs = os.pipe()
    fio = subprocess.Popen(
        ["fio", "--name=data", f"--filename={mount.path}/data", "--rw=randread", "--readonly",
         f"--bs={READ}", "--size=8m", "--direct=1", "--ioengine=libaio", f"--iodepth={DEPTH}",
         f"--runtime={SECONDS}", "--time_based", "--output-format=json"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for pid in [child(functools.partial(ask, mount, theirs), "asker") for _ in range(ASKERS)]:
        _, status = os.waitpid(pid, 0)
        check(status == 0, "who asks for attributes")
    out = fio.communicate(timeout=SECONDS + 60)[0]
    check(fio.returncode == 0, out)
    os.close(theirs)
    with os.fdopen(ours) as f:
        asked = sum(map(int, f.read().split()))
    return json.loads(out[out.index("{"):])["jobs"][0]["read"]["iops"], asked / SECONDS


def best(mount, before):
    """The best of a few times of `measure`, until neither figure is less than half of what it was.

    Others may be busy on this machine for a moment. Who is held up is so each time.
    """
    most = (0, 0)
    for turn in range(4):
        found = measure(mount)
        log(f"turn {turn}: {found[0]:.0f} Reads, {found[1]:.0f} GETATTRs per second")
        most = tuple(map(max, most, found))
        if not is_timed() or all(now > former / 2 for now, former in zip(most, before)):
            break
    return most


@contextlib.contextmanager
def out_of_reach():
    """The clients of `hostage` answer nothing: the network drops it, or their own Queue Pairs do.

    Whatever has sent something to them waits for longer than the case takes. In the end they stop.
    """
    if fabric() == "hca":
        write(PATIENCE, "120")
    else:
        own = os.environ["OWN_ADDR6"]
        remote(f"ip -6 neigh replace {own} lladdr 02:00:00:00:00:77 nud permanent dev $NETDEV")
    try:
        yield
    finally:
        if fabric() == "hca":
            write(PATIENCE, "0")
        else:
            remote(f"ip -6 neigh del {own} dev $NETDEV")
        tell(STOP)


def client():
    """The load before and while others keep what they can get."""
    remote("mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")
    remote(f"echo {MEMORY} > {SYSCTL}")
    with Mount("3", options="noac") as mount:
        with open(f"{mount.path}/data", "wb") as f:
            f.write(bytes(8 << 20))
        measure(mount)
        before = measure(mount)
        two = [versions.wanted() != "1" and n % 2 == 1 for n in range(CLIENTS)]
        hostages = [functools.partial(hostage, n, two[n]) for n in range(CLIENTS)]
        pid = child(functools.partial(children, *hostages, limit=110), "hostages")
        wait_for("all to be connected", 40, lambda: all(
            os.path.exists(f"{READY}-{n}") for n in range(CLIENTS)))
        with out_of_reach():
            answered = nulls()
            tell(f"{READY}-cut")
            wait_for("all Calls to be sent", 20, lambda: all(
                os.path.exists(f"{READY}-{n}-sent") for n in range(CLIENTS)))
            # The Calls of one client fill its own Send Queue with RDMA Reads, and its last ones may have
            # to wait for these. They are in nobody else's way.
            own = PLAIN if fabric() == "siw" else 0
            plain = answered + sum(1 if speaks_two else PLAIN for speaks_two in two) - own
            patience = time.monotonic() + 20 * watchdog()
            while (nulls() < plain or transfers()["all_pages"] <= MEMORY << 7) and time.monotonic() < patience:
                time.sleep(0.2)
            kept, answered, plain = transfers(), nulls() - answered, plain - answered
            if answered < plain:
                log(remote(f"cd {DEBUGFS} && grep . */credits */send_queue */transfers", ok=None)
                    + run("ss", "-tin", ok=None))
            during = best(mount, before)
            # Half a minute and the next check. What is not short any more is left to them.
            took = wait_for("the memory to be taken back", 50,
                            lambda: transfers()["all_pages"] <= MEMORY << 7, 0.5)
        os.waitpid(pid, 0)
        # What others do on this machine may have begun meanwhile, and not ended.
        before = tuple(map(min, before, measure(mount)))
        log(f"kept by others: {kept['all_pages']} pages of {kept['all_limit']}, "
            f"{kept['pages']} of them by one")
        log(f"per second: {before[0]:.0f} Reads of {READ >> 10} KiB and {before[1]:.0f} GETATTRs before, "
            f"{during[0]:.0f} and {during[1]:.0f} meanwhile: {during[0] / before[0]:.2f} and "
            f"{during[1] / before[1]:.2f}")
        log(f"taken back {took:.0f} s later")
        figure("share of Reads", during[0] / before[0])
        figure("share of GETATTRs", during[1] / before[1])
        check(kept["all_pages"] > MEMORY << 7, "the others keep too little to be in the way")
        check(plain <= answered <= plain + own, f"{answered} Calls without chunks of {plain} were answered")
        # One Call with chunks at a time there always is, and this machine may be busy with others.
        check(during[0] > before[0] / 4 or not is_timed(), "Reads had to wait")
        check(during[1] > before[1] / 2 or not is_timed(), "GETATTRs had to wait")


main(client)
