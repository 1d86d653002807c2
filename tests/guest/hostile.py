#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A hostile server in user space: malformed, foreign, late and missing Replies.
# mode: pair
# light: yes
# server: none
# fabrics: rxe
# variants-rxe: one two 2016
# soak-fabrics: rxe siw hca
# smoke-variants: one
# soak-smoke-variants: one two 2016
# soak-variants: one two 2016
# soak-variants-hca: one@ours-ours two@ours-ours 2016@ours-ours
# kernels: uml
# smoke: uml-sanitize
# soak-smoke: uml-sanitize debug
# timeout: 400 1800
# rounds: 1 2
"""Every case ends in an error for its RPC or in a dropped connection, never in a hang.

The variant `two` does it in Version Two, the variant `2016` in the protocol of 2016."""

import concurrent.futures
import ctypes
import glob
import mmap
import os
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, "tests/lib")
import nfs_server  # noqa: E402,F401 - the frame imports it
from case import main  # noqa: E402
from common import (Failure, LIBC, ROOT, check, drop_caches, fabric, is_errno,  # noqa: E402
                    log, module_refs, mount_raw, pattern, read as read_file, remote_call,
                    is_timed, rnr_counters, rounds, slow, slowness, wait_for, watchdog)
from hostile_operations import (OPERATIONS, READ, attempt, getattr_, mount_options,  # noqa: E402
                                read, read_few, readdir, write_few)

#: How long one system call may take, and how long until the mount works again.
BOUND = 45
#: How long the end of a process may take whose server never has a Receive.
HELD = 30
#: After which time the client connects anew, in tenths of a second.
TIMEOUT = 10 if os.environ.get("VARIANT") in ("two", "2016") and not slow() else 20
#: After how many seconds an RPC without a Reply fails, having been sent twice: see `mount`.
FAILS_AFTER = 2 * TIMEOUT / 10


#: Cases much like others, which need the client's patience: for `make soak`.
THOROUGH = {f"cut_at_{n}" for n in (1, 4, 12, 15, 16, 18, 20, 24, 32, 36, 51)} | {
    *(f"type_{n}" for n in (4, 6, 7, 9, 10, 11, 12)), "version_3", "xid_header_differs", "closed",
    "rdma_write_foreign", "rdma_read_foreign", "rest_less", "rest_changes", "part_twice",
    "error_between", "error_cut",
    "version_0", "version_9", "invalidate_zero", "reply_chunk_short", "rdma_write_beyond_reply",
    "credits_none_for_ever", "credits_too_far", "version_4294967295", "type_1", "type_8", "type_14", "type_4294967295",
    "rest_odd", "rest_all", "rest_long", "parts_turned", "part_empty", "credits_behind",
    "write_error_7", "write_error_9", "readdir_error_6", "readdir_error_7", "error_5_always",
    "error_100_always", "first_vers_two", "first_version_7", "first_middles", "first_no_credits"}
#: Cases in which the client is given no more credits, and after how long it connects anew, in seconds.
STARVING, STARVED = {"credits_none_for_ever", "credits_behind", "credits_too_far"}, 90
#: Cases in which a Call that was executed is refused: it comes once.
ONCE = {"write_error_9", "write_error_10"}
#: Cases through which the connection lasts, with what is done afterwards.
LASTS = {"credits_none_for_a_while"}
#: Cases in which an error makes the client choose another form for the same Call: what the second
#: Call has, and has not.
FORMS = {
    "refuse_read_chunks": ({"call-chunk"}, {"read-chunk"}),
    "refuse_write_chunks": ({"reply-chunk"}, {"write-chunk"}),
    "refuse_padding": ({"reply-chunk"}, {"write-chunk"}),
    "refuse_long_reply": ({"reply-chunk"}, set()),
    "refuse_call_segments": ({"many segments", "call in parts"}, {"read-chunk"}),
    "refuse_reply_segments": ({"many segments"}, {"write-chunk"}),
}


def server():
    """The server guest."""
    import hostile_server
    hostile_server.main()


def mount(path, timeo=TIMEOUT, how="soft"):
    """Mounts with every port named, since the server has no rpcbind."""
    peer = os.environ["PEER_ADDR"]
    mount_raw(f"{peer}:/", path, f"addr={peer},{mount_options(peer, timeo, how)}")


#: Cases in which the client has to end the connection, at once.
ENDS = {"reverse_errors_wait", *(f"invalidate_with_{n}" for n in
                                 ("grant", "properties", "middle", "call", "error", "stray"))}
#: What the server tells of the segments that it takes, and what still has to work: READ and WRITE have 70,000 and 50,000
#: octets, and a chunk for either. Without segments all travels in parts.
SEGMENTS = {"first_short_segments": ("READ", "WRITE"), "first_shortest_segments": ("WRITE", "READLINK"),
            # In the protocol of 2016: the sizes of Receives, and what there is without operations.
            **dict.fromkeys(("first_receives_of_512", "first_receives_of_any_size", "first_twice",
                             "first_without_operations", "first_nothing_told"),
                            ("READ", "WRITE", "READDIR", "READLINK", "SHORT WRITE")),
            "first_one_segment": ("READ", "WRITE"), "first_no_segment": ("SHORT WRITE", "READLINK")}
#: What the server sees of a WRITE that has both.
BOTH = "a call chunk and a read chunk"
#: What has to work where the server tells that its Receives are short, and what it has to see.
SHORT = {"first_short_receives": (("WRITE", "READ", "READDIR", "READLINK", "SHORT WRITE"),
                                  {"call in parts and a read chunk"}),
         "first_short_receive": (("WRITE", "READ", "READDIR", "READLINK", "SHORT WRITE"), {BOTH}),
         "first_short_receive_invalidated": (("WRITE", "READ", "WRITE"), {BOTH}),
         "first_short_receive_refused": (("WRITE", "WRITE", "READ"), {BOTH, "a call chunk alone"}),
         "first_short_receive_lost": (("WRITE", "WRITE", "READ"), {BOTH, "lost"}),
         "first_short_receive_late": (("WRITE", "WRITE", "WRITE"), {BOTH, "refused"})}

#: Cases in which the client has no reason to wait for an answer, and within how many seconds all has to be done.
QUICK = {"first_dropped": 4}
#: Cases that depend on what comes first, and how often they are done.
RACES = {"first_dropped": 8}

#: Cases with another operation than the one of that name.
SPECIAL = {"refuse_call_segments": write_few, "refuse_reply_segments": read_few}


def one(name, case, path, problems):
    """One case, and a correct operation after it."""
    operation = SPECIAL.get(name, OPERATIONS[case.procedure])
    before = remote_call("set_case", name=name, procedure=case.procedure)
    # The mount is a soft one: on a slow or busy machine it may give up before a good Reply arrives.
    tries = 3 if (slow() or not is_timed()) and case.expect == "ok" else 1
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
    # A busy machine may take that long to answer.
    if case.expect == "at once" and is_timed() and took >= FAILS_AFTER and state["hits"] > 1:
        problems.append(f"{name}: failed after {took:.2f} s only, asked {state['hits']} times")
    if case.expect == "data" and outcome not in ("ok", "short"):
        problems.append(f"{name}: {outcome}, but there were data")
    # There it may also have sent the Call again on another connection.
    if name in ONCE and state["hits"] != 1 and is_timed() and not slow():
        problems.append(f"{name}: the Call came {state['hits']} times")
    problems += [f"before {name}: {note}" for note in before["notes"] if note.startswith("wrong")]
    problems += [f"{name}: {note}" for note in state["notes"] if note.startswith("wrong")]
    if took > BOUND * watchdog():
        problems.append(f"{name}: took {took:.0f} s")
    wanted, unwanted = FORMS.get(name, (set(), set()))
    seen = set(state["notes"])
    # Its server may notice later than that of the next connection gets the Call again, for which it
    # is too soon else.
    if name in ENDS and "ended" not in seen and not (state["hits"] > 1 and took < slowness()):
        problems.append(f"{name}: the connection goes on")
    if not wanted <= seen or unwanted & seen or (wanted and "again" not in seen):
        problems.append(f"{name}: the Call that came again: {seen}")
    if name == "rdma_write_offered":
        check("accepted" in state["notes"], "a proper RDMA Write was refused")
    elif "accepted" in state["notes"]:
        problems.append(f"{name}: the client's memory was open")
    began = time.monotonic()
    bound = (STARVED if name in STARVING else BOUND) * watchdog()
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
    if name in LASTS:
        after = remote_call("set_case", name="", procedure="")
        problems += [f"{name}: {note}" for note in after["notes"] if note.startswith("wrong")]
        if after["connections"] != before["connections"] and not slow():
            problems.append(f"{name}: another connection")
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


def versions():
    """What the transports there are speak, as debugfs shows it."""
    states = glob.glob("/sys/kernel/debug/rpcrdma/[0-9]*/state")
    lines = [line for f in states for line in read_file(f).splitlines()]
    return [line.partition(": ")[2] for line in lines if line.startswith("version: ")]


def forget():
    """The client asks every server anew which version it speaks."""
    if os.environ.get("VARIANT") in ("two", "2016"):
        with open("/sys/module/rpcrdma/parameters/client_version", "w", encoding="ascii") as f:
            f.write("2")


def first_message(name, case, path, before, problems):
    """A case about the first message of the server: a mount of its own, and a good one afterwards."""
    remote_call("set_case", name=name, procedure="")
    # The server has no key, so nothing that it says is a proof.
    required = name.startswith("first_required_")
    host_authentication("require" if required else "off")
    forget()
    began = time.monotonic()
    try:
        # Patience for a client that waits for an answer itself.
        mount(path, 150 if case.expect == "ok" else TIMEOUT)
        outcome, _ = attempt(getattr_, path)
    except Failure as e:
        outcome = str(e).rsplit(" ", 1)[-1]
    took = time.monotonic() - began
    operations, seen = SHORT.get(name, (SEGMENTS.get(name, ()), set()))
    for wanted in operations:
        got = attempt(OPERATIONS[wanted], path)[0] if outcome == "ok" else outcome
        if got != "ok":
            problems.append(f"{name}: {wanted}: {got}")
    # Without a mount the transport may be about to go, and its files with it.
    spoken = versions() if os.path.ismount(path) else []
    if case.expect != "any" and outcome != case.expect and (case.expect, outcome == "ok") != ("error", False):
        problems.append(f"{name}: {outcome} in place of {case.expect}")
    if case.version and spoken != [str(case.version)]:
        problems.append(f"{name}: version {spoken} in place of {case.version}")
    state = remote_call("set_case", name="", procedure="")
    problems += [f"{name}: {note}" for note in state["notes"] if note.startswith("wrong")]
    if not seen <= set(state["notes"]):
        problems.append(f"{name}: the server has seen {set(state['notes'])}")
    if not state["hits"]:
        problems.append(f"{name}: the server was never asked")
    if took > QUICK.get(name, 2 * BOUND) * watchdog():
        problems.append(f"{name}: took {took:.1f} s")
    if required and (outcome == "ok" or os.path.ismount(path)):
        problems.append(f"{name}: mounted, {outcome}")
    if os.path.ismount(path):
        umount(path, before, problems)
    host_authentication("off")
    wait_for("the end of the transport", 60, lambda: module_refs() == before)
    forget()
    mount(path)
    if attempt(getattr_, path)[0] != "ok":
        problems.append(f"{name}: the next mount does not work")
    if versions() != ["2"]:
        problems.append(f"{name}: the next mount speaks {versions()}")
    umount(path, before, problems)
    log(f"{name}: {outcome} after {took:.2f} s, version {' '.join(spoken)}"
        + (f", {' '.join(sorted(set(state['notes'])))}" if name in SHORT else ""))


def hard(path, before, problems):
    """A hard mount, and a Reply that ends each connection: the RPC ends as well, and not only with its process."""
    mount(path, how="hard")
    remote_call("set_case", name="spoilt_for_ever", procedure="GETATTR")
    began = time.monotonic()
    with subprocess.Popen(["stat", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            if process.wait(BOUND * watchdog()) == 0:
                problems.append("a hard mount: accepted")
        except subprocess.TimeoutExpired:
            process.kill()
            problems.append("a hard mount: the RPC does not end")
    took = time.monotonic() - began
    hits = remote_call("set_case", name="", procedure="")["hits"]
    wait_for("recovery of the hard mount", BOUND, lambda: attempt(getattr_, path)[0] == "ok")
    umount(path, before, problems)
    log(f"a hard mount: the RPC ended after {took:.2f} s and {hits} Calls")


def in_process(operation, path):
    """Begins an operation in a process of its own, and returns its id."""
    pid = os.fork()
    if pid == 0:
        try:
            operation(path)
        finally:
            os._exit(0)
    return pid


def never_received(path, before, problems):
    """A process is killed whose READDIR never finds a Receive: it is gone soon, though no RPC times out.

    What fences its Reply chunk is behind the Send, which the device repeats for as long as the server wants.
    """
    from hostile_qp import DEPTH
    name = "never_received"
    mount(path, 600, "hard")
    remote_call("set_case", name=name, procedure="READDIR")
    missing = rnr_counters()[0]
    pid = in_process(readdir, path)
    wait_for("a message without a Receive", BOUND, lambda: rnr_counters()[0] > missing)
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    is_gone = select.select([os.pidfd_open(pid)], [], [], HELD * watchdog())[0]
    check(is_gone, f"{name}: the process is not gone after {HELD * watchdog()} s")
    took = time.monotonic() - began
    _, how = os.waitpid(pid, 0)
    state = remote_call("set_case", name="", procedure="")
    log(f"{name}: gone after {took:.2f} s, {state['hits']} Calls")
    # All Receives there were have been used for it, so what found none was one as well.
    if not os.WIFSIGNALED(how) or state["hits"] != DEPTH + 1:
        problems.append(f"{name}: the process was not killed while a READDIR waited: {state['hits']} Calls")
    wait_for("recovery", BOUND, lambda: attempt(read, path)[0] == "ok")
    umount(path, before, problems)


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
        if state["hits"] < 2 or (name == "credits_few" and outcomes != ["ok"] * 8 and is_timed() and not slow()):
            problems.append(f"eight times {name}: {state['hits']} Calls: {outcomes}")
        problems += [f"eight times {name}: {note}" for note in state["notes"]]
        wait_for("recovery", BOUND, lambda: attempt(read, path)[0] == "ok")
    os.close(fd)


def killed(path, problems):
    """A process is killed while it waits for a READDIR; what it was to be read into is closed by the time it is gone (RFC
    8166, 4.4.1). A READ of a process that is killed goes on, and its memory stays pinned until it ends."""
    name = "rdma_write_killed"
    drop_caches()
    remote_call("set_case", name=name, procedure="READDIR")
    # The server has the Call, and answers never. The Call fails a second or more later.
    pid = in_process(readdir, path)
    time.sleep(3 if slow() else 0.8)
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
    wait_for("recovery", BOUND, lambda: attempt(read, path)[0] == "ok")


def client():
    """All cases, or those named in `$CASES`."""
    # Only the names are needed here, not the verbs.
    two = os.environ.get("VARIANT") == "two"
    if two:
        from hostile_two_cases import CASES, FIRST
    elif os.environ.get("VARIANT") == "2016":
        from hostile_2016 import CASES, FIRST
    else:
        from hostile_cases import CASES
        FIRST = {}
    path = f"{ROOT}/hostile"
    before = module_refs()
    mount(path)
    problems = []
    if not two and os.environ.get("VARIANT") != "2016":
        small(path, problems)
        crowd(path, problems)
        killed(path, problems)
    wanted = os.environ.get("CASES", "").split()
    if not wanted:
        wanted = [name for name in CASES if rounds() > 1 or name not in THOROUGH]
        wanted += [name for name in FIRST for _ in range(RACES.get(name, 1))]
    # That is more than an operation, and was done.
    wanted = [name for name in wanted if name != "rdma_write_killed"]
    for name in wanted:
        # This one has a mount of its own.
        if name in CASES and name != "never_received":
            one(name, CASES[name], path, problems)
    log(f"unmounted in {umount(path, before, problems):.2f} s")
    if "spoilt_for_ever" in wanted:
        hard(path, before, problems)
    # siw ends a connection if a message finds no Receive.
    if "never_received" in wanted and fabric() != "siw":
        never_received(path, before, problems)
    for name in wanted:
        if name in FIRST:
            first_message(name, FIRST[name], path, before, problems)
    check(not problems, f"{len(problems)} of {len(wanted)} cases:\n  " + "\n  ".join(problems))
    log(f"{len(wanted)} cases")


main(client, server, rnr="the server breaks its credits")
