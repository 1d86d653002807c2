# SPDX-License-Identifier: GPL-2.0
"""What an NFSv3 client does when one Reply of the hostile server is wrong."""

import os
import struct
import sys
import threading
import time

import conform_table as table
import hostile_cases
import hostile_server
import hostile_two_cases
from hostile_operations import MOUNT_PORT, mount_options
from nfs3_mini import NAMES, Nfs3, serve_mount

#: How long a Call is waited for, in seconds.
PATIENCE = 20
#: The sections that cases of Version One are about, by the beginning of their names.
ONE = (("cut_at", "RFC 8166 4.5"), ("version", "RFC 8166 4.2.2, 4.5.1"), ("proc", "RFC 8166 4.2.4, 4.6"),
       ("xid", "RFC 8166 4.2.1, 4.5.2"), ("credits", "RFC 8166 3.3.1, 4.2.3"), ("error", "RFC 8166 4.5"),
       ("invalidate", "RFC 8797 4.1"), ("write_invalidates", "RFC 8797 4.1"),
       ("rdma_", "RFC 8166 4.4.1, 8.1"), ("write_chunk", "RFC 8166 3.4.6, 4.3.2"),
       ("reply_chunk", "RFC 8166 4.3.3"), ("read_list", "RFC 8166 4.3.1"), ("padding", "RFC 8166 3.4.6.2"),
       ("reverse", "RFC 8167 5.1"), ("rpc_", "RFC 5531 9"), ("", "RFC 8166 4.5.2"))
#: Those of Version Two.
TWO = (("cut_at", "-07 6.2.1, 7.2.1"), ("version", "-07 4.3.3, 7.1.2"), ("type", "-07 6.1, 7.1.3"),
       ("part", "-07 6.3.9, 7.1.4"), ("last", "-07 6.3.9, 7.1.4"), ("rest", "-07 6.3.9"),
       ("credits", "-07 4.2.1"), ("grant", "-07 4.2.1.1, 6.3.2"), ("properties", "-07 6.3.4"),
       ("error", "-07 6.3.1, 7"), ("refuse", "-07 7.3"), ("invalidate", "-07 6.5"),
       ("external", "-07 6.3.8"), ("write_chunk", "-07 4.5.2.1"), ("reverse", "-07 4.6"),
       ("", "-07 6.3.9, 6.3.10"))
#: Cases that wait for more than one Call, or never end.
LEFT_OUT = {"rdma_write_killed", "spoilt_for_ever", "credits_none_for_ever", "credits_behind",
            "credits_too_far", "credits_none_for_a_while", "segments_down", "closed_read",
            "credits_of_nobody", "credits_few", "never_received"}


def section(name, sections):
    """The section that a case is about."""
    return next(text for prefix, text in sections if name.startswith(prefix))


class Server(hostile_server.Server):
    """The hostile server, which can be told to end a connection."""

    def __init__(self):
        super().__init__()
        #: Set if the current connection is to be ended.
        self.ending = False
        self.nfs = Watched(self)

    def events(self, wait):
        """Handles what the connection manager has to say."""
        if self.ending:
            self.ending = False
            self.drop("the client does nothing")
        super().events(wait)


class Watched(Nfs3):
    """The NFS server, which takes down what Calls come, and over which connection."""

    def __init__(self, server):
        super().__init__()
        self.server = server
        #: The number of the connection, the transaction ID and the procedure of each Call.
        self.calls = []

    def answer(self, message):
        """Takes the Call down and answers it."""
        if len(message) >= 24:
            (xid,) = struct.unpack_from(">I", message)
            procedure = NAMES.get(struct.unpack_from(">I", message, 20)[0], "?")
            self.calls.append((self.server.connections, xid, procedure))
        return super().answer(message)


class Director:
    """Sets one case after the other and looks what the client does."""

    def __init__(self, server, seconds, out):
        self.server, self.seconds, self.out = server, seconds, out
        self.calls = server.nfs.calls

    def wait(self, seconds, condition):
        """Waits until a condition is true; returns whether it became so."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def set(self, name="", procedure=""):
        """Sets the case, or none, for the Replies from now on."""
        with self.server.lock:
            self.server.case = (name, procedure)

    def one(self, name, procedure):
        """What the client does after one Reply that is wrong in this way: some words, and notes."""
        self.server.hits, self.server.notes = 0, []
        begun = len(self.calls)
        self.set(name, procedure)
        if not self.wait(PATIENCE, lambda: self.server.hits):
            self.set()
            return f"no {procedure} came", []
        spoilt = next(c for c in reversed(self.calls[begun:]) if c[2] == procedure)
        since = time.monotonic()
        # Waits until the case is through with the Reply.
        self.set()
        sent = len(self.calls)

        def next_one():
            """The next Call that shows what has become of that one."""
            return next((c for c in self.calls[sent:] if c[1] == spoilt[1] or c[2] == procedure), None)

        self.wait(self.seconds, next_one)
        found, took = next_one(), time.monotonic() - since
        connection = "the same connection" if self.server.connections == spoilt[0] else "another connection"
        if not found:
            what = f"nothing for {self.seconds:g} s, {connection}"
            self.server.ending = True
            if self.wait(PATIENCE, next_one):
                what += "; goes on when that has ended"
            else:
                what += f"; nothing for {PATIENCE} s either when that has ended"
        elif found[1] == spoilt[1]:
            what = f"sends the Call again after {took:.1f} s, {connection}"
        else:
            what = f"ends the RPC after {took:.1f} s, {connection}"
        return what, sorted(set(self.server.notes))

    def run(self, cases, sections):
        """All cases."""
        last = None
        for name, case in cases.items():
            if name in LEFT_OUT:
                continue
            what, notes = self.one(name, case.procedure)
            print("\n".join([*table.heading(section(name, sections), name, case.text),
                             f"    {case.procedure}: {what}",
                             *(table.indented(note, 4) for note in notes)]), file=self.out, flush=True)
            # A client that has gone is not waited for again and again.
            if what.startswith("no ") and last == what:
                print("no more Calls come", file=self.out, flush=True)
                return 1
            last = what
        return 0


def main(address, seconds):
    """The table of a client; does not return."""
    # What the server itself says is not part of the table.
    out, sys.stdout = sys.stdout, sys.stderr
    server = Server()
    threading.Thread(target=serve_mount, args=(MOUNT_PORT,), daemon=True).start()
    print(f"mount -t nfs -o {mount_options(address)} {address}:/ DIRECTORY", file=out)
    print("tools/conform load DIRECTORY\n", file=out, flush=True)

    def direct():
        """Begins when there is a client, and ends the program."""
        status = 70
        try:
            director = Director(server, seconds, out)
            director.wait(600, lambda: any(c[2] == "GETATTR" for c in director.calls))
            two = server.two
            cases = hostile_two_cases.CASES if two else hostile_cases.CASES
            print(f"Version {2 if two else 1}\n---------", file=out, flush=True)
            if two and not (server.connection and server.connection.two):
                print("The client does not speak it.", file=out, flush=True)
                status = 0
            else:
                status = director.run(cases, TWO if two else ONE)
        finally:
            os._exit(status)

    threading.Thread(target=direct, daemon=True).start()
    server.run()
