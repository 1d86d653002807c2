#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Ours and the stock module in one kernel: the second is refused, in either order.
# mode: run
# module: ours
# kernels: uml
# smoke: debian
# timeout: 120 120
"""The same name is the kernel's business; the same transport class is ours."""

import errno
import os
import re
import struct
import sys

sys.path.insert(0, "tests/lib")
from common import check, log, module_loaded, read, run, status  # noqa: E402


#: What a signed module ends with (include/linux/module_signature.h).
SIGNATURE = b"~Module signature appended~\n"


def renamed(ko, name):
    """A copy of a module that calls itself by another name of the same length.

    It stands for the stock transport built into a kernel: no module called
    rpcrdma, but its class is registered.
    """
    data = open(ko, "rb").read()
    # A signature would be wrong; a module without one is let in.
    if data.endswith(SIGNATURE):
        data = data[:-len(SIGNATURE)]
        # struct module_signature: the length of what is before it is its last word.
        length = int.from_bytes(data[-4:], "big")
        data = data[:-12 - length]
    old, new = b"rpcrdma", name.encode()
    check(len(old) == len(new), "names of different length")
    # struct module's name, which stands alone in zeros, and the name in modinfo.
    at = [m.start() for m in re.finditer(rb"\0{8}rpcrdma\0{8}", data)]
    check(len(at) == 1, f"the module's name was found {len(at)} times")
    data = data[:at[0] + 8] + new + data[at[0] + 15:]
    data = data.replace(b"\0name=rpcrdma\0", b"\0name=" + new + b"\0")
    # A signature would no longer fit.
    magic = b"~Module signature appended~\n"
    if data.endswith(magic):
        (length,) = struct.unpack(">I", data[-len(magic) - 4:-len(magic)])
        data = data[:-len(magic) - 12 - length]
    path = f"/tmp/{name}.ko"
    with open(path, "wb") as f:
        f.write(data)
    return path


def refused(ko, *numbers):
    """Inserts a module that must be refused; returns what the kernel said meanwhile."""
    before = len(run("dmesg").splitlines())
    code, out = status("insmod", ko)
    check(code != 0, f"{ko} was accepted")
    check(any(os.strerror(n) in out for n in numbers), f"{ko}: {out.strip()}")
    return [line for line in run("dmesg").splitlines()[before:]
            if "loading out-of-tree" not in line and "taint" not in line.lower()]


def main():
    """Same name first, then same class."""
    stock, ours = os.environ["STOCK_KO"], os.environ["MODULE_KO"]
    status("modprobe", "-a", "rdma_cm", "sunrpc", "ib_core")
    for first, second in ((stock, ours), (ours, stock)):
        run("insmod", first)
        said = refused(second, errno.EEXIST)
        check(not said, f"code of the second ran: {said}")
        check(module_loaded(), "the first is gone")
        run("rmmod", "rpcrdma")
    other = renamed(stock, "rpcrdmx")
    run("insmod", other)
    check("rpcrdmx" in read("/proc/modules"), "the renamed module did not load")
    said = refused(ours, errno.EEXIST, errno.EBUSY)
    log(f"said: {said}")
    check(len(said) == 1 and "rpcrdma" in said[0], "not one line of ours")
    check(not module_loaded(), "ours stayed")
    # The stock transport still works afterwards, and ours when it is gone.
    run("rmmod", "rpcrdmx")
    run("insmod", ours)
    run("rmmod", "rpcrdma")
    log("done")


main()
