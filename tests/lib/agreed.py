# SPDX-License-Identifier: GPL-2.0
"""What two ends have agreed on, as each shows it: by a trace event, by a line in the log, and in debugfs."""

import os
import re

import versions
from common import TRACING, check, log, remote, run

DEBUGFS = "/sys/kernel/debug/rpcrdma"
#: A kernel with dynamic debug has such lines only when it is asked for them.
BEGIN = f"""
mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
echo 1 > {TRACING}/events/rpcrdma_rs/rpcrdma_rs_agreed/enable
for f in /proc/dynamic_debug/control /sys/kernel/debug/dynamic_debug/control; do
    [ ! -e $f ] || echo 'module rpcrdma +p' > $f
done
"""
END = f"echo 0 > {TRACING}/events/rpcrdma_rs/rpcrdma_rs_agreed/enable"
EVENT = re.compile(r": rpcrdma_rs_agreed: xprt=(\S+) (version=.*)$", re.M)
LINE = re.compile(r"rpcrdma: connection (\S+) with (\S+) port \d+: (version=.*)$", re.M)


def here(command):
    """Runs a command in this guest, as `remote` does in the other one."""
    return run("sh", "-c", command, quiet=True)


class Agreed:
    """Looks at the ends that have our module, from before a connection is made."""

    def __init__(self):
        ours = lambda name: os.environ[name] == "ours"  # noqa: E731
        #: By name: how to run commands there, and the address of the other end.
        self.ends = {}
        if ours("MODULE"):
            self.ends["client"] = (here, os.environ["PEER_ADDR"])
        if ours("PEER_MODULE"):
            self.ends["server"] = (remote, os.environ["OWN_ADDR"])
        for command, _ in self.ends.values():
            command(BEGIN)

    def end(self, name, version):
        """What one end shows of the latest connection, having compared everything there is."""
        command, peer = self.ends[name]
        events = EVENT.findall(command(f"cat {TRACING}/trace"))
        check(events, f"{name}: no event")
        number, text = events[-1]
        lines = [l for l in LINE.findall(command("dmesg")) if l[0] == number]
        check(len(lines) == 1 and lines[0] == (number, peer, text), f"{name}: {lines}, the event is {text}")
        event = dict(word.split("=") for word in text.split())
        log(f"{name}: {text}")
        state, credits = (dict(l.split(": ", 1) for l in command(f"cat {DEBUGFS}/{number}/{f}").splitlines())
                          for f in ("state", "credits"))
        two, earlier = version == "2", version == "2016"
        number = "1" if version == "1" else "2"
        check(event["version"] == state["version"] == number, f"{name}: {event}, {state}")
        check(event["dialect"] == state["dialect"] == versions.DIALECTS[version], f"{name}: {event}, {state}")
        same = {"send_size": "inline_send", "receive_size": "inline_receive"}
        if two:
            same |= {"segment_size": "segment_size", "segment_count": "segment_count",
                     "reverse": "reverse_direction"}
            for mine, theirs in (("inline_send", "peer_receive_size"), ("inline_receive", "peer_send_size"),
                                 ("segment_size", "peer_segment_size"),
                                 ("segment_count", "peer_segment_count")):
                check(0 < int(state[mine]) <= int(state[theirs]), f"{name}: {mine}: {state}")
            check(state["host_authentication"] == "off", f"{name}: {state}")
            check("peer_remote_invalidation" not in state, f"{name}: of Version One: {state}")
            check(int(event["send_window"]) > 0 < int(event["receive_window"]), f"{name}: {event}")
            check({"messages_sent", "send_limit", "messages_received", "receive_left"} <= set(credits),
                  f"{name}: {credits}")
        elif earlier:
            # The level changes when there is a service for callbacks.
            for mine, theirs in (("inline_send", "peer_receive_size"), ("inline_receive", "own_receive_size"),
                                 ("inline_receive", "peer_receive_size")):
                check(4096 <= int(state[mine]) <= int(state[theirs]), f"{name}: {mine}: {state}")
            check(event["segment_size"] == event["segment_count"] == "0", f"{name}: {event}")
            # The server's answer to the client's properties has granted more than one Call.
            check((int(event["send_window"]) > 1) == (name == "client"), f"{name}: {event}")
        else:
            check(event["segment_size"] == event["segment_count"] == "0", f"{name}: {event}")
            check((event["send_window"] == "1") == (name == "client"), f"{name}: {event}")
            check((event["receive_window"] == "0") == (name == "client"), f"{name}: {event}")
        for told, shown in same.items():
            check(event[told] == state[shown], f"{name}: {told}: {event}, {state}")
        return event

    def check(self, version):
        """Fails unless all ends show the same connection, which speaks `version`."""
        shown = {name: self.end(name, version) for name in self.ends}
        for command, _ in self.ends.values():
            command(END)
        if len(shown) < 2:
            return
        client, server = shown["client"], shown["server"]
        same = [("send_size", "receive_size"), ("receive_size", "send_size"), ("segment_size",) * 2,
                ("segment_count",) * 2, ("reverse",) * 2]
        for one, other in same:
            check(client[one] == server[other], f"{one}: {client}, {server}")
        check(version != "2" or client["reverse"] != "none", f"{client}")
