#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The server copies a file, and tells when that is done: CB_OFFLOAD over the mount's connection.
# mode: pair
# fabrics: rxe
# variants: 4.2@ours-ours
# kernels: uml
# soak-fabrics: rxe siw
# soak-smoke: uml-sanitize
# soak-variants: 4.2 4.2@ours-ours 4.2@ours-ours-one 4.2@ours-ours-2016 4.2@stock-ours
# soak-smoke-variants: 4.2@ours-ours
# timeout: 120 300
"""An asynchronous COPY of NFSv4.2: who has asked for it waits until CB_OFFLOAD has come."""

import os
import re
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (TRACING, Mount, check, digest, log, pattern, remote,  # noqa: E402
                    remote_call, rpc_counts, run, wait_for)

#: More than two READs: what is shorter is copied before the Reply to COPY.
LENGTH = 12 << 20
#: What tells of CB_OFFLOAD, and in our module of all Calls to the client and their Replies.
CLIENT, SERVER = "nfs4_cb_offload", "nfsd_cb_offload"
POSTED, ANSWERED, ARRIVED = "rpcrdma_rs_post_call", "rpcrdma_rs_reply", "rpcrdma_rs_reverse_call"


def here(command):
    """Runs a command in this guest, as `remote` does in the other one."""
    return run("sh", "-c", command, quiet=True)


class Events:
    """What is recorded at one end. `execute` runs a command there."""

    def __init__(self, execute, system, name, ours, names):
        self.execute = execute
        execute(f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}")
        for event in [f"{system}/{name}"] + [f"rpcrdma_rs/{n}" for n in names if ours]:
            execute(f"echo 1 > {TRACING}/events/{event}/enable")
        execute(f"echo > {TRACING}/trace")

    def named(self, name):
        """The values of all events of one name, as texts."""
        return re.findall(rf": {name}: (.*)", self.execute(f"cat {TRACING}/trace"))

    def calls(self, name):
        """The transports and the transaction IDs of events of our module."""
        fields = [dict(f.split("=", 1) for f in text.split() if "=" in f)
                  for text in self.named(name)]
        return sorted((f["xprt"], f["xid"]) for f in fields)


def copy(mount):
    """Copies a file within the mount, and compares what the server has then."""
    data = pattern("offload", LENGTH)
    with open(f"{mount.path}/from", "wb") as f:
        f.write(data)
    src = os.open(f"{mount.path}/from", os.O_RDONLY)
    dst = os.open(f"{mount.path}/to", os.O_RDWR | os.O_CREAT)
    before = rpc_counts(mount.path)
    began = time.monotonic()
    n = os.copy_file_range(src, dst, LENGTH, 0, 0)
    took = time.monotonic() - began
    after = rpc_counts(mount.path)
    log(f"{n} octets were copied in {took:.2f} s: "
        + str({k: v - before[k] for k, v in after.items() if v > before[k]}))
    check(n == LENGTH, f"{n} octets were copied")
    check(after["COPY"] == before["COPY"] + 1, "not one COPY")
    for f in (src, dst):
        os.close(f)
    wrong = remote_call("verify", manifest={"to": [LENGTH, digest(data)]})
    check(not wrong, f"the copy: {wrong}")


def client():
    """Looks at both ends while a file is copied."""
    ours_here, ours_there = (os.environ[m] == "ours" for m in ("MODULE", "PEER_MODULE"))
    with Mount("4.2") as mount:
        os.listdir(mount.path)
        mine = Events(here, "nfs4", CLIENT, ours_here, [ARRIVED])
        peer = Events(remote, "nfsd", SERVER, ours_there, [POSTED, ANSWERED])
        copy(mount)
        sent, came = peer.named(SERVER), mine.named(CLIENT)
        log(f"server: {sent}; client: {came}")
        check(len(sent) == 1 and f"count={LENGTH} status=0" in sent[0], "not one CB_OFFLOAD")
        check(len(came) == 1 and f"cb_count={LENGTH} " in came[0] and "error=0 " in came[0],
              "CB_OFFLOAD has not come, or is another one")
        if ours_there:
            # The process has gone on before the server knew of the answer.
            wait_for("the answer", 10, lambda: peer.calls(ANSWERED) == peer.calls(POSTED) != [])
            posted = peer.calls(POSTED)
            names = remote("ls /sys/kernel/debug/rpcrdma/server").split()
            check({xprt for xprt, _ in posted} == {f"server/{n}" for n in names},
                  f"{posted} on other connections than {names}")
            if ours_here:
                arrived = [xid for _, xid in mine.calls(ARRIVED)]
                check(arrived == [xid for _, xid in posted], f"{arrived} have come of {posted}")


main(client)
