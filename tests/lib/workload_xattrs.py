# SPDX-License-Identifier: GPL-2.0
"""What the matrix does to ACLs and extended attributes."""

import ctypes
import errno
import os
import shutil
import struct

from common import (Failure, LIBC, check, drop_caches, is_errno, pattern, remote_call, slow)
from workload_tree import Tree, compare


def posix_acl(users):
    """A POSIX ACL with an entry for each of `users`, as an extended attribute."""
    entry = struct.Struct("<HHI")
    none = 0xFFFFFFFF
    out = struct.pack("<I", 2) + entry.pack(0x01, 6, none)
    for u in users:
        out += entry.pack(0x02, 4, u)
    return out + entry.pack(0x04, 4, none) + entry.pack(0x10, 7, none) + entry.pack(0x20, 4, none)


def nfs4_acl(users):
    """An NFSv4 ACL that lets each of `users` read, as an extended attribute."""
    def ace(who, mask):
        name = who.encode()
        return (struct.pack(">IIII", 0, 0, mask, len(name)) + name + bytes(-len(name) % 4))
    aces = [ace("OWNER@", 0x1601BF)] + [ace(str(u), 0x120081) for u in users]
    aces += [ace("GROUP@", 0x120081), ace("EVERYONE@", 0x120081)]
    return struct.pack(">I", len(aces)) + b"".join(aces)


def nfs4_users(raw):
    """Which numeric users an NFSv4 ACL allows to read."""
    (count,), at, users = struct.unpack_from(">I", raw), 4, set()
    for _ in range(count):
        kind, flag, mask, length = struct.unpack_from(">IIII", raw, at)
        who = raw[at + 16:at + 16 + length].decode()
        at += 16 + length + -length % 4
        if kind == 0 and mask & 1 and who.isdigit() and not flag & 0x40:
            users.add(int(who))
    check(at == len(raw), "trailing octets in an NFSv4 ACL")
    return users


def acls(mount):
    """ACLs as large as the protocols carry."""
    t = Tree(mount, "acls")
    t.put("f", b"acl")
    if mount.vers == "3":
        # The protocol says 1024 entries; the server of Linux 7.3 fails above a
        # third of that, over TCP as well (one page of ACL).
        for count in (1, 50, 250):
            acl = posix_acl(range(10_000, 10_000 + count))
            os.setxattr(t.path("f"), "system.posix_acl_access", acl)
            drop_caches()
            check(os.getxattr(t.path("f"), "system.posix_acl_access") == acl, f"ACL of {count}")
        # Both ACLs of a directory, set by a process of the server.
        for which in ("access", "default"):
            remote_call("set_xattr", path="acls", name=f"system.posix_acl_{which}",
                        value=acl.hex())
        drop_caches()
        for which in ("access", "default"):
            check(os.getxattr(t.top, f"system.posix_acl_{which}") == acl, f"largest {which} ACL")
        t.put("inherited", b"x")
        got = os.getxattr(t.path("inherited"), "system.posix_acl_access")
        check(len(got) == len(acl), "inherited ACL")
    else:
        # What a server can pass on: 170 entries is the Linux server's NFS4_ACL_MAX.
        for count in (1, 20, 80, 160):
            users = range(20_000, 20_000 + count)
            os.setxattr(t.path("f"), "system.nfs4_acl", nfs4_acl(users))
            drop_caches()
            got = os.getxattr(t.path("f"), "system.nfs4_acl")
            check(nfs4_users(got) == set(users), f"NFSv4 ACL of {count}: {len(got)} octets")
            if os.environ["MODULE"] == "ours":
                unknown_sizes(t.path("f"), "system.nfs4_acl", got)


def get_xattr(path, name):
    """Reads an attribute as many programs do: first its size, then its value."""
    size = LIBC.getxattr(path.encode(), name.encode(), None, 0)
    if size < 0:
        raise OSError(ctypes.get_errno(), f"size of {name}")
    memory = ctypes.create_string_buffer(size + 1)
    got = LIBC.getxattr(path.encode(), name.encode(), memory, size + 1)
    if got < 0:
        raise OSError(ctypes.get_errno(), f"value of {name}")
    check(got == size, f"{name}: {got} octets, {size} announced")
    return memory.raw[:got]


def too_long(path, name, room):
    """Reads an attribute that is longer than the room for it: ERANGE, as over TCP.

    The stock module has no memory for such a Reply, and ends with EIO.
    """
    memory = ctypes.create_string_buffer(room)
    drop_caches()
    got = LIBC.getxattr(path.encode(), name.encode(), memory, room)
    error = ctypes.get_errno() if got < 0 else 0
    check(got < 0 and error == errno.ERANGE, f"{name} in {room} octets: {got} {is_errno(error)}")


def unknown_sizes(path, name, value):
    """Attributes in too little room; Python guesses 128 octets first, and asks again."""
    for room in sorted({1, 10, 128, len(value) // 2, len(value) - 1}):
        if 0 < room < len(value):
            too_long(path, name, room)
    drop_caches()
    compare(f"{name} of {len(value)}", os.getxattr(path, name), value)


def copied(t, name, value):
    """A file is copied with its attribute, as `cp -a` and shutil.copy2 do."""
    os.setxattr(t.path("f"), name, value)
    drop_caches()
    shutil.copy2(t.path("f"), t.path("copy"))
    drop_caches()
    compare(f"copied {name}", get_xattr(t.path("copy"), name), value)
    os.unlink(t.path("copy"))
    os.removexattr(t.path("f"), name)


def xattrs(mount):
    """Extended attributes of every size up to the largest, and a long list of them."""
    if mount.vers != "4.2":
        return
    t = Tree(mount, "xattrs")
    t.put("f", b"xattr")
    is_ours = os.environ["MODULE"] == "ours"
    for size in (0, 1, 3, 1023, 4095, 4097, 32767, 65535, 65536):
        value = pattern(("xattr", size), size)
        os.setxattr(t.path("f"), f"user.s{size}", value)
        drop_caches()
        compare(f"xattr of {size}", get_xattr(t.path("f"), f"user.s{size}"), value)
        if is_ours:
            unknown_sizes(t.path("f"), f"user.s{size}", value)
        os.removexattr(t.path("f"), f"user.s{size}")
    if is_ours:
        copied(t, "user.copied", pattern("copied", 40_000))
    try:
        os.setxattr(t.path("f"), "user.big", bytes(65537))
        raise Failure("an attribute above the limit was taken")
    except OSError as e:
        check(e.errno == errno.E2BIG, f"attribute above the limit: {is_errno(e.errno)}")
    wanted = {f"user.{'n' * 200}{i:03d}" for i in range(40 if slow() else 280)}
    for n in wanted:
        os.setxattr(t.path("f"), n, n.encode())
    drop_caches()
    got = os.listxattr(t.path("f"))
    check({n for n in got if n.startswith("user.")} == wanted, f"list of {len(got)} names")
    for room in (10, 1000, 5000):
        drop_caches()
        got = LIBC.listxattr(t.path("f").encode(), ctypes.create_string_buffer(room), room)
        check(got < 0 and ctypes.get_errno() == errno.ERANGE, f"list in {room} octets: {got}")
    # A list of other sizes than a whole buffer, as the kernel's callers ask for.
    for n in sorted(wanted)[::40]:
        check(get_xattr(t.path("f"), n) == n.encode(), n)
    t.verify()
