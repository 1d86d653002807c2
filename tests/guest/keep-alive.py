#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A peer that is silent is asked whether it lives, and its connection ends if it does not answer.
# mode: pair
# server: ours
# fabrics: rxe
# version: 2016
# kernels: uml
# soak-smoke: uml-sanitize
# light: yes
# timeout: 300 600
"""Nobody has anything to send, so nothing else would show that a peer has gone, or that its software hangs.

In Version One and in -07 nobody is asked: with a setting of zero it is the same here.
"""

import os
import re
import sys
import time

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Gone, Mount, TRACING, check, log, read, remote, slowness, watchdog, wait_for, write, xprt_stats  # noqa: E402

SETTING = f"{versions.PARAMETERS}/keep_alive"
#: Seconds of silence after which a peer is asked: the time between two looks.
SILENCE = 10
#: A look may come as late as that, one finds silence, and two find no answer.
LIMIT = 4 * SILENCE + 5
#: What the traces show of a request and of its answer.
EVENT = re.compile(r"rpcrdma_rs_optional: .* operation=(REQPROP|RESPROP) .* sent=(\d)")
TRACE = (f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}; "
         f"echo 1 > {TRACING}/events/rpcrdma_rs/rpcrdma_rs_optional/enable; echo > {TRACING}/trace")


def everywhere(value):
    """Sets it at both ends."""
    write(SETTING, str(value))
    remote(f"echo {value} > {SETTING}")


def reach(possible):
    """Whether the server's frames for this guest's IPv6 address, which only the mount uses, come here."""
    remote("ip -6 neigh replace $PEER_ADDR6 lladdr " + ("$PEER_MAC" if possible else "02:00:00:00:00:77")
           + " nud permanent dev $NETDEV")


class Raw:
    """Clients in user space: who answers requests, who does not, who knows none, and who has told nothing."""

    def __init__(self):
        from hostile_2016_caller import EarlierCaller
        from rpcrdma2016_words import CALL, octets
        self.octets = octets
        self.peers = {"answers": EarlierCaller().open(), "is silent": EarlierCaller().open(),
                      "knows no requests": EarlierCaller().open(), "has told nothing": EarlierCaller()}
        xid = self.peers["has told nothing"].say(CALL)
        check(self.peers["has told nothing"].hear(xid), "no answer to a NULL Call")
        self.asked = dict.fromkeys(self.peers, 0)
        self.ended = {}
        self.began = time.monotonic()

    def look(self):
        """Takes in what has come, and answers it."""
        for name, peer in self.peers.items():
            if name in self.ended:
                continue
            try:
                peer.take()
            except Gone:
                self.ended[name] = time.monotonic() - self.began
                continue
            for message in peer.answers:
                if message.data[12:24] == b"\0\0\0\5\0\0\0\0\0\0\0\2":
                    self.asked[name] += 1
                    text = {"answers": "X 2 20 5 1 3 c  0 0 0", "knows no requests": "X 2 20 4 3"}.get(name)
                    if text:
                        peer.send_message(self.octets(text, message.xid))
            peer.answers.clear()


def asked(text):
    """How many requests were sent, and how many answers have come, in a trace."""
    events = EVENT.findall(text)
    return events.count(("REQPROP", "1")), events.count(("RESPROP", "0"))


def idle(mount):
    """Who answers keeps its connection, at both ends; who does not loses it."""
    for command in (lambda c: os.system(c) == 0, remote):
        command(TRACE)
    raw = Raw()
    os.statvfs(mount.path)
    while time.monotonic() - raw.began < (LIMIT + 2 * SILENCE) * slowness():
        raw.look()
        time.sleep(0.05)
    log(f"asked: {raw.asked}; ended: {raw.ended}")
    check(list(raw.ended) == ["is silent"], f"ended: {raw.ended}")
    check(2 * SILENCE <= raw.ended["is silent"] <= LIMIT * watchdog(), f"after {raw.ended}")
    check(raw.asked["is silent"] == raw.asked["knows no requests"] == 1, f"asked: {raw.asked}")
    check(raw.asked["answers"] >= 2 and raw.asked["has told nothing"] == 0, f"asked: {raw.asked}")
    for name in ("answers", "knows no requests", "has told nothing"):
        check(raw.peers[name].null(), f"who {name} gets no answer")
        raw.peers[name].close()
    def both():
        return asked(read(f"{TRACING}/trace")), asked(remote(f"cat {TRACING}/trace"))

    # The last request may have been sent just now.
    wait_for("the answer to each request", 5, lambda: both()[0][0] == both()[0][1], 0.5)
    here, there = both()
    log(f"the client has asked and was answered {here}, the server {there}")
    # Either hears of the other one's request, and need not ask itself then.
    check(here[1] + there[1] >= 2 and here[0] == here[1], f"{here}, {there}")
    check(xprt_stats(mount.path)["connect_count"] == 1, "the mount has connected again")


def connected():
    """How many connections the server has, and the client."""
    text = remote(f"cd {versions.DEBUGFS}/server && ls", ok=None)
    return len(text.split()), len(versions.connections())


def vanished(mount, ends):
    """Nothing comes from the server any more, and no answer of its device. Both notice, or else do not."""
    os.statvfs(mount.path)
    wait_for("the end of other connections", 20, lambda: connected() == (1, 1))
    reach(False)
    began = time.monotonic()
    try:
        if ends:
            wait_for("the end of the client's connection", LIMIT,
                     lambda: not versions.connections(), 0.2)
            log(f"the client has noticed after {time.monotonic() - began:.1f} s")
            wait_for("the end of the server's connection", (LIMIT + 10) * watchdog(),
                     lambda: connected()[0] == 0, 0.2)
            log(f"the server has noticed after {time.monotonic() - began:.1f} s")
        else:
            time.sleep(LIMIT * slowness())
            check(connected() == (1, 1), f"connections: {connected()}")
    finally:
        reach(True)
    os.statvfs(mount.path)
    check(xprt_stats(mount.path)["connect_count"] == 1 + ends, f"{xprt_stats(mount.path)['connect_count']} connections")
    versions.check_version()


def client():
    """A mount of NFSv3, which sends nothing of itself."""
    for value in ("-1", "86401", "x"):
        try:
            write(SETTING, value)
        except OSError:
            continue
        check(False, f"keep_alive may be {value}")
    check(read(SETTING).strip() == "0", "peers are asked without being told to")
    with Mount("3", address=os.environ["PEER_ADDR6"]) as mount:
        vanished(mount, False)
        everywhere(SILENCE)
        idle(mount)
        vanished(mount, True)


main(client)
