# SPDX-License-Identifier: GPL-2.0
"""A very small NFSv3 server: RFC 1813 without a file system behind it."""

import socket
import struct
import threading

from common import pattern

NFS_PROGRAM, MOUNT_PROGRAM = 100003, 100005
NAMES = {0: "NULL", 1: "GETATTR", 2: "SETATTR", 3: "LOOKUP", 4: "ACCESS", 5: "READLINK",
         6: "READ", 7: "WRITE", 16: "READDIR", 17: "READDIRPLUS", 18: "FSSTAT", 19: "FSINFO",
         20: "PATHCONF", 21: "COMMIT"}
#: The file handle of the root directory; other handles are the file's name.
ROOT_HANDLE = b"/root/"
#: How many names the root directory has.
ENTRIES = 300


def opaque(data):
    """Variable-length opaque data."""
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def contents(length):
    """What the file `d<length>` holds."""
    return pattern(("hostile", length), length)


class Answer:
    """The result of a Call.

    `head` is the RPC header and the results up to the payload, `payload` what may
    move through a Write chunk, and the results end with its XDR pad. `most` is the
    longest payload that the Call may have as its result.
    """

    def __init__(self, procedure, head, payload=None, most=None):
        self.procedure, self.head, self.payload, self.most = procedure, head, payload, most

    def misfit(self, writes):
        """What is wrong with the Write chunk that is offered for the payload, or nothing.

        It has room for the longest one (RFC 8166 3.4.6; version-two-07 4.5.2), and none for padding
        (3.4.6.2; 4.5.2.4).
        """
        if self.most is None or not writes:
            return ""
        room = sum(length for _, length, _ in writes[0])
        return "" if room == self.most else f"a Write chunk of {room} octets for {self.most}"

    def inline(self):
        """The whole message."""
        if self.payload is None:
            return self.head
        return self.head + self.payload + bytes(-len(self.payload) % 4)


class Nfs3:
    """The procedures; a file handle is the file's name."""

    def __init__(self):
        self.written = {}

    @staticmethod
    def attributes(name):
        """fattr3: a directory, a file `d<length>`, or a link `l<length>`."""
        kind, size = {"": 2}.get(name, 1), 4096
        if name[:1] == "l":
            kind, size = 5, int(name[1:])
        elif name:
            size = int(name[1:])
        ident = 2 + (hash(name) & 0x7FFFFFFF)
        return struct.pack(">IIIIIQQIIQQIIIIII", kind, 0o777, 2 if kind == 2 else 1, 0, 0, size,
                           size, 0, 0, 77, ident, 1000, 0, 1000, 0, 1000, 0)

    def post(self, name):
        """post_op_attr."""
        return struct.pack(">I", 1) + self.attributes(name)

    def answer(self, message):
        """The answer to a Call, or None to something that is no Call."""
        xid, kind, version, program, _, procedure = struct.unpack_from(">IIIIII", message)
        if kind != 0 or version != 2:
            return None
        at = 24
        for _ in range(2):
            (n,) = struct.unpack_from(">I", message, at + 4)
            at += 8 + n + -n % 4
        head = struct.pack(">IIIIII", xid, 1, 0, 0, 0, 0)
        name = NAMES.get(procedure, "?")
        if program != NFS_PROGRAM or name == "?":
            # PROC_UNAVAIL
            return Answer("?", head[:-4] + struct.pack(">I", 3))
        if procedure == 0:
            return Answer("NULL", head)
        handle, at = self.take(message, at)
        name_of = "" if handle == ROOT_HANDLE else handle.decode()
        results = getattr(self, "do_" + name.lower())(name_of, message, at)
        return Answer(name, head + results[0], *results[1:]) if isinstance(results, tuple) else Answer(
            name, head + results)

    @staticmethod
    def take(message, at):
        """Variable-length opaque data of the arguments, and where the next item is."""
        (n,) = struct.unpack_from(">I", message, at)
        return message[at + 4:at + 4 + n], at + 4 + n + -n % 4

    def do_getattr(self, name, _message, _at):
        """GETATTR."""
        return struct.pack(">I", 0) + self.attributes(name)

    def do_setattr(self, name, _message, _at):
        """SETATTR: everything is allowed and nothing happens."""
        return struct.pack(">II", 0, 0) + self.post(name)

    def do_lookup(self, _directory, message, at):
        """LOOKUP: a name whose letter and number make a file."""
        name = self.take(message, at)[0].decode()
        if name[:1] not in "dl" or not name[1:].isdigit():
            return struct.pack(">I", 2) + self.post("")
        return struct.pack(">I", 0) + opaque(name.encode()) + self.post(name) + self.post("")

    def do_access(self, name, message, at):
        """ACCESS: whatever was asked for."""
        return struct.pack(">I", 0) + self.post(name) + message[at:at + 4]

    def do_readlink(self, name, _message, _at):
        """READLINK: a target as long as the name says."""
        return struct.pack(">I", 0) + self.post(name) + opaque(b"t" * int(name[1:]))

    def do_read(self, name, message, at):
        """READ: the payload may move through a Write chunk."""
        offset, count = struct.unpack_from(">QI", message, at)
        whole = contents(int(name[1:]))
        data = whole[offset:offset + count]
        return (struct.pack(">I", 0) + self.post(name)
                + struct.pack(">III", len(data), int(offset + count >= len(whole)), len(data)),
                data, count)

    def do_write(self, name, message, at):
        """WRITE: remembers what it got."""
        offset, count, _ = struct.unpack_from(">QII", message, at)
        data, _ = self.take(message, at + 16)
        right = data == pattern(("written", len(data)), len(data)) and len(data) == count
        if not right:
            # NFS3ERR_IO tells the client's test that other octets arrived.
            return struct.pack(">III", 5, 0, 0)
        self.written[name] = offset + count
        return (struct.pack(">II", 0, 0) + self.post(name)
                + struct.pack(">IIQ", count, 2, 0x1234))

    def do_commit(self, name, _message, _at):
        """COMMIT."""
        return struct.pack(">II", 0, 0) + self.post(name) + struct.pack(">Q", 0x1234)

    def listing(self, message, at, plus):
        """READDIR and READDIRPLUS."""
        cookie, _, count = struct.unpack_from(">QQI", message, at)
        limit = count - 400
        out = struct.pack(">I", 0) + self.post("") + struct.pack(">Q", 0)
        n = cookie
        while n < ENTRIES:
            name = f"d{n}"
            entry = struct.pack(">IQ", 1, n + 2) + opaque(name.encode())
            entry += struct.pack(">Q", n + 1)
            if plus:
                entry += self.post(name) + struct.pack(">I", 1) + opaque(name.encode())
            if len(out) + len(entry) > limit:
                break
            out += entry
            n += 1
        return out + struct.pack(">II", 0, int(n >= ENTRIES))

    def do_readdir(self, _name, message, at):
        """READDIR."""
        return self.listing(message, at, False)

    def do_readdirplus(self, _name, message, at):
        """READDIRPLUS."""
        return self.listing(message, at, True)

    def do_fsstat(self, name, _message, _at):
        """FSSTAT."""
        return (struct.pack(">I", 0) + self.post(name)
                + struct.pack(">QQQQQQI", 1 << 30, 1 << 29, 1 << 29, 1000, 500, 500, 0))

    def do_fsinfo(self, name, _message, _at):
        """FSINFO: reads and writes of up to 1 MiB."""
        big = 1 << 20
        return (struct.pack(">I", 0) + self.post(name)
                + struct.pack(">IIIIIII", big, big, 4096, big, big, 4096, 65536)
                + struct.pack(">QIII", 1 << 40, 0, 1, 0x1B))

    def do_pathconf(self, name, _message, _at):
        """PATHCONF."""
        return (struct.pack(">I", 0) + self.post(name)
                + struct.pack(">IIIIII", 1000, 255, 1, 1, 0, 1))


def serve_mount(port):
    """The MOUNT protocol over TCP: every path leads to the root."""
    listener = socket.create_server(("", port), backlog=16)

    def serve(connection):
        with connection:
            while True:
                head = connection.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    return
                size = struct.unpack(">I", head)[0] & 0x7FFFFFFF
                message = connection.recv(size, socket.MSG_WAITALL)
                xid, _, _, _, version, procedure = struct.unpack_from(">IIIIII", message)
                reply = struct.pack(">IIIIII", xid, 1, 0, 0, 0, 0)
                if procedure == 1:
                    # MNT: the handle of the root; AUTH_SYS only.
                    reply += struct.pack(">I", 0) + opaque(ROOT_HANDLE) + struct.pack(">II", 1, 1)
                connection.sendall(struct.pack(">I", 0x80000000 | len(reply)) + reply)

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
