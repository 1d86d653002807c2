#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# What was done once is not done again when its Call comes a second time over another connection.
# mode: pair
# server: ours
# fabrics: rxe
# soak-fabrics: rxe siw
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep
# timeout: 120 300
"""nfsd's cache of Replies knows a client by its address and port, and a client that connects anew
has another port: the server leaves that out."""

import struct
import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import check, children, log, remote, wait_for  # noqa: E402
from nfs_server import EXPORT  # noqa: E402

#: Procedures of NFSv3.
MKDIR, REMOVE = 9, 12
#: A mode, and nothing else, of a new directory.
MODE = struct.pack(">IIIIIII", 1, 0o755, 0, 0, 0, 0, 0)
#: By procedure: its name, its last arguments, what makes it possible both times, what tells that it
#: was not done a second time, and the status of the same Call as a new one.
CALLS = {
    MKDIR: ("MKDIR", MODE, "true", "test -d {}", 17),
    REMOVE: ("REMOVE", b"", "touch {}", "test -f {}", 0),
}


def ports():
    """The ports of the server's clients."""
    text = remote("cat /sys/kernel/debug/rpcrdma/server/*/state", ok=None)
    return {line for line in text.splitlines() if line.startswith("port: ")}


def hits():
    """How many Calls were answered from the cache."""
    return int(remote("grep 'cache hits' /proc/fs/nfsd/reply_cache_stats").split()[-1])


def exported(connection):
    """The file handle of the export's root, which is the same in all versions of NFS."""
    from hostile_caller import XIDS
    from rpc_message import GETFH, compound, operation, read_result, to_file

    xid = next(XIDS)
    answer = connection.request(xid, compound(xid, *to_file("export"), operation(GETFH)))
    check(answer and answer.kind == "reply", f"GETFH: {answer and answer.kind}")
    status, rest = read_result(answer.accepted()[1])
    check(status == 0, f"GETFH: status {status}")
    return rest[4:4 + struct.unpack_from(">I", rest)[0]]


def status(connection, xid, rpc):
    """The status that a Call of NFSv3 returns."""
    answer = connection.request(xid, rpc)
    check(answer and answer.kind == "reply", f"{answer and answer.kind} in place of a Reply")
    stat, results = answer.accepted()
    check(stat == 0, f"accept status {stat}")
    return struct.unpack_from(">I", results)[0]


def again(label, connect, reconnect):
    """Each of the Calls on one connection, and then on another one."""
    from hostile_caller import XIDS
    from nfs3_mini import opaque
    from rpc_message import rpc_call

    for procedure, (name, rest, prepare, kept, repeated) in CALLS.items():
        file = f"{name}.{label}"
        prepare, kept = prepare.format(f"{EXPORT}/{file}"), kept.format(f"{EXPORT}/{file}")
        first = connect()
        arguments = opaque(exported(first)) + opaque(file.encode()) + rest

        def call():
            xid = next(XIDS)
            return xid, rpc_call(xid, 3, procedure, arguments)

        remote(prepare)
        message = call()
        check(status(first, *message) == 0, f"{file}: not done")
        before = ports()
        # While the first one is there, it can't have the same port.
        second = reconnect()
        wait_for(f"another port than {before}", 10, lambda before=before: ports() - before)
        first.close()
        remote(prepare)
        answered = hits()
        got = status(second, *message)
        check(got == 0, f"{file}: status {got} the second time")
        check(hits() == answered + 1, f"{file}: the Reply is not from the cache")
        remote(kept)
        # Not because of what it says: as another transaction it is another Call.
        got = status(second, *call())
        check(got == repeated, f"{file}: status {got} as a new Call")
        check(hits() == answered + 1, f"{file}: a new Call was answered from the cache")
        second.close()
        log(f"{name}, {label}: done once")


def replays():
    """A client that speaks Version One, one of Version Two, and one that has changed."""
    from hostile_caller import Caller
    from hostile_two_caller import TwoCaller

    def two():
        return TwoCaller().open()

    for label, connect, reconnect in (("one", Caller, Caller), ("two", two, two),
                                      ("changed", two, Caller)):
        again(label, connect, reconnect)


def client():
    """pyverbs frees its objects in no safe order, so not in this process."""
    remote("mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")
    children(replays, limit=100)


main(client)
