# SPDX-License-Identifier: GPL-2.0
"""A network namespace with the guest's network device, as a container has it."""

import os
import signal

from common import LIBC, check, child, netdev, rdmadev, run, status, wait_for

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000


def configure():
    """Gives the network device its addresses, and an RDMA device, in the namespace it is in now."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "set", netdev(), "up")
    run("ip", "addr", "add", os.environ["OWN_ADDR"] + "/24", "dev", netdev())
    run("ip", "neigh", "replace", os.environ["PEER_ADDR"], "lladdr", os.environ["PEER_MAC"],
        "dev", netdev(), "nud", "permanent")
    if status("rdma", "link", "show", f"{rdmadev()}/1")[0]:
        run("rdma", "link", "add", rdmadev(), "type", os.environ["FABRIC"], "netdev", netdev())


class Container:
    """A process in namespaces of its own. It gives itself to `function` when it has the devices."""

    def __init__(self, name, function):
        self.name, self.function = name, function
        self.pid = child(self.run, "container")
        wait_for("the namespace", 20, lambda: self.is_told("ready"))

    def run(self):
        """The process."""
        check(LIBC.unshare(CLONE_NEWNET | CLONE_NEWNS) == 0, "unshare")
        run("mount", "--make-rprivate", "/")
        self.tell("ready")
        wait_for("the network device", 20, lambda: self.is_told("moved"))
        configure()
        self.function(self)

    def tell(self, word):
        """Says something to the other side."""
        # Both sides see this directory.
        with open(f"/run/{self.name}.{word}", "w", encoding="ascii"):
            pass

    def is_told(self, word):
        """Whether the other side has said it."""
        return os.path.exists(f"/run/{self.name}.{word}")

    def give_device(self):
        """Moves the network device there. There must be no RDMA device on it."""
        run("ip", "link", "set", netdev(), "netns", str(self.pid))

    def begin(self):
        """The devices are there."""
        self.tell("moved")

    def enter(self, *argv):
        """Runs a command in the network namespace."""
        return run("nsenter", "-t", str(self.pid), "-n", *argv)

    def wait(self):
        """Waits for the end of the process, and returns its status."""
        pid, self.pid = self.pid, 0
        return os.waitpid(pid, 0)[1]

    def kill(self):
        """Ends the process if it runs."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


def in_namespace(function):
    """Runs `function` in a namespace that has the network device; fails if it does."""
    run("rdma", "link", "del", rdmadev())
    container = Container("c", lambda _: function())
    try:
        container.give_device()
        container.begin()
        check(container.wait() == 0, "in the namespace")
    finally:
        container.kill()
    # The frame has questions to the server at the end.
    wait_for("the network device", 60,
             lambda: os.path.exists(f"/sys/class/net/{netdev()}"))
    configure()
