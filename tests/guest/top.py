#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# tools/rpcrdma-top: the connections of both ends, their rates, and what it writes for Prometheus.
# mode: pair
# fabrics: rxe
# server: ours
# variants: 4.2@ours-ours 4.2@ours-ours-one
# kernels: uml
# timeout: 120 120
"""A known number of RPCs between two looks, and a strict reading of the file for Prometheus."""

import json
import os
import re
import subprocess
import sys

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, read, remote, run, xprt_stats  # noqa: E402

TOOL = "tools/rpcrdma-top"
DEBUGFS = "mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug"
#: STATFS is never answered from a cache.
CALLS, SECONDS = 200, 1
METRIC = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)*)\} (\d+)')


def families(text):
    """The values of a file in the format of Prometheus, by name and labels; fails if it is not one."""
    found, kinds = {}, {}
    for line in text.splitlines():
        if line.startswith("# "):
            _, what, name, *rest = line.split(" ", 3)
            check(what in ("HELP", "TYPE") and rest, line)
            if what == "TYPE":
                check(name not in kinds and rest[0] in ("counter", "gauge"), line)
                kinds[name] = rest[0]
            continue
        match = METRIC.fullmatch(line)
        check(match, f"no metric: {line}")
        name, labels, value = match.groups()
        check((kinds[name] == "counter") == name.endswith("_total"), line)
        check((name, labels) not in found, f"twice: {line}")
        found[name, labels] = int(value)
    check(text.endswith("\n"), "no end of the last line")
    return found


def look(mount):
    """Does a number of RPCs; returns how many it were, and what the tool shows of the intervals since its first."""
    with subprocess.Popen([sys.executable, "-B", TOOL, "--json", "--seconds", str(SECONDS)],
                          stdout=subprocess.PIPE, text=True) as tool:
        tool.stdout.readline()
        before = xprt_stats(mount.path)["sends"]
        for _ in range(CALLS):
            os.statvfs(mount.path)
        sent = xprt_stats(mount.path)["sends"] - before
        # The second one begins when there is nothing more to be done, at the latest.
        intervals = [json.loads(tool.stdout.readline()) for _ in range(3)]
        tool.terminate()
    return sent, [row for row, in intervals]


def client():
    """Both ends."""
    run("sh", "-c", DEBUGFS)
    remote(DEBUGFS)
    with Mount(os.environ["VARIANT"]) as mount:
        sent, rows = look(mount)
        seen = sum(row["rpcs_per_second"] for row in rows) * SECONDS
        row = rows[0]
        log(f"{sent} RPCs, {seen:.0f} seen: {row}")
        check(sent >= CALLS and abs(seen - sent) <= 0.15 * sent, "another number of RPCs")
        check(row["end"] == "client" and row["peer"].startswith(os.environ["PEER_ADDR"]), f"{row}")
        check(row["version"] == versions.expected(), f"{row}")
        check((row["credits"] is None) == (row["version"] == "2"), f"{row}")
        rows = json.loads(remote(f"python3 -B {TOOL} --once --json --seconds 0.5"))
        check([r["end"] for r in rows] == ["server"], f"{rows}")
        text = run(sys.executable, "-B", TOOL, "--once", "--seconds", "0.2", quiet=True)
        check(os.environ["PEER_ADDR"] in text and "RPC/s" in text, text)

        run(sys.executable, "-B", TOOL, "--prometheus", "/run/rpcrdma.prom")
        here = families(read("/run/rpcrdma.prom"))
        there = families(remote(f"python3 -B {TOOL} --prometheus /run/s.prom && cat /run/s.prom"))
        sends = [v for (name, _), v in here.items() if name == "rpcrdma_client_counters_sends_total"]
        check(sends == [xprt_stats(mount.path)["sends"]], f"{sends}")
        calls = [v for (name, _), v in there.items() if name == "rpcrdma_server_counters_calls_total"]
        check(len(calls) == 1 and abs(calls[0] - sends[0]) <= 5, f"{calls} and {sends}")
        check(here["rpcrdma_connections", 'end="client"'] == 1
              == there["rpcrdma_connections", 'end="server"'], "connections")
        log(f"{len(here)} and {len(there)} metrics")


main(client)
