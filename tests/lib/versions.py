# SPDX-License-Identifier: GPL-2.0
"""The version of RPC-over-RDMA: which one our module may speak, and which one is spoken."""

import contextlib
import os

from common import check, log, read, remote, wait_for, write

PARAMETERS = "/sys/module/rpcrdma/parameters"
DEBUGFS = "/sys/kernel/debug/rpcrdma"
#: Variants that stand for a version.
VARIANTS = {"one": "1", "two": "2", "2016": "2016"}
#: The settings that a version needs; "2016" is the earlier protocol with number two.
SETTINGS = {"": {},
            "1": {"client_version": "1", "server_version": "1"},
            "1-default": {"client_version": "1"},
            "2": {"client_version": "2", "server_version": "2"},
            "2016": {"client_dialect": "2016", "server_2016": "Y"}}
#: What debugfs and trace events call it.
DIALECTS = {"1": "rfc8166", "1-default": "rfc8166", "2": "draft-07", "2016": "draft-2016"}


def wanted():
    """The version that is asked for: that of `$RPCRDMA_VERSION`, or of the variant; else nothing."""
    return os.environ.get("RPCRDMA_VERSION") or VARIANTS.get(os.environ.get("VARIANT"), "")


def parameters():
    """What insmod is to be told for it."""
    return [f"{name}={value}" for name, value in SETTINGS[wanted()].items()]


def set_version():
    """Lets our module, if it is in this guest, speak that version at most."""
    os.environ["RPCRDMA_VERSION"] = wanted()
    if os.environ.get("MODULE") == "ours":
        for name, value in SETTINGS[wanted()].items():
            write(f"{PARAMETERS}/{name}", value)


def expected():
    """What is to be spoken between two ends of ours, Version Two if nobody wants anything else; and with others."""
    ours = os.environ["MODULE"] == os.environ["PEER_MODULE"] == "ours"
    return (wanted() or "2") if ours else "1"


def connections():
    """The state of each connection: as this client shows it if it is ours, else as our server does."""
    if os.environ["MODULE"] == "ours":
        texts = []
        for number in filter(str.isdigit, os.listdir(DEBUGFS)):
            # A transport may go meanwhile.
            with contextlib.suppress(OSError):
                texts.append(read(f"{DEBUGFS}/{number}/state"))
    elif os.environ["PEER_MODULE"] == "ours":
        texts = remote(f"cd {DEBUGFS}/server && for n in *; do cat $n/state; echo; done",
                       ok=None).split("\n\n")
    else:
        return []
    states = [dict(line.split(": ", 1) for line in text.splitlines()) for text in texts if text.strip()]
    return [state for state in states if "version" in state]


def server_states():
    """What our server shows, a dictionary for each connection."""
    text = remote(f"cd {DEBUGFS}/server && for n in *; do cat $n/state; echo; done", ok=None)
    return [dict(line.split(": ", 1) for line in one.splitlines()) for one in text.split("\n\n") if one.strip()]


def state(end=connections):
    """What an end shows of its latest connection."""
    return end()[-1]


def check_version():
    """Fails unless each connection speaks what is expected. The stock module cannot be asked."""
    if "ours" not in (os.environ["MODULE"], os.environ["PEER_MODULE"]):
        return
    # A connection of a client goes and comes back as it likes.
    wait_for("a connection", 30, connections)
    spoken = sorted({state["dialect"] for state in connections()})
    log(f"version: {', '.join(spoken)}")
    check(spoken == [DIALECTS[expected()]], f"{spoken} is spoken, and not {DIALECTS[expected()]}")


def check_examined():
    """Fails if our server takes the slow path for Calls of Version One once that is spoken.

    The session examines the first message of a connection, which shows the version, and no other one.
    """
    if os.environ["PEER_MODULE"] != "ours" or expected() != "1":
        return
    text = remote(f"grep -h ^examined: {DEBUGFS}/server/*/counters")
    examined = [int(line.split(": ")[1]) for line in text.splitlines()]
    log(f"messages that the server's session has examined: {examined}")
    check(examined and max(examined) <= 1, "Calls of Version One take the slow path")
