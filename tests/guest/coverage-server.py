#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A client in user space that searches, by what is reached in our server, for what it does not survive.
# mode: run
# fabrics: rxe
# coverage: yes
# soak: only
# kernels: uml
# memory: 1536M
# timeout: 600 5400
# rounds: 1 60
"""Changes what it sends at random, and keeps what reaches something new, for `$ROUNDS` minutes.

The server must answer a well-behaved client all along, and nothing of what came may be left in the end.
`$FUZZ_SEED` has the search begin with the same changes; `$REPLAY` is a file of results, whose inputs are
repeated instead."""

import os
import sys
import threading
import time

sys.path.insert(0, "tests/lib")
import cover  # noqa: E402
import fuzz  # noqa: E402
import nfs_server  # noqa: E402
from common import Failure, check, log, module_refs, read, rounds, run, wait_for, watch, write  # noqa: E402
from memory import Memory  # noqa: E402

PARAMETERS = "/sys/module/rpcrdma/parameters"
#: How many octets more may be in use in the end.
TOLERANCE = 12 << 20


def main():
    """The whole test."""
    threading.Thread(target=watch, daemon=True).start()
    cover.load()
    write(f"{PARAMETERS}/server_2016", "Y")
    nfs_server.export_setup()
    nfs_server.control_nfsd_start()
    # Until then many an RPC does nothing.
    ended = f"{nfs_server.NFSD}/v4_end_grace"
    wait_for("the end of the grace period", 60, lambda: read(ended).strip() == "Y")
    # The verbs are not used in this process.
    import fuzz_caller
    fuzz_caller.addresses()
    fuzz_caller.files()
    target = fuzz_caller.Target(lambda: fuzz.Worker(fuzz_caller.Peer))
    target.check()
    before = Memory.here()
    state = fuzz.search(target, "server", 60 * rounds())
    target.end()
    wait_for("the end of the connections", 30, lambda: not os.listdir(fuzz_caller.SERVER))
    more = fuzz.grown(before, Memory.here())
    fuzz.report(state, "server")
    check(more < TOLERANCE, f"{more:,} octets more than before are in use:\n" + read("/proc/meminfo"))
    nfs_server.control_nfsd_stop()
    wait_for("the end of the service", 30, lambda: module_refs() == 0)
    run("rmmod", "rpcrdma")
    if found := state.console.reports():
        raise Failure("; ".join(found))
    log(f"done after {time.monotonic():.0f} s")


if __name__ == "__main__":
    main()
