#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The table of what a server or a client does with messages that are wrong, as tools/conform prints it.
# mode: pair
# server: ours
# variants: server
# interop-variants: server server@ours-stock client@ours-none client@ours-none-one
# soak-variants: server server@ours-stock client@ours-none client@ours-none-one client@stock-none
# kernels: uml
# timeout: 900 1800
"""A server of ours does in each case what the texts say; every case is seen of any peer."""

import os
import subprocess
import sys
import time

sys.path.insert(0, "tests/lib")
import nfs_server  # noqa: E402
from case import main  # noqa: E402
from common import ROOT, check, log, module_refs, mount_raw, remote, run, wait_for  # noqa: E402

#: Where the server guest puts the table of the client.
TABLE = "/run/conform-table"


def conform_server():
    """The server's table. Of ours, which speaks all versions, nothing may differ from the texts."""
    ours = os.environ["PEER_MODULE"] == "ours"
    if ours:
        remote("echo Y > /sys/module/rpcrdma/parameters/server_2016")
    with subprocess.Popen(["tools/conform", "server", os.environ["PEER_ADDR"]], text=True,
                          stdout=subprocess.PIPE) as conform:
        for line in conform.stdout:
            log(line.rstrip())
    check(conform.returncode in (0, 1), f"status {conform.returncode}")
    check(not ours or not conform.returncode, "something is not as required")


def conform_client():
    """The client's table."""
    two = os.environ["MODULE"] == "ours" and os.environ["RPCRDMA_VERSION"] != "1"
    address = os.environ["PEER_ADDR"]
    remote(f"tools/conform client --listen {address} --version {2 if two else 1} --seconds 3 "
           f"> {TABLE} 2> {TABLE}-log; echo status $? >> {TABLE}", wait=False)
    wait_for("the server", 30, lambda: "conform load" in remote(f"cat {TABLE}", ok=None))
    options = next(line for line in remote(f"cat {TABLE}").splitlines() if line.startswith("mount ")).split()[4]
    path = f"{ROOT}/conform"
    before = module_refs()
    mount_raw(f"{address}:/", path, f"addr={address},{options}")
    with subprocess.Popen(["tools/conform", "load", path], stdout=subprocess.DEVNULL) as load:
        lines, seen = 0, []
        while not lines or not seen[-1].startswith("status"):
            time.sleep(2)
            seen = remote(f"cat {TABLE}").splitlines()
            for line in seen[lines:]:
                log(line)
            lines = len(seen)
        load.kill()
    check(seen[-1] == "status 0", f"not all cases were seen: {remote(f'tail {TABLE}-log')}")
    time.sleep(1)
    run("umount", "-f", "-l", path)
    wait_for("the end of the transport", 90, lambda: module_refs() <= before)


def client():
    """What the variant names."""
    if os.environ["VARIANT"] == "client":
        conform_client()
    else:
        conform_server()
    log("done")


def server():
    """The server guest."""
    nfs_server.main(*(["--no-nfs"] if os.environ["VARIANT"] == "client" else []))


main(client, server, rnr="the peer in user space breaks its credits")
