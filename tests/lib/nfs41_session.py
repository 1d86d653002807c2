# SPDX-License-Identifier: GPL-2.0
"""An NFSv4.1 session with a backchannel, made with Calls of one's own (RFC 8881)."""

import os
import struct

from common import check
from nfs3_mini import opaque
from rpc_message import (BIND_CONN_TO_SESSION, CREATE_SESSION, DELEGRETURN, EXCHANGE_ID, OPEN,
                         RECLAIM_COMPLETE, SEQUENCE, compound, operation, to_file)

#: CREATE_SESSION4_FLAG_CONN_BACK_CHAN.
BACKCHANNEL = 2
#: CDFC4_FORE_OR_BOTH.
BOTH_DIRECTIONS = 3
#: OPEN4_SHARE_ACCESS_READ and OPEN4_SHARE_ACCESS_WANT_READ_DELEG.
WANT_READ_DELEGATION = 1 | 0x100
#: OPEN_DELEGATE_READ.
READ_DELEGATION = 1


class Session:
    """A session that uses a connection for both directions.

    Its Calls and Replies have `size` octets at most.
    """

    def __init__(self, caller, xids, size=4096):
        self.caller, self.xids = caller, xids
        self.sequence = 0
        #: The stateid of the delegation that was granted last.
        self.delegation = None
        owner = os.urandom(8) + opaque(b"hostile " + os.urandom(8).hex().encode())
        results = self.compound(operation(EXCHANGE_ID, owner + struct.pack(">III", 0, 0, 0)))
        self.client, number = struct.unpack_from(">QI", results)
        channels = b"".join(struct.pack(">IIIIIII", 0, n, n, 4096, 16, 16, 0)
                            for n in (size, 4096))
        results = self.compound(operation(
            CREATE_SESSION, struct.pack(">QII", self.client, number, BACKCHANNEL) + channels
            + struct.pack(">III", 0x40000000, 1, 0)))
        self.id = results[:16]
        check(struct.unpack_from(">II", results, 16)[1] & BACKCHANNEL,
              "the server wants no backchannel over this connection")
        self.sequenced(operation(RECLAIM_COMPLETE, struct.pack(">I", 0)))

    def compound(self, *operations):
        """A COMPOUND that must succeed; returns the results of its first operation."""
        xid = next(self.xids)
        return self.done(xid, compound(xid, *operations, minor=1))

    def done(self, xid, rpc):
        """The same, with a COMPOUND that is made already."""
        answer = self.caller.request(xid, rpc)
        check(answer is not None and answer.kind == "reply",
              f"a COMPOUND is not answered: {answer and answer.kind}")
        stat, results = answer.accepted()
        status, tag = struct.unpack_from(">II", results)
        check(stat == 0 and status == 0, f"a COMPOUND fails: {stat}, {status}")
        return results[8 + tag + -tag % 4 + 12:]

    def call(self, *operations):
        """Makes a COMPOUND in the session; returns its transaction ID and its RPC message."""
        self.sequence += 1
        xid = next(self.xids)
        return xid, compound(xid, operation(SEQUENCE, self.id + struct.pack(
            ">IIII", self.sequence, 0, 0, 0)), *operations, minor=1)

    def sequenced(self, *operations):
        """The same, with operations that are to be made a COMPOUND in the session."""
        return self.done(*self.call(*operations))

    def open(self, directory, name):
        """Opens a file for reading, and asks for a delegation; returns whether there is one."""
        owner = struct.pack(">Q", self.client) + opaque(b"nobody")
        results = self.sequenced(*to_file(*directory), operation(OPEN, struct.pack(
            ">III", 0, WANT_READ_DELEGATION, 0) + owner + struct.pack(">II", 0, 0)
            + opaque(name.encode())))
        # Behind the results of SEQUENCE, and operation and status of what leads to the directory.
        at = 36 + 8 * len(to_file(*directory))
        check(struct.unpack_from(">II", results, at) == (OPEN, 0), "no results of OPEN")
        # A stateid, change_info4 and rflags, then a bitmap.
        at += 8 + 16 + 20 + 4
        at += 4 + 4 * struct.unpack_from(">I", results, at)[0]
        if struct.unpack_from(">I", results, at)[0] != READ_DELEGATION:
            return False
        self.delegation = results[at + 4:at + 20]
        return True

    def bind(self, caller):
        """Uses another connection for both directions, too, and for its Calls from now on."""
        self.caller = caller
        self.compound(operation(BIND_CONN_TO_SESSION,
                                self.id + struct.pack(">II", BOTH_DIRECTIONS, 0)))

    def give_back(self, directory, name):
        """Returns the last delegation, which is that of this file."""
        self.sequenced(*to_file(*directory, name), operation(DELEGRETURN, self.delegation))
