#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# stress-ng's stressors of file systems, one after the other, and dbench on a mount over RDMA.
# soak: only
# mode: pair
# fabrics: rxe
# variants: 4.2@ours-ours 4.2@stock-stock
# kernels: uml
# setup: suites
# timeout: 1800 1800
"""A stressor that finds a mistake fails; one that has nothing to do on NFS skips itself."""

import os
import re
import sys
import time

sys.path.insert(0, "tests/lib")
import suites  # noqa: E402
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, log, xprt_stats  # noqa: E402

#: Seconds for each stressor, and for dbench.
EACH, DBENCH = 3, 30
#: These look at other file systems only, whatever directory they are given.
ELSEWHERE = "binderfs,procfs"
#: The usual sizes are those of a disk.
SIZES = ["--copy-file-bytes=128m", *(f"--{name}-bytes=16m" for name in
                                     ("fallocate", "fpunch", "hdd", "iomix", "sync-file"))]


def stress(path):
    """How many stressors passed, and which did not."""
    _, lines = suites.inside(
        "stress-ng", "--class", "filesystem", "--exclude", ELSEWHERE, "--sequential", "1",
        "--timeout", str(EACH), "--temp-path", path, "--verify", "--no-rand-seed", *SIZES)
    found = {}
    for line in lines:
        if match := re.search(r"\] (passed|failed|skipped): [0-9]+:? ?(.*)", line):
            # Each name has the number of its instances behind it.
            found[match[1]] = re.findall(r"([a-z0-9-]+) \(", match[2])
    check(found.get("passed"), "stress-ng did not end well:\n" + "\n".join(lines[-30:]))
    skipped = [f"{name} is skipped" for name in found["skipped"]]
    return len(found["passed"]), found["failed"] + skipped


def dbench(path):
    """How many clients ended without an error, and errors."""
    status, lines = suites.inside("dbench", "-D", path, "-t", str(DBENCH), "-c",
                                  "/usr/share/dbench/client.txt", "4")
    # The guests' kernel has no semaphores of System V; dbench begins without one as well.
    wrong = [line for line in lines if re.search("fail|error|mismatch", line, re.I)
             and "barrier semaphore" not in line]
    log(next((line for line in reversed(lines) if line), "nothing said"))
    return 4 if status == 0 and not wrong else 0, wrong


def client():
    """Both, each in a directory of its own."""
    version = os.environ["VARIANT"]
    results = suites.Results("stress")
    with Mount(version) as mount:
        versions.check_version()
        suites.make()
        for name, program in (("dbench", dbench), ("stress-ng", stress)):
            began = time.monotonic()
            os.mkdir(f"{mount.path}/{name}")
            found = program(f"{mount.path}/{name}")
            results.add(f"{name} {version}", *found, time.monotonic() - began)
        stats = xprt_stats(mount.path)
        log(f"counters: {stats}")
        check(stats["connect_count"] == 1, f"connected {stats['connect_count']} times")
        # A stressor that is killed does not wait for its Reply, whose XID is unknown then.
        check(stats["bad_reply"] == 0, "bad Replies")
        results.finish()


main(client)
