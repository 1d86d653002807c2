# SPDX-License-Identifier: GPL-2.0
"""The version of RPC-over-RDMA: which one our module may speak, and which one is spoken."""

import contextlib
import os

from common import check, log, read, remote, wait_for, write

PARAMETERS = "/sys/module/rpcrdma/parameters"
DEBUGFS = "/sys/kernel/debug/rpcrdma"
#: Variants that stand for a version.
VARIANTS = {"one": "1", "two": "2"}


def wanted():
    """The version that is asked for: that of `$RPCRDMA_VERSION`, or of the variant; else nothing."""
    return os.environ.get("RPCRDMA_VERSION") or VARIANTS.get(os.environ.get("VARIANT"), "")


def parameters():
    """What insmod is to be told for it."""
    return [f"{end}_version={wanted()}" for end in ("client", "server")] if wanted() else []


def set_version():
    """Lets our module, if it is in this guest, speak that version at most."""
    os.environ["RPCRDMA_VERSION"] = wanted()
    if wanted() and os.environ.get("MODULE") == "ours":
        for end in ("client", "server"):
            write(f"{PARAMETERS}/{end}_version", wanted())


def expected():
    """What is to be spoken: Version Two between two ends of ours, if nobody forbids it."""
    ours = os.environ["MODULE"] == os.environ["PEER_MODULE"] == "ours"
    return "2" if ours and wanted() != "1" else "1"


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


def check_version():
    """Fails unless each connection speaks what is expected. The stock module cannot be asked."""
    if "ours" not in (os.environ["MODULE"], os.environ["PEER_MODULE"]):
        return
    # A connection of a client goes and comes back as it likes.
    wait_for("a connection", 30, connections)
    spoken = sorted({state["version"] for state in connections()})
    log(f"version: {', '.join(spoken)}")
    check(spoken == [expected()], f"version {spoken} is spoken, and not {expected()}")
