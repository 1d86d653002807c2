# SPDX-License-Identifier: GPL-2.0
"""What every guest-side test program shares.

A pair of guests is assumed: `$OWN_ADDR` is this guest's address, `$PEER_ADDR`
the other's, an RDMA device exists on the network between them and the chosen
transport module is inserted. Everything written goes below `/run` or `/tmp`.
"""

import ctypes
import errno
import faulthandler
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import hca

#: Where mounts, exports and scratch files of the tests live.
ROOT = "/run/rpcrdma-test"
#: TCP port of the control connection, over which the client guest has
#: commands run in the server guest.
CONTROL_PORT = 7779
#: Port of the NFS server's RDMA listener.
NFS_PORT = 20049

LIBC = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """A test saw something it must not see."""


class Gone(Exception):
    """An RDMA connection of a test's own has ended."""


def check(condition, text):
    """Fails the test with `text` unless `condition` holds."""
    if not condition:
        raise Failure(text)


def log(text):
    """Prints one line of progress with the time since the program started."""
    LAST[0] = time.monotonic()
    print(f"[{time.monotonic() - START:7.2f}] {text}", flush=True)


START = time.monotonic()
#: When `log` was last called.
LAST = [START]


def sleepers():
    """Says what hangs in the kernel of this guest, and what its RPC transports do."""
    out = []
    for pid in sorted(int(p) for p in os.listdir("/proc") if p.isdigit()):
        try:
            if read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[0] == "D":
                out.append(f"-- {pid} {read(f'/proc/{pid}/comm').strip()}")
                out.append(read(f"/proc/{pid}/stack"))
        except OSError:
            continue
    out.append(status("sh", "-c", "grep -h . /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks; "
                      "grep -h . /sys/kernel/debug/sunrpc/rpc_xprt/*/info; "
                      "grep -h . /proc/fs/nfsd/clients/*/info /proc/fs/nfsd/clients/*/states; "
                      "rdma link; ip -br link; "
                      "ps axo pid,ppid,stat,wchan:24,args | grep -v '\\['; dmesg | tail -20")[1])
    return "\n".join(out)


def watch():
    """Shows where everything hangs when there has been no progress for a while."""
    shown = 0
    while shown < 2:
        time.sleep(1)
        if time.monotonic() - LAST[0] > (40 + 40 * shown) * watchdog():
            shown += 1
            print(f"no progress since {LAST[0] - START:.1f} s; the case itself:", flush=True)
            faulthandler.dump_traceback(sys.stdout)
            print(f"what sleeps in the client's kernel:\n{sleepers()}", flush=True)
            try:
                print(f"and in the server's:\n{remote_call('sleepers')}", flush=True)
            except (Failure, OSError) as e:
                print(f"the server guest does not answer: {e}", flush=True)


#: Where the kernel shows its trace events.
TRACING = "/sys/kernel/tracing"
#: Events that tell why a connection has ended.
ENDINGS = ("closing", "cm_event", "completion_error", "connect", "decode_error", "disconnect", "error",
           "lost", "post_failed", "qp_event")


def trace_endings():
    """Has our module record why connections end, for `show_endings`."""
    for event in ENDINGS:
        enable = f"{TRACING}/events/rpcrdma_rs/rpcrdma_rs_{event}/enable"
        if os.path.exists(enable):
            write(enable, "1")


def show_endings():
    """Prints the last of what was recorded, and what the RDMA device has counted."""
    try:
        lines = [l for l in read(f"{TRACING}/trace").splitlines() if "rpcrdma_rs" in l]
        print("\n".join(lines[-40:]), flush=True)
    except OSError as e:
        print(f"no trace events: {e}")
    counters = f"/sys/class/infiniband/{os.environ.get('RDMADEV')}/ports/1/hw_counters"
    print(status("grep", "-rH", "[1-9]", counters)[1], flush=True)


def rounds():
    """How often a fault or a cycle is repeated: `$ROUNDS`."""
    return int(os.environ.get("ROUNDS") or 1)


def slow():
    """Whether the kernel is one of the slow ones, where sizes are smaller."""
    return os.environ.get("SLOW", "0") == "1"


def soak():
    """Whether there is time for everything: `make soak`."""
    return os.environ.get("SOAK") == "1"


def slowness():
    """A factor for time limits: 1 on a fast guest, more under a sanitizer."""
    return 10 if slow() else 1


def watchdog():
    """A factor for limits that are there to end what hangs, and judge nothing: `tools/check` has
    them at ten times the usual in `make check`, and more on a busy machine."""
    return slowness() * float(os.environ.get("PATIENCE", "1"))


class Pause:
    """Sleeps between two looks at something: for half a millisecond at first, and for longer the
    longer it takes, since each look costs a virtual machine more than the sleep."""

    def __init__(self, most=0.02):
        self.seconds, self.most = 0.0005, most

    def __call__(self):
        time.sleep(self.seconds)
        self.seconds = min(self.seconds * 1.5, self.most)


def is_timed():
    """Whether a case may judge by a clock: only in `make soak`."""
    return soak()


def figure(name, value, better="more"):
    """Prints what `tools/fairness` compares between two builds; nothing judges by it alone."""
    log(f"figure: {name} = {value:.2f}, {better} is better")


def run(*argv, ok=(0,), timeout=60, quiet=False):
    """Runs a command and returns its output; fails unless the status is in `ok`."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=timeout * watchdog())
    except subprocess.TimeoutExpired as e:
        raise Failure(f"{' '.join(argv)}: still running after {timeout * watchdog()} s") from e
    if ok is not None and done.returncode not in ok:
        raise Failure(f"{' '.join(argv)}: status {done.returncode}: {done.stdout.strip()}")
    if not quiet and done.stdout.strip() and done.returncode:
        log(done.stdout.strip())
    return done.stdout


def status(*argv, timeout=60):
    """Runs a command and returns its status and its output."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=timeout * watchdog())
    return done.returncode, done.stdout


def read(path):
    """The text of a small file."""
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def write(path, text):
    """Writes a small file, as `echo` would."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def wait_for(what, limit, condition, step=0.05):
    """Waits until `condition()` is true; fails after `limit` seconds. Returns the wait."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit * watchdog():
            raise Failure(f"{what}: not seen within {limit * watchdog():.0f} s")
        time.sleep(step)
    return time.monotonic() - began


def pattern(seed, length):
    """`length` pseudo-random bytes that depend on `seed` only."""
    return hashlib.shake_128(repr(seed).encode()).digest(length)


def digest(data):
    """The checksum the manifest uses."""
    return hashlib.sha256(data).hexdigest()


def drop_caches():
    """Writes back and forgets every cached page, so that the next read goes to the server."""
    os.sync()
    write("/proc/sys/vm/drop_caches", "3")


# ---- The network and its RDMA device ---------------------------------------


def is_v6(address):
    """Whether an address is an IPv6 one."""
    return ":" in address


def netdev():
    """The network device between the guests."""
    return os.environ["NETDEV"]


def rdmadev():
    """The RDMA device on that network."""
    return os.environ["RDMADEV"]


def fabric():
    """`rxe`, `siw` or `hca`; `device` on hardware."""
    return os.environ["FABRIC"]


def one_guest():
    """Whether both ends of the pair are in this guest, and have one module and one RDMA device."""
    return fabric() == "hca"


def sent_bytes():
    """Octets this guest has sent on the network between the guests.

    With both ends in this guest: what either of them has moved, since the device does not tell which.
    """
    if one_guest():
        return sum(hca.counters()[f"{kind}_octets"] for kind in ("send", "read", "write"))
    hardware = f"/sys/class/infiniband/{rdmadev()}/ports/1/counters/port_xmit_data"
    if fabric() == "device" and os.path.exists(hardware):
        # In words of four octets. What a card sends its network device does not count.
        return 4 * int(read(hardware))
    # Not from sysfs, which shows the namespace it was mounted in.
    line = next(l for l in read("/proc/self/net/dev").splitlines()
                if l.strip().startswith(netdev() + ":"))
    return int(line.split(":")[1].split()[8])


def rnr_counters():
    """What this guest's rxe device has counted since it was made.

    How often the other end has told that it had no Receive for a message of this one; and packets
    that could not be sent. Zeroes where there is no such device, or not any more.
    """
    counters = f"/sys/class/infiniband/{rdmadev()}/ports/1/hw_counters"
    try:
        # hca always finds a way.
        return [int(read(f"{counters}/{name}")) if os.path.exists(f"{counters}/{name}") else 0
                for name in ("rcvd_rnr_err", "send_err")]
    except OSError:
        return [0, 0]


def rnr_events():
    """How often a message found no Receive at the other guest, whatever module is there.

    siw does not count it.
    """
    if fabric() == "siw":
        return 0
    return rnr_counters()[0] + (0 if one_guest() else remote_call("rnr_counters")[0])


def missing_receives():
    """How often a message certainly found no Receive at the client's end, and at the server's.

    rxe says that there was none as well when it can't send a packet of what an RDMA Read has asked
    for, as when the link goes down. It counts those packets too: so many are left out.
    """
    if fabric() == "siw":
        return {"client": 0, "server": 0}
    # What one end has counted tells of the other.
    at_server, unsent_by_client = rnr_counters()
    at_client, unsent_by_server = remote_call("rnr_counters")
    if at_client or at_server:
        log(f"messages found no Receive: {at_client} at the client, which could not send "
            f"{unsent_by_client} packets, {at_server} at the server, {unsent_by_server}")
    return {"client": at_client - unsent_by_client, "server": at_server - unsent_by_server}


# ---- The server guest ------------------------------------------------------


def remote(command, timeout=60, ok=(0,), wait=True):
    """Runs a shell command in the server guest and returns its output.

    With `wait=False` it is only started, which is how the network of the server
    is taken away for a while: the command itself brings it back.
    """
    reply = _control({"command": command, "wait": wait, "timeout": timeout}, timeout)
    if wait and ok is not None and reply["status"] not in ok:
        raise Failure(f"server: {command}: status {reply['status']}: {reply['output'].strip()}")
    return reply["output"]


def queue_pairs():
    """How many connections the server's device has, without those of programs."""
    return int(remote(r"rdma res show qp link $RDMADEV | grep -c 'type RC .* comm \['", ok=(0, 1)))


def remote_call(function, **arguments):
    """Calls a function of the server program by name, see `control_*` there."""
    reply = _control({"function": function, "arguments": arguments}, 300)
    if "error" in reply:
        raise Failure(f"server: {function}: {reply['error']}")
    return reply["result"]


def _control(request, timeout):
    """One request on a control connection of its own."""
    address = os.environ["PEER_ADDR"]
    if os.environ.get("CONTROL_SECRET"):
        request["secret"] = os.environ["CONTROL_SECRET"]
    with socket.create_connection((address, CONTROL_PORT), timeout=20 * watchdog()) as s:
        s.settimeout(timeout * watchdog() + 20)
        s.sendall(json.dumps(request).encode() + b"\n")
        with s.makefile("rb") as f:
            line = f.readline()
    check(line, "server: control connection closed without an answer")
    return json.loads(line)


# ---- Mounts ----------------------------------------------------------------


def make_root():
    """Makes the scratch directory, a tmpfs of its own."""
    if not os.path.ismount(ROOT):
        os.makedirs(ROOT, exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", ROOT)


def no_name_service():
    """Keeps mount and mountd from asking a name server that no guest can reach."""
    text = read("/etc/nsswitch.conf")
    with open("/etc/nsswitch.conf", "w", encoding="ascii") as f:
        f.write("\n".join("hosts: files" if l.startswith("hosts:") else l
                          for l in text.splitlines()) + "\n")


def client_setup():
    """Starts what NFSv3 locking needs on a client, and quiets nothing else."""
    make_root()
    no_name_service()
    for d in ("sm", "sm.bak"):
        os.makedirs(f"/var/lib/nfs/{d}", exist_ok=True)
    os.makedirs("/run/rpc_pipefs", exist_ok=True)
    status("mount", "-t", "rpc_pipefs", "rpc_pipefs", "/run/rpc_pipefs")
    start_rpcbind()
    local = "/sys/module/nfs/parameters/localio_enabled"
    if one_guest() and status("modprobe", "-q", "nfs") and os.path.exists(local):
        # A client that finds its server in its own kernel would not use the transport.
        write(local, "N")
    # NFSv3 asks for a status monitor before it locks.
    status("rpc.statd", "--no-notify")


def start_rpcbind():
    """Starts rpcbind unless it answers already."""
    os.makedirs("/run/rpcbind", exist_ok=True)
    if status("rpcinfo", "-p", "127.0.0.1")[0]:
        run("rpcbind", "-w")
        wait_for("rpcbind", 10, lambda: status("rpcinfo", "-p", "127.0.0.1")[0] == 0)


def host(address):
    """An address as the first half of `server:/path`."""
    return f"[{address}]" if is_v6(address) else address


def mount_raw(source, path, options):
    """mount(2) itself: mount.nfs would first ask the server for services by its own rules."""
    os.makedirs(path, exist_ok=True)
    if LIBC.mount(source.encode(), path.encode(), b"nfs", 0, options.encode()):
        raise Failure(f"mount {source}: {is_errno(ctypes.get_errno())}")


class Mount:
    """An NFS mount over RDMA, unmounted when the `with` block ends."""

    def __init__(self, vers, where="m0", export=None, options="", address=None, port=NFS_PORT):
        self.vers = vers
        self.path = f"{ROOT}/{where}"
        self.export = export or (f"{ROOT}/export" if vers == "3" else "/export")
        self.address = address or os.environ["PEER_ADDR"]
        rdma = "rdma6" if is_v6(self.address) else "rdma"
        self.options = f"proto={rdma},vers={vers}"
        if port:
            self.options += f",port={port}"
        if vers == "3":
            self.options += ",mountproto=tcp6" if is_v6(self.address) else ",mountproto=tcp"
        if options:
            self.options += "," + options

    def mount(self, timeout=150, ok=(0,)):
        """Mounts, and checks that RDMA carries it."""
        os.makedirs(self.path, exist_ok=True)
        out = run("mount", "-t", "nfs", "-o", self.options,
                  f"{host(self.address)}:{self.export}", self.path, timeout=timeout, ok=ok)
        if not os.path.ismount(self.path):
            return out
        line = [l for l in read("/proc/mounts").splitlines() if l.split()[1] == self.path][-1]
        self.shown = line.split()[3].split(",")
        check("proto=rdma" in self.shown or "proto=rdma6" in self.shown,
              f"not mounted over RDMA: {line}")
        check(any(o.startswith(f"vers={self.vers}") for o in self.shown), f"other version: {line}")
        stats = xprt_stats(self.path)
        check(stats, f"{self.path}: no RDMA transport in mountstats")
        return out

    def umount(self, *flags, timeout=60):
        """Unmounts; busy is retried for a moment, since closes may still be under way."""
        for _ in range(20):
            code, out = status("umount", *flags, self.path, timeout=timeout)
            if code == 0:
                return
            if "busy" not in out:
                break
            time.sleep(0.25)
        raise Failure(f"umount {self.path}: {out.strip()}")

    def option(self, name):
        """The value of a numeric mount option the kernel shows, such as rsize."""
        for o in self.shown:
            if o.startswith(name + "="):
                return int(o.split("=")[1])
        raise Failure(f"{self.path}: no option {name}")

    def __enter__(self):
        self.mount()
        return self

    def __exit__(self, kind, value, traceback):
        if not os.path.ismount(self.path):
            return
        try:
            self.umount()
        except (Failure, subprocess.TimeoutExpired):
            # The first error is the interesting one.
            status("umount", "-l", self.path)
            if kind is None:
                raise


#: The 27 numbers of the transport's line in mountstats, in their order.
STATS = ("port bind_count connect_count connect_time idle_time sends recvs bad_xids req_u "
         "bklog_u read_chunks write_chunks reply_chunks total_request total_reply pullup "
         "fixup hardway failed_marshal bad_reply nomsg mrs_recycled mrs_orphaned "
         "mrs_allocated local_inv empty_sendctx reply_waits").split()


def xprt_stats(path, total=True):
    """The transport counters of a mount.

    A mount with nconnect has one line for each transport: they are summed, or
    returned as a list when `total` is false.
    """
    found, inside = [], False
    for line in read("/proc/self/mountstats").splitlines():
        if line.startswith("device "):
            inside = f" mounted on {path} " in line
        elif inside and line.strip().startswith("xprt:") and line.split()[1] == "rdma":
            numbers = [int(n) for n in line.split()[2:]]
            check(len(numbers) == len(STATS), f"{len(numbers)} numbers in: {line}")
            found.append(dict(zip(STATS, numbers)))
    if not total:
        return found
    return {k: sum(s[k] for s in found) for k in STATS} if found else None


def rpc_counts(path):
    """How many RPCs of each procedure a mount has issued, from mountstats."""
    found, inside, ops = {}, False, False
    for line in read("/proc/self/mountstats").splitlines():
        if line.startswith("device "):
            inside, ops = f" mounted on {path} " in line, False
        elif inside and "per-op statistics" in line:
            ops = True
        elif inside and ops and ":" in line:
            name, rest = line.split(":")
            found[name.strip()] = int(rest.split()[0])
    return found


# ---- The transport module --------------------------------------------------


def module_loaded():
    """Whether a module called rpcrdma is loaded."""
    return os.path.isdir("/sys/module/rpcrdma")


def module_refs():
    """The reference count of the transport module."""
    return int(read("/sys/module/rpcrdma/refcnt"))


def module_free():
    """Waits until the module can be removed; a server in this guest stops first."""
    if one_guest():
        remote_call("nfsd_stop")
    wait_for("release of the transport", 30, lambda: module_refs() == 0)


def module_back():
    """The module is there again: so is the server in this guest that `module_free` has stopped."""
    if one_guest():
        remote_call("nfsd_start")
        remote("echo Y > /proc/fs/nfsd/v4_end_grace", ok=None)


class Wire:
    """Asserts how many octets crossed the wire while the block ran.

    Both directions are taken from the sender's count: a guest's network may show
    it its own frames, and then they are counted as received too.
    """

    def __init__(self, what, received=0, sent=0):
        self.what, self.received, self.sent = what, received, sent

    def __enter__(self):
        self.before = (remote_call("sent_bytes"), sent_bytes())
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            rx, tx = remote_call("sent_bytes") - self.before[0], sent_bytes() - self.before[1]
            check(rx >= self.received, f"{self.what}: {rx} octets received, {self.received} wanted")
            check(tx >= self.sent, f"{self.what}: {tx} octets sent, {self.sent} wanted")


def child(function, name="child"):
    """Begins to run a function in a process of its own; returns its number."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        except BaseException as e:  # noqa: BLE001 - the child must not return
            print(f"{name}: {type(e).__name__}: {e}", flush=True)
        finally:
            os._exit(code)
    return pid


def children(*functions, limit=300):
    """Runs each function in a process of its own and fails if any of them does."""
    pids = {child(f): f for f in functions}
    deadline = time.monotonic() + limit * watchdog()
    bad = []
    while pids:
        pid, st = os.waitpid(-1, os.WNOHANG)
        if pid in pids:
            f = pids.pop(pid)
            if st:
                bad.append(f"{getattr(f, '__name__', 'child')}: wait status {st}")
        elif time.monotonic() > deadline:
            for p in pids:
                os.kill(p, signal.SIGKILL)
            raise Failure(f"{len(pids)} processes still running after {limit * watchdog():.0f} s")
        else:
            time.sleep(0.02)
    check(not bad, "; ".join(bad))


def is_errno(number):
    """A short name for an error number."""
    return errno.errorcode.get(number, str(number))
