# SPDX-License-Identifier: GPL-2.0
"""The credits that our server grants, and the Receives of its connections."""

import concurrent.futures
import mmap
import os

import versions
from common import fabric, remote, remote_call

DEBUGFS = f"{versions.DEBUGFS}/server"
#: Credits at first, the default of max_requests, and Receives beside those of credits: one to spare,
#: eight for Replies to callbacks.
FIRST, MOST, OTHERS = 4, 64, 1 + 8
#: Receives for each credit: over iWARP a message without one ends its connection.
EACH = 2 if fabric() == "siw" else 1


def show(name, connection="*"):
    """A file in debugfs of one of the server's connections, which is the only one if it is not named."""
    text = remote(f"cat {DEBUGFS}/{connection}/{name}")
    return {k: int(v) for k, v in (line.split(": ") for line in text.splitlines())}


def connections():
    """The numbers of the server's connections."""
    return set(remote(f"ls {DEBUGFS}").split())


def restart(*parameters):
    """Loads the server's module with these parameters."""
    remote_call("nfsd_stop")
    remote(f"rmmod rpcrdma && insmod {os.environ['OURS_KO']} {' '.join([*parameters, *versions.parameters()])}")
    remote("mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")
    remote_call("nfsd_start")
    remote("echo Y >/proc/fs/nfsd/v4_end_grace", ok=None)


def own_queues(count):
    """Sets how many connections of a device have Receive Queues of their own."""
    remote(f"echo {count} > /sys/module/rpcrdma/parameters/own_receive_queues")


def all_share():
    """Has all connections that come now share Receives."""
    own_queues(0)


def is_shared(connection="*"):
    """Whether one of the server's connections shares Receives; the only one if it is not named."""
    return "receive_queue: shared" in remote(f"cat {DEBUGFS}/{connection}/state")


def set_memory(megabytes):
    """Sets what the Receives of all connections should take at most."""
    remote(f"echo {megabytes} > /proc/sys/sunrpc/svc_rdma/receive_memory")


def use_all(mount, name="file", connections=1):
    """Many large WRITEs at once, so that each is in work for a while."""
    size, most = 128 * 1024 // connections, MOST * connections
    memory = mmap.mmap(-1, size)
    file = os.open(f"{mount.path}/{name}", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    with concurrent.futures.ThreadPoolExecutor(most) as threads:
        list(threads.map(lambda n: os.pwrite(file, memory, n * size), range(2 * most)))
    os.close(file)
