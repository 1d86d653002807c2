# SPDX-License-Identifier: GPL-2.0
"""A gssproxy that knows nobody: it writes down the tokens that it is shown, and refuses every request.

Of each token that begins with `MAGIC` it notes length and checksum, a line each, in `SEEN`.
"""

import hashlib
import os
import socket
import struct
import sys
import threading

SOCKET, SEEN = "/var/run/gssproxy.sock", "/run/gss-tokens"
#: What the tokens of the tests begin with.
MAGIC = b"a token of the hostile client:"


def receive(connection, count):
    """So many octets of a connection; raises `EOFError` at its end."""
    data = bytearray()
    while len(data) < count:
        part = connection.recv(min(count - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def note(request):
    """Writes down what token a request has."""
    at = request.find(MAGIC)
    (length,) = struct.unpack_from(">I", request, at - 4) if at >= 4 else (0,)
    with open(SEEN, "a", encoding="ascii") as f:
        f.write(f"{length} {hashlib.sha256(request[at:at + length]).hexdigest()}\n")


def serve(connection):
    """Answers what comes over one connection: PROC_UNAVAIL (RFC 5531)."""
    try:
        while True:
            request, last = b"", False
            while not last:
                (mark,) = struct.unpack(">I", receive(connection, 4))
                request, last = request + receive(connection, mark & 0x7FFFFFFF), mark >> 31
            note(request)
            connection.sendall(struct.pack(">I", 1 << 31 | 24) + request[:4]
                               + struct.pack(">IIIII", 1, 0, 0, 0, 3))
    except (EOFError, OSError):
        connection.close()


def main():
    """Serves for ever."""
    if os.path.exists(SOCKET):
        os.unlink(SOCKET)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen(8)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
