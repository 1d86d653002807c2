#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The network of a container ends under its mount: so do its processes, its RPCs and its namespace.
# mode: pair
# fabrics: rxe
# variants: move@ours-ours
# soak-variants: move move@ours-ours unlink@ours-ours reset@ours-ours
# kernels: uml
# soak-smoke: uml-kasan uml-lockdep
# soak-smoke-variants: move@ours-ours unlink@ours-ours
# light: yes
# timeout: 240 600
# rounds: 1 3
"""A mount in a network namespace of its own is unmounted lazily while processes write to it.

move        the network device is moved away, and its RDMA device goes
unlink      only the RDMA device goes, the network device and the route stay
reset       the RDMA device goes, and comes back soon: the processes see nothing of it

With the first two the processes are killed. What then keeps the namespace alive are pages that
can't be written any more, and their RPCs.
"""

import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Mount, check, child, log, module_refs, netdev, pattern,  # noqa: E402
                    rdmadev, rounds, run, status, wait_for)
from containers import Container, configure  # noqa: E402
from faults import delete_device  # noqa: E402

HOW = os.environ["VARIANT"]
#: So many that it takes minutes if each attempt to connect ends the RPC of one of them, and a pause
#: follows.
WRITERS = 40
#: Seconds until all must be gone, which takes less than one if the network device is moved. It
#: takes 30 until a namespace without an RDMA device is one without a network.
LIMIT = 90
#: Seconds for which a device that is reset is away.
RESET = 10


def write_always(path, n):
    """Writes pages, which the kernel sends when the file is closed."""
    # Where it is, no path leads to when the mount is unmounted lazily.
    os.chdir(path)
    data = pattern(n, 1 << 20)
    while True:
        with open(f"{n}", "wb") as f:
            f.write(data)


def read_always(path):
    """Asks the server, and waits for its answers."""
    os.chdir(path)
    while True:
        os.listdir(".")
        fd = os.open("0", os.O_RDONLY | os.O_DIRECT)
        os.read(fd, 65536)
        os.close(fd)


def begin(path):
    """Starts the processes."""
    pids = [child(lambda n=n: write_always(path, n), f"writer {n}") for n in range(WRITERS)]
    wait_for("the writers", 30, lambda: len(os.listdir(path)) >= WRITERS)
    pids.append(child(lambda: read_always(path), "reader"))
    time.sleep(1)
    return pids


def inside(container):
    """What happens in the namespace: a mount, and the end of it."""
    mount = Mount("4.2", where="ns", options="hard")
    mount.mount()
    check("fatal_neterrors=ENETDOWN:ENETUNREACH" in mount.shown, f"shown: {mount.shown}")
    pids = begin(mount.path)
    run("umount", "-l", mount.path)
    container.tell("mounted")
    wait_for("the end of the network", 60, lambda: container.is_told("over"))
    if HOW == "reset":
        time.sleep(3)
        for pid in pids:
            check(os.waitpid(pid, os.WNOHANG)[0] == 0, "a process has met an error")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    for pid in pids:
        wait_for("the end of a killed process", LIMIT,
                 lambda p=pid: os.waitpid(p, os.WNOHANG)[0] == p)
    log(f"all processes had ended {time.monotonic() - began:.1f} s after they were killed")


def end_network(container):
    """Takes away what the variant says."""
    if HOW == "move":
        container.enter("ip", "link", "set", netdev(), "netns", "1")
    else:
        container.enter("rdma", "link", "del", rdmadev())
    if HOW == "reset":
        time.sleep(RESET)
        container.enter("rdma", "link", "add", rdmadev(), "type", os.environ["FABRIC"],
                        "netdev", netdev())


def tasks():
    """The RPCs of this guest that have not ended."""
    return subprocess.run("cat /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks 2>/dev/null", shell=True,
                          stdout=subprocess.PIPE, text=True, check=False).stdout


def is_over(references):
    """Whether nothing is left of the mount: no RPC, no transport, no namespace."""
    return (module_refs() == references and not tasks()
            and os.path.exists(f"/sys/class/net/{netdev()}"))


def one_round(n, references):
    """Makes a container and ends it."""
    container = Container(f"c{n}", inside)
    try:
        container.give_device()
        container.begin()
        wait_for("the mount", 60, lambda: container.is_told("mounted"))
        end_network(container)
        container.tell("over")
        check(container.wait() == 0, "in the namespace")
    finally:
        container.kill()
    began = time.monotonic()
    wait_for("the end of the mount", LIMIT, lambda: is_over(references), 0.2)
    log(f"round {n}: all gone {time.monotonic() - began:.1f} s after the processes")


def client():
    """Each round makes a container, and ends it."""
    references = module_refs()
    for n in range(rounds()):
        # It is made again in the namespace.
        if not status("rdma", "link", "show", f"{rdmadev()}/1")[0]:
            delete_device()
        one_round(n, references)
    # For the frame, which has questions to the server.
    configure()


main(client, rnr="the device was in a namespace")
