#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# tools/rpcrdma-report: what is asked for in a report of a defect is there, and no key; with --anonymous no name.
# mode: pair
# fabrics: rxe
# variants: ours@ours-ours stock@stock-stock
# kernels: uml
# timeout: 120 120
"""The report of either end, with a mount in use."""

import os
import re
import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import ROOT, Mount, check, log, pattern, remote, run, write  # noqa: E402

TOOL = "tools/rpcrdma-report"
KEY = "/sys/module/rpcrdma/parameters/host_auth_key"
SECRET = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2"
DEBUGFS = "mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug"
#: What the kernel's log may have: a key of its command line, one that a module did not take, and
#: what tells the address of a device.
LOGGED = (f"Kernel command line: root=/dev/sda rpcrdma.host_auth_key={SECRET} quiet",
          f"rpcrdma: `{SECRET}zz' invalid for parameter `host_auth_key'",
          "rdma_test: node_guid 0200:00ff:fe12:3456, 192.0.2.77.78.81, ::ffff:192.0.2.78, "
          "2001:db8::")
#: What the server exports.
EXPORT = f"{ROOT}/export"
#: Parts of these that are addresses.
TOLD = ("0200:00ff:fe12:3456", "192.0.2.7", "2001:db8::")
#: What each report has, and whether it is of our module only.
SECTIONS = ("system", "which module", "modinfo rpcrdma", "parameters", "sysctls", "mounts over RDMA",
            "mountstats", "NFS server", "RDMA devices", "rdma link", "ibv_devinfo -v", "kernel's log",
            "what is missing here")


def sections(text):
    """The sections of a report, by title."""
    return {title: body for title, _, body in (part.partition("\n") for part in
                                               text.split("===== ")[1:])}


def failing():
    """A command that fails is among what is missing, with its last line but without a key."""
    own = "/run/failing"
    os.makedirs(own, exist_ok=True)
    said = f"dmesg: not permitted, psk={SECRET}"
    with open(f"{own}/dmesg", "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\necho no\necho '{said}' >&2\nexit 1\n")
    os.chmod(f"{own}/dmesg", 0o755)
    text = run("env", f"PATH={own}:{os.environ['PATH']}", "python3", "-B", TOOL, quiet=True)
    lacks = sections(text)["what is missing here"].splitlines()
    check("dmesg: dmesg: not permitted, psk=(left out)" in lacks and SECRET not in text, f"{lacks}")


def client():
    """A report of the client, of the server, and without names."""
    ours = os.environ["MODULE"] == "ours"
    run("sh", "-c", DEBUGFS)
    remote(DEBUGFS)
    if ours:
        write(KEY, SECRET)
    failing()
    for line in LOGGED:
        write("/dev/kmsg", line)
    with Mount("4.2") as mount:
        with open(f"{mount.path}/confidential", "wb") as f:
            f.write(pattern(1, 100_000))
        here, there = run("python3", "-B", TOOL, quiet=True), remote(f"python3 -B {TOOL}")
        nameless_there = remote(f"echo 'nfsd: export {EXPORT} is there' > /dev/kmsg && "
                                f"python3 -B {TOOL} --anonymous")
        nameless = run("python3", "-B", TOOL, "--anonymous", quiet=True)
        log(f"{len(here)} and {len(there)} characters")
        for text in (here, there, nameless):
            found = sections(text)
            missing = [title for title in SECTIONS if title not in found]
            check(not missing, f"sections are missing: {missing}")
            check(SECRET not in text and "confidential" not in text, "it tells a secret")
            loaded = found["which module"]
            check(("this module" in loaded) is ours and ("STOCK" in loaded) is not ours, loaded)
        check(mount.path in sections(here)["mounts over RDMA"], "the mount is not among them")
        check("xprt:\trdma" in sections(here)["mountstats"], "no mountstats")
        check("threads: 8" in sections(there)["NFS server"], "no threads")
        if ours:
            # SUNRPC numbers transports of all kinds.
            for text, end in ((here, r"rpcrdma/\d+/"), (there, "rpcrdma/server/")):
                check(re.search(f"/sys/kernel/debug/{end}", sections(text)["state of connections"]),
                      f"nothing of {end}")
        for text in (here, nameless):
            logged = sections(text)["kernel's log"]
            check("host_auth_key=(left out)" in logged and "invalid for parameter" in logged,
                  "lines with a key are not there")
        check(all(address in here for address in TOLD), "addresses are not there")
        names = (os.environ["PEER_ADDR"], os.environ["OWN_ADDR"], mount.path, "/export", *TOLD)
        told = [name for name in names if name in nameless]
        check(not told, f"it tells {told}")
        check("nfsd: export export" in nameless_there and EXPORT not in nameless_there
              and os.environ["PEER_ADDR"] not in nameless_there, "the server tells a name")
        check("address1" in nameless and "mount1" in nameless, "no words in their place")


main(client)
