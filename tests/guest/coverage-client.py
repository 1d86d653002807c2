#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A server in user space that searches, by what is reached in our client, for what it does not survive.
# mode: run
# fabrics: rxe
# coverage: yes
# soak: only
# kernels: uml
# memory: 1536M
# timeout: 600 5400
# rounds: 1 60
"""Changes what it sends at random, and keeps what reaches something new, for `$ROUNDS` minutes.

The mount must work again after each input, and nothing of what came may be left in the end. `$FUZZ_SEED` has
the search begin with the same changes; `$REPLAY` is a file of results, whose inputs are repeated instead."""

import sys
import threading
import time

sys.path.insert(0, "tests/lib")
import cover  # noqa: E402
import fuzz  # noqa: E402
import nfs_server  # noqa: E402
from common import (Failure, check, client_setup, log, module_refs, read, rounds, run, wait_for,  # noqa: E402
                    watch, write)
from fuzz_octets import KEY  # noqa: E402
from memory import Memory  # noqa: E402

#: How many octets more may be in use in the end.
TOLERANCE = 12 << 20


def main():
    """The whole test."""
    threading.Thread(target=watch, daemon=True).start()
    client_setup()
    cover.load()
    # What calls back is the session of a real server, which is asked over TCP, and keeps it however long
    # nobody asks.
    nfs_server.export_setup()
    run("rpc.mountd")
    write(f"{nfs_server.NFSD}/nfsv4gracetime", "10")
    write(f"{nfs_server.NFSD}/nfsv4leasetime", "3600")
    run("rpc.nfsd", "-V", "4.2", "4")
    run("sh", "-c", f"echo Y > {nfs_server.NFSD}/v4_end_grace", ok=None, quiet=True)
    # The verbs are not used in this process.
    import fuzz_answerer
    target = fuzz_answerer.Target(lambda: fuzz.Worker(fuzz_answerer.Peer))
    write("/sys/module/rpcrdma/parameters/host_auth_key", KEY.hex())
    target.ask("mount")
    target.check()
    before = Memory.here()
    state = fuzz.search(target, "client", 60 * rounds())
    more = fuzz.grown(before, Memory.here())
    fuzz.report(state, "client")
    check(more < TOLERANCE, f"{more:,} octets more than before are in use:\n" + read("/proc/meminfo"))
    target.ask("umount")
    target.process.end()
    wait_for("the end of the transport", 60, lambda: module_refs() == 0)
    run("rmmod", "rpcrdma")
    if found := state.console.reports():
        raise Failure("; ".join(found))
    log(f"done after {time.monotonic():.0f} s")


if __name__ == "__main__":
    main()
