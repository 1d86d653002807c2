# SPDX-License-Identifier: GPL-2.0
"""The frame of a case that runs in a pair of guests."""

import contextlib
import os
import subprocess
import sys
import threading
import time
import traceback

import nfs_server
from common import (Failure, check, client_setup, log, missing_receives, show_endings,
                    trace_endings, watch)
from versions import set_version


class Skip(Exception):
    """This guest cannot run the case; the text says why."""


#: Messages that found no Receive at an end while somebody broke his credits.
EXCUSED = {"client": 0, "server": 0}


@contextlib.contextmanager
def broken_credits():
    """A peer in user space breaks its credits meanwhile: what finds no Receive does not count."""
    before = missing_receives()
    yield
    # A device goes on for a moment with what was posted.
    after, former = missing_receives(), None
    while after != former:
        time.sleep(0.1)
        former, after = after, missing_receives()
    for end, number in after.items():
        EXCUSED[end] += number - before[end]


def check_receives():
    """Fails if a message found no Receive at an end of ours. Who keeps to his credits finds one."""
    modules = {"client": os.environ["MODULE"], "server": os.environ["PEER_MODULE"]}
    if "ours" not in modules.values():
        return
    for end, number in missing_receives().items():
        check(number <= EXCUSED[end] or modules[end] != "ours",
              f"messages found no Receive at the {end}")


def main(client, server=nfs_server.main, rnr=None):
    """Runs `server` or `client`, as the first argument says.

    The client's status becomes the case's: 1 on a failure, 77 to be skipped. `rnr` says why it does
    not matter in the end whether messages found no Receive, see `check_receives`.
    """
    set_version()
    # The modules of the tests are on a file system that cannot be written.
    if sys.argv[1:] == ["server"]:
        server()
        return
    try:
        client_setup()
        threading.Thread(target=watch, daemon=True).start()
        trace_endings()
        client()
        if rnr:
            log(f"whether messages found no Receive is not looked at: {rnr}")
        else:
            check_receives()
    except Skip as e:
        print(e, flush=True)
        os._exit(77)
    except (Failure, OSError, subprocess.SubprocessError, AssertionError) as e:
        traceback.print_exc()
        log(f"FAILED: {e}")
        show_endings()
        sys.stdout.flush()
        # Not sys.exit: a thread that hangs in the kernel must not delay this.
        os._exit(1)
    log("done")
