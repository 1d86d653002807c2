#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# rpcrdma-pathd moves the right transports, and only those, in directories like those of sysfs. It goes
# on without what it can't make out.
# timeout: 400
"""The service with an imitation of the kernel: addresses answer or not, and times are short."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("pathd", "tools/rpcrdma-pathd")
pathd = importlib.util.module_from_spec(importlib.util.spec_from_loader("pathd", LOADER))
LOADER.exec_module(pathd)
#: How much shorter times are than they are in use. A busy machine may be late by a tenth of a second.
FASTER = 10 / min(5, max(1, os.getloadavg()[0] / os.cpu_count()))
for name in ("STEP", "QUIET", "ANSWER", "AGAIN", "STEADY"):
    setattr(pathd, name, getattr(pathd, name) / FASTER)
#: What asks, before it is imitated.
ANSWERS = pathd.answers
A, B, C, D = "10.0.0.1", "10.0.1.1", "10.0.2.1", "fd00::1"


class Kernel:
    """Transports that RPCs wait for, which end where the address answers and the server is quick."""

    def __init__(self, top):
        self.top, self.up, self.slow = top, {A, B, C, D}, False
        #: Addresses that nobody can begin to connect to: the device that leads there is gone.
        self.gone = set()
        self.paths, self.count = [], 0
        self.asked, self.over = [], False
        pathd.TOP, pathd.answers = top, self.answers
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()

    def answers(self, address, port, limit=0):
        """In the place of the connection manager."""
        self.asked.append(address)
        assert port == 20050, port
        if address not in self.up:
            time.sleep(pathd.ANSWER)
        return address in self.up

    def add(self, switch, number, address):
        """A transport more."""
        path = f"{self.top}/switch-{switch}/xprt-{number}-rdma"
        os.makedirs(path)
        self.put(path, "dstaddr", address)
        self.put(os.path.dirname(path), "xprt_switch_info", "num_xprts=1\nqueue_len=2")
        self.step(path)
        self.paths.append(path)
        return path

    @staticmethod
    def put(path, name, text):
        """A file of a transport, written at once."""
        with open(f"{path}/.{name}", "w", encoding="ascii") as f:
            f.write(text + "\n")
        os.replace(f"{path}/.{name}", f"{path}/{name}")

    def step(self, path):
        """An RPC ends, if it can."""
        address = pathd.read(f"{path}/dstaddr").strip()
        if address in self.gone:
            self.put(path, "xprt_info", "<closed>")
            self.put(path, "xprt_state", "state=   BOUND")
            return
        if address in self.up and not self.slow:
            self.count += 1
            self.put(path, "xprt_info", f"last_used={self.count}\npending_q_len=2\ndst_port=20050")
        self.put(path, "xprt_state", "state=LOCKED CONNECTED BOUND")

    def live(self):
        """All of them, until it is over."""
        while not self.over:
            for path in list(self.paths):
                self.step(path)
            time.sleep(0.01)

    def leads(self):
        """Where the transports lead, in their order."""
        return [pathd.read(f"{path}/dstaddr").strip() for path in self.paths]


def expect(kernel, watch, what, wanted):
    """The service goes on until they lead there, and for a while longer."""
    end, stay = time.monotonic() + 200 / FASTER, None
    while time.monotonic() < end:
        watch.look()
        leads = kernel.leads()
        if leads == wanted:
            stay = stay or time.monotonic()
            if time.monotonic() - stay > 15 / FASTER:
                print(f"ok: {what}", flush=True)
                return
        elif stay and "" not in leads:
            break
        time.sleep(pathd.STEP)
    sys.exit(f"{what}: {kernel.leads()}, not {wanted}")


def said(act, *arguments):
    """What something returns, and what it logs."""
    lines = []
    keep, pathd.log = pathd.log, lines.append
    try:
        return act(*arguments), lines
    finally:
        pathd.log = keep


def files(top):
    """A line of the configuration that is wrong is left out, and told; so is a file of its own."""
    path = f"{top}/paths"
    assert said(pathd.configuration, path) == ([], [])
    with open(path, "wb") as f:
        f.write("# Büro\n10.0.0.1 10.0.1.1 # zwei Kästen\n".encode() + b"\n# \xff\n10.0.2.1 filer\n"
                b"10.0.2.1 10.0.2\nFD00::0001 10.0.3.1\n")
    groups, lines = said(pathd.configuration, path)
    assert groups == [[A, B], [D, "10.0.3.1"]], groups
    assert [line.split(" does", maxsplit=1)[0] for line in lines] == [f"{path}:5: 'filer'",
                                                                      f"{path}:6: '10.0.2'"], lines
    groups, lines = said(pathd.configuration, top)
    assert groups == [] and len(lines) == 1, lines
    for text in ("", "{", "\xff", "[]", "3", "null", '{"t": 3}', '{"t": ["10.0.0.1"]}', '{"t": [null, {}]}'):
        with open(path, "w", encoding="latin-1") as f:
            f.write(text)
        watch, lines = said(pathd.Watch, [], path)
        assert watch.away == {} and len(lines) == 1 and lines[0].startswith(f"{path}: "), (text, lines)
    print("ok: files that are wrong", flush=True)


def no_manager(top):
    """Without the connection manager nothing is known of an address, and that is told once."""
    pathd.MANAGER, pathd.answers = f"{top}/rdma_cm", ANSWERS
    addresses = [pathd.Address(A), pathd.Address(B)]

    def ask():
        for _ in range(2):
            for one in addresses:
                one.wait(20050)

    _, lines = said(ask)
    assert len(lines) == 1 and lines[0].endswith("/rdma_cm: No such file or directory; load the module "
                                                 "rdma_ucm"), lines
    assert not any(one.is_dead(-1) or one.is_alive(0) or one.busy for one in addresses)
    # That is not status 1, which says that nobody answers; nor is a name, which is never asked.
    for asked, text in ((A, "error: cannot probe addresses: "), ("filer", "invalid address value: 'filer'")):
        sys.argv[1:] = ["--ask", asked]
        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors):
                pathd.main()
        except SystemExit as e:
            assert e.code == 2 and text in errors.getvalue(), (asked, e.code, errors.getvalue())
        else:
            sys.exit(f"--ask {asked} does not end")
    print("ok: without the connection manager", flush=True)


def main():
    """Each case goes on where the last one has left."""
    with tempfile.TemporaryDirectory() as top:
        files(top)
        no_manager(top)
        kernel, away = Kernel(f"{top}/switches"), f"{top}/away"
        watch = pathd.Watch([[A, B]], away)
        kernel.add(1, 9, A)
        kernel.add(1, 10, A)
        kernel.add(2, 11, A)
        kernel.add(3, 12, C)
        kernel.add(3, 13, D)
        expect(kernel, watch, "spread over a line; one alone, and others, stay", [A, B, A, C, D])
        kernel.slow = True
        expect(kernel, watch, "a slow server is none that is dead", [A, B, A, C, D])
        kernel.slow = False
        kernel.up.remove(B)
        expect(kernel, watch, "to the address that answers", [A, A, A, C, D])
        with open(away, encoding="ascii") as f:
            assert json.load(f) == {"switch-1/xprt-10-rdma": [A, B]}
        watch = pathd.Watch([[A, B]], away)
        expect(kernel, watch, "started again", [A, A, A, C, D])
        kernel.up.add(B)
        expect(kernel, watch, "and back", [A, B, A, C, D])
        kernel.up.remove(A)
        expect(kernel, watch, "the first transports too", [B, B, B, C, D])
        kernel.up.add(A)
        expect(kernel, watch, "and back", [A, B, A, C, D])
        kernel.up.remove(D)
        expect(kernel, watch, "without a line, among the transports of a mount", [A, B, A, C, C])
        kernel.up.remove(C)
        expect(kernel, watch, "nothing answers, nothing moves", [A, B, A, C, C])
        kernel.up.add(D)
        expect(kernel, watch, "the other one is back", [A, B, A, D, D])
        kernel.up.add(C)
        expect(kernel, watch, "and all are", [A, B, A, C, D])
        kernel.up.remove(A)
        kernel.gone.add(A)
        expect(kernel, watch, "one that is not connected", [B, B, B, C, D])
        kernel.up.add(A)
        kernel.gone.remove(A)
        expect(kernel, watch, "and back", [A, B, A, C, D])
        kernel.asked.clear()
        time.sleep(10 / FASTER)
        watch.look()
        assert not kernel.asked, f"{kernel.asked} were asked, though nobody waits for them"
        kernel.over = True
        kernel.thread.join()


main()
