# SPDX-License-Identifier: GPL-2.0
"""What ssh does, between two guests: runs a command in the other one.

As a program it takes a command and forwards its own input; its status is that of the command.
"""

import os
import socket
import struct
import subprocess
import sys
import threading

PORT = 7781


def serve_one(connection):
    """The command is the first line; then its input follows.

    Its output goes back in pieces, each behind its length; behind a length of 0 is its status.
    """
    with connection:
        line = b""
        while not line.endswith(b"\n"):
            octet = connection.recv(1)
            if not octet:
                return
            line += octet
        with subprocess.Popen(["bash", "-c", line.decode().rstrip("\n")], stdin=connection,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            while data := os.read(process.stdout.fileno(), 65536):
                connection.sendall(struct.pack("!I", len(data)) + data)
        connection.sendall(struct.pack("!II", 0, process.returncode & 0xff))


def serve():
    """Serves for ever, in threads."""
    listener = socket.create_server(("", PORT))
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_one, args=(connection,), daemon=True).start()


def forward(connection):
    """The input of this program becomes that of the command."""
    while data := os.read(0, 65536):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def main():
    """Runs the command of the arguments."""
    with socket.create_connection((os.environ["PEER_ADDR"], PORT)) as connection:
        connection.sendall(" ".join(sys.argv[1:]).replace("\n", " ").encode() + b"\n")
        threading.Thread(target=forward, args=(connection,), daemon=True).start()
        with connection.makefile("rb") as f:
            while length := struct.unpack("!I", f.read(4))[0]:
                os.write(1, f.read(length))
            code = struct.unpack("!I", f.read(4))[0]
    os._exit(code)


if __name__ == "__main__":
    main()
