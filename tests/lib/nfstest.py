# SPDX-License-Identifier: GPL-2.0
"""nfstest, which mounts by itself, on mounts over RDMA: runs its programs, and reads what they say."""

import glob
import os
import re
import time

import suites
from common import NFS_PORT, ROOT, check, log, netdev, remote
from nfs_server import EXPORT

#: Where it mounts, in its root.
MOUNT_POINT = "/mnt/t"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def prepare():
    """Makes its root, and what it mounts."""
    suites.make()
    os.mkdir(f"{suites.TOP}{MOUNT_POINT}")
    # nfstest has one path for all versions, but NFSv4 begins at the scratch directory here.
    remote(f"mkdir -p {ROOT}{EXPORT} && mount --bind {EXPORT} {ROOT}{EXPORT} && exportfs -i "
           f"-o rw,no_root_squash,insecure,no_subtree_check,fsid=2 '*:{ROOT}{EXPORT}'")


def outcome(lines):
    """How many assertions passed, and the names of those that failed, behind that of the test."""
    passed, failed, test = 0, [], ""
    for line in lines:
        if match := re.match(r" *TEST: Running test '(.*)'", line):
            test = match[1]
        elif match := re.match(r" *(PASS|FAIL): (.*)", line):
            if match[1] == "PASS":
                passed += 1
            else:
                failed.append(f"{test}: {match[2].strip()}")
    return passed, failed


def run(results, name, program, version, arguments, path=PATH):
    """Runs one program, and adds what it says to the results."""
    began = time.monotonic()
    log(f"{name}: begins")
    _, lines = suites.inside(
        program, "--server", os.environ["PEER_ADDR"], "--export", EXPORT, "--proto", "rdma",
        "--port", str(NFS_PORT), "--nfsversion", version, "--mtpoint", MOUNT_POINT, "--notty",
        # The usual buffer is too large for these guests.
        "--interface", netdev(), "--tbsize", "8k",
        # nfstest ends the shell that it has started. A tcpdump below that would go on for ever,
        # and what it has not written yet would not be in the file that nfstest reads.
        "--tcpdump", "exec /usr/bin/tcpdump", *arguments, environment=[f"PATH={path}"])
    # Captured frames of what failed.
    for file in glob.glob("/tmp/nfstest_*"):
        os.remove(file)
    check(any(re.match(r"[0-9]+ tests \(", line) for line in lines),
          f"{name} did not end well:\n" + "\n".join(lines[-30:]))
    results.add(f"{name} {version}", *outcome(lines), time.monotonic() - began)
