#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Boots guests, runs a command in each, and judges how that went.

Runs inside the sysroot, as first process of a process, mount and network
namespace of its own: whatever it leaves behind goes away with it.
"""

import argparse
import ctypes
import os
import selectors
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

import reports

TIMED_OUT = 124
REPORTED = 125
GUEST_DIED = 126

# A packet socket also gets what another one sends on the same device, so a
# guest would hear itself. The filter passes all but outgoing packets.
INCOMING = [(0x28, 0, 0, 0xFFFFF004), (0x15, 0, 1, 4), (0x06, 0, 0, 0), (0x06, 0, 0, 0x40000)]

# What the interactive guest says and runs.
SHELL = """cat <<END
A guest with the RDMA device $RDMADEV ($(uname -r), $KERNEL); rpcrdma is $MODULE.
The server's export: mount_nfs 4.2 mounts it on /mnt; see $GUEST_LIB.
exit ends both guests.
END
exec bash --rcfile "$GUEST_LIB" -i"""

# Seconds that a guest has for its last checks and to power off.
GRACE = {"uml": 20, "uml-kasan": 120, "debug": 240, "debian": 60}


def parse():
    """Reads the command line; tools/guest documents it."""
    p = argparse.ArgumentParser()
    p.add_argument("mode", choices=["run", "pair", "shell"])
    for name in ("tree", "run-dir", "kernel", "kernel-dir", "ours", "module",
                 "server", "client", "server-kernel", "server-kernel-dir", "server-ours"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--logs")
    p.add_argument("--fabric", choices=["rxe", "siw"])
    p.add_argument("--insert", action="store_true")
    p.add_argument("--cpus", type=int, default=2)
    p.add_argument("--memory")
    p.add_argument("--server-memory")
    p.add_argument("--timeout", type=float, default=3600)
    p.add_argument("--env", action="append", default=[])
    p.add_argument("--expect", action="append", default=[])
    p.add_argument("--server-cmd")
    p.add_argument("--client-cmd")
    # What follows "--" is the command's.
    words = sys.argv[1:]
    end = words.index("--")
    args = p.parse_args(words[:end])
    args.command = words[end + 1:]
    if args.mode == "shell":
        args.server_cmd = '. "$GUEST_LIB" && start_nfs_server && echo READY'
        args.client_cmd = SHELL
    if args.mode == "pair" and not (args.server_cmd and args.client_cmd):
        p.error("pair needs --server-cmd and --client-cmd")
    if args.mode == "run" and not args.command:
        p.error("run needs a command after --")
    # A pair of QEMU guests needs no device of this machine.
    args.veth = args.kernel.startswith("uml") or args.server_kernel.startswith("uml")
    return args


def packet_socket(number):
    """A socket for the whole frames of one of the network's ends."""
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    memory = b"".join(struct.pack("=HBBI", *step) for step in INCOMING)
    program = ctypes.create_string_buffer(memory)
    s.setsockopt(socket.SOL_SOCKET, 26,  # SO_ATTACH_FILTER
                 struct.pack("HxxxxxxP", len(INCOMING), ctypes.addressof(program)))
    s.bind((f"veth{number}", 3))  # ETH_P_ALL
    return s


def relay(number):
    """The far end of a socket for QEMU, which takes no packet sockets itself.

    A process passes frames on in both directions until QEMU has closed its end.
    """
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() != 0:
        ends[1].close()
        return ends[0]
    ends[0].close()
    network = packet_socket(number)

    def pass_on(source, target):
        while frame := source.recv(65536):
            try:
                target.send(frame)
            except (BlockingIOError, ConnectionError):
                # A frame that is lost, as frames may be.
                pass

    threading.Thread(target=pass_on, args=(network, ends[1]), daemon=True).start()
    pass_on(ends[1], network)
    os._exit(0)


class Guest:
    """One guest: its directory, its process, its two lines out."""

    def __init__(self, args, role, number, module, command):
        self.args = args
        self.role = role
        self.number = number
        server = role == "server"
        self.kernel = args.server_kernel if server else args.kernel
        self.kernel_dir = args.server_kernel_dir if server else args.kernel_dir
        self.ours_ko = args.server_ours if server else args.ours
        self.is_uml = self.kernel.startswith("uml")
        self.memory = ((args.server_memory if server else None) or args.memory
                       or ("1G" if self.is_uml else "2G"))
        self.interactive = args.mode == "shell" and role == "client"
        self.paired = args.mode != "run"
        self.fabric = args.fabric or ("rxe" if self.paired else "")
        self.dir = os.path.join(args.run_dir, role)
        self.console = os.path.join(self.dir, "console")
        self.tail = 0
        self.lost = False
        self.process = None
        self.ours = None
        self.console_out = None
        os.mkdir(self.dir)
        open(self.console, "w").close()
        with open(os.path.join(self.dir, "command"), "w") as f:
            f.write(command + "\n")
        self.write_env(module)

    def write_env(self, module):
        """Writes what init and the command find in their environment."""
        args = self.args
        stock = os.path.join(self.kernel_dir, "stock", "rpcrdma.ko")
        peer = self.number if not self.paired else 3 - self.number
        if not self.paired:
            netdev = "d0"
        else:
            netdev = "vec0" if self.is_uml else "eth0"
        env = {
            "TREE": args.tree,
            "CWD": os.getcwd(),
            "GUEST_LIB": os.path.join(args.tree, "tools/guest.d/lib.sh"),
            "KERNEL": self.kernel,
            "ROLE": self.role,
            "MODULE": module,
            "MODULE_KO": {"ours": self.ours_ko, "stock": stock, "none": ""}[module],
            "OURS_KO": self.ours_ko if os.path.exists(self.ours_ko) else "",
            "STOCK_KO": stock,
            "OWN_ADDR": f"10.99.0.{self.number}",
            "PEER_ADDR": f"10.99.0.{peer}",
            "OWN_ADDR6": f"fd00:99::{self.number}",
            "PEER_ADDR6": f"fd00:99::{peer}",
            "PEER_MAC": f"02:00:00:00:99:0{peer}" if self.paired else "",
            "FABRIC": self.fabric,
            "NETDEV": netdev,
            "RDMADEV": f"{self.fabric or 'rxe'}0",
        }
        for setting in args.env:
            name, _, value = setting.partition("=")
            env[name] = value
        size = shutil.get_terminal_size()
        own = {
            "GUEST_TTY": "/dev/tty1" if self.is_uml else "/dev/ttyS1",
            "INSERT": "1" if args.insert or self.paired else "0",
            "INTERACTIVE": "1" if self.interactive else "0",
            "MODULES_DIR": os.path.join(self.kernel_dir, "modules/lib/modules"),
            "KUNIT": "0" if self.paired and self.kernel != "uml" else "1",
            "SCAN": "0" if self.interactive else "1",
            "ROWS": str(size.lines),
            "COLUMNS": str(size.columns),
        }
        keep = [args.tree, os.getcwd(), args.run_dir, self.kernel_dir,
                os.path.dirname(self.ours_ko)]
        with open(os.path.join(self.dir, "env"), "w") as f:
            for name, value in env.items():
                f.write(f"export {name}={shlex.quote(value)}\n")
            for name, value in own.items():
                f.write(f"{name}={shlex.quote(value)}\n")
            f.write("KEEP=(" + " ".join(map(shlex.quote, keep)) + ")\n")

    def start(self):
        """Boots the guest."""
        ours, theirs = socket.socketpair()
        line = theirs.fileno()
        fds = [line]
        frames = None
        if self.paired and self.args.veth and not self.is_uml:
            frames = relay(self.number)
            fds.append(frames.fileno())
        init = os.path.join(self.args.tree, "tools/guest.d/init")
        common = ["rw", f"init={init}", f"guest.dir={self.dir}", "panic=-1",
                  "loglevel=7"]
        # UML polls what it writes to, so that must be a pipe, not a file.
        self.console_out, console = os.pipe()
        os.set_blocking(self.console_out, False)
        self.process = subprocess.Popen(
            self.uml(common, line) if self.is_uml else self.qemu(common, line, frames), stdin=0 if self.interactive else line,
            stdout=1 if self.interactive else console, stderr=console,
            pass_fds=fds, cwd="/",
            env={**os.environ, "TMPDIR": "/dev/shm", "HOME": "/tmp"})
        os.close(console)
        theirs.close()
        if frames:
            frames.close()
        ours.setblocking(False)
        self.ours = ours

    def uml(self, common, line):
        """The command of a User-mode Linux guest."""
        args = self.args
        console = "con0=fd:0,fd:1"
        tty = f"con1=fd:{line}"
        if self.interactive:
            console = f"con0=fd:{line},fd:2"
            tty = "con1=fd:0,fd:1"
        command = [os.path.join(self.kernel_dir, "image"), f"mem={self.memory}",
                   f"ncpus={args.cpus}", "seccomp=on", "root=/dev/root",
                   "rootfstype=hostfs", "rootflags=/", console, tty,
                   f"uml_dir={args.run_dir}/", f"umid=uml-{self.role}"]
        if self.paired:
            command.append(f"vec0:transport=raw,ifname=veth{self.number},depth=128,"
                           f"gro=0,mtu=4400,bpffile={args.run_dir}/filter,"
                           f"mac=02:00:00:00:99:0{self.number}")
        return command + common

    def qemu(self, common, line, frames):
        """The command of an x86 guest."""
        args = self.args
        sock = os.path.join(args.run_dir, "net")
        # The timer check fails, and RCU complains, where an emulated CPU waits for a real one.
        append = common + ["no_timer_check", "rcupdate.rcu_cpu_stall_suppress=1",
                           "mitigations=off", "apparmor=0",
                           "root=root", "rootfstype=9p",
                           "rootflags=trans=virtio,version=9p2000.L,msize=262144,cache=loose",
                           "console=ttyS0", "net.ifnames=0"]
        tty = (["-chardev", "stdio,id=tty,signal=off"] if self.interactive else
               ["-chardev", f"socket,id=tty,fd={line}"])
        if self.kernel == "debug" and args.cpus == 1:
            # Its tables are interpreted, which takes a third of the boot; only a
            # second CPU is found by them.
            append.append("acpi=off")
        command = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi",
                   "-cpu", "max", "-m", self.memory, "-smp", str(args.cpus),
                   "-nodefaults", "-display", "none", "-no-reboot",
                   "-kernel", os.path.join(self.kernel_dir, "image"),
                   "-append", " ".join(append),
                   "-chardev", f"file,id=con,path={self.console}",
                   "-serial", "chardev:con", *tty, "-serial", "chardev:tty",
                   "-fsdev", "local,id=root,path=/,security_model=passthrough,multidevs=remap",
                   "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
                   "-device", "virtio-rng-pci"]
        initrd = os.path.join(self.kernel_dir, "initrd")
        if os.path.exists(initrd):
            command += ["-initrd", initrd]
        if self.paired:
            listen = "on" if self.number == 1 else "off"
            netdev = (f"dgram,id=net,local.type=fd,local.str={frames.fileno()}" if frames else
                      f"stream,id=net,server={listen},addr.type=unix,addr.path={sock}")
            command += ["-netdev", netdev, "-device", "virtio-net-pci,netdev=net,host_mtu=4400,"
                        f"mac=02:00:00:00:99:0{self.number}"]
        return command

    def tell(self, word):
        """Sends a line to the guest's init."""
        try:
            self.ours.send(word.encode() + b"\n")
        except OSError:
            pass

    def status(self):
        """The command's exit status, or None while there is none."""
        try:
            with open(os.path.join(self.dir, "status")) as f:
                return int(f.read())
        except (OSError, ValueError):
            return None

    def is_up(self):
        """Says whether init listens."""
        return os.path.exists(os.path.join(self.dir, "up"))

    def ended_well(self):
        """Says whether init got to the end of its last checks."""
        return os.path.exists(os.path.join(self.dir, "done"))

    def watch_console(self):
        """Notes a console report after which nothing more will come."""
        with open(self.console, "rb") as f:
            f.seek(self.tail)
            new = f.read()
        # A line that is not complete is read again.
        new = new[:new.rfind(b"\n") + 1]
        self.tail += len(new)
        if reports.is_fatal(new.decode(errors="replace")):
            self.lost = True

    def console_lines(self):
        """The console so far."""
        with open(self.console, errors="replace") as f:
            return f.read().splitlines()


class Run:
    """All guests of one call."""

    def __init__(self, args):
        self.args = args
        self.guests = []
        self.outputs = {}
        self.selector = selectors.DefaultSelector()

    def add(self, guest, prefix=None, on_line=None):
        """Boots a guest and passes on its output."""
        guest.start()
        self.guests.append(guest)
        log = open(os.path.join(guest.dir, "output"), "wb")
        self.outputs[guest] = {"prefix": prefix, "on_line": on_line, "rest": b"", "log": log}
        if not guest.interactive:
            self.selector.register(guest.ours, selectors.EVENT_READ, guest)
        self.selector.register(guest.console_out, selectors.EVENT_READ, guest)

    def pump(self, seconds):
        """Passes on what comes within some time."""
        if not self.selector.get_map():
            time.sleep(seconds)
            return
        for key, _ in self.selector.select(seconds):
            guest = key.data
            if key.fileobj == guest.console_out:
                data = os.read(guest.console_out, 65536)
                if not data:
                    self.selector.unregister(guest.console_out)
                with open(guest.console, "ab") as f:
                    f.write(data)
                continue
            try:
                data = guest.ours.recv(65536)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                self.selector.unregister(guest.ours)
            self.output(guest, data)

    def output(self, guest, data):
        """Passes on a piece of output; empty means the end."""
        o = self.outputs[guest]
        o["log"].write(data)
        o["log"].flush()
        if o["prefix"] is None and o["on_line"] is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        lines = (o["rest"] + data).split(b"\n")
        o["rest"] = lines.pop()
        if not data and o["rest"]:
            lines.append(o["rest"])
            o["rest"] = b""
        for line in lines:
            if o["on_line"]:
                o["on_line"](line)
            if self.args.mode != "shell":
                sys.stderr.buffer.write(o["prefix"] + line + b"\n")
        sys.stderr.buffer.flush()

    def wait(self, until, deadline):
        """Waits for until(); says "done", "timeout" or "died"."""
        checked = 0.0
        while True:
            now = time.monotonic()
            if until():
                return "done"
            if now > deadline:
                return "timeout"
            if now - checked > 0.5:
                checked = now
                for guest in self.guests:
                    if guest.process.poll() is not None and not until():
                        self.pump(0.1)
                        return "died"
                    guest.watch_console()
                    if guest.lost:
                        # Let the report come out whole.
                        deadline = min(deadline, now + 10)
            self.pump(0.1)

    def kill(self):
        """Ends every guest, at once."""
        for guest in self.guests:
            if guest.process.poll() is None:
                guest.process.kill()
        for guest in self.guests:
            guest.process.wait()

    def finish(self, guest, grace):
        """Lets a guest end by itself; True if it did."""
        end = time.monotonic() + grace
        while guest.process.poll() is None and time.monotonic() < end:
            self.pump(0.05)
        self.pump(0.05)
        return guest.process.poll() is not None and guest.ended_well()


def show(text):
    """Prints a line about the run itself."""
    print(f"guest: {text}", file=sys.stderr, flush=True)


def show_console(guest, found):
    """Prints a guest's console, around the first report if it is long."""
    lines = guest.console_lines()
    if found:
        first, count = max(0, found[0] - 20), 300
    else:
        first, count = max(0, len(lines) - 80), 80
    show(f"console of the {guest.role} guest, lines {first + 1} to {min(len(lines), first + count)} of {len(lines)}:")
    for line in lines[first:first + count]:
        print("  | " + line, file=sys.stderr)
    sys.stderr.flush()


def make_network(run_dir):
    """Joins the two ends of a pair by a network of their own."""
    with open(os.path.join(run_dir, "filter"), "wb") as f:
        f.write(b"".join(struct.pack("=HBBI", *step) for step in INCOMING))

    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    ip("link", "add", "veth1", "mtu", "9000", "type", "veth",
       "peer", "name", "veth2", "mtu", "9000")
    for name in ("veth1", "veth2"):
        # Checksums left to the device would reach the other guest undone.
        subprocess.run(["ethtool", "-K", name, "tx", "off", "rx", "off", "tso", "off",
                        "gso", "off", "gro", "off"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
        with open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w") as f:
            f.write("1")
        ip("link", "set", name, "up", "promisc", "on")


def run_one(args, run):
    """One guest; returns the exit status."""
    guest = Guest(args, "run", 1, args.module, shlex.join(args.command))
    run.add(guest)
    deadline = time.monotonic() + args.timeout
    how = run.wait(lambda: guest.status() is not None, deadline)
    return conclude(run, guest, how)


def run_pair(args, run):
    """Two guests; returns the client's exit status."""
    if args.veth:
        make_network(args.run_dir)
    ready = []

    def server_line(line):
        if line.strip() == b"READY":
            ready.append(True)

    server = Guest(args, "server", 1, args.server, args.server_cmd)
    client = Guest(args, "client", 2, args.client, args.client_cmd)
    deadline = time.monotonic() + args.timeout
    run.add(server, b"server| ", server_line)
    if not args.veth:
        sock = os.path.join(args.run_dir, "net")
        while not os.path.exists(sock) and server.process.poll() is None:
            time.sleep(0.02)
    if args.mode == "shell":
        # Its line is the user's own terminal: nothing can be said to it there.
        run.wait(lambda: ready or server.status() is not None, deadline)
    run.add(client)
    how = run.wait(lambda: (ready and client.is_up()) or
                   any(g.status() is not None for g in run.guests), deadline)
    if how == "done" and not ready:
        culprit = next(g for g in run.guests if g.status() is not None)
        show(f"the {culprit.role}'s command ended with {culprit.status()} before the server printed READY")
        return conclude(run, culprit, "done", failed=True)
    if how == "done":
        client.tell("go")
        # The server's command may end; only with an error is that the end.
        how = run.wait(lambda: client.status() is not None or server.status() is not None,
                       deadline)
        if how == "done" and client.status() is None:
            show(f"the server's command ended with {server.status()} before the client's did")
            return conclude(run, server, "done", failed=True)
        server.tell("stop")
    return conclude(run, client, how)


def conclude(run, guest, how, failed=False):
    """Ends the guests, looks at the consoles; returns the exit status."""
    args = run.args
    status = guest.status()
    bad = None
    if how == "timeout":
        lost = [g.role for g in run.guests if g.lost]
        if lost:
            bad = GUEST_DIED
            show(f"lost: {', '.join(lost)}")
        else:
            bad = TIMED_OUT
            show(f"not done after {args.timeout:g} s")
            for g in run.guests:
                g.tell("hang")
            end = time.monotonic() + 10
            while time.monotonic() < end:
                run.pump(0.2)
        run.kill()
    elif how == "died":
        bad = GUEST_DIED
        dead = [g.role for g in run.guests if g.process.poll() is not None]
        show(f"ended by itself: {', '.join(dead)}")
        run.kill()
    else:
        if failed:
            # The others are of no use any more.
            for g in run.guests:
                if g is not guest and g.process.poll() is None:
                    g.process.kill()
        for g in run.guests:
            if failed and g is not guest:
                continue
            if not run.finish(g, GRACE[g.kernel]):
                bad = GUEST_DIED
                show(f"the {g.role} guest did not power off")
        run.kill()
    reported = False
    for g in run.guests:
        found = reports.find(g.console_lines(), args.expect)
        if found:
            reported = True
            show(f"{len(found)} reports on the console of the {g.role} guest, the first:")
            show("  " + g.console_lines()[found[0]].strip())
        if found or (bad is not None):
            show_console(g, found)
    if bad is not None:
        return bad
    if failed and status == 0:
        return 1
    if status == 0 and reported:
        return REPORTED
    return status


def keep_logs(args, run):
    """Copies consoles and outputs where they were asked for."""
    for guest in run.guests:
        for name in ("console", "output"):
            source = os.path.join(guest.dir, name)
            if os.path.exists(source):
                shutil.copyfile(source, os.path.join(args.logs, f"{guest.role}.{name}"))


def main():
    """Runs what the command line says."""
    args = parse()
    run = Run(args)
    saved = None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if args.mode == "shell" and sys.stdin.isatty():
        saved = termios.tcgetattr(0)
    try:
        status = run_one(args, run) if args.mode == "run" else run_pair(args, run)
    except KeyboardInterrupt:
        status = 130
    finally:
        run.kill()
        if saved:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
        if args.logs:
            keep_logs(args, run)
    sys.exit(status)


if __name__ == "__main__":
    main()
