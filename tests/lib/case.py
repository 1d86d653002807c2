# SPDX-License-Identifier: GPL-2.0
"""The frame of a case that runs in a pair of guests."""

import os
import subprocess
import sys
import threading
import traceback

import nfs_server
from common import Failure, client_setup, log, show_endings, trace_endings, watch
from versions import set_version


class Skip(Exception):
    """This guest cannot run the case; the text says why."""


def main(client, server=nfs_server.main):
    """Runs `server` or `client`, as the first argument says.

    The client's status becomes the case's: 1 on a failure, 77 to be skipped.
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
