#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Cases on an RDMA device of this machine, with another machine as the server.

  tools/check --device DEVICE --peer HOST [OPTION…] [PATTERN…]

  --peer-device DEVICE   its name there, if it is another
  --ko FILE              our module for the kernel of both machines: rpcrdma.ko of this tree
  --address A, --peer-address A
                         of the devices: the first IPv4 address of their network devices
  --ssh COMMAND          what runs a command there: "ssh HOST"
  --peer-tree DIR        this tree is there already, and need not be copied
  --report FILE          where to write what was seen: device-report.txt
  --soak                 full counts
  --list                 the cases, and nothing else

Documentation/develop/testing/hardware.rst says what this touches.
"""

import argparse
import fnmatch
import glob
import json
import os
import secrets
import shlex
import subprocess
import sys
import threading
import time

import reports

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: What of it the other machine needs.
PARTS = ("tests/guest", "tests/lib", "tools/guest.d")


class Wrong(Exception):
    """Nothing can be run."""


class Machine:
    """One end: how commands run there, and what is known of it."""

    def __init__(self, name, device, prefix, tree):
        self.name, self.device, self.prefix, self.tree = name, device, prefix, tree

    def command(self, *words):
        """A command line of tools/guest.d/machine there."""
        words = (f"{self.tree}/tools/guest.d/machine", *words)
        return [*self.prefix, shlex.join(words)] if self.prefix else list(words)

    def run(self, *words):
        """Runs it to its end."""
        done = subprocess.run(self.command(*words), stdin=subprocess.DEVNULL, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        if done.returncode:
            raise Wrong(f"{self.name}: {shlex.join(words)}: {done.stdout.strip()}")
        return done.stdout

    def facts(self):
        """What is there: names and values, counters by themselves."""
        found, counters = {}, {}
        for line in self.run("facts", self.device).splitlines():
            name, _, value = line.partition(" ")
            if name == "counter":
                name, _, value = value.partition(" ")
                counters[name] = int(value) if value.isdigit() else 0
            else:
                found[name] = value.strip()
        return found, counters

    def check(self):
        """Fails if something is in use here, or missing; returns the facts."""
        found, _ = self.facts()
        for wrong, text in (
                (found["user"] != "0", "not root"),
                ("state" not in found, f"no RDMA device {self.device}"),
                ("ACTIVE" not in found.get("state", "ACTIVE"), f"{self.device} is not active"),
                (found.get("address", "") == "", f"{self.device} has no IPv4 address"),
                (found["module"] not in ("none", "0"), "rpcrdma is in use"),
                (found["mounts"] != "0", "there are NFS mounts over RDMA"),
                (found["nfsd"] not in ("", "0"), "an NFS server runs")):
            if wrong:
                raise Wrong(f"{self.name}: {text}")
        if found["module"] == "0":
            self.run("remove")
        return found


def instances(patterns):
    """The cases that say that they need no guest: script, variant, timeout and rounds of each."""
    for script in sorted(glob.glob(f"{TREE}/tests/guest/*.py")):
        header = {}
        with open(script, encoding="utf-8") as f:
            for line in f:
                if not line.startswith("#"):
                    break
                key, found, value = line[1:].strip().partition(": ")
                if found:
                    header[key] = f"{header.get(key, '')} {value}".strip()
        for variant in header.get("device-variants", "").split():
            name = f"device/{os.path.basename(script)[:-3]}/{variant}"
            if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns):
                yield (name, os.path.relpath(script, TREE), variant,
                       header.get("timeout", "120 3600").split(),
                       header.get("rounds", "1 1").split())


def environment(role, args, machines, variant, rounds, secret):
    """What a case's end finds in its environment."""
    own, peer = machines[role], machines["client" if role == "server" else "server"]
    word, _, ends = variant.partition("@")
    env = {
        "KERNEL": "machine", "FABRIC": "device", "ROLE": role, "VARIANT": word,
        "ROUNDS": rounds, "SOAK": str(int(args.soak)), "SLOW": "0",
        "MODULE": "ours", "PEER_MODULE": "ours", "MODULE_KO": own.ko, "OURS_KO": own.ko,
        "STOCK_KO": "", "OWN_ADDR": own.address, "PEER_ADDR": peer.address,
        "NETDEV": own.netdev, "RDMADEV": own.device, "CONTROL_SECRET": secret,
        "GUEST_LIB": f"{own.tree}/tools/guest.d/lib.sh",
    }
    if ends.count("-") == 2:
        env["RPCRDMA_VERSION"] = {"one": "1", "two": "2", "2016": "2016"}[ends.split("-")[2]]
    return [f"{name}={value}" for name, value in env.items()]


def start(machine, env, script, role, lines, ready):
    """Starts a case's end; its lines are collected."""
    inner = f"cd {shlex.quote(machine.tree)} && exec {script} {role}"
    process = subprocess.Popen(machine.command("run", *env, "--", "bash", "-c", inner),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)

    def collect():
        for line in process.stdout:
            lines.append(f"{role}| {line.rstrip()}")
            if line.strip() == "READY":
                ready.set()
        ready.set()
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    return process, thread


def stop(process, thread):
    """Ends a case's end, and waits for it."""
    process.stdin.close()
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
    thread.join(timeout=10)


def run_case(args, machines, instance):
    """Runs one; returns its status (0, 77, else failed), the lines of both ends, and its time."""
    _, script, variant, timeouts, rounds = instance
    secret = secrets.token_hex(16)
    lines, ready = [], threading.Event()
    rounds = rounds[min(int(args.soak), len(rounds) - 1)]
    timeout = 2 * int(timeouts[min(int(args.soak), len(timeouts) - 1)])
    began = time.monotonic()
    server = start(machines["server"], environment("server", args, machines, variant, rounds,
                                                   secret), script, "server", lines, ready)
    code = 1
    if ready.wait(60) and server[0].poll() is None:
        client = start(machines["client"], environment("client", args, machines, variant, rounds,
                                                       secret), script, "client", lines,
                       threading.Event())
        try:
            code = client[0].wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            lines.append(f"not done after {timeout} s")
        stop(*client)
    else:
        lines.append("the server did not start")
    stop(*server)
    return code, lines, time.monotonic() - began


def one(args, machines, instance, out):
    """Runs one case between two looks at both machines; returns whether it did not fail."""
    before = {role: machine.facts() for role, machine in machines.items()}
    code, lines, took = run_case(args, machines, instance)
    changes = []
    for role, machine in machines.items():
        _, counters = machine.facts()
        changes += [f"{role}: {name} +{value - before[role][1].get(name, 0)}"
                    for name, value in counters.items() if value > before[role][1].get(name, 0)]
        said = machine.run("log", before[role][0]["uptime"]).splitlines()
        for i in reports.find(said):
            lines.append(f"{role}: REPORT: {said[i]}")
            code = code or 125
    verdict = {0: "PASS", 77: "SKIP"}.get(code, "FAIL")
    text = f"{verdict}  {instance[0]:48} {took:4.0f} s"
    print(text, flush=True)
    out.write(f"\n{text}\n")
    for line in lines + changes:
        out.write(f"    {line}\n")
    if verdict == "FAIL":
        print("\n".join(f"    | {line}" for line in lines[-40:]), flush=True)
    return verdict


def prepare(args):
    """Both machines, looked at, with the module inserted."""
    remote = shlex.split(args.ssh) if args.ssh else ["ssh", args.peer]
    machines = {
        "client": Machine("this machine", args.device, [], TREE),
        "server": Machine(args.peer, args.peer_device or args.device, remote, args.peer_tree),
    }
    if not os.path.exists(args.ko):
        raise Wrong(f"{args.ko}: no such module; make KDIR=… makes it")
    server = machines["server"]
    if not server.tree:
        made = subprocess.run([*remote, "mktemp -d /var/tmp/rpcrdma-tests.XXXXXX"], check=True,
                              stdout=subprocess.PIPE, text=True)
        server.tree = made.stdout.strip()
        tar = subprocess.Popen(["tar", "-C", TREE, "-c", *PARTS], stdout=subprocess.PIPE)
        subprocess.run([*remote, f"tar -C {server.tree} -x"], stdin=tar.stdout, check=True)
        with open(args.ko, "rb") as f:
            subprocess.run([*remote, f"cat >{server.tree}/rpcrdma.ko"], stdin=f, check=True)
        server.ko, server.copied = f"{server.tree}/rpcrdma.ko", True
    else:
        server.ko, server.copied = args.ko, False
    machines["client"].ko = args.ko
    for role, machine in machines.items():
        machine.known = machine.check()
        given = args.address if role == "client" else args.peer_address
        machine.address = given or machine.known["address"]
        machine.netdev = machine.known["netdev"]
    for machine in machines.values():
        machine.run("insert", machine.ko)
    return machines, remote


def options():
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", required=True)
    parser.add_argument("--peer", required=True)
    for name in ("peer-device", "address", "peer-address", "ssh", "peer-tree"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--ko", default=f"{TREE}/rpcrdma.ko", type=os.path.abspath)
    parser.add_argument("--report", default="device-report.txt")
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("patterns", nargs="*")
    return parser.parse_args()


def main():
    """Runs all; the status is 0 if some have passed and none has failed."""
    args = options()
    chosen = list(instances(args.patterns))
    if args.list:
        print("\n".join(instance[0] for instance in chosen))
        return 0
    if not chosen:
        raise Wrong(f"no such case: {args.patterns}")
    machines, remote = prepare(args)
    counts = {"PASS": 0, "FAIL": 0, "SKIP": 0}
    try:
        with open(args.report, "w", encoding="utf-8") as out:
            for role, machine in machines.items():
                out.write(f"{role}: {machine.name}, {machine.device}: "
                          f"{json.dumps(machine.known)}\n")
            for instance in chosen:
                counts[one(args, machines, instance, out)] += 1
            last = (f"{counts['PASS']} passed, {counts['FAIL']} failed, "
                    f"{counts['SKIP']} skipped")
            out.write(f"\n{last}\n")
    finally:
        for machine in machines.values():
            machine.run("remove")
        if machines["server"].copied:
            subprocess.run([*remote, f"rm -rf {machines['server'].tree}"], check=False)
    print(f"report: {os.path.abspath(args.report)}")
    print(last)
    return 0 if counts["PASS"] and not counts["FAIL"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Wrong, subprocess.SubprocessError) as e:
        sys.exit(f"tools/check --device: {e}")
