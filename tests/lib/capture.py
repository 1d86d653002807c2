# SPDX-License-Identifier: GPL-2.0
"""Frames of this guest's network, and what tshark with the dissector of tools/wireshark shows of them."""

import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import time
import xml.etree.ElementTree

from common import Failure, NFS_PORT, check, log, netdev, watchdog, wait_for

#: The dissector.
DISSECTOR = "tools/wireshark/rpcrdma2.lua"
#: Where the frame goes that a capture ends with: nobody listens there.
END_PORT = 9
#: RoCEv2, and iWARP at the port of the NFS server, and that frame.
FILTER = f"udp port 4791 or tcp port {NFS_PORT} or udp dst port {END_PORT}"
#: Fields that only group others, and those that are left out.
GROUPS = ("call_chunk", "read_list", "write_list", "write_chunk", "reply_chunk", "propset", "propsubset")
PLAIN = ("segment", "prop", "packet")
#: What the dissector says that is not in the frame.
DERIVED = ("parts", "complete_in", "by_rdma", "absent", "message_in", "sent_again")
#: What tshark says of frames that it cannot make sense of, and of dissectors that fail.
BROKEN = ("_ws.malformed", "_ws.lua.error")


class Capture:
    """Writes the frames that pass while a `with` block runs into a file."""

    def __init__(self, name):
        self.path = f"/tmp/{os.environ['FABRIC']}-{name}.pcap"

    def __enter__(self):
        # tcpdump stays root: another user could not write everywhere.
        self.process = subprocess.Popen(
            # Not in immediate mode: each frame has a place for the longest one then, and there are 64.
            ["tcpdump", "-n", "-i", netdev(), "-Z", "root", "-U", "-B", "16384", "-w", self.path, FILTER],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        while line and "listening" not in line:
            line = self.process.stderr.readline()
        check(line, "tcpdump does not start")
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            self.wait_for_last()
        self.process.send_signal(signal.SIGINT)
        said = self.process.communicate(timeout=30 * watchdog())[1]
        os.chmod(self.path, 0o644)
        if os.environ.get("CAPTURES"):
            # A directory that outlives the guest.
            shutil.copy(self.path, os.environ["CAPTURES"])
        log(f"{self.path}: {os.path.getsize(self.path)} octets, " + ", ".join(said.splitlines()[-3:]))
        if kind is None:
            check("\n0 packets dropped by kernel" in said, f"frames are missing: {said}")

    def wait_for_last(self):
        """Waits until tcpdump has written all frames that have passed so far.

        They are on their way through the packet socket. tcpdump's own counts do not tell: those that
        it received before the kernel had its filter are counted, and not written.
        """
        end = os.urandom(32)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(end, (os.environ["PEER_ADDR"], END_PORT))
        wait_for("the last frames", 30, lambda: end in pathlib.Path(self.path).read_bytes())


def repeated(path, numbers):
    """A copy of a file in which some frames, by their numbers, come twice."""
    with open(path, "rb") as f:
        data = f.read()
    check(struct.unpack_from("<I", data)[0] == 0xA1B2C3D4, f"{path}: an unknown format")
    out, at, number = data[:24], 24, 0
    while at < len(data):
        number += 1
        end = at + 16 + struct.unpack_from("<I", data, at + 8)[0]
        out += data[at:end] * (2 if number in numbers else 1)
        at = end
    path = path.replace(".pcap", "-repeated.pcap")
    with open(path, "wb") as f:
        f.write(out)
    os.chmod(path, 0o644)
    return path


class Message:
    """One message as tshark shows it, or one packet of it.

    `fields` are those of its header in the order of the octets, as pairs of a name without
    `rpcrdma2.` and a value: a number, octets, or None for a group. `derived` is what the dissector
    found out itself, `part` the octets of a part. `rpc` has the fields of the RPC message that the
    dissectors of RPC and NFS have shown, a list of texts for each.
    """

    def __init__(self, frame, ours, proto):
        self.frame, self.ours = frame, ours
        self.fields, self.derived, self.rpc = [], {}, {}
        self.part, self.broken = None, False
        self.title, self.size = proto.get("showname", ""), int(proto.get("size"))
        for field in proto:
            self.add(field)

    def add(self, field):
        """Takes in a field of the header, and those below it."""
        name = field.get("name", "")
        if name == "rpcrdma2.sequence.broken":
            self.broken = True
        elif name.startswith("rpcrdma2."):
            self.add_own(name.removeprefix("rpcrdma2."), field)
        for inner in field:
            self.add(inner)

    def add_own(self, name, field):
        """Takes in one field."""
        value = field.get("value")
        if name in GROUPS:
            self.fields.append((name, None))
        elif name in DERIVED:
            self.derived[name] = int(field.get("show"), 0)
        elif name == "part":
            self.part = bytes.fromhex(value)
        elif name in ("prop.data", "optinfo"):
            self.fields.append((name, bytes.fromhex(value)))
        elif name not in PLAIN:
            self.fields.append((name, int(value, 16)))

    def add_rpc(self, field):
        """Takes in a field of the RPC message, and those below it."""
        if field.get("name"):
            self.rpc.setdefault(field.get("name"), []).append(field.get("show"))
        for inner in field:
            self.add_rpc(inner)

    def get(self, name):
        """The first value of a field of the header."""
        return next((v for n, v in self.fields if n == name), None)

    def count(self, name):
        """How often the header has a field."""
        return sum(n == name for n, _ in self.fields)

    def number(self, name):
        """The first value of a field of the RPC message, as a number."""
        return int(self.rpc[name][0], 0) if name in self.rpc else None

    def __repr__(self):
        return f"frame {self.frame}: {self.title}"


def tshark(path, *arguments, limit=120):
    """What tshark prints about a file."""
    began = time.monotonic()
    # As root it would take no scripts. Another user may have no way to the tree. Only a second
    # look at a frame can tell what later ones have completed.
    script = shutil.copy(DISSECTOR, "/tmp")
    os.chmod(script, 0o644)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "HOME=/tmp",
         "tshark", "-2", "-n", "-X", f"lua_script:{script}", "-r", path, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        timeout=limit * watchdog())
    check(done.returncode == 0 and not done.stderr.strip(),
          f"tshark ends with {done.returncode}: {done.stderr.strip()}")
    log(f"tshark {' '.join(arguments[:2])} of {os.path.basename(path)}: {time.monotonic() - began:.1f} s")
    return done.stdout


def packet_messages(packet):
    """The messages in one frame."""
    out, last, frame, source = [], None, None, None
    for proto in packet:
        name = proto.get("name")
        if name == "frame":
            frame = int(next(f.get("show") for f in proto if f.get("name") == "frame.number"))
        elif name == "ip":
            source = next(f.get("show") for f in proto if f.get("name") == "ip.src")
        elif name == "rpcrdma2":
            last = Message(frame, source == os.environ["OWN_ADDR"], proto)
            out.append(last)
        elif name in ("iwarp_mpa", "iwarp_ddp_rdmap", "infiniband"):
            last = None
        elif last:
            last.add_rpc(proto)
    return out


def messages(path, *options):
    """The messages of Version Two in a file, in their order; fails if a frame is malformed."""
    text = tshark(path, *options, "-Y", " or ".join(("rpcrdma2", *BROKEN)), "-T", "pdml")
    out = []
    try:
        packets = xml.etree.ElementTree.fromstring(text)
    except xml.etree.ElementTree.ParseError as e:
        raise Failure(f"{e}: {text.splitlines()[e.position[0] - 1]!r}") from e
    for packet in packets:
        found = packet_messages(packet)
        wrong = [f.get("showname") or f.get("name") for f in packet.iter() if f.get("name") in BROKEN]
        check(not wrong, f"tshark says of {found}: {wrong}")
        out += found
    log(f"{len(out)} messages in {os.path.basename(path)}")
    return out
