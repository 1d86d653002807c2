# SPDX-License-Identifier: GPL-2.0
"""The server guest: exports a file system over RDMA and does what the client guest asks.

Prints `READY` when the export can be mounted. Options:
  --threads N   how many nfsd threads (8)
  --no-nfs      only the control connection, no NFS server
  --sec FLAVOUR what a mount has to use (sys)
"""

import argparse
import hashlib
import hmac
import json
import os
import socket
import subprocess
import threading
import traceback

from common import (CONTROL_PORT, NFS_PORT, ROOT, make_root, no_name_service, one_guest, read,
                    rnr_counters, run, sent_bytes, sleepers, start_rpcbind, status, write)

EXPORT = f"{ROOT}/export"
NFSD = "/proc/fs/nfsd"
#: What a client has to know that wants something here.
SECRET = os.environ.get("CONTROL_SECRET", "")
#: Processes started by `control_hold_*`, by name.
HELD = {}


def make_filesystem():
    """Mounts what is exported: tmpfs, or ext4 where the kernel checks each DMA mapping.

    For a hole in a file of tmpfs nfsd sends the kernel's page of zeros. The check takes that for a
    mistake and says nothing more, see Documentation/upstream/dma-debug-zero-page.rst.
    """
    disabled = "/sys/kernel/debug/dma-api/disabled"
    if not one_guest() or not os.path.exists(disabled) or read(disabled).strip() == "Y":
        run("mount", "-t", "tmpfs", "-o", "size=75%,nr_inodes=1m", "tmpfs", EXPORT)
        return
    # Its blocks take memory when they are written.
    image = f"{ROOT}/export.ext4"
    run("truncate", "-s", "1G", image)
    run("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=1", image)
    run("mount", "-o", "loop,discard", image, EXPORT)
    os.rmdir(f"{EXPORT}/lost+found")


def export_setup(flavour="sys"):
    """Makes the exported tree and the state directories of the server."""
    make_root()
    no_name_service()
    for d in ("v4recovery", "nfsdcld", "sm", "sm.bak"):
        os.makedirs(f"/var/lib/nfs/{d}", exist_ok=True)
    for f in ("etab", "rmtab", "xtab"):
        open(f"/var/lib/nfs/{f}", "a", encoding="ascii").close()
    if not os.path.ismount(NFSD):
        run("mount", "-t", "nfsd", "nfsd", NFSD)
    os.makedirs(EXPORT, exist_ok=True)
    if not os.path.ismount(EXPORT):
        make_filesystem()
    os.chmod(EXPORT, 0o1777)
    start_rpcbind()
    # The client tracking daemon: without it every start has a grace period,
    # and no client could reclaim its state after a restart.
    if not os.path.ismount("/run/rpc_pipefs"):
        os.makedirs("/run/rpc_pipefs", exist_ok=True)
        run("mount", "-t", "rpc_pipefs", "rpc_pipefs", "/run/rpc_pipefs")
    if status("pidof", "nfsdcld")[0]:
        run("nfsdcld")
    # The root of version 4 is the scratch directory, so the export is /export.
    options = f"rw,no_root_squash,insecure,no_subtree_check,sec={flavour}"
    run("exportfs", "-i", "-o", f"{options},fsid=0", f"*:{ROOT}")
    run("exportfs", "-i", "-o", f"{options},fsid=1", f"*:{EXPORT}")


def control_nfsd_start(threads=8, lease=10):
    """Starts the NFS server with its RDMA listener. `lease` is the lease of NFSv4, in seconds."""
    # The shortest grace period there is; without this every OPEN would wait 90 s.
    # lockd has a grace period of its own.
    for f in ("nlm_timeout", "nlm_grace_period"):
        if os.path.exists(f"/proc/sys/fs/nfs/{f}"):
            write(f"/proc/sys/fs/nfs/{f}", "3")
    # A small guest would also choose a small largest READ.
    for f, value in (("nfsv4gracetime", "10"), ("nfsv4leasetime", str(lease)),
                     ("max_block_size", "1048576")):
        try:
            write(f"{NFSD}/{f}", value)
        except OSError:
            # Fixed while the server runs.
            pass
    if status("pidof", "rpc.mountd")[0]:
        run("rpc.mountd")
    if status("pidof", "rpc.statd")[0]:
        status("rpc.statd", "--no-notify")
    run("rpc.nfsd", "-V", "4.2", str(threads))
    if f"rdma {NFS_PORT}" not in read(f"{NFSD}/portlist"):
        write(f"{NFSD}/portlist", f"rdma {NFS_PORT}")
    return read(f"{NFSD}/portlist")


def control_nfsd_stop():
    """Stops the NFS server: threads end, listeners go, connections close."""
    run("rpc.nfsd", "0")
    return read(f"{NFSD}/threads").strip()


def control_verify(manifest):
    """Compares the export with `{path: [size, sha256]}`; returns what differs."""
    wrong = []
    for path, (size, expected) in manifest.items():
        try:
            with open(f"{EXPORT}/{path}", "rb") as f:
                data = f.read()
        except OSError as e:
            wrong.append(f"{path}: {e}")
            continue
        if len(data) != size or hashlib.sha256(data).hexdigest() != expected:
            wrong.append(f"{path}: {len(data)} octets of {size}, or other contents")
    return wrong


def control_sleepers():
    """What hangs in the server's kernel, see `sleepers`."""
    return sleepers()


def control_make_files(directory, names):
    """Makes empty files in a directory of the export."""
    for name in names:
        os.close(os.open(f"{EXPORT}/{directory}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def control_remove_files(directory, names):
    """Removes files from a directory of the export."""
    for name in names:
        os.unlink(f"{EXPORT}/{directory}/{name}")


def control_set_xattr(path, name, value):
    """Sets an extended attribute of a file of the export; the value is in hex."""
    os.setxattr(f"{EXPORT}/{path}", name, bytes.fromhex(value))


def control_sent_bytes():
    """Octets this guest has sent on the network between the guests."""
    return sent_bytes()


def control_rnr_counters():
    """What this guest's device has counted, see `rnr_counters`."""
    return rnr_counters()


def control_clean():
    """Empties the export."""
    run("find", EXPORT, "-mindepth", "1", "-delete", timeout=120)


def control_hold_lock(name, path, start, length):
    """Takes a POSIX lock on a file of the export and keeps it until released."""
    program = ("import fcntl,sys,os\n"
               "f=open(sys.argv[1],'r+b')\n"
               "fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,int(sys.argv[3]),int(sys.argv[2]))\n"
               "print('held',flush=True)\nsys.stdin.read()\n")
    p = subprocess.Popen(["python3", "-c", program, f"{EXPORT}/{path}", str(start), str(length)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if p.stdout.readline().strip() != "held":
        raise RuntimeError("could not lock")
    HELD[name] = p


def control_release(name):
    """Ends a process started by `control_hold_lock`."""
    p = HELD.pop(name)
    p.stdin.close()
    p.wait(20)


def serve(connection):
    """Answers the one request of a control connection."""
    with connection, connection.makefile("rwb") as f:
        line = f.readline()
        if not line:
            return
        request = json.loads(line)
        # On a network that is not only the guests'.
        if not hmac.compare_digest(request.get("secret", ""), SECRET):
            return
        if "function" in request:
            try:
                result = globals()["control_" + request["function"]](**request["arguments"])
                reply = {"result": result}
            except Exception as e:  # noqa: BLE001 - the client shows it
                traceback.print_exc()
                reply = {"error": f"{type(e).__name__}: {e}"}
        elif request["wait"]:
            try:
                code, out = status("bash", "-c", request["command"], timeout=request["timeout"])
            except subprocess.TimeoutExpired:
                code, out = 124, "timed out"
            reply = {"status": code, "output": out}
        else:
            subprocess.Popen(["bash", "-c", request["command"]], stdin=subprocess.DEVNULL,
                             start_new_session=True)
            reply = {"status": 0, "output": ""}
        f.write(json.dumps(reply).encode() + b"\n")
        f.flush()


def main(*arguments):
    """Sets everything up and serves control connections for ever."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--no-nfs", action="store_true")
    parser.add_argument("--sec", default="sys")
    options = parser.parse_args(arguments)
    if not options.no_nfs:
        export_setup(options.sec)
        print(control_nfsd_start(options.threads), flush=True)
    listener = socket.create_server((os.environ["OWN_ADDR"] if SECRET else "", CONTROL_PORT),
                                    backlog=64)
    print("READY", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
