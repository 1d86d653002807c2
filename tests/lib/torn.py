# SPDX-License-Identifier: GPL-2.0
"""Messages of which a peer sends the beginning only.

No device in order does that, so over RoCE the first packet is made here; the strict device is told to. The
server's device takes a Receive for the message, and if the connection ends before the rest has come, a shared
one never completes.
"""

import os
import socket
import struct
import zlib

import hca
import pyverbs.enums as e
from common import fabric, write

#: The UDP port of RoCE v2, and the opcode of the first packet of a message with more than two.
ROCE, SEND_FIRST = 4791, 0x00
#: An IP header: version and length, type of service, total length, identification, "don't fragment",
#: time to live, protocol, checksum, source, destination.
IP = struct.Struct(">BBHHHBBH4s4s")
UDP = struct.Struct(">HHHH")
#: A base transport header: opcode, flags, partition, reserved octet with the number of the Queue Pair,
#: packet sequence number.
BTH = struct.Struct(">BBHII")


def packet(source, target, queue_pair, sequence, payload):
    """The whole IP packet, with the checksum over what does not change on its way."""
    udp_length = UDP.size + BTH.size + len(payload) + 4
    ends = socket.inet_aton(source), socket.inet_aton(target)
    ident, fragment = 0x1234, 0x4000

    def headers(mask):
        """All of them; with a mask of ones in what the checksum leaves out."""
        return (IP.pack(0x45, 0 | mask, IP.size + udp_length, ident, fragment, 64 | mask,
                        socket.IPPROTO_UDP, mask << 8 | mask, *ends)
                + UDP.pack(0xC000, ROCE, udp_length, mask << 8 | mask)
                + BTH.pack(SEND_FIRST, 0, 0xFFFF, mask << 24 | queue_pair, sequence))

    # In front of it stand eight octets of ones, for a header that only InfiniBand has.
    checksum = zlib.crc32(bytes([0xFF] * 8) + headers(0xFF) + payload)
    return headers(0) + payload + struct.pack("<I", checksum)


def tear(connection):
    """Sends the beginning of a message on a connection, on which nothing else may be sent then."""
    if fabric() == "hca":
        write(hca.path("tears"), str(connection.qp.qp_num))
        connection.qp.post_send(connection.send_request(bytes(128)))
        return
    mask = e.IBV_QP_DEST_QPN | e.IBV_QP_SQ_PSN | e.IBV_QP_PATH_MTU
    attributes, _ = connection.qp.query(mask)
    payload = bytes(128 << attributes.path_mtu)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        peer = os.environ["PEER_ADDR"]
        raw.sendto(packet(os.environ["OWN_ADDR"], peer, attributes.dest_qp_num, attributes.sq_psn,
                          payload), (peer, 0))
