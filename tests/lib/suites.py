# SPDX-License-Identifier: GPL-2.0
"""Test suites of others, which run on a mount in a root of their own.

`$SUITES` is that root; it cannot be written. What a suite finds wrong with the stock module at
both ends too is listed in `tests/suites`, with a word why. So one list holds for all modules: a
case fails if anything else fails, if what is listed passes, or if a suite ends early.
"""

import os
import re
import shutil
import subprocess
import threading
import time

from common import Failure, LAST, ROOT, check, log, read, run

#: Where the root is in a guest: on it are a few directories that can be written.
TOP = "/srv/suites"
#: The lists of what is known.
KNOWN = "tests/suites"
#: What would keep a suite from running at all here: file, text, what stands there instead.
#: nfstest 3.2 has its second process import modules by exec() in a function, and wants to find
#: their names in locals() afterwards; with Python 3.13 they are not there any more.
#: It looks for what a recall of a delegation causes behind the reply to the recall. The NFS client
#: has a thread of its own for that, whose first call is now and then on the wire before the reply.
MENDED = {"usr/lib/python3/dist-packages/nfstest/rexec.py":
          (" exec(fstr)\n", " exec(fstr, globals())\n"),
          "usr/bin/nfstest_delegation":
          (" cbrecall_index = self.pktt.get_index()\n",
           " self.pktt.rewind(cbcall.record.index + 1)\n"
           "            cbrecall_index = self.pktt.get_index()\n")}


def make():
    """Makes the root. What is mounted below /run before is seen there too, at the same path."""
    os.makedirs(TOP, exist_ok=True)
    run("mount", "--bind", os.environ["SUITES"], TOP)
    for directory in ("proc", "sys", "dev", "run", "tmp"):
        run("mount", "--rbind", f"/{directory}", f"{TOP}/{directory}")
    for directory in ("mnt", "var/tmp", "var/lib/nfs"):
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", f"{TOP}/{directory}")
    upper = f"{ROOT}/suites"
    for directory in ("etc", "work"):
        os.makedirs(f"{upper}/{directory}", exist_ok=True)
    run("mount", "-t", "overlay", "-o",
        f"lowerdir={TOP}/etc,upperdir={upper}/etc,workdir={upper}/work", "overlay", f"{TOP}/etc")
    for name in ("hosts", "nsswitch.conf"):
        with open(f"{TOP}/etc/{name}", "w", encoding="ascii") as f:
            f.write(read(f"/etc/{name}"))
    for path, (old, new) in MENDED.items():
        text = read(f"{TOP}/{path}")
        check(old in text, f"{path} has no {old!r}")
        with open(f"{upper}/{os.path.basename(path)}", "w", encoding="utf-8") as f:
            f.write(text.replace(old, new))
        shutil.copymode(f"{TOP}/{path}", f"{upper}/{os.path.basename(path)}")
        run("mount", "--bind", f"{upper}/{os.path.basename(path)}", f"{TOP}/{path}")
    # Programs ask for the address of their own host.
    with open(f"{TOP}/etc/hosts", "a", encoding="ascii") as f:
        f.write(f"{os.environ['OWN_ADDR']} {os.uname().nodename}\n")


def inside(*argv, directory="/", environment=(), limit=3600):
    """Runs a program in the root; returns its status and the lines of its output.

    They are kept in `$RESULTS`. Each counts as progress, of which `log` tells otherwise.
    """
    command = ["chroot", TOP, "env", "-i",
               "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp",
               "LC_ALL=C.UTF-8", "PYTHONUNBUFFERED=1", f"HOSTNAME={os.uname().nodename}",
               *environment, "sh", "-c", 'cd "$0" && exec "$@"', directory, *argv]
    lines = []
    with open(os.environ["RESULTS"], "a", encoding="utf-8") as kept, \
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors="replace",
                             start_new_session=True) as process:
        kept.write(f"=== {' '.join(argv[:3])}\n")
        timer = threading.Timer(limit, os.killpg, (process.pid, 9))
        timer.start()
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            kept.write(line)
            kept.flush()
            LAST[0] = time.monotonic()
        status = process.wait()
        timer.cancel()
    return status, lines


class Results:
    """What passed and what failed, by suite, compared with the list of what is known.

    A line of the list is `SUITE: COUNT assertions` or `SUITE: FAILS ASSERTION: why`; an assertion
    is named up to the first digit or address that changes from run to run, with `*` for the rest.
    """

    def __init__(self, known):
        self.counts, self.fails = {}, {}
        self.bad = []
        for line in read(f"{KNOWN}/{known}").splitlines():
            if not line or line.startswith("#"):
                continue
            suite, rest = line.split(": ", 1)
            if match := re.fullmatch(r"([0-9]+) assertions", rest):
                self.counts[suite] = int(match[1])
                continue
            match = re.fullmatch(r"fails (.*) because (.*)", rest)
            check(match, f"{KNOWN}/{known}: {line}")
            self.fails.setdefault(suite, []).append(match[1])

    def add(self, suite, passed, failed, seconds):
        """Compares the results of one suite: how many passed, and the names of what failed."""
        log(f"{suite}: {passed} passed, {len(failed)} failed, {seconds:.0f} s")
        known = self.fails.get(suite, [])
        patterns = [re.compile(re.escape(k).replace(r"\*", ".*")) for k in known]
        for name in failed:
            if not any(p.fullmatch(name) for p in patterns):
                self.bad.append(f"{suite}: fails: {name}")
        for text, p in zip(known, patterns):
            if not any(p.fullmatch(name) for name in failed):
                self.bad.append(f"{suite}: does not fail any more: {text}")
        count, wanted = passed + len(failed), self.counts.get(suite)
        if count != wanted:
            self.bad.append(f"{suite}: {count} assertions, not {wanted}")

    def finish(self):
        """Fails the case if anything was not as it is known."""
        for line in self.bad:
            log(line)
        if self.bad:
            raise Failure(f"{len(self.bad)} results are not as in {KNOWN}")
