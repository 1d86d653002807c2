#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# tools/rpcrdma-top: the connections of both ends, their rates, and what it writes for Prometheus.
# mode: pair
# fabrics: rxe
# server: ours
# variants: 4.2@ours-ours 4.2@ours-ours-one 4.2@stock-stock
# kernels: uml
# timeout: 120 120
"""A known number of RPCs between two looks, and a strict reading of the file for Prometheus. The
stock module shows its mounts only."""

import json
import math
import os
import re
import runpy
import shutil
import subprocess
import sys

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, read, remote, rpc_counts, run, xprt_stats  # noqa: E402

TOOL = "tools/rpcrdma-top"
FILE = "/run/rpcrdma.prom"
DASHBOARD = "packaging/grafana/rpcrdma.json"
DEBUGFS = "mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug"
#: STATFS is never answered from a cache.
CALLS, SECONDS = 200, 3
TOP = "/sys/kernel/debug/rpcrdma"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
METRIC = re.compile(rf'([a-z_]+)\{{({LABEL}(?:,{LABEL})*)\}} (\d+(?:\.\d+)?)')


def families(text):
    """The values of a file in the format of Prometheus, by name and labels; fails if it is not one.

    Each family is in one piece, behind one HELP and one TYPE.
    """
    found, kinds, helped, name = {}, {}, set(), None
    check(text.endswith("\n"), "no end of the last line")
    for line in text.splitlines():
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            if what == "HELP":
                check(name not in helped and rest, line)
                helped.add(name)
            else:
                check(what == "TYPE" and name in helped and name not in kinds
                      and rest in ("counter", "gauge", "histogram"), line)
                kinds[name] = rest
            continue
        match = METRIC.fullmatch(line)
        check(match, f"no metric: {line}")
        family, labels, value = match.groups()
        parts = ("_bucket", "_sum", "_count") if kinds.get(name) == "histogram" else ("",)
        check(name in kinds and family in [name + part for part in parts],
              f"of another family: {line}")
        check((kinds[name] == "counter") == name.endswith("_total"), line)
        check((family, labels) not in found, f"twice: {line}")
        found[family, labels] = float(value)
    return found


def look(mount):
    """Does a number of RPCs; returns how many it were, and the rows of the intervals since then."""
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
    return sent, [row for rows in intervals for row in rows]


def near(seen, is_so):
    """Whether a sum over intervals that are a little longer than they should be is right."""
    return abs(seen - is_so) <= 0.15 * is_so


def rates(mount, ours):
    """What is shown of a known number of RPCs."""
    sent, rows = look(mount)
    check(sent >= CALLS, f"only {sent} RPCs")
    ends = {"client", "mount"} if ours else {"mount"}
    check({row["end"] for row in rows} == ends, f"{rows}")
    for end in ends:
        seen = sum(row["rpcs_per_second"] for row in rows if row["end"] == end) * SECONDS
        check(near(seen, sent), f"{end}: {sent} RPCs, {seen:.0f} seen")
    of_mount = next(r for r in rows if r["end"] == "mount" and r["rpcs_per_second"] > 1)
    log(f"{sent} RPCs: {of_mount}")
    check(of_mount["mount"] == mount.path
          and of_mount["peer"] == f"{os.environ['PEER_ADDR']}:{mount.export}", f"{of_mount}")
    # A millisecond for each that is rounded.
    check(0 < of_mount["rtt_ms"] <= of_mount["execute_ms"] + 1 < 1000 * SECONDS, f"{of_mount}")
    if ours:
        row = next(r for r in rows if r["end"] == "client" and r["rpcs_per_second"] > 1)
        log(f"{row}")
        check(0 < row["half_ms"] <= row["most_ms"], f"{row}")
        check(row["peer"].startswith(os.environ["PEER_ADDR"]), f"{row}")
        check(row["version"] == versions.expected(), f"{row}")
        check((row["credits"] is None) == (row["version"] == "2"), f"{row}")
        # STATFS needs no memory.
        check(row["registrations_per_rpc"] == 0 and row["regions"] >= row["regions_lent"], f"{row}")


def filters(mount, ours):
    """One interval, as text and as JSON, and what is left out."""
    words = (sys.executable, "-B", TOOL, "--once", "--seconds", "0.2")

    def once(*options):
        return run(*words, *options, quiet=True)

    text = once()
    check(os.environ["PEER_ADDR"] in text and "rtt ms" in text and mount.path[-28:] in text, text)
    check(("reg/op" in text) is ours, text)
    for options, number in ((("--end", "mount"), 1), (("--match", mount.path), 1),
                            (("--match", "nowhere"), 0),
                            (("--match", os.environ["PEER_ADDR"]), 1 + ours)):
        rows = json.loads(once("--json", *options).splitlines()[-1])
        check(len(rows) == number, f"{options}: {rows}")
    if ours:
        rows = json.loads(remote(" ".join((*words, "--json"))))
        check([r["end"] for r in rows] == ["server"], f"{rows}")
        check(rows[0]["peer"].startswith(os.environ["OWN_ADDR"]), f"{rows}")


def missing(tool):
    """Values that a module does not have are not zero."""
    files = {"state": {"address": "a"}, "counters": {"sends": "40"}, "credits": {}}
    row = tool["row"]("client", {}, files, 2)
    check(row["rpcs_per_second"] == 20, f"{row}")
    check(all(row[name] is None for name in ("in_use", "registrations_per_rpc", "regions",
                                             "octets_per_second", "waits_per_second")), f"{row}")
    line = tool["table"]([{"number": 7, **row}]).splitlines()[1]
    check(line.split()[-2:] == ["r", "-"] and " 20 " in line, line)


def again(tool):
    """Counters that are less than before have begun again: the number was given to another."""
    before, after = ({"state": {"address": "a"}, "counters": {"sends": n}} for n in ("900", "40"))
    row = tool["row"]("client", before, after, 2)
    check(row["rpcs_per_second"] == 20, f"{row}")
    before, after = (dict.fromkeys(tool["OPERATION"], n) for n in (900, 40))
    row = tool["mount_row"]("s:/e", "/m", before, after, 2)
    check(row["rpcs_per_second"] == 20 and row["rtt_ms"] == 1, f"{row}")


def latencies(tool):
    """What a part of the RPCs did not exceed, by steps, and since the last look."""
    def files(*counts):
        names = ("below_1024_ns", "below_2048_ns", "below_4096_ns", "longer")
        return {"latency": dict(zip((*names, "total_ns"), (*map(str, counts), "9000")))}

    steps, part = tool["steps"], tool["not_exceeded"]
    for before, after, half, most in (((0, 0, 0, 0), (0, 50, 49, 1), 2.048e-6, 4.096e-6),
                                      ((0, 50, 0, 0), (0, 50, 2, 1), 4.096e-6, math.inf),
                                      ((1, 1, 1, 1), (1, 1, 1, 1), None, None)):
        seen = [part(p, steps(files(*before)), steps(files(*after))) for p in (0.5, 0.99)]
        check(seen == [half, most], f"{before} {after}: {seen}")
    check(not steps({}) and part(0.5, {}, {}) is None, "times that are not counted")
    text = tool["metrics"]({("server", 3): files(1, 2, 3, 4) | {"state": {}}}, {})
    found = families(text)
    labels = 'connection="3",address="",port=""'
    for name, value in (('_bucket', 1), ('_bucket', 3), ('_bucket', 6), ('_bucket', 10)):
        le = {1: "1.024e-06", 3: "2.048e-06", 6: "4.096e-06", 10: "+Inf"}[value]
        check(found[f"rpcrdma_server_latency_seconds{name}", f'{labels},le="{le}"'] == value, text)
    check(found["rpcrdma_server_latency_seconds_sum", labels] == 9e-6, text)
    check(found["rpcrdma_server_latency_seconds_count", labels] == 10, text)


def fits(tool):
    """The terminal's lines are not exceeded, and what has to be said stays."""
    os.environ["LINES"] = "4"
    for number, told in ((3, []), (4, []), (5, ["2 lines more"]), (50, ["47 lines more"])):
        lines = tool["screen"]("\n".join("row" for _ in range(number)), None).splitlines()
        check(len(lines) == min(number, 4) and all(t in lines[-1] for t in told), f"{lines}")
    lines = tool["screen"]("row\n" * 50, ("not root", True)).splitlines()
    check(len(lines) == 4 and "not root" in lines[0], f"{lines}")
    del os.environ["LINES"]


def described(tool):
    """Each value has its kind, and labels that stay; a connection is told in words once."""
    state = {"connected": "1", "address": "fe80::1", "port": "20049", "version": "2",
             "device": 'a"b\\', "inline_send": "4096"}
    files = {"state": state, "counters": {"sends": "1"}, "regions": {"recycled": "2", "lent": "3"},
             "callback": {"slots": "4", "wanted": "5", "registrations": "6"}}
    sums = dict.fromkeys(tool["OPERATION"], 1500)
    text = tool["metrics"]({("client", 7): files},
                           {("[fe80::1]:/a:b", "/m"): sums, ("s:/e", "/n"): sums})
    found = families(text)
    labels = 'connection="7",address="fe80::1",port="20049"'
    for name, value in (("connected", 1), ("counters_sends_total", 1),
                        ("regions_recycled_total", 2), ("regions_lent", 3), ("callback_slots", 4),
                        ("callback_wanted", 5), ("callback_registrations_total", 6)):
        check(found.pop((f"rpcrdma_client_{name}", labels), None) == value, f"{name}: {found}")
    words = labels + r',device="a\"b\\",version="2",dialect=""'
    check(found.pop(("rpcrdma_client_info", words), None) == 1, f"{found}")
    check(not [name for name, _ in found if name.startswith("rpcrdma_client")], f"{found}")
    for names in ('server="[fe80::1]",export="/a:b",mount="/m"',
                  'server="s",export="/e",mount="/n"'):
        check(found["rpcrdma_mount_rtt_seconds_total", names] == 1.5, f"{names}: {found}")


def links():
    """A file elsewhere is not written, though a link in the directory names it."""
    own = "/run/rpcrdma-link"
    shutil.rmtree(own, ignore_errors=True)
    os.mkdir(own)
    # The tool's number is that of the shell, which makes the link that it would write through.
    script = (f"ln -s {own}/elsewhere {own}/a.prom.$$; "
              f"exec {sys.executable} -B {TOOL} --prometheus {own}/a.prom")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    check(done.returncode == 1 and done.stderr.startswith("error: ")
          and "Traceback" not in done.stderr, f"{done}")
    check(not os.path.exists(f"{own}/elsewhere"), "a file elsewhere")
    os.symlink(f"{own}/elsewhere", f"{own}/a.prom")
    run(sys.executable, "-B", TOOL, "--prometheus", f"{own}/a.prom")
    check(not os.path.exists(f"{own}/elsewhere") and not os.path.islink(f"{own}/a.prom"),
          "the link is still there")


def counted(mount):
    """What is to be in the file, by name: all RPCs of the mount, and all counters of debugfs."""
    found = {"rpcrdma_mount_rpcs_total": sum(rpc_counts(mount.path).values())}
    for number in (n for n in os.listdir(TOP) if n.isdigit()) if os.path.isdir(TOP) else ():
        for name, value in (l.split(": ") for l in read(f"{TOP}/{number}/counters").splitlines()):
            found[f"rpcrdma_client_counters_{name}_total"] = int(value)
    return found


def prometheus(mount, ours):
    """The files of both ends are right, and what the dashboard asks for is in them."""
    before = counted(mount)
    run(sys.executable, "-B", TOOL, "--prometheus", FILE)
    after = counted(mount)
    here = families(read(FILE))
    check(os.stat(FILE).st_mode & 0o777 == 0o644, "others may not read it")
    check(not [name for name in os.listdir("/run") if name.startswith("rpcrdma.prom.")], "a rest")

    def values(found, family):
        return [value for (name, _), value in found.items() if name == family]

    for family, least in before.items():
        told = values(here, family)
        check(len(told) == 1 and least <= told[0] <= after[family],
              f"{family}: {told}, not {least} to {after[family]}")
    check(values(here, "rpcrdma_mount_rtt_seconds_total")[0] > 0, "no time")
    check(here["rpcrdma_loaded", 'module="this"'] == ours
          and here["rpcrdma_loaded", 'module="stock"'] == (not ours), "another module")
    check(here["rpcrdma_connections", 'end="client"'] == ours, "connections")
    if not ours:
        return
    there = families(remote(f"python3 -B {TOOL} --prometheus {FILE} && cat {FILE}"))
    check(there["rpcrdma_connections", 'end="server"'] == 1, "connections of the server")
    sends = before["rpcrdma_client_counters_sends_total"]
    calls = values(there, "rpcrdma_server_counters_calls_total")
    check(len(calls) == 1 and abs(calls[0] - sends) <= 5, f"{calls} and {sends}")
    log(f"{len(here)} and {len(there)} metrics")
    names = {name for name, _ in (*here, *there)}
    asked = {name for panel in json.loads(read(DASHBOARD))["panels"]
             for target in panel.get("targets", ())
             for name in re.findall(r"\brpcrdma_[a-z_]+", target["expr"])}
    check(len(asked) > 10 and not asked - names, f"the dashboard asks for {asked - names}")


def client():
    """Both ends."""
    ours = os.environ["MODULE"] == "ours"
    run("sh", "-c", DEBUGFS)
    remote(DEBUGFS)
    tool = runpy.run_path(TOOL)
    for part in (missing, again, latencies, fits, described):
        part(tool)
    links()
    with Mount(os.environ["VARIANT"]) as mount:
        rates(mount, ours)
        filters(mount, ours)
        prometheus(mount, ours)


main(client)
