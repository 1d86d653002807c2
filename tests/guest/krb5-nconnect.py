#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Kerberos over several connections: few enough for the server's sequence window lose no Call, and with more no I/O fails.
# mode: pair
# server: ours
# client: ours
# fabrics: rxe
# variants: 3-2 4.2-8 3-8
# kernels: uml
# soak: only
# soak-variants: 3-2 4.2-8 3-8 3-8@stock-stock
# timeout: 300 600
# rounds: 5 30
# See krb5.py.
# kernel-options: init_on_alloc=1
"""The variant is the version of NFS and the number of connections.

Large WRITEs, whose data the server has yet to fetch, and small READs that overtake them. The server drops a Call
that is older than the last 128 of its security context (RFC 2203, 5.3.3.1), and SUNRPC ends its connection, so
that the client sends the Calls of that connection again.
"""

import json
import os
import sys

sys.path.insert(0, "tests/lib")
import kerberos  # noqa: E402
from case import main  # noqa: E402
from common import TRACING, Mount, check, log, remote, rounds, run, slowness, xprt_stats  # noqa: E402

VERS, CONNECTIONS = os.environ["VARIANT"].split("-")
#: With that many connections and NFSv3 Calls fall out of the window.
MANY = VERS == "3" and int(CONNECTIONS) > 2
EVENT = f"{TRACING}/events/rpcgss/rpcgss_svc_seqno_low"


def load(path):
    """Small READs and large WRITEs at once, for `$ROUNDS` seconds. Returns how many of each were done."""
    common = ["--direct=1", "--ioengine=libaio", f"--runtime={rounds()}", "--time_based", "--group_reporting",
              f"--directory={path}", "--fallocate=none", "--iodepth=16", "--numjobs=4"]
    out = run("fio", "--output-format=json", "--name=small", "--rw=randread", "--bs=4k", "--size=4m", *common,
              "--name=large", "--rw=write", "--bs=1m", "--size=16m", *common,
              timeout=rounds() + 60 * slowness())
    jobs = json.loads(out[out.index("{"):])["jobs"]
    check(all(job["error"] == 0 for job in jobs), f"{[job['error'] for job in jobs]}")
    return [job[kind]["total_ios"] for job in jobs for kind in ("read", "write") if job[kind]["total_ios"]]


def client():
    """Counts the Calls that the server has dropped, and the connections that were made."""
    kerberos.client()
    remote(f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}; echo 1 > {EVENT}/enable")
    options = f"sec=krb5i,nconnect={CONNECTIONS}"
    with Mount(VERS, options=options, address=kerberos.SERVER) as mount:
        done = load(mount.path)
        dropped = int(remote(f"grep -c seqno_low {TRACING}/trace", ok=(0, 1)))
        connects = [stats["connect_count"] for stats in xprt_stats(mount.path, total=False)]
    log(f"{done} READs and WRITEs, {dropped} Calls dropped, connections {connects}")
    check(MANY or dropped == 0, "a Call was dropped")
    check(sum(connects) <= int(CONNECTIONS) + dropped, "a connection was lost without a Call that was dropped")


main(client, server=lambda: kerberos.server("krb5i"))
