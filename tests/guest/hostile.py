#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A hostile server in user space: malformed, foreign, late and missing Replies.
# mode: pair
# light: yes
# server: none
# fabrics: rxe siw
# kernels: uml
# smoke: uml-kasan
# soak-smoke: uml-kasan debug
# timeout: 400 1800
# rounds: 1 2
"""Every case ends in an error for its RPC or in a dropped connection, never in a hang."""

import ctypes
import mmap
import os
import sys
import time

sys.path.insert(0, "tests/lib")
import nfs_server  # noqa: E402,F401 - the frame imports it
from case import main  # noqa: E402
from common import (Failure, LIBC, ROOT, check, drop_caches, is_errno, log,  # noqa: E402
                    module_refs, mount_raw, pattern, remote_call, rounds,
                    slow, slowness, wait_for)

#: Length of the file that is read, of what is written, and entries of the root.
READ, WRITE, ENTRIES = 70_001, 50_003, 300
#: How long one system call may take, and how long until the mount works again.
BOUND = 45


#: Cases much like others, which need the client's patience: for `make soak`.
THOROUGH = {f"cut_at_{n}" for n in (1, 4, 12, 16, 18, 24, 32, 36, 51)} | {
    "version_0", "version_9", "invalidate_zero", "reply_chunk_short", "rdma_write_beyond_reply"}


def server():
    """The server guest."""
    import hostile_server
    hostile_server.main()


def mount(path):
    """Mounts with every port named, since the server has no rpcbind."""
    peer = os.environ["PEER_ADDR"]
    mount_raw(f"{peer}:/", path,
              f"addr={peer},vers=3,proto=rdma,port=20050,mountaddr={peer},mountproto=tcp,"
              "mountvers=3,mountport=20051,nolock,noac,nordirplus,soft,timeo=20,retrans=1,"
              "rsize=131072,wsize=131072")


def getattr_(path):
    """A GETATTR of the root."""
    return os.stat(path).st_nlink == 2


def read(path):
    """A direct READ; what comes back is compared."""
    fd = os.open(f"{path}/d{READ}", os.O_RDONLY | os.O_DIRECT)
    try:
        memory = mmap.mmap(-1, 131072)
        n = os.preadv(fd, [memory], 0)
        check(n > 0, "an empty READ")
        check(memory[:n] == pattern(("hostile", READ), READ)[:n], "wrong data were read")
        return n == READ
    finally:
        os.close(fd)


def write(path):
    """A direct WRITE; the server compares what it got."""
    fd = os.open(f"{path}/d{WRITE}", os.O_WRONLY | os.O_DIRECT)
    try:
        return os.write(fd, pattern(("written", WRITE), WRITE)) == WRITE
    finally:
        os.close(fd)


def readdir(path):
    """A READDIR of the root."""
    names = os.listdir(path)
    check(all(n[:1] == "d" and n[1:].isdigit() for n in names), f"wrong names: {names[:5]}")
    return len(names) == ENTRIES


OPERATIONS = {"GETATTR": getattr_, "READ": read, "WRITE": write, "READDIR": readdir}


def attempt(operation, path):
    """Does one operation; returns what happened and how long it took."""
    if operation is readdir:
        drop_caches()
    began = time.monotonic()
    try:
        outcome = "ok" if operation(path) else "short"
    except OSError as e:
        outcome = is_errno(e.errno)
    return outcome, time.monotonic() - began


def one(name, case, path, problems):
    """One case, and a correct operation after it."""
    operation = OPERATIONS[case.procedure]
    remote_call("set_case", name=name, procedure=case.procedure)
    # On a slow kernel the mount, which is a soft one, may give a good Reply up before it is there.
    tries = 3 if slow() and case.expect == "ok" else 1
    try:
        outcome, took = attempt(operation, path)
        while outcome == "EIO" and (tries := tries - 1):
            outcome, took = attempt(operation, path)
    except Failure as e:
        outcome, took = str(e), 0
        problems.append(f"{name}: {e}")
    # Waits until the server is through with the case.
    state = remote_call("set_case", name="", procedure="")
    if not state["hits"]:
        problems.append(f"{name}: the server was never asked")
    if case.expect == "ok" and outcome != "ok":
        problems.append(f"{name}: {outcome}, but the Reply was usable")
    if case.expect == "error" and outcome == "ok":
        problems.append(f"{name}: accepted")
    if took > BOUND * slowness():
        problems.append(f"{name}: took {took:.0f} s")
    if name == "rdma_write_offered":
        check("accepted" in state["notes"], "a proper RDMA Write was refused")
    elif "accepted" in state["notes"]:
        problems.append(f"{name}: the client's memory was open")
    began = time.monotonic()
    while True:
        try:
            again, _ = attempt(operation, path)
        except Failure as e:
            problems.append(f"{name}: afterwards: {e}")
            break
        if again == "ok":
            break
        if time.monotonic() - began > BOUND * slowness():
            problems.append(f"{name}: the mount does not recover: {again}")
            break
        time.sleep(0.1)
    log(f"{name}: {outcome} after {took:.2f} s, well again {time.monotonic() - began:.2f} s later"
        + (f", {' '.join(sorted(set(state['notes'])))}" if state["notes"] else ""))


def client():
    """All cases, or those named in `$CASES`."""
    # Only the names are needed here, not the verbs.
    from hostile_cases import CASES
    path = f"{ROOT}/hostile"
    before = module_refs()
    mount(path)
    problems = []
    wanted = os.environ.get("CASES", "").split()
    if not wanted:
        wanted = [name for name in CASES if rounds() > 1 or name not in THOROUGH]
    for name in wanted:
        one(name, CASES[name], path, problems)
    began = time.monotonic()
    check(LIBC.umount2(path.encode(), 0) == 0, f"umount: {is_errno(ctypes.get_errno())}")
    log(f"unmounted in {time.monotonic() - began:.2f} s")
    try:
        wait_for("release of the transport", 60, lambda: module_refs() == before)
    except Failure as e:
        problems.append(str(e))
    check(not problems, f"{len(problems)} of {len(wanted)} cases:\n  " + "\n  ".join(problems))
    log(f"{len(wanted)} cases")


main(client, server)
