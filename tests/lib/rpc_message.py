# SPDX-License-Identifier: GPL-2.0
"""RPC Calls to an NFS server (RFC 5531, RFC 7530, RFC 8881), and the headers that carry them."""

import struct

from nfs3_mini import NFS_PROGRAM, opaque
from rpcrdma_header import encode

#: Operations of a COMPOUND.
(DELEGRETURN, GETATTR, GETFH, LOOKUP, OPEN, PUTROOTFH, READ, WRITE, BIND_CONN_TO_SESSION,
 EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, SEQUENCE, DESTROY_CLIENTID, RECLAIM_COMPLETE) = (
     8, 9, 10, 15, 18, 24, 25, 38, 41, 42, 43, 44, 53, 57, 58)
#: An accept_stat.
GARBAGE_ARGS = 4
#: The stateid that needs no OPEN.
ANONYMOUS = bytes(16)


def auth_sys():
    """Credentials of root."""
    body = struct.pack(">I", 1) + opaque(b"hostile") + struct.pack(">III", 0, 0, 0)
    return struct.pack(">I", 1) + opaque(body) + struct.pack(">II", 0, 0)


def rpc_call(xid, version, procedure, arguments=b"", program=NFS_PROGRAM):
    """An RPC Call."""
    return struct.pack(">IIIIII", xid, 0, 2, program, version, procedure) + auth_sys() + arguments


def null_rpc(xid):
    """A NULL Call."""
    return rpc_call(xid, 4, 0)


def null_call(xid, **header):
    """A NULL Call with its transport header."""
    return encode(xid, **header) + null_rpc(xid)


def compound(xid, *operations, minor=0):
    """A COMPOUND with operations that are made already."""
    return rpc_call(xid, 4, 1, opaque(b"") + struct.pack(">II", minor, len(operations))
                    + b"".join(operations))


def operation(number, body=b""):
    """One operation."""
    return struct.pack(">I", number) + body


def to_file(*names):
    """The operations that make a file the current one."""
    return [operation(PUTROOTFH)] + [operation(LOOKUP, opaque(n.encode())) for n in names]


def read(offset, count):
    """READ."""
    return operation(READ, ANONYMOUS + struct.pack(">QI", offset, count))


def write(offset, length):
    """WRITE without its data, to be the last operation: the data follow."""
    return operation(WRITE, ANONYMOUS + struct.pack(">QII", offset, 2, length))


def getfh():
    """GETFH."""
    return operation(GETFH)


def symlink3(xid, directory, name, path):
    """SYMLINK of NFSv3 without its path, whose octets follow: RFC 1813, 3.3.10."""
    attributes = struct.pack(">IIIIII", 0, 0, 0, 0, 0, 0)
    return rpc_call(xid, 3, 10, opaque(directory) + opaque(name) + attributes
                    + struct.pack(">I", len(path)))


def getattr_():
    """GETATTR of type and size."""
    return operation(GETATTR, struct.pack(">II", 1, (1 << 1) | (1 << 4)))


def read_result(results):
    """Of the results of a COMPOUND that ends with READ: the status and what follows it.

    What follows is `eof` and the data, or the length of the data if those are in a chunk.
    """
    status, tag = struct.unpack_from(">II", results)
    at = 8 + tag + -tag % 4
    count = struct.unpack_from(">I", results, at)[0]
    at += 4
    for _ in range(count - 1):
        # PUTROOTFH and LOOKUP return their status only.
        at += 8
    return status, results[at + 8:]


def moved(results, reduced):
    """How much each READ and WRITE of a COMPOUND has moved, and the data in its results.

    The data of the first `reduced` READs are in chunks.
    """
    status, tag = struct.unpack_from(">II", results)
    if status:
        raise ValueError(f"status {status}")
    at = 8 + tag + -tag % 4
    (count,) = struct.unpack_from(">I", results, at)
    at += 4
    found = []
    for _ in range(count):
        (number,) = struct.unpack_from(">I", results, at)
        at += 8
        if number == SEQUENCE:
            at += 36
        elif number == GETATTR:
            for size in (4, 1):
                (length,) = struct.unpack_from(">I", results, at)
                at += 4 + size * length
        elif number == READ:
            (length,) = struct.unpack_from(">I", results, at + 4)
            at += 8
            data = b""
            if len(found) >= reduced:
                data = results[at:at + length]
                at += length + -length % 4
            found.append((length, data))
        elif number == WRITE:
            found.append((struct.unpack_from(">I", results, at)[0], b""))
            at += 16
    if at != len(results):
        raise ValueError(f"{len(results)} octets, not {at}")
    return found
