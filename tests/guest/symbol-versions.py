#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A kernel with versions of symbols takes our module, and refuses one built for other structures.
# mode: run
# kernels: uml-versions
# soak: only
# timeout: 120 120
"""The versions are those of gendwarfksyms, which is what a kernel with Rust has."""

import os
import struct
import sys

sys.path.insert(0, "tests/lib")
from common import check, log, module_loaded, run, status  # noqa: E402

OURS = os.environ["OURS_KO"]
#: Versions of the symbols that a module imports, 32 bits each, and their names.
VERSIONS, NAMES = "__version_ext_crcs", "__version_ext_names"


def section(name):
    """The octets of a section of the module."""
    run("objcopy", f"--dump-section={name}=/run/section", OURS, "/run/whole.ko")
    with open("/run/section", "rb") as f:
        return f.read()


def changed(name, versions):
    """A copy of the module that was built with other versions."""
    with open("/run/section", "wb") as f:
        f.write(struct.pack(f"={len(versions)}I", *versions))
    run("objcopy", f"--update-section={VERSIONS}=/run/section", OURS, f"/run/{name}.ko")
    return f"/run/{name}.ko"


def main():
    """With one other version for each kind of symbol, and as it was built."""
    names = [n.decode() for n in section(NAMES).split(b"\0") if n]
    data = section(VERSIONS)
    versions = list(struct.unpack(f"={len(data) // 4}I", data))
    check(len(names) == len(versions) and all(versions), f"{len(names)} names, {len(versions)} versions")
    # Of the core of RDMA, of SUNRPC, and of the kernel crate of Rust.
    rust = next(n for n in names if n.startswith("_R"))
    for name in ("__ib_alloc_pd", "svc_xprt_enqueue", rust):
        other = versions.copy()
        other[names.index(name)] ^= 1
        run("dmesg", "--clear")
        code, said = status("insmod", changed("other", other))
        told = run("dmesg", "--notime")
        log(f"{name}: {said.strip()}; {told.strip()}")
        check(code != 0 and not module_loaded(), "a module that was built for another kernel is taken")
        check(f"disagrees about version of symbol {name}" in told, f"the kernel says {told!r}")
    run("insmod", OURS)
    check(module_loaded(), "our module is not taken")
    run("rmmod", "rpcrdma")
    log(f"{len(names)} symbols with versions")


main()
