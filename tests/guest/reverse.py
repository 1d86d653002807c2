#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Calls to the client, with the same transaction ID too; in every form of Version Two: in parts, with chunks.
# mode: pair
# light: yes
# fabrics: rxe
# soak-fabrics: rxe siw
# variants: two one
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep debug
# timeout: 300 900
# rounds: 1 5
"""A server in user space calls its client back, beyond a page, and looks at how it is answered."""

import os
import sys
import threading

sys.path.insert(0, "tests/lib")
import nfs_server  # noqa: E402
from case import main  # noqa: E402
from common import (ROOT, check, log, module_refs, mount_raw, remote_call, rounds,  # noqa: E402
                    status, wait_for)

#: Octets of the longest Call that the client takes.
LONGEST = 36 << 10
#: Operations, and octets of a tag, with which a Reply is too long for one message, and nearly a page.
LONG = {"operations": 437, "tag": 512}
#: The same, less, where the operations have to be inline.
SHORT = {"operations": 100, "tag": 100}

#: What is asked for, and how it is answered.
CASES = [
    ("one message", {"form": "inline"}, "inline"),
    ("one message, with a Reply chunk that is not needed", {"form": "inline", "reply": 8192}, "inline"),
    ("two messages", {"form": "parts", "length": 5000}, "inline"),
    ("many messages", {"form": "parts", "length": 30000, **SHORT}, "inline"),
    ("the longest Call in parts", {"form": "parts", "length": LONGEST}, "inline"),
    ("the Reply in parts", {"form": "parts", "length": 10000, **LONG}, "parts"),
    ("the Reply in a Reply chunk", {"form": "parts", "length": 10000, "reply": 8192, **LONG}, "chunk"),
    ("a Reply chunk that is too small", {"form": "parts", "length": 10000, "reply": 2048, **LONG}, "parts"),
    ("a Write chunk that nothing is for", {"form": "parts", "length": 9000, "writes": 4096, **SHORT}, "inline"),
    ("a Call chunk", {"form": "chunk", "length": 9000, **SHORT}, "inline"),
    ("a Call chunk of many segments", {"form": "chunk", "length": 20000, "count": 7, **SHORT}, "inline"),
    ("the longest Call chunk", {"form": "chunk", "length": LONGEST}, "inline"),
    ("a Call chunk and a Reply chunk", {"form": "chunk", "length": 30000, "reply": 4096, **LONG}, "chunk"),
    ("a Call chunk, and the Reply in parts", {"form": "chunk", "length": 12345, **LONG}, "parts"),
    ("a Read chunk", {"form": "read", "length": 9000, **SHORT}, "inline"),
    ("a Read chunk of three segments, all chunks", {"form": "read", "length": 25000, "count": 3, "writes": 4096,
                                                    "reply": 8192, **SHORT}, "inline"),
    ("two Read chunks", {"form": "reads", "length": 20000, **SHORT}, "inline"),
    ("a Call chunk and a Read chunk", {"form": "both", "length": 20000, "count": 3, **SHORT}, "inline"),
    ("the longest Call, in both", {"form": "both", "length": LONGEST, "reply": 8192}, "inline"),
    ("the same transaction ID", {"form": "inline", "same": True}, "inline"),
    ("the same transaction ID, in parts", {"form": "parts", "length": 10000, "same": True, **LONG}, "parts"),
    ("the same transaction ID, with chunks", {"form": "chunk", "length": 10000, "same": True, "reply": 8192,
                                              **LONG}, "chunk"),
    ("a Call in parts that is too long", {"form": "parts", "length": LONGEST + 400}, "error"),
    ("a Call chunk that is too long", {"form": "chunk", "length": LONGEST + 4096}, "error"),
]
#: In Version One there are no chunks, and a message has 1024 octets.
ONE = [
    ("one message", {"form": "inline"}, "inline"),
    ("a long message", {"form": "inline", "length": 960}, "inline"),
    ("a long Reply", {"form": "inline", "operations": 20, "tag": 300}, "inline"),
    ("the same transaction ID", {"form": "inline", "same": True}, "inline"),
]
#: Where there are memory windows.
WINDOWS = [
    ("a Call chunk to be invalidated", {"form": "chunk", "length": 9000, "window": True, **SHORT},
     "inline, invalidated"),
    ("a Call chunk to be invalidated, and the Reply in parts", {"form": "chunk", "length": 9000, "window": True,
                                                                **LONG}, "parts, invalidated"),
]


def server():
    """The server guest."""
    import reverse_peer
    nfs_server.export_setup()
    print(nfs_server.control_nfsd_start(), flush=True)
    reverse_peer.main()


def counters():
    """What the client's transport has counted."""
    _, text = status("sh", "-c", "cat /sys/kernel/debug/rpcrdma/[0-9]*/counters")
    return {name: int(value) for name, value in
            (line.split(": ") for line in text.splitlines() if ": " in line) if value.isdigit()}


def one(name, wanted, expected, path, problems):
    """One Call."""
    load = threading.Timer(0.5, lambda: os.statvfs(path))
    if wanted.get("same"):
        load.start()
    answer = remote_call("reverse", **wanted)
    log(f"{name}: {answer}")
    how, _, size = answer.partition(" ")
    first, _, more = expected.partition(", ")
    if how != first or answer.endswith(", invalidated") != bool(more):
        problems.append(f"{name}: {answer}")
    if wanted.get("same"):
        load.join()
    os.statvfs(path)


def foreign(path):
    """A chunk that can't be read ends the connection; the mount goes on with the next one."""
    log(f"a chunk that is no memory: {remote_call('reverse', form='foreign', length=9000, patience=5)}")
    wait_for("the next connection", 60, lambda: status("stat", "-f", path, timeout=30)[0] == 0)
    check(remote_call("state")["connections"] > 1, "the connection was not lost")


def client():
    """All forms, one after the other, on one connection."""
    before = module_refs()
    path = f"{ROOT}/reverse"
    peer = os.environ["PEER_ADDR"]
    mount_raw(f"{peer}:/export", path, f"addr={peer},clientaddr={os.environ['OWN_ADDR']},vers=4.1,proto=rdma,"
              "port=20050,noac,nosharecache")
    problems = []
    two = os.environ["VARIANT"] == "two"
    cases = CASES + (WINDOWS if os.environ["FABRIC"] == "rxe" else []) if two else ONE
    for _ in range(rounds()):
        for name, wanted, expected in cases:
            one(name, wanted, expected, path, problems)
    state = remote_call("state")
    seen = counters()
    log(f"{state}; {seen}")
    for name in ("reverse_reads", "reverse_writes") if two else ():
        check(seen[name] > 0, f"no {name}: the chunks were not used")
    if two and os.environ["FABRIC"] == "rxe":
        check(seen["reverse_invalidations"] == len(WINDOWS) * rounds(), "not every handle was invalidated")
    check(state["connections"] == 1, f"connected {state['connections']} times")
    if two:
        foreign(path)
    status("umount", path)
    wait_for("release of the transport", 60, lambda: module_refs() == before)
    check(not problems, f"{len(problems)} of {len(cases)} cases:\n  " + "\n  ".join(problems))


main(client, server)
