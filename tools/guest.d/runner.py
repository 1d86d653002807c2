#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Boots guests, runs a command in each, and judges how that went.

Runs inside the sysroot, as first process of a process, mount and network
namespace of its own: whatever it leaves behind goes away with it.
"""

import argparse
import glob
import math
import os
import selectors
import shlex
import shutil
import signal
import sys
import termios
import time

import network
import reports
from guest import Guest

TIMED_OUT = 124
REPORTED = 125
GUEST_DIED = 126

# What the interactive guest says and runs.
SHELL = """cat <<END
A guest with the RDMA device $RDMADEV ($(uname -r), $KERNEL); rpcrdma is $MODULE.
The server's export: mount_nfs 4.2 mounts it on /mnt; see $GUEST_LIB.
exit ends both guests.
END
exec bash --rcfile "$GUEST_LIB" -i"""

# Seconds that a guest has for its last checks and to power off. Half a minute of it is for the
# end of a server, so that init can tell what that waits for.
GRACE = {"uml": 60, "uml-versions": 60, "uml-lockdep": 80, "uml-kasan": 150, "debug": 270,
         "cfi": 90, "debian": 90, "arm64": 90, "arm64-16k": 90, "arm64-64k": 90}


def parse():
    """Reads the command line; tools/guest documents it."""
    p = argparse.ArgumentParser()
    p.add_argument("mode", choices=["run", "pair", "shell"])
    for name in ("tree", "run-dir", "kernel", "kernel-dir", "ours", "module",
                 "server", "client", "server-kernel", "server-kernel-dir", "server-ours"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--logs")
    p.add_argument("--fabric", choices=["rxe", "siw", "hca"])
    p.add_argument("--insert", action="store_true")
    p.add_argument("--cpus", type=int)
    p.add_argument("--pin", action="store_true")
    p.add_argument("--icount", action="store_true")
    p.add_argument("--profile", action="store_true")
    p.add_argument("--writes", action="store_true")
    p.add_argument("--qemu", action="append", default=[])
    p.add_argument("--kernel-option", action="append", default=[])
    p.add_argument("--memory")
    p.add_argument("--server-memory")
    p.add_argument("--timeout", type=float)
    p.add_argument("--env", action="append", default=[])
    p.add_argument("--see", action="append", default=[])
    p.add_argument("--expect", action="append", default=[])
    p.add_argument("--server-cmd")
    p.add_argument("--client-cmd")
    # What follows "--" is the command's.
    words = sys.argv[1:]
    end = words.index("--")
    # Such an argument may begin with a dash.
    joined = iter(words[:end])
    args = p.parse_args([f"{w}={next(joined)}" if w == "--qemu" else w for w in joined])
    args.command = words[end + 1:]
    if args.timeout is None:
        # Somebody sits at a shell.
        args.timeout = math.inf if args.mode == "shell" else 3600
    if args.mode == "shell":
        args.server_cmd = '. "$GUEST_LIB" && start_nfs_server && echo READY'
        args.client_cmd = SHELL
    if args.mode == "pair" and not (args.server_cmd and args.client_cmd):
        p.error("pair needs --server-cmd and --client-cmd")
    if args.mode == "run" and not args.command:
        p.error("run needs a command after --")
    if args.icount and (args.mode != "run" or args.kernel.startswith("uml")):
        p.error("--icount is for one guest under QEMU")
    if args.icount and args.kernel.startswith("arm64"):
        p.error("--icount is for x86")
    if args.profile and not args.icount:
        p.error("--profile is for --icount")
    if args.writes and not args.profile:
        p.error("--writes is for --profile")
    if args.cpus is None:
        # A clock that counts instructions is one CPU's, unless more are asked for.
        args.cpus = 1 if args.icount else 2
    # Both ends of an hca device are in one kernel.
    args.joint = args.mode == "pair" and args.fabric == "hca"
    if args.fabric == "hca" and args.mode == "shell":
        p.error("an hca device does not reach another guest")
    if args.joint and (args.server != args.client or args.server_kernel != args.kernel):
        p.error("over hca both ends of a pair have one kernel, and one module")
    # A pair of QEMU guests needs no device of this machine.
    args.veth = args.kernel.startswith("uml") or args.server_kernel.startswith("uml")
    return args


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


def show_output(guest):
    """Prints the end of what a guest's command has said."""
    with open(os.path.join(guest.dir, "output"), errors="replace") as f:
        lines = f.read().splitlines()[-20:]
    show(f"the last {len(lines)} lines of the {guest.role}'s output:")
    for line in lines:
        print("  | " + line, file=sys.stderr)
    sys.stderr.flush()


def show_why(run, *guests):
    """Has guests tell on their consoles where they are stuck, and shows what their threads do here."""
    for guest in guests:
        guest.tell("hang")
    end = time.monotonic() + 10
    while time.monotonic() < end:
        run.pump(0.2)
    for guest in guests:
        for task in sorted(glob.glob(f"/proc/{guest.process.pid}/task/*")):
            try:
                with open(f"{task}/stat") as stat, open(f"{task}/wchan") as wchan:
                    name, state = stat.read().rsplit(")", 1)
                    show(f"{guest.role}: thread {name}), state {state.split()[0]}, in {wchan.read()}")
            except OSError:
                # It has just ended.
                pass


# Both parts of a pair in one guest. The server's goes on until the client's is done; what it
# says has a prefix, and its exit status counts only if it ends by itself.
JOINT = """
coproc SERVER { ROLE=server exec bash -c %s 2>&1; }
server=$SERVER_PID
exec 8<&"${SERVER[0]}"
while IFS= read -r line <&8; do
	echo "server| $line"
	[ "$line" != READY ] || break
done
if [ "$line" != READY ]; then
	wait "$server"
	echo "the server's command exited with $? before it printed READY"
	exit 1
fi
sed -u 's/^/server| /' <&8 &
ROLE=client bash -c %s
status=$?
kill -TERM "$server" 2>/dev/null
exit "$status"
"""


def run_one(args, run):
    """One guest, with both parts of a pair if its ends are in one kernel; returns the exit status."""
    if args.joint:
        text = JOINT % (shlex.quote(args.server_cmd), shlex.quote(args.client_cmd))
        guest = Guest(args, "run", 1, args.client, text)
    else:
        guest = Guest(args, "run", 1, args.module, shlex.join(args.command))
    run.add(guest)
    deadline = time.monotonic() + args.timeout
    how = run.wait(lambda: guest.status() is not None, deadline)
    return conclude(run, guest, how)


def run_pair(args, run):
    """Two guests; returns the client's exit status."""
    if args.veth:
        network.make(args.run_dir)
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
    if ready or args.mode != "shell":
        run.add(client)
    how = run.wait(lambda: (ready and client.is_up()) or
                   any(g.status() is not None for g in run.guests), deadline)
    if how == "done" and not ready:
        culprit = next(g for g in run.guests if g.status() is not None)
        show(f"the {culprit.role}'s command exited with {culprit.status()} before the server printed READY")
        status = conclude(run, culprit, "done", failed=True)
        if args.mode == "shell":
            # Nobody has seen it yet.
            show_output(server)
        return status
    if how == "done":
        client.tell("go")
        # The server's command may end; only with an error is that the end.
        how = run.wait(lambda: client.status() is not None or server.status() is not None,
                       deadline)
        if how == "done" and client.status() is None:
            show(f"the server's command exited with {server.status()} before the client's did")
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
            show_why(run, *run.guests)
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
                reached = "ended" if g.status() is not None else "not ended"
                checked = "are over" if g.ended_well() else "are not over"
                show(f"the {g.role} guest did not power off; its command has {reached}, its last "
                     f"checks {checked}")
                show_why(run, g)
        run.kill()
    reported = False
    for g in run.guests:
        found = reports.find(g.console_lines(), args.expect, g.module)
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
    """Copies consoles, outputs and results where they were asked for."""
    for guest in run.guests:
        for name in ("console", "output", "results"):
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
        status = run_one(args, run) if args.mode == "run" or args.joint else run_pair(args, run)
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
