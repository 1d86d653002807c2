#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# transfer_memory and send_buffers bound what all connections of the server have together.
# mode: pair
# server: ours
# client: ours
# fabrics: rxe
# soak-fabrics: rxe siw
# soak-variants: two one
# kernels: uml
# memory: 1536M
# timeout: 300 600
"""Large WRITEs and READs over many connections, compared: with each limit low in turn, then with both high.

With a low limit nothing is refused or left waiting, and the bound holds; without it the same load
exceeds it. What Send buffers it has made is given back afterwards.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import Mount, check, fabric, is_timed, log, queue_pairs, remote, run, wait_for  # noqa: E402

DEBUGFS = "/sys/kernel/debug/rpcrdma/server"
SYSCTL = "/proc/sys/sunrpc/svc_rdma"
PAGE = 4096
#: In MiB and in buffers: both limits low, one of them, and the defaults.
LOW = {"transfer_memory": 4, "send_buffers": 2}
FEW = {"transfer_memory": 256, "send_buffers": 8}
HIGH = {"transfer_memory": 256, "send_buffers": 16384}
#: Connections of each mount, processes for each, and how many requests each has under way.
CONNECTIONS, JOBS, DEPTH = 4, 2, 32
#: How long a request may take, in seconds. After 60 an RPC without an answer is sent again.
PATIENCE = 50
#: Octets of each file.
SIZE = 32 << 20


def files(name):
    """A debugfs file of each connection of the server."""
    text = remote(f"cd {DEBUGFS} && for n in *; do cat $n/{name}; echo; done")
    return [{k: int(v) for k, v in (line.split(": ") for line in part.splitlines())}
            for part in text.split("\n\n") if part.strip()]


def load(mounts):
    """Writes files over all mounts at once, and reads them back and compares them."""
    processes = [subprocess.Popen(
        ["fio", f"--name=limit{n}", f"--directory={mount.path}", "--rw=write", "--verify=crc32c",
         f"--bs={mount.option('wsize')}", f"--size={SIZE}", "--direct=1", "--ioengine=libaio",
         f"--iodepth={DEPTH}", f"--numjobs={JOBS}", "--verify_fatal=1", "--output-format=json"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for n, mount in enumerate(mounts)]
    for process in processes:
        out = process.communicate(timeout=200)[0]
        check(process.returncode == 0, out)
        # rxe may end a connection on a busy machine. But a Call that is forgotten is sent again after a minute.
        slowest = max(job[way]["clat_ns"]["max"] for job in json.loads(out[out.index("{"):])["jobs"]
                      for way in ("read", "write")) / 1e9
        check(slowest < PATIENCE or not is_timed(), f"a request took {slowest:.1f} s")


def phase(limits):
    """What the connections had at most under the load, how many there were, and how often they waited."""
    for name, value in limits.items():
        remote(f"echo {value} > {SYSCTL}/{name}")
    mounts = [Mount("3", where=f"m{n}", address=os.environ[address],
                    options=f"nconnect={CONNECTIONS},rsize=1048576,wsize=1048576")
              for n, address in enumerate(("PEER_ADDR", "PEER_ADDR6"))]
    for mount in mounts:
        mount.mount()
        run("ls", "-l", mount.path, quiet=True)
    load(mounts)
    # Replies count until the completions of their Sends were handled, and connections give back what
    # they have in the sum for transfers to come when they are looked at the next time.
    wait_for("all pages to be given back", 30, lambda: all(
        n["pages"] == n["all_pages"] == 0 for n in files("transfers")), 0.2)
    now, counters = files("transfers"), files("counters")
    check(now[0]["all_limit"] == limits["transfer_memory"] << 8, f"another limit: {now[0]}")
    check(all(c["refused"] == 0 for c in counters), "refused")
    payload = max(max(m.option("wsize"), m.option("rsize")) for m in mounts) // PAGE + 2
    if limits is HIGH:
        rest(mounts[0], now[0]["all_sends"])
    count = queue_pairs()
    waits = sum(c["transfers_full"] for c in counters)
    run("bash", "-c", f"rm {mounts[0].path}/limit*")
    for mount in mounts:
        mount.umount()
    wait_for("the end of the connections", 60, lambda: queue_pairs() == 0, 0.5)
    log(f"{fabric()}: with {limits} at most {now[0]['most_pages']} pages and "
        f"{now[0]['most_sends']} Send buffers over {count} connections, {waits} waits")
    return now[0], count, payload, waits


def rest(mount, most):
    """Send buffers come back when nothing needs them, and are made again.

    A connection keeps those of which it has not heard whether they are sent: up to a quarter.
    """
    def left():
        return files("transfers")[0]["all_sends"]

    took = wait_for("Send buffers to come back", 60, lambda: left() <= most // 3, 1)
    rested = left()
    log(f"{most} Send buffers, {rested} of them {took:.0f} s later")
    load([mount])
    check(left() > rested, "no Send buffers were made again")


def client():
    """The limits grow, since what was the most is remembered as long as there is the module."""
    for execute in (remote, lambda command: run("bash", "-c", command)):
        # rxe ends a connection when the network's queue is full.
        execute("ip link set $NETDEV txqueuelen 10000")
    threads = int(remote("cat /proc/fs/nfsd/threads"))
    low, count, payload, waits = phase(LOW)
    bound = (LOW["transfer_memory"] << 20) // PAGE + (threads + count) * payload
    log(f"the bound is {bound} pages")
    check(low["most_pages"] <= bound, "more pages than there may be")
    check(waits > 0, "nothing had to wait")
    few, *_ = phase(FEW)
    for now, limits in ((low, LOW), (few, FEW)):
        check(now["most_sends"] <= limits["send_buffers"], "more Send buffers than there may be")
    high, *_ = phase(HIGH)
    check(high["most_pages"] > bound, "the load is too small to show anything")
    check(high["most_sends"] > FEW["send_buffers"], "too few Send buffers to show anything")
    check(high["all_sends"] <= high["most_sends"], f"{high}")


main(client)
