#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# How much memory our server takes under direct 16 KiB reads over many connections.
# mode: pair
# server: ours
# client: ours
# fabrics: rxe
# soak-fabrics: rxe siw
# soak-variants: two one
# kernels: uml
# memory: 1536M
# timeout: 300 900
"""As many reads under way as the clients have slots for, over several mounts with several connections."""

import os
import subprocess
import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from common import (Failure, Mount, check, fabric, log, remote, run, soak,  # noqa: E402
                    wait_for, xprt_stats)
from memory import server_memory, shown  # noqa: E402
from nfs_server import EXPORT  # noqa: E402

KIB = 1 << 10
#: Connections of each mount.
CONNECTIONS = 8
#: Octets of a read.
SIZE = 16 * KIB
#: Reads that each process has under way, and processes for each mount.
DEPTH, JOBS = 32, 4
#: How long it goes on, in seconds.
DURATION = 60 if soak() else 15

#: What a connection of the server's may take: 128 Calls of a peer at most, granted or put up with, each with
#: the pages of its Reply and one more for what is not data; 136 Send and 136 Receive buffers; its
#: queues and everything else.
CALLS, BUFFERS, REST = 128, 272, 256 * KIB
BOUND = CALLS * (SIZE + 4 * KIB) + BUFFERS * 4 * KIB + REST
#: What there is once: CQs of the device's pool above all.
SHARED = 8 << 20

#: Writes the largest use of memory, in KiB, to a file until that is removed.
SAMPLER = """
exec > /dev/null 2>&1
echo 0 > /run/most
most=0
while [ -e /run/most ]; do
    used=$(awk '/^MemTotal/ {t = $2}
                /^(MemFree|Buffers|Cached|SReclaimable):/ {t -= $2}
                END {print t}' /proc/meminfo)
    if [ "$used" -gt "$most" ]; then most=$used; echo $most > /run/most.new
        [ -e /run/most ] && mv /run/most.new /run/most; fi
    sleep 0.05
done
"""


def storm(mounts):
    """Reads from all mounts at once; returns reads per second."""
    processes = []
    for mount in mounts:
        processes.append(subprocess.Popen(
            ["fio", "--name=storm", f"--filename={mount.path}/storm", "--rw=randread", f"--bs={SIZE}",
             "--direct=1", "--ioengine=libaio", f"--iodepth={DEPTH}", f"--numjobs={JOBS}",
             "--time_based", f"--runtime={DURATION}", "--group_reporting", "--output-format=terse"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    log(f"{len(mounts) * JOBS * DEPTH} reads at a time")
    total = 0
    for process in processes:
        try:
            out = process.communicate(timeout=DURATION + 60)[0]
        except subprocess.TimeoutExpired as e:
            raise Failure("the storm does not end; the server's threads:\n" + remote(
                "for p in $(pgrep nfsd); do echo $p; cat /proc/$p/stack; done; "
                "rdma res show qp link $RDMADEV; rdma res show cm_id link $RDMADEV; "
                "dmesg | tail -20")) from e
        check(process.returncode == 0, out)
        fields = next(l for l in out.splitlines() if l.startswith("3;")).split(";")
        check(int(fields[4]) == 0, f"error {fields[4]}")
        total += int(fields[7])
    return total


def client():
    """Mounts in every way that has connections of its own, reads, and looks at the server."""
    # rxe ends a connection when the network's queue is full, and if it is that of the connection
    # manager, then for ever no other is made.
    for execute in (remote, lambda command: run("bash", "-c", command)):
        execute("ip link set $NETDEV txqueuelen 10000")
    remote(f"head -c {64 << 20} /dev/urandom > {EXPORT}/storm")
    mounts = [Mount(vers, where=f"m{n}", address=os.environ[address],
                    options=f"nconnect={CONNECTIONS},rsize=1048576")
              for n, (vers, address) in enumerate((v, a) for a in ("PEER_ADDR", "PEER_ADDR6")
                                                  for v in ("3", "4.2"))]
    empty = server_memory()
    for mount in mounts:
        mount.mount()
        # So that all connections are made.
        run("ls", "-l", mount.path, quiet=True)
    count = int(remote("rdma res show qp link $RDMADEV | grep -c 'type RC'", ok=(0, 1)))
    idle = server_memory()
    remote(SAMPLER, wait=False)
    wait_for("the sampler", 10, lambda: "yes" in remote("test -s /run/most && echo yes || true"))
    rate = storm(mounts)
    most = int(remote("cat /run/most; rm /run/most")) << 10
    after = server_memory()
    log(f"{sum(xprt_stats(m.path)['sends'] for m in mounts)} Calls, {rate} reads/s over {count} connections")
    for mount in mounts:
        mount.umount()
    wait_for("the end of the connections", 60, lambda: remote(
        "rdma res show qp link $RDMADEV | grep -c 'type RC'", ok=(0, 1)).strip() == "0", 0.5)
    gone = server_memory()
    grown = most - empty.used
    log(f"{fabric()}: at most {grown / (1 << 20):.1f} MiB of memory more than without clients, "
        f"{grown // count:,} octets for each of {count} connections; the bound is "
        f"{(count * BOUND + SHARED) / (1 << 20):.1f} MiB")
    print("idle, and when the storm is over:\n" + shown(empty, idle, after, count))
    print("when all have gone:\n" + shown(empty, empty, gone, count), flush=True)
    check(grown <= count * BOUND + SHARED, "more memory than there should be")
    check(gone.used - empty.used <= 8 << 20, "memory is missing when all have gone")


main(client)
