#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A hostile server in user space: malformed, foreign, late and missing Replies.
# mode: pair
# light: yes
# server: none
# fabrics: rxe siw
# variants: one two
# kernels: uml
# smoke: uml-kasan
# soak-smoke: uml-kasan debug
# timeout: 400 1800
# rounds: 1 2
"""Every case ends in an error for its RPC or in a dropped connection, never in a hang.

The variant `two` does it in Version Two."""

import concurrent.futures
import ctypes
import glob
import mmap
import os
import signal
import sys
import time

sys.path.insert(0, "tests/lib")
import nfs_server  # noqa: E402,F401 - the frame imports it
from case import main  # noqa: E402
from common import (Failure, LIBC, ROOT, check, drop_caches, is_errno, log,  # noqa: E402
                    module_refs, mount_raw, pattern, read as read_file, remote_call, rounds,
                    slow, slowness, wait_for)

#: Length of the file that is read, of what is written, of a link, and entries of the root.
READ, WRITE, LINK, ENTRIES = 70_001, 50_003, 100, 300
#: How long one system call may take, and how long until the mount works again.
BOUND = 45
#: After which time the client connects anew, in tenths of a second.
TIMEOUT = 10 if os.environ.get("VARIANT") == "two" and not slow() else 20
#: After how many seconds an RPC without a Reply fails, having been sent twice: see `mount`.
FAILS_AFTER = 2 * TIMEOUT / 10


#: Cases much like others, which need the client's patience: for `make soak`.
THOROUGH = {f"cut_at_{n}" for n in (1, 4, 12, 16, 18, 24, 32, 36, 51)} | {
    "version_0", "version_9", "invalidate_zero", "reply_chunk_short", "rdma_write_beyond_reply",
    "credits_none_for_ever", "credits_too_far", "version_4294967295", "type_1", "type_8", "type_14", "type_4294967295",
    "rest_odd", "rest_all", "rest_long", "parts_turned", "part_empty", "credits_behind",
    "write_error_7", "write_error_9", "readdir_error_6", "readdir_error_7", "error_5_always",
    "error_100_always", "first_vers_two", "first_version_7", "first_middles", "first_no_credits"}
#: Cases in which the client is given no more credits, and after how long it connects anew, in seconds.
STARVING, STARVED = {"credits_none_for_ever", "credits_behind", "credits_too_far"}, 90
#: Cases in which an error makes the client choose another form for the same Call: what the second
#: Call has, and has not.
FORMS = {
    "refuse_read_chunks": ({"call-chunk"}, {"read-chunk"}),
    "refuse_write_chunks": ({"reply-chunk"}, {"write-chunk"}),
    "refuse_padding": ({"reply-chunk"}, {"write-chunk"}),
    "refuse_long_reply": ({"reply-chunk"}, set()),
}


def server():
    """The server guest."""
    import hostile_server
    hostile_server.main()


def mount(path):
    """Mounts with every port named, since the server has no rpcbind."""
    peer = os.environ["PEER_ADDR"]
    mount_raw(f"{peer}:/", path,
              f"addr={peer},vers=3,proto=rdma,port=20050,mountaddr={peer},mountproto=tcp,"
              f"mountvers=3,mountport=20051,nolock,noac,nordirplus,soft,timeo={TIMEOUT},retrans=1,"
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


def readlink(path):
    """A READLINK."""
    return os.readlink(f"{path}/l{LINK}") == "t" * LINK


OPERATIONS = {"GETATTR": getattr_, "READ": read, "WRITE": write, "READDIR": readdir,
              "READLINK": readlink}


def attempt(operation, path):
    """Does one operation; returns what happened and how long it took."""
    if operation in (readdir, readlink):
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
    before = remote_call("set_case", name=name, procedure=case.procedure)["notes"]
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
    # A Call that has no form left, since others were refused, is not sent.
    if not state["hits"] and outcome != "EMSGSIZE":
        problems.append(f"{name}: the server was never asked")
    if case.expect == "ok" and outcome != "ok":
        problems.append(f"{name}: {outcome}, but the Reply was usable")
    if case.expect in ("error", "at once") and outcome == "ok":
        problems.append(f"{name}: accepted")
    if case.expect == "at once" and took >= FAILS_AFTER and state["hits"] > 1:
        problems.append(f"{name}: failed after {took:.2f} s only, asked {state['hits']} times")
    if case.expect == "data" and outcome not in ("ok", "short"):
        problems.append(f"{name}: {outcome}, but there were data")
    problems += [f"before {name}: {note}" for note in before if note.startswith("wrong")]
    problems += [f"{name}: {note}" for note in state["notes"] if note.startswith("wrong")]
    if took > BOUND * slowness():
        problems.append(f"{name}: took {took:.0f} s")
    wanted, unwanted = FORMS.get(name, (set(), set()))
    seen = set(state["notes"])
    if not wanted <= seen or unwanted & seen or (wanted and "again" not in seen):
        problems.append(f"{name}: the Call that came again: {seen}")
    if name == "rdma_write_offered":
        check("accepted" in state["notes"], "a proper RDMA Write was refused")
    elif "accepted" in state["notes"]:
        problems.append(f"{name}: the client's memory was open")
    began = time.monotonic()
    bound = STARVED if name in STARVING else BOUND * slowness()
    while True:
        try:
            again, _ = attempt(operation, path)
        except Failure as e:
            problems.append(f"{name}: afterwards: {e}")
            break
        if again == "ok":
            break
        if time.monotonic() - began > bound:
            problems.append(f"{name}: the mount does not recover: {again}")
            break
        time.sleep(0.1)
    log(f"{name}: {outcome} after {took:.2f} s and {state['hits']} Calls, "
        f"well again {time.monotonic() - began:.2f} s later"
        + (f", {' '.join(sorted(set(state['notes'])))}" if state["notes"] else ""))


def umount(path, before, problems):
    """Unmounts; the transport has to be gone soon."""
    began = time.monotonic()
    check(LIBC.umount2(path.encode(), 0) == 0, f"umount: {is_errno(ctypes.get_errno())}")
    took = time.monotonic() - began
    try:
        wait_for("release of the transport", 60, lambda: module_refs() == before)
    except Failure as e:
        problems.append(str(e))
    return took


def host_authentication(mode):
    """What the next mounts ask of the server."""
    for name, value in (("host_auth_key", "5a" * 32), ("client_host_auth", mode)):
        with open(f"/sys/module/rpcrdma/parameters/{name}", "w", encoding="ascii") as f:
            f.write(value)


def forget():
    """The client asks every server anew which version it speaks."""
    if os.environ.get("VARIANT") == "two":
        with open("/sys/module/rpcrdma/parameters/client_version", "w", encoding="ascii") as f:
            f.write("2")


def first_message(name, path, before, problems):
    """A case about the first message of the server: a mount of its own, and a good one afterwards."""
    remote_call("set_case", name=name, procedure="")
    # The server has no key, so nothing that it says is a proof.
    required = name.startswith("first_required_")
    host_authentication("require" if required else "off")
    forget()
    began = time.monotonic()
    try:
        mount(path)
        outcome, _ = attempt(getattr_, path)
    except Failure as e:
        outcome = str(e).rsplit(" ", 1)[-1]
    took = time.monotonic() - began
    # Without a mount the transport may be about to go, and its files with it.
    states = glob.glob("/sys/kernel/debug/rpcrdma/[0-9]*/state") if os.path.ismount(path) else []
    spoken = [read_file(f) for f in states]
    spoken = [line for text in spoken for line in text.splitlines() if line.startswith("version")]
    hits = remote_call("set_case", name="", procedure="")["hits"]
    if not hits:
        problems.append(f"{name}: the server was never asked")
    if took > 2 * BOUND * slowness():
        problems.append(f"{name}: took {took:.0f} s")
    if required and (outcome == "ok" or os.path.ismount(path)):
        problems.append(f"{name}: mounted, {outcome}")
    if os.path.ismount(path):
        umount(path, before, problems)
    host_authentication("off")
    wait_for("the end of the transport", 60, lambda: module_refs() == before)
    mount(path)
    if attempt(getattr_, path)[0] != "ok":
        problems.append(f"{name}: the next mount does not work")
    umount(path, before, problems)
    log(f"{name}: {outcome} after {took:.2f} s, {' '.join(spoken)}")


def small(path, problems):
    """A WRITE that fits the server's Receives, but is too long for what it told (RFC 8166, 3.3.3)."""
    fd = os.open(f"{path}/d1501", os.O_WRONLY | os.O_DIRECT)
    if os.write(fd, pattern(("written", 1501), 1501)) != 1501:
        problems.append("a short WRITE")
    os.close(fd)
    problems += remote_call("set_case", name="", procedure="")["notes"]


def crowd(path, problems):
    """Many READs at once, of which no more are sent than there are credits.

    First with connections that end before the first Reply: RFC 8166, 3.3.3. Then with credits in
    messages that may be Replies or not: RFC 8167, 4.1. Then with a grant that shrinks: 3.3.1.
    """
    fd = os.open(f"{path}/d{READ}", os.O_RDONLY | os.O_DIRECT)

    def reads(count):
        memory = mmap.mmap(-1, 131072)
        for _ in range(count):
            try:
                os.preadv(fd, [memory], 0)
            except OSError as e:
                return is_errno(e.errno)
        return "ok"

    for name, count in (("closed_read", 1), ("credits_of_nobody", 1), ("credits_few", 12)):
        remote_call("set_case", name=name, procedure="READ")
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            outcomes = list(threads.map(reads, [count] * 8))
        state = remote_call("set_case", name="", procedure="")
        log(f"eight times {name}: {', '.join(outcomes)}, {state['hits']} Calls")
        if state["hits"] < 2 or (name == "credits_few" and outcomes != ["ok"] * 8 and not slow()):
            problems.append(f"eight times {name}: {state['hits']} Calls: {outcomes}")
        problems += [f"eight times {name}: {note}" for note in state["notes"]]
        wait_for("recovery", BOUND * slowness(), lambda: attempt(read, path)[0] == "ok")
    os.close(fd)


def killed(path, problems):
    """A process is killed while it waits for a READ; its memory is closed by the time it is gone (RFC 8166, 4.4.1)."""
    name = "rdma_write_killed"
    remote_call("set_case", name=name, procedure="READ")
    pid = os.fork()
    if pid == 0:
        # The server has the Call, and answers never.
        try:
            read(path)
        finally:
            os._exit(0)
    time.sleep(0.3 * slowness())
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    _, how = os.waitpid(pid, 0)
    took = time.monotonic() - began
    state = remote_call("set_case", name="", procedure="")
    log(f"{name}: gone after {took:.2f} s, {state['hits']} Calls, {state['notes']}")
    if not os.WIFSIGNALED(how) or not state["hits"]:
        problems.append(f"{name}: the process was not killed while it waited")
    if "refused" not in state["notes"] or "accepted" in state["notes"]:
        problems.append(f"{name}: the memory of a process that was killed was open")
    wait_for("recovery", BOUND * slowness(), lambda: attempt(read, path)[0] == "ok")


def client():
    """All cases, or those named in `$CASES`."""
    # Only the names are needed here, not the verbs.
    two = os.environ.get("VARIANT") == "two"
    if two:
        from hostile_two_cases import CASES, FIRST
    else:
        from hostile_cases import CASES
        FIRST = {}
    path = f"{ROOT}/hostile"
    before = module_refs()
    mount(path)
    problems = []
    if not two:
        small(path, problems)
        crowd(path, problems)
        killed(path, problems)
    wanted = os.environ.get("CASES", "").split()
    if not wanted:
        wanted = [name for name in CASES if rounds() > 1 or name not in THOROUGH] + list(FIRST)
    # That is more than an operation, and was done.
    wanted = [name for name in wanted if name != "rdma_write_killed"]
    for name in wanted:
        if name in CASES:
            one(name, CASES[name], path, problems)
    log(f"unmounted in {umount(path, before, problems):.2f} s")
    for name in wanted:
        if name in FIRST:
            first_message(name, path, before, problems)
    check(not problems, f"{len(problems)} of {len(wanted)} cases:\n  " + "\n  ".join(problems))
    log(f"{len(wanted)} cases")


main(client, server)
