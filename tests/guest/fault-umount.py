#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Forced and lazy unmounts in mid-I/O, also of a server out of reach; nothing of the mount stays behind.
# mode: pair
# fabrics: rxe siw
# variants-rxe: 4.2@ours-ours
# variants-siw: 4.2
# kernels: uml
# soak-variants: 3 4.2 4.2@ours-ours 4.2@ours-ours-one 4.2@ours-ours-2016
# soak-smoke: uml-sanitize debug
# soak-smoke-variants: 4.2 4.2@ours-ours 4.2@ours-ours-2016
# timeout: 300 1800
# rounds: 2 20 1 3
"""umount -f and umount -l while a load runs, and while the client tries to connect."""

import os
import signal
import sys
import time

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Mount, TRACING, check, fabric, log, module_refs, read, remote, rounds, run,  # noqa: E402
                    slowness, watchdog, status, wait_for)
from faults import Load, heal_server_device  # noqa: E402

#: The longest that an attempt to connect lasts while the server does not answer, in seconds.
ATTEMPT = 30
#: How long a transport may outlive its mount, in seconds.
SOON = 6


def attempts():
    """Returns how often connecting has begun, as trace events tell (`trace_endings`)."""
    return read(f"{TRACING}/trace").count("event=ROUTE_RESOLVED")


def unreachable(before):
    """A mount whose server can't be reached goes when it is unmounted, not after the attempt."""
    # Without a session, which would be destroyed first.
    mount = Mount("3", where="gone", options="nolock,timeo=10,retrans=1")
    mount.mount()
    begun = attempts()
    seconds = int(ATTEMPT * slowness())
    remote(f"ip link set $NETDEV down; sleep {seconds}; ip link set $NETDEV up", wait=False)
    down = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            # The first ones may be answered: the device goes down meanwhile.
            while True:
                os.statvfs(mount.path)
                time.sleep(0.1)
        finally:
            os._exit(0)
    # The server's device keeps silent, so this attempt lasts.
    wait_for("an attempt to connect", seconds - 2 * SOON, lambda: attempts() > begun, 0.2)
    run("umount", "-f", "-l", mount.path)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    took = wait_for("release of the transport", seconds + ATTEMPT, lambda: module_refs() == before)
    log(f"server out of reach: the transport went after {took:.1f} s")
    check(took < SOON * watchdog(), f"the transport has outlived its mount by {took:.1f} s")
    time.sleep(max(0, seconds + 2 - (time.monotonic() - down)))
    heal_server_device()


def client():
    """Each round mounts anew; the module's count must be what it was before."""
    before = module_refs()
    for n in range(rounds()):
        for flag in ("-f", "-l"):
            mount = Mount(os.environ["VARIANT"], where=f"u{n}{flag}")
            mount.mount()
            load = Load(mount, jobs=3, tolerant=True)
            with load:
                time.sleep(0.3)
                began = time.monotonic()
                # A busy mount cannot go: -f says so, but ends the RPCs under way.
                status("umount", flag, mount.path)
                load.kill(0)
                load.kill(1)
                load.kill(2)
            if os.path.ismount(mount.path):
                mount.umount()
            took = time.monotonic() - began
            wait_for("release of the transport", 30, lambda: module_refs() == before)
            log(f"round {n}: umount {flag} took {took:.2f} s")
    # rdma_connect() on siw returns only when TCP has a connection, or gives up: it can't be interrupted.
    if os.environ["MODULE"] == "ours" and fabric() != "siw":
        unreachable(before)
    check(module_refs() == before, "the module is still in use")


main(client)
