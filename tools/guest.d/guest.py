# SPDX-License-Identifier: GPL-2.0
"""One guest: what it is started with, and what is seen of it from outside."""

import os
import shlex
import shutil
import socket
import subprocess
import sys

import network
import reports


#: The most memory of a User-mode Linux, in MiB. Its modules lie behind that memory, and
#: a call from there reaches the kernel in front of it only within 2 GiB; beyond, the
#: kernel inserts a module all the same, and it jumps astray.
UML_MEMORY = 1792


def uml_memory(size):
    """A size such as 1G or 512M, as far as it can be had."""
    shift = {"K": -10, "M": 0, "G": 10}.get(size[-1:].upper())
    number = int(size if shift is None else size[:-1])
    mib = number >> 20 if shift is None else int(number * 2.0 ** shift)
    if mib > UML_MEMORY:
        print(f"guest: {UML_MEMORY}M of memory instead of {size}, which is all that User-mode "
              "Linux can have with modules", file=sys.stderr, flush=True)
        return f"{UML_MEMORY}M"
    return size


class Guest:
    """One guest: its directory, its process, its two lines out."""

    def __init__(self, args, role, number, module, command):
        self.args = args
        self.role = role
        self.number = number
        self.module = module
        server = role == "server"
        self.kernel = args.server_kernel if server else args.kernel
        self.kernel_dir = args.server_kernel_dir if server else args.kernel_dir
        self.ours_ko = args.server_ours if server else args.ours
        self.is_uml = self.kernel.startswith("uml")
        self.is_arm64 = self.kernel.startswith("arm64")
        self.memory = ((args.server_memory if server else None) or args.memory
                       or ("1G" if self.is_uml else "2G"))
        self.interactive = args.mode == "shell" and role == "client"
        self.paired = args.mode != "run" and not args.joint
        self.fabric = args.fabric or ("rxe" if self.paired else "")
        self.dir = os.path.join(args.run_dir, role)
        self.console = os.path.join(self.dir, "console")
        self.profile = os.path.join(self.dir, "profile")
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
        # A single guest is its own peer.
        peer_module = {"server": args.client, "client": args.server}.get(self.role, module)
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
            "PEER_MODULE": peer_module,
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
            "RESULTS": os.path.join(self.dir, "results"),
        }
        if args.profile:
            env["PROFILE"] = self.profile
        for setting in args.env:
            name, _, value = setting.partition("=")
            env[name] = value
        size = shutil.get_terminal_size()
        if self.is_uml:
            tty = "/dev/tty1"
        elif self.is_arm64:
            tty = "/dev/ttyAMA1"
        else:
            tty = "/dev/ttyS1"
        own = {
            "GUEST_TTY": tty,
            "INSERT": "1" if args.insert or args.mode != "run" else "0",
            "INTERACTIVE": "1" if self.interactive else "0",
            "MODULES_DIR": os.path.join(self.kernel_dir, "modules/lib/modules"),
            "KUNIT": "0" if args.mode != "run" and self.kernel != "uml" else "1",
            "SCAN": "0" if self.interactive else "1",
            "ROWS": str(size.lines),
            "COLUMNS": str(size.columns),
        }
        keep = [args.tree, os.getcwd(), args.run_dir, self.kernel_dir,
                os.path.dirname(self.ours_ko), *args.see]
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
            frames = network.relay(self.number)
            fds.append(frames.fileno())
        init = os.path.join(self.args.tree, "tools/guest.d/init")
        common = ["rw", f"init={init}", f"guest.dir={self.dir}", "panic=-1",
                  "loglevel=7"]
        # UML polls what it writes to, so that must be a pipe, not a file.
        self.console_out, console = os.pipe()
        os.set_blocking(self.console_out, False)
        # UML reads its console too. What is said to init must come by one way only.
        silence, self.silence = os.pipe()
        self.process = subprocess.Popen(
            self.uml(common, line) if self.is_uml else self.qemu(common, line, frames),
            stdin=0 if self.interactive else silence,
            stdout=1 if self.interactive else console, stderr=console,
            pass_fds=fds, cwd="/",
            env={**os.environ, "TMPDIR": "/dev/shm", "HOME": "/tmp"})
        os.close(silence)
        if self.args.pin:
            # Before it has threads, which inherit this.
            cpus = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(self.process.pid, {cpus[self.number % len(cpus)]})
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
        command = [os.path.join(self.kernel_dir, "image"), f"mem={uml_memory(self.memory)}",
                   f"ncpus={args.cpus}", "seccomp=on", "root=/dev/root",
                   "rootfstype=hostfs", "rootflags=/", console, tty,
                   f"uml_dir={args.run_dir}/", f"umid=uml-{self.role}"]
        if self.paired:
            command.append(f"vec0:transport=raw,ifname=veth{self.number},depth=128,"
                           f"gro=0,mtu=4400,bpffile={args.run_dir}/filter,"
                           f"mac=02:00:00:00:99:0{self.number}")
        return command + common + args.kernel_option

    def qemu(self, common, line, frames):
        """The command of a guest under QEMU."""
        args = self.args
        sock = os.path.join(args.run_dir, "net")
        # The timer check fails, and RCU complains early, where an emulated CPU waits for a real one.
        append = common + ["no_timer_check", "rcupdate.rcu_cpu_stall_timeout=180",
                           "mitigations=off", "apparmor=0",
                           "root=root", "rootfstype=9p",
                           "rootflags=trans=virtio,version=9p2000.L,msize=262144,cache=loose",
                           # Each old pseudo-terminal is a device more to be made at boot.
                           "console=" + ("ttyAMA0" if self.is_arm64 else "ttyS0"),
                           "net.ifnames=0", "pty.legacy_count=0"]
        tty = (["-chardev", "stdio,id=tty,signal=off"] if self.interactive else
               ["-chardev", f"socket,id=tty,fd={line}"])
        if self.kernel == "debug" and args.cpus == 1:
            # Its tables are interpreted, which takes a third of the boot; only a
            # second CPU is found by them. Without them the rate of the TSC can be measured with
            # the PIT only, which mostly fails; or it is wrong by far, and so is the time.
            append += ["acpi=off", "notsc"]
        append += args.kernel_option
        # Without five levels of page tables: while the kernel looks for its CPU's features it forgets for
        # a moment that it uses them, and an interrupt just then is a wild access to KASAN.
        emulator, machine, root = "qemu-system-x86_64", "q35", "/"
        accel, cpu = ["-accel", "tcg,thread=multi"], "max,-la57"
        if self.is_arm64:
            # Pointers are signed by something fast: nobody attacks this guest. Its root is one
            # of its own, see scripts/lib/tools.sh.
            emulator, machine, root = "qemu-system-aarch64", "virt", "/srv/guest"
            cpu = "max,pauth-impdef=on"
        if args.icount:
            # sleep=off: a CPU that has nothing to do goes to its next timer at once. An emulated
            # string instruction counts as one for each element that it moves, so the
            # kernel's copies of eight octets at a time are nearer to what a real CPU does.
            accel = ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]
            cpu += ",-erms,-fsrm,-fzrm,-fsrs"
        if args.profile:
            plugin = f"{self.profile}.so"
            subprocess.run(["gcc", "-Wall", "-O2", "-shared", "-fPIC", "-fvisibility=hidden",
                            "-o", plugin, os.path.join(args.tree, "tools/guest.d/profile.c")],
                           check=True)
            writes = ",writes=on" if args.writes else ""
            accel += ["-plugin", f"file={plugin},out={self.profile}{writes}"]
        command = [emulator, "-M", machine, *accel,
                   "-cpu", cpu, "-m", self.memory, "-smp", str(args.cpus),
                   "-nodefaults", "-display", "none", "-no-reboot",
                   "-kernel", os.path.join(self.kernel_dir, "image"),
                   "-append", " ".join(append),
                   "-chardev", f"file,id=con,path={self.console}",
                   "-serial", "chardev:con", *tty, "-serial", "chardev:tty",
                   "-fsdev",
                   f"local,id=root,path={root},security_model=passthrough,multidevs=remap",
                   "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
                   "-device", "virtio-rng-pci"]
        initrd = os.path.join(self.kernel_dir, "initrd")
        if os.path.exists(initrd):
            command += ["-initrd", initrd]
        if self.paired:
            listen = "on" if self.number == 1 else "off"
            # Without mrg_rxbuf frames are in plain pages. rxe frees what it has received with
            # interrupts off when a QP has failed, and pages of a pool must not be freed so.
            netdev = (f"dgram,id=net,local.type=fd,local.str={frames.fileno()}" if frames else
                      f"stream,id=net,server={listen},addr.type=unix,addr.path={sock}")
            command += ["-netdev", netdev, "-device",
                        "virtio-net-pci,netdev=net,host_mtu=4400,mrg_rxbuf=off,"
                        f"mac=02:00:00:00:99:0{self.number}"]
        return command + args.qemu

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
