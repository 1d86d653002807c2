# SPDX-License-Identifier: GPL-2.0
"""A server that nobody here wrote: nfs-ganesha, in user space, in the server guest.

It keeps its files in memory. The guest mounts them over TCP as well, where `nfs_server.py` has
its export: so what came over RDMA is compared with what another transport finds.
"""

import os
import signal
import subprocess

import nfs_server
from common import NFS_PORT, make_root, no_name_service, read, run, status, wait_for

#: Where the server's own root is mounted, with what it writes to.
CHROOT = "/run/ganesha"
LOG = f"{CHROOT}/run/ganesha.log"
#: What a mount with NFSv3 has to say, since the server asks no rpcbind: it would be that of the
#: guest. Files in memory cannot be locked.
MOUNT_PORT = 20048
V3 = f"mountport={MOUNT_PORT},nolock"

#: The largest file, in octets. Memory is taken when it is written.
LARGEST = 32 << 20

CONFIG = f"""
NFS_CORE_PARAM {{
    Protocols = 3, 4, nfsrdma;
    NFS_RDMA_Protocol_Versions = 3, 4.0, 4.1, 4.2;
    NFS_RDMA_Port = {NFS_PORT};
    MNT_Port = {MOUNT_PORT};
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Clustered = false;
}}
NFS_KRB5 {{
    Active_krb5 = false;
}}
NFSv4 {{
    Graceless = true;
    Only_Numeric_Owners = true;
}}
MEM {{
    Inode_Size = {LARGEST};
}}
EXPORT {{
    Export_Id = 1;
    Path = /export;
    Pseudo = /export;
    Protocols = 3, 4;
    Transports = TCP;
    Access_Type = RW;
    Squash = No_Root_Squash;
    SecType = sys;
    FSAL {{
        Name = MEM;
    }}
}}
"""

#: The process, when it runs.
SERVER: list = []


def prepare():
    """Makes a root of its own for the server."""
    make_root()
    no_name_service()
    run("modprobe", "-q", "-a", "ib_uverbs", "rdma_ucm")
    os.makedirs(CHROOT)
    run("mount", "--bind", os.environ["GANESHA_ROOT"], CHROOT)
    for directory in ("run", "tmp", "var/lib/nfs"):
        run("mount", "-t", "tmpfs", "tmpfs", f"{CHROOT}/{directory}")
    for directory in ("dev", "proc", "sys"):
        run("mount", "--rbind", f"/{directory}", f"{CHROOT}/{directory}")
    os.makedirs(f"{CHROOT}/var/lib/nfs/ganesha")
    with open(f"{CHROOT}/run/ganesha.conf", "w", encoding="ascii") as f:
        f.write(CONFIG)


def ready():
    """Whether the server serves; fails if it has ended."""
    if SERVER[0].poll() is not None:
        raise RuntimeError(f"the server ended with {SERVER[0].returncode}: {read(LOG)[-3000:]}")
    return "NFS SERVER INITIALIZED" in read(LOG)


def control_start():
    """Starts the server, with no files, and mounts it here over TCP."""
    with open(LOG, "w", encoding="ascii"):
        pass
    # The memory for a file is fresh each time, which costs nothing until it is used.
    SERVER[:] = [subprocess.Popen(
        ["chroot", CHROOT, "ganesha.nfsd", "-F", "-f", "/run/ganesha.conf",
         "-L", "/run/ganesha.log", "-p", "/run/ganesha.pid"],
        stdin=subprocess.DEVNULL, env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"})]
    wait_for("the server", 60, ready)
    os.makedirs(nfs_server.EXPORT, exist_ok=True)
    run("mount", "-t", "nfs", "-o", f"vers=3,proto=tcp,mountproto=tcp,port=2049,noac,{V3}",
        "127.0.0.1:/export", nfs_server.EXPORT)


def control_ended():
    """How the server has ended, such as -11 by signal 11; nothing while it runs."""
    return SERVER[0].poll()


def control_stop():
    """Ends the server, if it has not ended, and forgets its files."""
    status("umount", "-f", "-l", nfs_server.EXPORT)
    if SERVER[0].poll() is None:
        SERVER[0].send_signal(signal.SIGKILL)
    SERVER[0].wait()


def control_log():
    """What the server has written to its log."""
    return read(LOG)


def server():
    """The program of the server guest."""
    prepare()
    for function in (control_start, control_ended, control_stop, control_log):
        name = function.__name__.replace("control_", "control_ganesha_")
        setattr(nfs_server, name, function)
    control_start()
    nfs_server.main("--no-nfs")
