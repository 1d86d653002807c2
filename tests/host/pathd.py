#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# rpcrdma-pathd moves the right transports, and only those, in directories like those of sysfs.
# timeout: 120
"""The service with an imitation of the kernel: addresses answer or not, and times are short."""

import importlib.machinery
import importlib.util
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
for name in ("STEP", "QUIET", "ANSWER", "AGAIN", "STEADY"):
    setattr(pathd, name, getattr(pathd, name) / 10)
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


def expect(kernel, watch, what, wanted, seconds=20):
    """The service goes on until they lead there, and for a while longer."""
    end, stay = time.monotonic() + seconds, None
    while time.monotonic() < end:
        watch.look()
        leads = kernel.leads()
        if leads == wanted:
            stay = stay or time.monotonic()
            if time.monotonic() - stay > 1.5:
                print(f"ok: {what}", flush=True)
                return
        elif stay and "" not in leads:
            break
        time.sleep(pathd.STEP)
    sys.exit(f"{what}: {kernel.leads()}, not {wanted}")


def main():
    """Each case goes on where the last one has left."""
    with tempfile.TemporaryDirectory() as top:
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
        time.sleep(1)
        watch.look()
        assert not kernel.asked, f"{kernel.asked} were asked, though nobody waits for them"
        kernel.over = True
        kernel.thread.join()


main()
