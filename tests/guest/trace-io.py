#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Trace events tell what really happens on a mount; debugfs and mountstats agree with them.
# mode: pair
# fabrics: rxe
# variants: 4.1
# kernels: uml
# soak-smoke: debian
# soak-fabrics: rxe siw
# timeout: 300 600
"""Events of a mount, of I/O, of a lost connection and of the end, with their values."""

import os
import re
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Mount, check, drop_caches, log, netdev, pattern, rdmadev, read,  # noqa: E402
                    remote, run, status, wait_for, write, xprt_stats)  # noqa: E402

TRACING = "/sys/kernel/tracing"
DEBUGFS = "/sys/kernel/debug/rpcrdma"
LINE = re.compile(r": rpcrdma_rs_(\w+): (.*)$")
#: Every line, for who has to find out what went wrong.
ALL = []


def events():
    """What was raised since the last call: pairs of a name and its values.

    From the pipe, which forgets what was read, and nothing else.
    """
    text = b""
    pipe = os.open(f"{TRACING}/trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        while more := os.read(pipe, 65536):
            text += more
    except BlockingIOError:
        pass
    finally:
        os.close(pipe)
    found = []
    for line in text.decode("ascii", "replace").splitlines():
        check("LOST" not in line, line)
        match = LINE.search(line)
        if match:
            ALL.append(line)
            values = dict(f.split("=", 1) for f in match[2].split() if "=" in f)
            found.append((match[1], values))
    return found


def quiet(number):
    """Events and counters of the same moment: nothing happened while they were taken."""
    found = events()
    while True:
        before = show(number, "counters")
        time.sleep(0.05)
        more = events()
        if not more and show(number, "counters") == before:
            return found, before
        found += more


def named(found, name, **values):
    """Those of one name whose values are as given."""
    return [v for n, v in found
            if n == name and all(v.get(k) == str(w) for k, w in values.items())]


def show(number, name):
    """A file of a transport in debugfs, as a dictionary."""
    lines = read(f"{DEBUGFS}/{number}/{name}").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def client():
    """One mount from its beginning to its end."""
    # Small regions, so that what the server does not invalidate is left for the client to do.
    run("rmmod", "rpcrdma")
    run("insmod", os.environ["MODULE_KO"], "max_region_pages=32")
    if not os.path.ismount(TRACING):
        status("mount", "-t", "tracefs", "tracefs", TRACING)
    check(os.listdir(DEBUGFS) == ["server"], "debugfs has a transport before the first mount")
    write(f"{TRACING}/events/rpcrdma_rs/enable", "1")
    events()

    try:
        mount = Mount(os.environ["VARIANT"])
        # Over siw, now and then, a server never sees the first Call of a connection. The transport
        # then connects anew after a minute (as the stock one does).
        mount.mount(timeout=150)
        number = the_connection(events())
        the_data(mount, number)
        the_loss(mount, number)
        the_end(mount, number)
    except Exception:
        events()
        print("\n".join(ALL[-300:]), flush=True)
        raise


def the_connection(found):
    """Returns the transport's number."""
    log(f"{len(found)} events of the mount")
    up = named(found, "connect", error=0)
    check(len({u["xprt"] for u in up}) == 1, f"not one transport: {up}")
    number = up[0]["xprt"]
    peer = f"[{os.environ['PEER_ADDR']}]:20049"
    check(up[0]["peer"] == peer, f"peer {up[0]['peer']}")
    check(up[0]["device"] == rdmadev(), f"device {up[0]['device']}")
    for step in ("ADDR_RESOLVED", "ROUTE_RESOLVED", "ESTABLISHED"):
        check(named(found, "cm_event", event=step, xprt=number), f"no {step}")
    check(named(found, "credits", xprt=number), "no grant of credits")

    # The same in debugfs.
    state = show(number, "state")
    log(f"state: {state}")
    check(state["connected"] == "1", "not connected")
    check(state["address"] == os.environ["PEER_ADDR"], f"address {state['address']}")
    check(state["port"] == "20049", f"port {state['port']}")
    check(state["device"] == rdmadev(), f"device {state['device']}")
    for name in ("inline_send", "inline_receive"):
        check(state[name] == up[0][name], f"{name} is {state[name]} and {up[0][name]}")
    # The stock server tells its sizes; it does not say that it takes remote invalidations itself.
    check(state["peer_remote_invalidation"] == "0", f"private data: {state}")
    check(int(state["inline_send"]) <= int(state["peer_receive_size"]), f"sizes: {state}")
    limits = show(number, "limits")
    check(limits["region_depth"] == up[0]["region_depth"] == "32", f"limits: {limits}")
    check(int(limits["send_queue"]) > int(limits["sends"]) > 0, f"limits: {limits}")
    granted = named(found, "credits", xprt=number)[-1]["limit"]
    credit = show(number, "credits")
    check(credit["granted"] == granted, f"granted {credit['granted']} and {granted}")
    check(credit["wanted"] == up[0]["credits"], f"wanted {credit['wanted']}")
    check(int(credit["slots"]) >= int(credit["slots_in_use"]), f"slots: {credit}")
    return number


def the_data(mount, number):
    """256 KiB each way, and 64: which Calls carry them, which regions, and how these are fenced."""
    size = 256 * 1024
    data = pattern("trace", size)
    path = f"{mount.path}/traced"
    _, before = quiet(number)
    mounted = xprt_stats(mount.path)
    with open(path, "wb") as f:
        f.write(data)
    drop_caches()
    events_out = events()
    with open(path, "rb") as f:
        check(f.read() == data, "other data read than written")
    # The stock server invalidates remotely only where a Call has one region: half as much as fits.
    with open(f"{mount.path}/small", "wb") as f:
        f.write(data[:65536])
    drop_caches()
    with open(f"{mount.path}/small", "rb") as f:
        check(f.read() == data[:65536], "other data read than written")
    now = xprt_stats(mount.path)
    events_in, after = quiet(number)

    for found, direction, call, offer in (
            (events_out, "peer-reads", "read-chunk", None),
            (events_in, "peer-writes", None, "write-chunk")):
        regions = named(found, "region_map", xprt=number, direction=direction)
        total = sum(int(r["segment"].split("@")[0]) for r in regions)
        check(total >= size, f"{direction}: regions of {total} octets")
        for region in regions:
            length = int(region["segment"].split("@")[0])
            check((length + 4095) // 4096 <= int(region["pages"]) <= length // 4096 + 2, f"{region}")
        posts = [p for p in named(found, "post_call", xprt=number)
                 if (call and p["call"] == call) or (offer and p["reply"] == offer)]
        check(posts, f"no Call with {call or offer}")
        for post in posts:
            answer = named(found, "reply", xprt=number, xid=post["xid"], index=post["index"])
            check(len(answer) == 1, f"{len(answer)} Replies to {post}")
            check(answer[0]["verdict"] == "inline", f"{answer[0]}")
            check(int(post["len"]) > int(post["header_len"]) >= 28, f"{post}")
        written = sum(int(r["written"]) for r in named(found, "reply", xprt=number))
        check(not offer or written >= size, f"the server wrote {written} octets")

    # Every region that was registered is fenced, by the server or by us; each event was counted.
    both = events_out + events_in
    registered = sum(int(p["regions"]) for p in named(both, "post_call", xprt=number))
    remotely = len(named(both, "remote_invalidation", xprt=number))
    locally = sum(int(f["count"]) for f in named(both, "region_fence_post", xprt=number))
    check(registered == remotely + locally, f"{registered} != {remotely} + {locally}")
    check(remotely > 0, "the server invalidated nothing")
    check(locally > 0, "the client invalidated nothing")
    check(len(named(both, "region_fenced", done=1)) == len(named(both, "region_fence_post")),
          "a fence that did not end")
    counted = {k: int(after[k]) - int(before[k]) for k in after}
    log(f"counted: { {k: v for k, v in counted.items() if v} }")
    check(counted["registrations"] == registered, f"{counted['registrations']} registrations")
    check(counted["remote_invalidations"] == remotely, "remote invalidations")
    check(counted["local_invalidations"] == locally, "local invalidations")
    posts = len(named(both, "post_call", xprt=number))
    check(counted["sends"] == posts, f"{counted['sends']} sends, {posts} posts")
    check(counted["work_requests"] == posts + registered + locally
          + len(named(both, "reverse_reply")), f"{counted['work_requests']} work requests")
    check(len(named(both, "receive", status="SUCCESS")) >= posts, "fewer Receives than Calls")
    for name, ours in (("read_chunks", "read_segments"), ("write_chunks", "write_segments"),
                       ("local_inv", "local_invalidations")):
        check(now[name] - mounted[name] == counted[ours], f"mountstats {name}")

    pool = show(number, "regions")
    log(f"regions: {pool}")
    check(int(pool["lent"]) == 0, f"idle, and yet {pool['lent']} regions are lent")
    check(int(pool["allocated"]) > 0, "no regions")
    check(show(number, "credits")["in_use"] == "0", "idle, and yet credits are in use")


def the_loss(mount, number):
    """The server is stopped: the connection is lost, refused, and made again."""
    _, before = quiet(number)
    remote("rpc.nfsd 0")
    wait_for("loss in debugfs", 30, lambda: show(number, "state")["connected"] == "0")
    check("device" not in show(number, "state"), "a device without a connection")
    check(show(number, "limits") == {}, "limits of no connection")
    log("lost")
    remote("rpc.nfsd 8 && echo rdma 20049 >/proc/fs/nfsd/portlist; "
           "echo Y >/proc/fs/nfsd/v4_end_grace", ok=None)
    drop_caches()
    os.stat(f"{mount.path}/traced")
    found = events()
    # Which of the two is seen first depends on the device.
    check(named(found, "cm_event", event="DISCONNECTED", xprt=number)
          or named(found, "receive", status="WR_FLUSH_ERR", xprt=number), "lost by nothing")
    check(len(named(found, "lost", xprt=number)) == 1, "not lost once")
    check(named(found, "disconnect", xprt=number), "no disconnect")
    check(len(named(found, "connect", xprt=number, error=0)) == 1, "not connected again once")
    check(named(found, "receive", xprt=number, status="WR_FLUSH_ERR"), "no flushed Receive")
    state = show(number, "state")
    check(state["connected"] == "1", f"{state}")
    connects = int(show(number, "counters")["connects"])
    check(connects == int(before["connects"]) + 1, f"{connects} connections are counted")


def the_end(mount, number):
    """The transport's files go with it, also for who has one open."""
    counters = os.open(f"{DEBUGFS}/{number}/counters", os.O_RDONLY)
    events()
    mount.umount()
    wait_for("end of the transport", 30, lambda: not os.path.exists(f"{DEBUGFS}/{number}"))
    try:
        os.read(counters, 4096)
        check(False, "a file could be read after its transport had gone")
    except OSError as error:
        log(f"reading a file of a transport that has gone: {error}")
    os.close(counters)
    wait_for("disconnect", 5, lambda: any(
        n == "disconnect" and v["reason"] in ("closed", "destroyed") for n, v in events()))
    log(f"network device {netdev()} is quiet")


main(client)
