# SPDX-License-Identifier: GPL-2.0
"""The headers of RPC messages and of errors in the protocol of 2016 (draft-cel-nfsv4-rpcrdma-version-two-01, 4.2): those of
Version One with another number, and with the direction before the chunk lists."""

import struct

from rpcrdma_header import ERROR

#: rdma_direction.
CALL, REPLY = 0, 1


def turned(data, direction=REPLY):
    """A message of Version One as one of this protocol."""
    data = bytes(data)
    if len(data) < 16:
        return data
    version, procedure = (struct.unpack_from(">I", data, at)[0] for at in (4, 12))
    version = {1: 2, 2: 1}.get(version, version)
    word = b"" if procedure == ERROR else struct.pack(">I", direction)
    return data[:4] + struct.pack(">I", version) + data[8:16] + word + data[16:]


def turned_back(data):
    """A message of this protocol, which is no OPTIONAL message, as one of Version One."""
    lists = 16 if data[12:16] == struct.pack(">I", ERROR) else 20
    return data[:4] + struct.pack(">I", 1) + data[8:16] + data[lists:]
