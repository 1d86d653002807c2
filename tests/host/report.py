#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# rpcrdma-report: the right lines of the kernel's log, all mounts over RDMA, and names if it must not.
# timeout: 60
"""Parts of the report, of texts as the kernel writes them."""

import importlib.machinery
import importlib.util
import sys
import tempfile
import types

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("report", "tools/rpcrdma-report")
report = importlib.util.module_from_spec(importlib.util.spec_from_loader("report", LOADER))
LOADER.exec_module(report)
#: An Oops, a task that hangs, a stall and a warning, none of whose lines name NFS or RDMA.
OOPS = """\
[   10.0] BUG: kernel NULL pointer dereference, address: 0000000000000010
[   10.0] #PF: supervisor read access in kernel mode
[   10.0] Oops: Oops: 0000 [#1] SMP NOPTI
[   10.0] CPU: 1 UID: 0 PID: 1234 Comm: kworker/u8:3 Tainted: G           OE      7.3.4
[   10.0] RSP: 0018:ffffc90000013e48 EFLAGS: 00010246
[   10.0] Call Trace:
[   10.0]  <TASK>
[   10.0]  process_one_work+0x19f/0x390
[   10.0]  </TASK>""".splitlines()
HUNG = """\
[   20.0] INFO: task dd:77 blocked for more than 120 seconds.
[   20.0]       Not tainted 7.3.4
[   20.0] task:dd              state:D stack:0     pid:77
[   20.0]  io_schedule+0x46/0x70""".splitlines()
STALL = """\
[   30.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[   30.0] rcu:     1-...!: (0 ticks this GP)
[   30.0] NMI backtrace for cpu 1""".splitlines()
WARNING = """\
[   35.0] WARNING: CPU: 1 PID: 77 at lib/refcount.c:28 refcount_warn_saturate+0xf7/0x150
[   35.0] Modules linked in: ext4
[   35.0] Call Trace:""".splitlines()
#: What is of neither.
OTHERS = """\
[    1.0] usb: debug enabled
[    1.0] systemd[1]: Starting debug-shell, a bug or two, with warnings
[    1.0] Speculative Return Stack Overflow: WARNING: See the documentation for mitigation options.
[    1.0] audit: DEBUG, CONFIG_DEBUG_BUGVERBOSE""".splitlines()
OURS = ["[    2.0] rpcrdma: connection 3 has ended", "[    2.0] NFS: something of it"]
#: A line of mountstats.
LINE = "\t     GETATTR: 1 1 0 180 240 0 0 0 0\n"
#: What has names: a host with and without its domain, servers that are mounted or that the log
#: calls servers, and addresses, of IPoIB too.
TOLD = """\
client7 Client7.example.org
CLIENT7 client7
client7.Example.org client7.other.example
filer:/home on /srv/home by filer.example.org
/home.old
nfs.example.org:/data with fstype nfs or by krb5 for nfs/kdc.example.org@EXAMPLE.ORG
[   12.0] nfs: server gone.example.net not responding, still trying
[   13.0] NFS: server lost error: fileid changed
[   13.0] lockd: server late OK
[   14.0] RPC: server 10.0.0.9 requires stronger authentication.
[   15.0] NFS: state manager failed on NFSv4 server [fd00::9] with error 5
[   16.0] NFS: migration recovery failed (server dark)
[   16.0] statd: server rpc.statd not responding, timed out
[   17.0] lockd: cannot monitor monitored
12:34:56.789 mount of fd00::7 and 192.0.2.1.78.81
    link/infiniband 80:00:00:48:fe:80:00:00:00:00:00:00:f4:52:14:03:00:7b:cb:a1 brd \
00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff
"""


def log_lines():
    """Trouble comes with what follows it, and nothing else does but what is of NFS or RDMA."""
    assert list(report.relevant(OTHERS + OURS)) == OURS
    for trouble in (OOPS, HUNG, STALL, WARNING):
        assert list(report.relevant(OTHERS + trouble)) == trouble, trouble[0]
    rest = [f"[   40.0] usb: line {n}" for n in range(100)]
    found = list(report.relevant(OOPS + rest + OURS + rest + HUNG))
    # The Oops begins anew in its third line.
    assert found == OOPS + rest[:report.TROUBLE_LINES + 3 - len(OOPS)] + OURS + HUNG, found


def many_mounts():
    """A mount over RDMA is found behind any number over TCP."""
    mounts = [("tcp", n) for n in range(3000)] + [("rdma", 3000)]
    with tempfile.TemporaryDirectory() as top:
        report.MOUNTS, report.MOUNTSTATS = f"{top}/mounts", f"{top}/mountstats"
        with open(report.MOUNTS, "w", encoding="ascii") as f:
            f.writelines(f"server:/e{n} /m{n} nfs4 rw,vers=4.2,proto={proto},port=20049 0 0\n"
                         for proto, n in mounts)
            assert f.tell() > report.MOST
        with open(report.MOUNTSTATS, "w", encoding="ascii") as f:
            f.writelines(f"device server:/e{n} mounted on /m{n} with fstype nfs4 statvers=1.1\n"
                         f"\tage:\t100\n\txprt:\t{proto} 0 0 1\n{LINE * 40}" for proto, n in mounts)
            assert f.tell() > report.MOST
        text = report.Report()
        report.client(text)
    found = "\n".join(text.parts)
    assert "server:/e3000 /m3000 nfs4" in found and "device server:/e3000 " in found, found
    assert "/m2999" not in found and not text.missing, found


def names():
    """No name of a host that is known, no domain of one, and no address of any length is told."""
    report.os.uname = lambda: types.SimpleNamespace(nodename="Client7.example.org")
    with tempfile.TemporaryDirectory() as top:
        report.MOUNTS = f"{top}/mounts"
        with open(report.MOUNTS, "w", encoding="ascii") as f:
            f.write("filer:/home /srv/home nfs4 rw 0 0\n[fd00::7]:/v6 /srv/six nfs4 rw 0 0\n"
                    "nfs.example.org:/data /srv/data nfs rw 0 0\n")
        text = report.Names().replace(TOLD)
    for name in ("client7", "example", "filer", "gone", "lost", "late", "dark", "monitored", "/home",
                 "/srv", "fd00", "00:48", "7b:cb", "10.0.0.9", "192.0.2"):
        assert name not in text.lower(), f"{name} is told:\n{text}"
    lines = text.splitlines()
    assert lines[0] == lines[1] == lines[2] == "host1 host1", lines[:3]
    assert lines[3].startswith("server1:export1 on mount1 by server1"), lines[3]
    assert lines[4] == "export1.old", lines[4]
    # Words of the kernel's stay, whoever has such a name.
    for word in ("nfs: server", "fstype nfs ", "RPC: server", "rpc.statd", "12:34:56.789"):
        assert word in text, f"{word} is not told:\n{text}"


def main():
    """All of them."""
    for part in (log_lines, many_mounts, names):
        part()
        print(f"ok: {part.__doc__}", flush=True)


main()
