#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Trace events, debugfs and sysctls of the server agree with one another, and with the client.
# mode: pair
# fabrics: rxe
# variants: 4.1@ours-ours
# version: one
# kernels: uml
# soak-fabrics: rxe siw
# soak-smoke: uml-kasan uml-lockdep debug
# timeout: 300 600
"""A connection of the server from listen to close: its events, files and counters."""

import concurrent.futures
import functools
import mmap
import os
import re
import struct
import sys
import time

sys.path.insert(0, "tests/lib")
import delegations  # noqa: E402
import versions  # noqa: E402
from case import main  # noqa: E402
from common import (Mount, check, children, drop_caches, fabric, log, pattern, rdmadev, read,  # noqa: E402
                    remote, remote_call, run, wait_for, write)  # noqa: E402
from server_credits import EACH  # noqa: E402

DEBUGFS = "/sys/kernel/debug/rpcrdma"
SYSCTL = "/proc/sys/sunrpc/svc_rdma"
STATS = ("read", "recv", "write", "sq_starve")
FILES = {"state", "limits", "credits", "receives", "send_queue", "transfers", "callback",
         "counters", "latency"}
#: What the server is told to grant at most, and what it grants at first.
CREDITS, FIRST = 32, 4
#: Receives that a connection has beside those of its credits: one to spare, and one for each Reply
#: to a Call to the client.
OTHERS = 1 + 8
LINE = re.compile(r": rpcrdma_rs_(\w+): (.*)$")
#: Every line, for who has to find out what went wrong.
ALL = []
#: A file of the server that ends the readers.
STOP = "/run/trace-server-stop"


def events():
    """What the server has raised since the last call: pairs of a name and its values."""
    found = []
    # From the pipe, which forgets what was read, and nothing else.
    text = remote("cd /sys/kernel/tracing && "
                  "dd if=trace_pipe iflag=nonblock bs=64k status=none 2>/dev/null", ok=(0, 1))
    for line in text.splitlines():
        check("LOST" not in line, line)
        match = LINE.search(line)
        if match:
            ALL.append(line)
            values = dict(f.split("=", 1) for f in match[2].split() if "=" in f)
            found.append((match[1], values))
    return found


def named(found, name, **values):
    """Those of one name whose values are as given."""
    return [v for n, v in found
            if n == name and all(v.get(k) == str(w) for k, w in values.items())]


def lines(text):
    """The contents of a file in debugfs as a dictionary."""
    return dict(line.split(": ", 1) for line in text.splitlines())


def show(number, name):
    """A file of a connection of the server. `number` is what events show: server/N."""
    return lines(remote(f"cat {DEBUGFS}/{number}/{name}"))


def connections():
    """The connections that the server's debugfs has."""
    return {f"server/{n}" for n in remote(f"ls {DEBUGFS}/server").split()}


def ours():
    """The client's transport, by its own debugfs: name and contents of all files."""
    number = next(d for d in os.listdir(DEBUGFS) if d.isdigit())
    return {name: lines(read(f"{DEBUGFS}/{number}/{name}"))
            for name in ("state", "credits", "counters")}


def stats():
    """The counters of /proc/sys."""
    values = remote(f"cd {SYSCTL} && cat {' '.join('rdma_stat_' + s for s in STATS)}").split()
    return dict(zip(STATS, map(int, values)))


def everything(number):
    """What is counted, at both ends."""
    return show(number, "counters"), ours()["counters"], stats(), show(number, "callback")


def quiet(number):
    """Events, and counters of both ends, of the same moment."""
    found = events()
    while True:
        before = everything(number)
        time.sleep(0.1)
        more = events()
        found += more
        if not more and everything(number) == before:
            return (found, *before)


def difference(after, before):
    """By how much counters have grown."""
    return {k: int(after[k]) - int(before[k]) for k in after}


def client():
    """Looks at the server from before it listens until a connection has gone."""
    # Small regions, so that a Call has more than one segment to read or to write.
    run("rmmod", "rpcrdma")
    run("insmod", os.environ["MODULE_KO"], "max_region_pages=32", *versions.parameters())
    remote("mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing")
    remote("mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")
    # Readers all along: whatever comes and goes, they find whole files or none.
    remote(f"while [ ! -e {STOP} ]; do cat {DEBUGFS}/server/*/* >/dev/null 2>&1; sleep 0.02; done",
           wait=False)
    try:
        the_listener()
        the_tunables()
        mount = Mount(os.environ["VARIANT"])
        mount.mount(timeout=150)
        number, grants = the_connection(events())
        the_grants(mount, number, grants)
        the_data(mount, number)
        the_callback(mount, number)
        # pyverbs frees its objects in no safe order, so not in this process.
        children(functools.partial(the_refusals, number), limit=60)
        the_end(mount, number)
    except Exception:
        events()
        print("\n".join(ALL[-300:]), flush=True)
        raise
    finally:
        remote(f"touch {STOP}")


def the_listener():
    """The server begins to listen, on both families."""
    remote_call("nfsd_stop")
    # The usual clock is too coarse for the order of events on two CPUs.
    remote("echo counter >/sys/kernel/tracing/trace_clock")
    remote("echo 4096 >/sys/kernel/tracing/buffer_size_kb")
    remote("echo 1 >/sys/kernel/tracing/events/rpcrdma_rs/enable")
    events()
    remote_call("nfsd_start")
    remote("echo Y >/proc/fs/nfsd/v4_end_grace", ok=None)
    found = events()
    for local in ("[0.0.0.0]:20049", "[::]:20049"):
        once = len(named(found, "listen", local=local, error=0)) == 1
        check(once, f"not once: listen at {local}: {found}")
    check(connections() == set(), "a connection before the first mount")
    # Both ends can be told apart by a filter, which all know but those that are of no connection.
    remote("cd /sys/kernel/tracing/events/rpcrdma_rs && echo 'server == 1 && xprt > 0' >filter")


def the_tunables():
    """Values out of range are refused; others are for the next connection."""
    for name, bad, good in (("max_requests", (3, 16385), CREDITS),
                            ("max_req_size", (1023, 65537), 8192),
                            ("max_outbound_read_requests", (0, 256), 3)):
        before = remote(f"cat {SYSCTL}/{name}")
        for value in bad:
            remote(f"echo {value} >{SYSCTL}/{name}", ok=(1,))
        check(remote(f"cat {SYSCTL}/{name}") == before, f"{name} has changed")
        remote(f"echo {good} >{SYSCTL}/{name}")
    # So that the server's is what decides.
    for name in ("read", "write"):
        write(f"/proc/sys/sunrpc/rdma_max_inline_{name}", "16384")


def the_connection(found):
    """Returns the connection's name, and what it was granted one after the other."""
    up = named(found, "accept", error=0)
    check(len(up) == 1, f"{len(up)} connections: {up}")
    up = up[0]
    number = up["xprt"]
    check(number.startswith("server/"), f"a connection of the server is called {number}")
    address, port = up["peer"].rsplit(":", 1)
    check(address == f"[{os.environ['OWN_ADDR']}]" and int(port) > 0, f"peer {up['peer']}")
    check(up["inline_send"] == up["inline_receive"] == "8192", f"sizes: {up}")
    check(up["credits"] == str(FIRST), f"credits: {up}")
    check(up["read_depth"] == "3", f"read depth: {up}")
    check(up["invalidate"] == "1", f"remote invalidation: {up}")
    check(len(named(found, "cm_event", event="ESTABLISHED", xprt=number)) == 1, "not established")
    grants = [int(g["credits"]) for g in named(found, "grant", xprt=number)]
    check(grants and grants[0] == FIRST, f"grants {grants}")

    # The same in debugfs, at both ends.
    check(connections() == {number}, f"debugfs has {connections()}")
    check(set(remote(f"ls {DEBUGFS}/{number}").split()) == FILES, "other files")
    state = show(number, "state")
    log(f"state: {state}")
    check(state["connected"] == "1", "not connected")
    check(state["address"] == os.environ["OWN_ADDR"] and state["port"] == port, "peer")
    check(state["local_address"] == os.environ["PEER_ADDR"], "local address")
    check(state["local_port"] == "20049", "local port")
    check(state["device"] == up["device"] == rdmadev(), f"device {state['device']}")
    check(state["peer_send_size"] == state["peer_receive_size"] == "16384", "the client's sizes")
    for name in ("inline_send", "inline_receive"):
        check(state[name] == up[name], name)
        check(ours()["state"][name] == up[name], f"{name} at the client")
    check(state["remote_invalidation"] == "1", "remote invalidation")
    limits = show(number, "limits")
    log(f"limits: {limits}")
    check(limits["read_depth"] == "3", "read depth")
    check(limits["receive_size"] == limits["send_size"] == "8192", "sizes of buffers")
    return number, grants


def the_grants(mount, number, grants):
    """A client that uses all that it was granted is granted more, up to what the server may."""
    # Large WRITEs, so that each is in work for a while.
    size = 128 * 1024
    memory = mmap.mmap(-1, size)
    file = os.open(f"{mount.path}/grants", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)

    def all_granted():
        with concurrent.futures.ThreadPoolExecutor(2 * CREDITS) as threads:
            list(threads.map(lambda n: os.pwrite(file, memory, n * size), range(4 * CREDITS)))
        grants.extend(int(g["credits"]) for g in named(events(), "grant", xprt=number))
        return grants[-1] == CREDITS

    wait_for("all credits", 60, all_granted)
    os.close(file)
    check(all(a < b <= 3 * a for a, b in zip(grants, grants[1:])), f"grants {grants}")
    now = show(number, "credits")
    log(f"grants: {grants}, {now}")
    check(now["granted"] == now["limit"] == str(CREDITS), f"credits: {now}")

    def known():
        # Any Reply tells it.
        os.listdir(mount.path)
        drop_caches()
        return ours()["credits"]["granted"] == str(CREDITS)

    wait_for("the client to know its grant", 10, known)
    receives = {k: int(v) for k, v in show(number, "receives").items()}
    log(f"receives: {receives}")
    check(receives["target"] == EACH * CREDITS + OTHERS, "not as many as were promised")
    check(receives["target"] <= receives["there"] <= receives["own"], "what was promised is not posted")


def the_data(mount, number):
    """256 KiB each way, and 64: what carries them, and who counts what."""
    size = 256 * 1024
    data = pattern("trace-server", size)
    path = f"{mount.path}/traced"
    _, *before = quiet(number)
    # The handle of the small one can be invalidated with the Reply: its Call has only one.
    for name, content in ((path, data), (f"{mount.path}/small", data[:65536])):
        with open(name, "wb") as f:
            f.write(content)
        drop_caches()
        with open(name, "rb") as f:
            check(f.read() == content, "other data read than written")
    found, *after = quiet(number)
    server, peer, sysctl, _ = (difference(a, b) for a, b in zip(after, before))
    log(f"counted: { {k: v for k, v in server.items() if v} } and {sysctl}")
    check(all(v["xprt"] == number for _, v in found), "events of others")

    # Each Call of the client is there once, and has one Reply.
    calls = named(found, "call")
    replies = named(found, "post_reply")
    check(len(calls) == peer["sends"] == server["calls"], f"{len(calls)} Calls")
    check(len(replies) == peer["receives"] == server["replies"], f"{len(replies)} Replies")
    check(len({c["xid"] for c in calls}) == len(calls), "a Call twice")
    check(sorted(c["xid"] for c in calls) == sorted(r["xid"] for r in replies), "Call and Reply")
    check(all(c["credits"] == ours()["credits"]["wanted"] for c in calls), "credits asked for")
    arrived = named(found, "receive", status="SUCCESS")
    check(len(arrived) == len(calls) == sysctl["recv"], f"{len(arrived)} messages")
    check(sum(int(c["len"]) for c in calls) == sum(int(a["len"]) for a in arrived), "octets")

    # RDMA Reads.
    posted, done = named(found, "read_post"), named(found, "read_done")
    check(posted and len(posted) == len(done), f"{len(posted)} Reads and {len(done)} ends")
    with_data = {c["xid"] for c in calls if int(c["read_segments"])}
    check({p["xid"] for p in posted} == {d["xid"] for d in done} == with_data, "Reads of others")
    reads = sum(int(p["reads"]) for p in posted)
    octets = sum(int(p["octets"]) for p in posted)
    check(reads > len(posted), "only one segment in each Read list")
    check(reads == sum(int(c["read_segments"]) for c in calls), f"{reads} Reads")
    check(reads == server["reads"] == sysctl["read"] == peer["read_segments"], f"{reads} Reads")
    check(octets == server["read_octets"] >= size, f"{octets} octets read")

    # RDMA Writes, each Reply's with its Send.
    writes = sum(int(r["writes"]) for r in replies)
    octets = sum(int(r["octets"]) for r in replies)
    check(writes > sum(r["writes"] != "0" for r in replies), "only one RDMA Write for each Reply")
    check(writes == server["writes"] == sysctl["write"] > 0, f"{writes} Writes")
    check(octets == server["written_octets"] == peer["bytes_written"] >= size, f"{octets} written")
    sent = {s["sequence"] for s in named(found, "sent", status="SUCCESS")}
    for reply in replies:
        if int(reply["writes"]):
            check(reply["sequence"] in sent, f"not sent: {reply}")
            check(int(reply["requests"]) >= int(reply["writes"]), f"{reply}")
    invalidated = [r["invalidate"] for r in replies if int(r["invalidate"], 16)]
    check(len(invalidated) == server["invalidations"] == peer["remote_invalidations"] > 0,
          f"{len(invalidated)} invalidations")
    check(server["refused"] == 0 and not named(found, "refuse"), "refusals")
    check(sysctl["sq_starve"] == server["send_queue_full"] == len(named(found, "send_queue_full")),
          "waiting for the Send Queue")

    idle = show(number, "credits")
    check(idle["in_work"] == idle["arrived"] == idle["pulled"] == "0", f"idle: {idle}")
    queue = show(number, "send_queue")
    log(f"send queue: {queue}")
    check(queue["transfers"] == "0", "transfers of nothing")
    check(int(queue["posted"]) <= int(show(number, "limits")["send_queue"]), "an overfull queue")

    # Whatever is written to a counter sets it to zero.
    remote(f"echo 5 >{SYSCTL}/rdma_stat_recv")
    check(remote(f"cat {SYSCTL}/rdma_stat_recv") == "0\n", "a counter was not set to zero")
    os.stat(path)


def the_callback(mount, number):
    """A delegation is recalled: the Requester's events at the server, on the same connection."""
    path = f"{mount.path}/held"
    with open(path, "w", encoding="ascii") as f:
        f.write("x")

    def held():
        # For the lock manager has a grace period too.
        with open(path, encoding="ascii"):
            if delegations.is_held("held"):
                return True
        time.sleep(0.5)
        return False

    wait_for("a delegation", 60, held)
    _, *before = quiet(number)
    with open(path, encoding="ascii") as f:
        f.read()
        remote("echo y >/run/rpcrdma-test/export/held")
    found, *after = quiet(number)
    check(int(after[3]["slots"]) >= 1 and after[3]["slots_in_use"] == "0", f"{after[3]}")
    counted = difference(after[3], before[3])
    check(int(after[1]["reverse_calls"]) - int(before[1]["reverse_calls"]) >= 1,
          "the client has got no Call")
    calls, replies = named(found, "post_call", xprt=number), named(found, "reply", xprt=number)
    check(len(calls) == int(after[1]["reverse_calls"]) - int(before[1]["reverse_calls"]),
          f"{len(calls)} Calls to the client")
    check({c["xid"] for c in calls} == {r["xid"] for r in replies}, "Calls without Replies")
    check(all(c["call"] == c["reply"] == "inline" for c in calls), f"chunks: {calls}")
    check(counted["work_requests"] == len(calls), f"counted: {counted}")


def the_refusals(number):
    """Messages that are refused are told as such, with what they were answered."""
    import pyverbs.cm_enums as ce
    import pyverbs.enums as e
    from pyverbs.cmid import AddrInfo, CMID, ConnParam
    from pyverbs.qp import QPCap, QPInitAttr

    others = connections()
    events()
    info = AddrInfo(dst=os.environ["PEER_ADDR"], dst_service="20049", port_space=ce.RDMA_PS_TCP)
    cap = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
    cmid = CMID(creator=info, qp_init_attr=QPInitAttr(qp_type=e.IBV_QPT_RC, cap=cap))
    receives = [cmid.reg_msgs(1024) for _ in range(3)]
    for memory in receives:
        cmid.post_recv(memory)
    cmid.connect(ConnParam(resources=4, depth=4))
    if fabric() == "siw":
        # The server's end does not look for what arrives right after its answer.
        time.sleep(0.05)
    keep = []
    for xid, words, what in (
            (0xa1, (0xa1, 1, 1), ("none", "runt")),
            (0xa2, (0xa2, 9, 1, 0, 0, 0, 0, 0xa2, 0), ("ERR_VERS", "version")),
            (0xa3, (0xa3, 1, 1, 7, 0, 0, 0, 0xa3, 0), ("ERR_CHUNK", "bad-procedure"))):
        message = struct.pack(f">{len(words)}I", *words)
        memory = cmid.reg_msgs(len(message))
        memory.write(message, len(message))
        keep.append(memory)
        cmid.post_send(memory)
        cmid.get_send_comp()
        if what[0] != "none":
            cmid.get_recv_comp()
            answer = struct.unpack(">5I", receives.pop(0).read(20, 0))
            check(answer[0] == xid and answer[3] == 4, f"answer {answer}")
        seen = []

        def refused():
            seen.extend(events())
            return named(seen, "refuse")

        wait_for(f"refusal of {words}", 10, refused)
        told = refused()
        check(len(told) == 1, f"{told}")
        check((told[0]["answer"], told[0]["why"]) == what, f"{told[0]} for {what}")
        check(int(told[0]["len"]) == len(message), f"{told[0]}")
        if what[0] != "none":
            check(int(told[0]["xid"], 16) == xid, f"{told[0]}")
        new = connections() - others
        where = told[0]["xprt"]
        check(new == {where} and number != where, f"refused at {where}, new are {new}")
    new = new.pop()
    check(show(new, "counters")["refused"] == "3", f"counters: {show(new, 'counters')}")
    # It has told nothing of itself.
    check(show(new, "state")["inline_send"] == "1024", "private data of nobody")
    check(show(new, "receives")["target"] == str(EACH * FIRST + 1), f"{show(new, 'receives')}")
    cmid.disconnect()
    wait_for("end of a connection", 30, lambda: connections() == others)
    check(named(events(), "disconnect", xprt=new, reason="closed"), "not closed")
    check(show(number, "counters")["refused"] == "0", "refusals are counted elsewhere")
    cmid.close()


def the_end(mount, number):
    """Files go with the connection, also for who has one open."""
    remote(f"exec 9<{DEBUGFS}/{number}/state; touch {STOP}.open; "
           f"while [ ! -e {STOP}.gone ]; do sleep 0.05; done; "
           f"cat <&9 >{STOP}.text 2>{STOP}.error", wait=False)
    wait_for("a file that is open", 10, lambda: remote(f"ls {STOP}*", ok=None).find(".open") > 0)
    events()
    mount.umount()
    wait_for("end of the connection", 30, lambda: not connections())
    found = events()
    check(named(found, "disconnect", xprt=number, reason="closed"), "no disconnect")
    remote(f"touch {STOP}.gone")
    wait_for("the late reader", 10,
             lambda: "Input/output error" in remote(f"cat {STOP}.error", ok=None))
    check(remote(f"cat {STOP}.text") == "", "a file was read after its connection had gone")
    # The next one has its own number, and the listener goes on.
    with Mount(os.environ["VARIANT"]) as mount:
        again = connections()
        check(len(again) == 1 and again != {number}, f"{again} after {number}")
        the_change(mount)
    wait_for("end of the connection", 30, lambda: not connections())


def the_change(mount):
    """What was agreed on is that of the present connection (RFC 8797, section 4)."""
    state = ours()["state"]
    check(state["inline_send"] == state["inline_receive"] == "8192", f"before: {state}")
    remote_call("nfsd_stop")
    remote(f"echo 2048 >{SYSCTL}/max_req_size")
    remote_call("nfsd_start")
    remote("echo Y >/proc/fs/nfsd/v4_end_grace", ok=None)
    drop_caches()
    os.listdir(mount.path)
    state, peer = ours()["state"], show(connections().pop(), "state")
    for end in (state, peer):
        check(end["inline_send"] == end["inline_receive"] == "2048", f"after: {state}, {peer}")


main(client)
