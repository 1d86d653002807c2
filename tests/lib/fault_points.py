# SPDX-License-Identifier: GPL-2.0
"""Events of a device that go wrong, for `fault-walk.py`."""

import os
import select
import shlex
import subprocess
import time

import hca
import hca_device
from common import Failure, check, watchdog

#: What goes wrong, by kind of event.
FAULTS = {
    "post_send": ("fail",),
    "post_recv": ("fail",),
    "send": ("fail", "lost", "remote", "late"),
    "read": ("fail", "lost", "half", "remote", "late"),
    "write": ("fail", "lost", "half", "remote", "late"),
    "reg_mr": ("fail", "late"),
    "local_inv": ("fail", "late"),
    "mad": ("fail", "twice", "late", "reject"),
    "create": ("fail",),
    "modify": ("fail",),
}
#: Incidents of a device, while it handles the N-th event of all.
INCIDENTS = ("qp_fatal", "shared_fatal", "srq_error", "port_down", "device_fatal", "removal")
#: Where a device is gone afterwards. It comes back soon.
GONE = ("device_fatal", "removal")
#: An incident happens at so many moments of a mount: at each event it would be thousands. In the
#: environment, `$MOMENTS` is another number.
MOMENTS = int(os.environ.get("MOMENTS") or 40)
STAGES = ("mount", "use", "again", "unmount", "whole")
#: Where a mount may fail with an error: the first connection could not be made.
MAY_FAIL = ("create", "modify", "mad", "post_recv", "any")
#: So many are the first messages of a connection, one of each end: without them there is none.
FIRST = 2
#: Seconds that one mount may take with its use: the first reconnect has no delay.
LIMIT = 5
#: Where the connection manager sends again, or another attempt to connect comes later. Or where a
#: Call was sent again while nfsd was busy with the first: NFS waits for 15 seconds then.
LONG_LIMIT = 60
#: What may be wrong with a point.
WRONG = (Failure, OSError, subprocess.SubprocessError)


class Comeback:
    """Makes the device again when it is gone.

    It is a process from before the mount: one that was begun later would have files of the mount to
    close, for which it would wait.
    """

    def __init__(self, profile):
        # A driver takes longer than this to start a card anew.
        add = shlex.join(hca_device.addition(profile))
        gone = f"while [ -e {hca.path('fault')} ]; do sleep 0.02; done"
        self.process = subprocess.Popen(["sh", "-c", f"{gone}; echo gone; sleep 0.3; {add}"],
                                        stdout=subprocess.PIPE)

    def end(self):
        """Waits until the device is back, and returns whether it was gone."""
        try:
            # Not later either: then nobody would make it again.
            reached = hca.disarm()
        except OSError:
            reached = True
        # A device that was not reached may be the next one: then the process has said so before.
        if not reached and not select.select([self.process.stdout], [], [], 0)[0]:
            self.process.kill()
            self.process.communicate()
            return False
        self.process.communicate(timeout=LIMIT * watchdog())
        check(self.process.returncode == 0, "the device cannot be made again")
        return True


class Point:
    """One event that goes wrong, and what came of it."""

    def __init__(self, stage, kind, action, number):
        self.stage, self.kind, self.action, self.number = stage, kind, action, number
        self.name = f"{stage}/{kind}/{action}/{number}"
        self.tag = self.name.replace("/", "-")
        self.made, self.took, self.fired, self.said = 0, 0.0, False, ""

    def run(self, profile, function):
        """Has the event go wrong in what a function does; the function returns the connections."""
        hca.arm(self.kind, self.action, self.number)
        comeback = Comeback(profile) if self.action in GONE else None
        began = time.monotonic()
        try:
            self.made = function()
        except WRONG as e:
            self.said = str(e)
        self.took = time.monotonic() - began
        self.fired = comeback.end() if comeback else hca.disarm()

    @property
    def refused(self):
        """Whether the mount has failed, where it may: there is no connection."""
        first = self.kind in ("send", "post_send") and self.number <= FIRST
        return (self.stage in ("mount", "whole") and self.said.startswith("mount ") and
                (self.kind in MAY_FAIL or first))

    def judge(self):
        """What is wrong with it, or nothing."""
        if not self.fired:
            return self.said and f"which was not reached: {self.said}"
        if self.said and not self.refused:
            return self.said
        # For ten seconds NFS tries to destroy a client whose session it could not destroy, because
        # the Reply was lost. And a Call whose Send was lost after it had arrived is sent again.
        quick = (self.stage != "unmount" and self.kind not in MAY_FAIL and
                 (self.kind, self.action) != ("send", "lost"))
        limit = LIMIT if quick else LONG_LIMIT
        if self.stage == "again":
            # The second reconnect has a delay.
            limit = max(limit, 2 * LIMIT)
        return self.took > limit * watchdog() and f"took {self.took:.1f} s"
