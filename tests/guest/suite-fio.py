#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# fio writes with checksums while the server stops, loses its module and comes back; then it
# verifies.
# soak: only
# mode: pair
# fabrics: rxe
# variants: 4.2@ours-ours 4.2@stock-stock
# kernels: uml
# timeout: 1200 1200
# rounds: 3
"""What was written before, during and after each fault is read back, at both ends."""

import os
import subprocess
import sys
import time

sys.path.insert(0, "tests/lib")
import versions  # noqa: E402
from case import main  # noqa: E402
from common import (Failure, Mount, check, drop_caches, log, remote, remote_call,  # noqa: E402
                    rounds, wait_for)
from faults import connects  # noqa: E402
from nfs_server import EXPORT  # noqa: E402

#: Seconds that the writing takes without a fault.
WRITING = 30
#: One job of each way to write. Each is slowed down, so that faults come meanwhile.
JOBS = {"buffered": "ioengine=psync bs=4k fsync=64 size=24m verify=crc32c",
        "direct": "ioengine=posixaio iodepth=8 direct=1 bs=64k size=64m verify=sha256",
        "unaligned": "ioengine=psync bs=3001 size=15005000 fdatasync=100 verify=md5",
        "mapped": "ioengine=mmap bs=4k size=16m fsync=64 verify=xxhash"}
SIZES = {"buffered": 24 << 20, "direct": 64 << 20, "unaligned": 15005000, "mapped": 16 << 20}


def fio(directory, *arguments, slow=False):
    """The command that runs all jobs; each begins at the same place of its own sequence."""
    command = ["fio", f"--directory={directory}", *arguments]
    for name, words in JOBS.items():
        command += [f"--name={name}", "--filename=" + name, "--rw=randwrite", "--randrepeat=1",
                    "--verify_fatal=1", *(f"--{word}" for word in words.split())]
        if slow:
            command.append(f"--rate={SIZES[name] // WRITING}")
    return command


def output_of(process, limit=600):
    """Waits for fio to end, and says now and then that it goes on; returns what it has said."""
    for _ in range(limit // 20):
        try:
            return process.communicate(timeout=20)[0]
        except subprocess.TimeoutExpired:
            log("fio goes on")
    raise Failure(f"fio has not ended within {limit} s")


def stop_and_start():
    """The server's threads, listeners and connections go; its state with them."""
    remote_call("nfsd_stop")
    time.sleep(2)
    check("rdma" in remote_call("nfsd_start"), "the listener did not come back")


def module_away():
    """So does its transport module, and another one is inserted."""
    remote_call("nfsd_stop")
    remote("for n in $(seq 300); do rmmod rpcrdma && exit; sleep 0.1; done; exit 1")
    words = versions.parameters() if os.environ["PEER_MODULE"] == "ours" else []
    remote("insmod $MODULE_KO " + " ".join(words))
    check("rdma" in remote_call("nfsd_start"), "the listener did not come back")


def faults():
    """What happens to the server.

    With the stock module there it is not removed: then connections for callbacks outlive it, and
    whoever reads about them in debugfs follows a string that has gone with the module.
    """
    return (stop_and_start, module_away) if os.environ["PEER_MODULE"] == "ours" else (stop_and_start,)


def client():
    """Faults while fio writes; then everything is verified three times."""
    with Mount(os.environ["VARIANT"]) as mount:
        versions.check_version()
        began = time.monotonic()
        with subprocess.Popen(fio(mount.path, "--do_verify=1", slow=True),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) as writer:
            for n in range(rounds()):
                for fault in faults():
                    time.sleep(WRITING / (len(faults()) * rounds() + 1))
                    check(writer.poll() is None, "fio had written everything before the fault")
                    before = connects(mount)
                    fault()
                    took = wait_for("reconnect", 90, lambda b=before: connects(mount) > b)
                    log(f"round {n}: {fault.__name__}, connected again after {took:.1f} s")
            output = output_of(writer)
        check(writer.returncode == 0, f"fio: status {writer.returncode}\n{output}")
        log(f"written and verified by the same process in {time.monotonic() - began:.0f} s")
        drop_caches()
        with subprocess.Popen(fio(mount.path, "--verify_only"), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as reader:
            output = output_of(reader)
        check(reader.returncode == 0, f"verified after the caches were dropped: {output}")
        log("verified through the mount without a cache")
        remote(" ".join(fio(EXPORT, "--verify_only")), timeout=600)
        log("verified by the server in its own file system")


main(client)
