# SPDX-License-Identifier: GPL-2.0
"""Tells this guest's rpcbind where the NFS server listens for RDMA.

The server of Linux does not do so itself.
"""

import socket
import struct
import sys

#: RFC 1833: program and version of rpcbind, and its procedures.
RPCB_PROGRAM, RPCB_VERSION, RPCBPROC_SET = 100000, 4, 1
NFS_PROGRAM = 100003


def string(text):
    """An XDR string."""
    data = text.encode()
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def rpcb_set(program, version, netid, port):
    """RPCBPROC_SET over rpcbind's local socket; returns whether it was accepted."""
    address = ("::" if netid.endswith("6") else "0.0.0.0") + f".{port >> 8}.{port & 255}"
    # AUTH_SYS as root, which is what rpcbind wants from the owner of a service.
    credential = struct.pack(">I", 0) + string("test") + struct.pack(">III", 0, 0, 0)
    call = struct.pack(">IIIIIIII", 1, 0, 2, RPCB_PROGRAM, RPCB_VERSION, RPCBPROC_SET, 1,
                       len(credential)) + credential + struct.pack(">II", 0, 0)
    call += struct.pack(">II", program, version) + string(netid) + string(address)
    call += string("superuser")
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect("/run/rpcbind.sock")
        s.sendall(struct.pack(">I", 0x80000000 | len(call)) + call)
        reply = s.recv(1000)
    return struct.unpack(">I", reply[-4:])[0] == 1


if __name__ == "__main__":
    for v in (3, 4):
        if not rpcb_set(NFS_PROGRAM, v, sys.argv[1], int(sys.argv[2])):
            sys.exit(f"rpcbind refused version {v}")
