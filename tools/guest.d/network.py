# SPDX-License-Identifier: GPL-2.0
"""The network of a pair of guests."""

import ctypes
import os
import socket
import struct
import subprocess
import threading

# A packet socket also gets what another one sends on the same device, so a
# guest would hear itself. The filter passes all but outgoing packets.
INCOMING = [(0x28, 0, 0, 0xFFFFF004), (0x15, 0, 1, 4), (0x06, 0, 0, 0), (0x06, 0, 0, 0x40000)]


def make(run_dir):
    """Joins the two ends of a pair by a network of their own."""
    with open(os.path.join(run_dir, "filter"), "wb") as f:
        f.write(b"".join(struct.pack("=HBBI", *step) for step in INCOMING))

    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    ip("link", "add", "veth1", "mtu", "9000", "type", "veth",
       "peer", "name", "veth2", "mtu", "9000")
    for name in ("veth1", "veth2"):
        # Checksums left to the device would reach the other guest undone.
        subprocess.run(["ethtool", "-K", name, "tx", "off", "rx", "off", "tso", "off",
                        "gso", "off", "gro", "off"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
        disable = f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6"
        # Not where this machine's kernel has no IPv6 at all.
        if os.path.exists(disable):
            with open(disable, "w") as f:
                f.write("1")
        ip("link", "set", name, "up", "promisc", "on")


def packet_socket(number):
    """A socket for the whole frames of one of the network's ends."""
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    memory = b"".join(struct.pack("=HBBI", *step) for step in INCOMING)
    program = ctypes.create_string_buffer(memory)
    s.setsockopt(socket.SOL_SOCKET, 26,  # SO_ATTACH_FILTER
                 struct.pack("HxxxxxxP", len(INCOMING), ctypes.addressof(program)))
    s.bind((f"veth{number}", 3))  # ETH_P_ALL
    return s


def relay(number):
    """The far end of a socket for QEMU, which takes no packet sockets itself.

    A process passes frames on in both directions until QEMU has closed its end.
    """
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() != 0:
        ends[1].close()
        return ends[0]
    ends[0].close()
    network = packet_socket(number)

    def pass_on(source, target):
        while frame := source.recv(65536):
            try:
                target.send(frame)
            except (BlockingIOError, ConnectionError):
                # A frame that is lost, as frames may be.
                pass

    threading.Thread(target=pass_on, args=(network, ends[1]), daemon=True).start()
    pass_on(ends[1], network)
    os._exit(0)
