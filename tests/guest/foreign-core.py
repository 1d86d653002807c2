#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Beside an ib_core, rdma_cm or sunrpc that was not built with the kernel the module is not loaded.
# mode: run
# kernels: debian
# timeout: 60
"""Stand-ins for what a vendor's stack of drivers brings: the kernel's modules without their mark.

`intree` in a module's information is all that tells one that was built with the kernel. Without it
the kernel takes the same module for one from elsewhere.
"""

import lzma
import os
import sys

sys.path.insert(0, "tests/lib")
from common import check, log, module_loaded, run, status  # noqa: E402

OURS = os.environ["OURS_KO"]
MARK = b"intree=Y\0"
#: A signature ends with this, and begins as many octets before the twelve that precede it as the
#: last four of those say.
SIGNED = b"~Module signature appended~\n"


def stand_in(path):
    """A copy of a module without its mark; nor its signature, which would not be right then."""
    with lzma.open(path) as f:
        data = f.read()
    if data.endswith(SIGNED):
        end = len(data) - len(SIGNED)
        data = data[:end - 12 - int.from_bytes(data[end - 4:end], "big")]
    check(data.count(MARK) == 1, f"{path} has no mark")
    copy = f"/run/{os.path.basename(path).removesuffix('.xz')}"
    with open(copy, "wb") as f:
        f.write(data.replace(MARK, MARK.replace(b"intree", b"xntree")))
    return copy


def files(names):
    """The files of these modules and of what they need, in the order in which they are loaded."""
    found = {}
    for name in names:
        for line in run("modprobe", "--show-depends", name).splitlines():
            kind, _, path = line.strip().partition(" ")
            check(kind == "insmod", f"{name}: {line}")
            found[os.path.basename(path).split(".")[0]] = path
    return found


def beside(order, foreign):
    """Loads ours beside the kernel's modules, one of them a stand-in, if any; removes all again."""
    for name, path in order.items():
        check(not os.path.exists(f"/sys/module/{name}"), f"{name} is loaded already")
        run("insmod", stand_in(path) if name == foreign else path)
    run("dmesg", "--clear")
    code, said = status("insmod", OURS)
    told = [line for line in run("dmesg", "--notime").splitlines() if line.startswith("rpcrdma: ")]
    if foreign:
        check(code != 0 and "Invalid module format" in said, f"with {foreign}: {code} {said}")
        check(any(f"not loading: {foreign} was not built with" in line for line in told), f"told {told}")
        check(not module_loaded(), f"loaded beside {foreign}")
    else:
        check(code == 0, f"not loaded beside the kernel's own: {said} {told}")
        run("rmmod", "rpcrdma")
    for name in reversed(order):
        run("rmmod", name)
    log(f"{foreign or 'nothing'} is foreign: {told}")


names = run("modinfo", "-F", "depends", OURS).strip().split(",")
check(set(names) >= {"ib_core", "rdma_cm", "sunrpc"}, f"the module needs {names}")
needed = files(names)
for each in names + [None]:
    beside(needed, each)
