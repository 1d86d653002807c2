#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# NFSv4.2 with Kerberos: authentication, integrity, privacy. Every octet compared, and seen on the wire.
# mode: pair
# fabrics: rxe
# variants: krb5@ours-ours krb5p
# interop-fabrics: rxe siw
# interop-variants: krb5 krb5i krb5p
# interop-variants: krb5@ours-ours krb5i@ours-ours krb5p@ours-ours
# interop-variants: krb5@stock-ours krb5i@stock-ours krb5p@stock-ours
# control-variants: krb5@stock-stock krb5i@stock-stock krb5p@stock-stock
# kernels: uml
# soak-fabrics: rxe siw
# soak-variants: krb5 krb5i krb5p
# soak-variants: krb5@ours-ours krb5i@ours-ours krb5p@ours-ours
# soak-variants: krb5@ours-ours-one krb5i@ours-ours-one krb5p@ours-ours-one
# soak-variants: krb5@ours-ours-2016 krb5i@ours-ours-2016 krb5p@ours-ours-2016
# soak-variants: krb5@stock-ours krb5i@stock-ours krb5p@stock-ours
# timeout: 300 600
# Linux 7.3 leaves what was in memory before in the flags of an rpc_auth (gss_create_new), and so
# takes krb5 for a flavour that has to touch the payload now and then: of stock's mounts as well.
# kernel-options: init_on_alloc=1
"""The workload on a mount with sec=krb5, krb5i or krb5p; the variant is the flavour.

What may be placed directly is decided by the flavour (RFC 8166, sections 8.2.2.2 and 8.2.2.3): a
checksum or the encryption covers the payload, so somebody has to touch it.
"""

import os
import socket
import subprocess
import sys

sys.path.insert(0, "tests/lib")
import kerberos  # noqa: E402
import versions  # noqa: E402
import workload  # noqa: E402
from case import main  # noqa: E402
from common import (Failure, Mount, check, drop_caches, log, netdev, pattern, read,  # noqa: E402
                    remote, run, write, xprt_stats)
from nfs_server import EXPORT  # noqa: E402
from workload_tree import Tree, compare, write_all  # noqa: E402

FLAVOUR = os.environ["VARIANT"]
TRACING = "/sys/kernel/tracing"
#: Sizes of the files, up to 4 MiB, most of them odd.
SIZES = (0, 1, 3, 5, 511, 1023, 3500, 4095, 4096, 4097, 12289, 65535, 65537, 131073, 262145,
         (1 << 20) - 1, (1 << 20) + 1, 4 << 20)
#: Nothing else in any message looks like this.
MARK = b"here goes the payload, in clear"


class Reduced:
    """Counts the Calls whose payload was in a Read chunk of its own, by the client's trace events.

    A Read chunk at position zero holds the whole Call. In mountstats it looks the same.
    """

    EVENTS = {"ours": ("rpcrdma_rs/rpcrdma_rs_post_call", "call == 1"),
              "stock": ("rpcrdma/xprtrdma_chunk_read", "pos != 0")}

    def __init__(self):
        if not os.path.ismount(TRACING):
            run("mount", "-t", "tracefs", "tracefs", TRACING)
        event, which = self.EVENTS[os.environ["MODULE"]]
        self.name = event.split("/")[1] + ":"
        write(f"{TRACING}/events/{event}/filter", which)
        write(f"{TRACING}/events/{event}/enable", "1")

    def count(self):
        """How many so far, or as many of them as the buffer keeps."""
        return sum(f" {self.name} " in l for l in read(f"{TRACING}/trace").splitlines())


class Capture:
    """Looks for `MARK` in what goes over the network while the block runs."""

    #: Room for what the block sends and receives: nothing is read before its end.
    ROOM = 64 << 20

    def __enter__(self):
        everything = 3  # ETH_P_ALL
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(everything))
        force = 33  # SO_RCVBUFFORCE
        self.socket.setsockopt(socket.SOL_SOCKET, force, self.ROOM)
        self.socket.bind((netdev(), everything))
        return self

    def __exit__(self, kind, value, traceback):
        self.octets = self.marks = 0
        with self.socket as s:
            s.setblocking(False)
            try:
                while frame := s.recv(65536):
                    self.octets += len(frame)
                    self.marks += frame.count(MARK)
            except BlockingIOError:
                pass


def refused():
    """No other flavour is let in: what is mounted below is what is said."""
    others = [f for f in ("sys", "krb5", "krb5i", "krb5p") if f != FLAVOUR]
    for other in others:
        mount = Mount("4.2", where="other", options=f"sec={other}", address=kerberos.SERVER)
        out = mount.mount(ok=None)
        check(not os.path.ismount(mount.path), f"mounted with sec={other}: {out}")
    log(f"not mounted with sec={', '.join(others)}")


def files(mount):
    """Files of every size, through the cache and around it, read back the other way."""
    t = Tree(mount, "files")
    for direct in (False, True):
        for size in SIZES:
            name = f"{'direct' if direct else 'buffered'}-{size}"
            data = pattern(name, size)
            if direct:
                fd = os.open(t.path(name), os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
                write_all(fd, data)
                os.close(fd)
                t.files[name] = data
            else:
                t.put(name, data)
    drop_caches()
    for name, data in t.files.items():
        buffered = name.startswith("buffered")
        fd = os.open(t.path(name), os.O_RDONLY | (os.O_DIRECT if buffered else 0))
        got = b""
        while more := os.read(fd, 1 << 20):
            got += more
        os.close(fd)
        compare(name, got, data)
    t.verify()


def listing(mount):
    """A directory that takes several READDIRs, with long names and with attributes."""
    t = Tree(mount, "listing")
    wanted = {f"{i:04d}-{'n' * (i % 200)}": i % 7 for i in range(600)}
    for name, size in wanted.items():
        with open(t.path(name), "wb") as f:
            f.write(bytes(size))
    drop_caches()
    with os.scandir(t.top) as found:
        check({e.name: e.stat().st_size for e in found} == wanted, "the listing")
    drop_caches()
    check(set(os.listdir(t.top)) == set(wanted), "the names")


def attributes(mount):
    """Extended attributes and symbolic links, as large as they can be."""
    if FLAVOUR != "krb5p":
        workload.xattrs(mount)
        workload.symlinks(mount)
        return
    # With privacy Linux 7.3 fails with those that fill a page, over TCP as well: its server
    # refuses them, and its client cannot decode the values that it gets.
    t = Tree(mount, "attributes")
    t.put("f", b"xattr")
    values = {f"user.{size}": pattern(("xattr", size), size) for size in (0, 1, 3, 1023, 2000)}
    values.update({f"user.{'n' * 200}{i:03d}": b"%d" % i for i in range(200)})
    for name, value in values.items():
        os.setxattr(t.path("f"), name, value)
    links = {f"s{length}": "t/" * (length // 2) + "z" for length in (0, 2, 254, 2998)}
    for name, target in links.items():
        os.symlink(target, t.path(name))
    drop_caches()
    names = {n for n in os.listxattr(t.path("f")) if n.startswith("user.")}
    check(names == set(values), f"list of {len(names)} names")
    for name, value in values.items():
        compare(name, os.getxattr(t.path("f"), name), value)
    for name, target in links.items():
        check(os.readlink(t.path(name)) == target, f"target of {name}")


def on_the_wire(mount):
    """Payload in clear is on the wire, unless the flavour encrypts it. Both ways."""
    data = MARK * 4000
    for what in ("write", "read"):
        drop_caches()
        with Capture() as wire:
            if what == "write":
                with open(f"{mount.path}/mark", "wb", buffering=0) as f:
                    check(f.write(data) == len(data), "short write")
                    os.fsync(f.fileno())
            else:
                with open(f"{mount.path}/mark", "rb") as f:
                    check(f.read() == data, "the mark")
        log(f"{what}: {wire.octets} octets captured, the mark {wire.marks} times")
        check(wire.octets > len(data), f"{what}: only {wire.octets} octets captured")
        if FLAVOUR == "krb5p":
            check(wire.marks == 0, f"{what}: payload in clear")
        else:
            check(wire.marks > 2000, f"{what}: the mark is not seen, the test sees nothing")


def users(mount):
    """A user's ticket is what counts: the owner of her files, and nobody without one."""
    kerberos.kinit("alice")
    code, out = kerberos.as_user("alice", "sh", "-c",
                                 f"head -c 70001 /dev/zero >{mount.path}/of-alice")
    check(code == 0, f"alice: {out}")
    owner = remote(f"stat -c %u {EXPORT}/of-alice").strip()
    check(owner == str(kerberos.USERS["alice"]), f"alice's file is of {owner}")
    check(os.stat(f"{mount.path}/of-alice").st_uid == kerberos.USERS["alice"], "owner, over NFS")
    for user, allowed in (("alice", True), ("bob", False)):
        code, out = kerberos.as_user(user, "cat", f"{mount.path}/of-alice")
        check((code == 0) == allowed, f"{user}: status {code}: {out[-200:]}")
    check("ermission denied" in out, f"bob: {out}")


def client():
    """Everything on one mount, and what the counters say of it."""
    kerberos.client()
    try:
        refused()
        reduced = Reduced()
        with Mount("4.2", options=f"sec={FLAVOUR}", address=kerberos.SERVER) as mount:
            log(f"mounted: {','.join(mount.shown)}")
            check(f"sec={FLAVOUR}" in mount.shown, "another flavour")
            workload.everything(mount, (files, listing, workload.odd, attributes))
            on_the_wire(mount)
            users(mount)
            versions.check_version()
            verdict(xprt_stats(mount.path), reduced.count())
    except (Failure, OSError, subprocess.SubprocessError):
        kerberos.explain()
        raise


def verdict(stats, payload_read_chunks):
    """Whether payload was placed directly, as the flavour allows or forbids."""
    log(f"Calls with their payload in a Read chunk: {payload_read_chunks}, counters: {stats}")
    check(stats["connect_count"] == 1, f"connected {stats['connect_count']} times")
    check(stats["bad_xids"] == 0 and stats["bad_reply"] == 0, "bad Replies")

    # Attributes and listings are never reduced, whatever the flavour.
    check(stats["nomsg"] and stats["reply_chunks"], "no special format was used")
    if FLAVOUR == "krb5":
        check(stats["write_chunks"], "no payload of a Reply in a Write chunk")
        check(payload_read_chunks, "no payload of a Call in a Read chunk")
    else:
        check(stats["write_chunks"] == 0, f"{stats['write_chunks']} Write chunks")
        check(payload_read_chunks == 0, f"{payload_read_chunks} Calls with reduced payload")


main(client, server=lambda: kerberos.server(FLAVOUR))
