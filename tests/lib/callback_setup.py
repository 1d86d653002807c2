# SPDX-License-Identifier: GPL-2.0
"""Whether nfsd was refused a transport for callbacks, and how often it tries a callback again.

An error there has nfsd put the connection by a pointer that it reads in memory which may be free
already, see `Documentation/upstream/nfsd-callback-update.rst`. So a server gives it one, unless there
is no memory. A callback that fails is tried again at once.
"""

from common import TRACING, run

#: A buffer of its own, where nothing else overwrites what is rare.
BUFFER = f"{TRACING}/instances/callbacks"
EVENTS = f"{BUFFER}/events/nfsd"
#: What nfsd says itself when no connection is left for callbacks, and nothing is put: EINVAL.
OTHERS = "error != -22"


def local(command):
    """Runs a command in this guest, and returns its output."""
    return run("sh", "-c", command)


def watch(shell=local):
    """Has nfsd record errors from now on, in the guest that `shell` runs commands in."""
    shell(f"mountpoint -q {TRACING} || mount -t tracefs tracefs {TRACING}; mkdir -p {BUFFER} && "
          f"echo '{OTHERS}' >{EVENTS}/nfsd_cb_setup_err/filter && "
          f"echo 1 >{EVENTS}/nfsd_cb_setup_err/enable && "
          f"echo 1 >{EVENTS}/nfsd_cb_restart/enable && echo >{BUFFER}/trace")


def recorded(event, shell):
    """The lines of an event."""
    return [line.strip() for line in shell(f"cat {BUFFER}/trace").splitlines() if event in line]


def errors(shell=local):
    """The refusals."""
    return recorded("nfsd_cb_setup_err", shell)


def attempts(shell=local):
    """How often a callback was tried again."""
    return len(recorded("nfsd_cb_restart", shell))
