#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A part of git's own tests with their repositories on a mount over RDMA, and git at work there.
# soak: only
# mode: pair
# fabrics: rxe
# variants: 4.2@ours-ours 4.2@stock-stock
# kernels: uml
# setup: suites
# timeout: 3600 3600
"""What of git's tests is about files: modes, links, locks, renames, packs, clones, checkouts."""

import glob
import os
import re
import sys
import time

sys.path.insert(0, "tests/lib")
import suites  # noqa: E402
import versions  # noqa: E402
from case import main  # noqa: E402
from common import Mount, check, xprt_stats  # noqa: E402

#: The scripts, by the beginnings of their names.
SCRIPTS = "t0050 t1301 t2000 t2007 t2021 t2081 t7300".split()
GIT = "/opt/git"
#: Some of git's tests are skipped for root, who may write everywhere.
USER = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]

#: git at work on its own source: each step has to say what it says.
WORK = """
set -eu
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_ATTR_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@localhost
export GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@localhost
git=/opt/git/bin-wrappers/git
step() { echo "ok - $1"; }
$git init -q -b main one
mkdir one/builtin one/Documentation && cp /opt/git/builtin/*.c one/builtin/
cp /opt/git/Documentation/*.txt one/Documentation/
$git -C one add . && $git -C one commit -q -m first && step commit
$git -C one mv builtin other && $git -C one rm -q -r Documentation
$git -C one commit -q -m second && step "rename and remove"
$git clone -q --no-local one two && step clone
$git clone -q --no-hardlinks --bare one three.git && step "clone bare"
for to in main~1 main main~1 main; do
	$git -C two checkout -q "$to"
	[ -z "$($git -C two status --porcelain)" ]
done
step checkout
$git -C two -c core.preloadIndex=true status -s | wc -l | grep -qx 0 && step status
$git -C two gc -q --prune=now && step gc
$git -C two repack -q -a -d -f --threads=2 && step repack
$git -C three.git fsck --full --strict && $git -C two fsck --full && step fsck
[ "$($git -C one archive HEAD | sha256sum)" = "$($git -C two archive HEAD | sha256sum)" ] &&
	step "the same archive"
diff -r -x .git one two && step "the same files"
$git -C two worktree add -q ../four main~1 && diff -r one/other four/builtin && step worktree
rm -rf one two three.git four && step removed
"""


def script(name, path):
    """How many assertions of a script passed, and the names of those that failed."""
    file = glob.glob(f"{suites.TOP}{GIT}/t/{name}-*.sh")
    check(len(file) == 1, f"no script {name}")
    _, lines = suites.inside(
        *USER, "sh", f"./{os.path.basename(file[0])}", f"--root={path}", "--no-chain-lint",
        directory=f"{GIT}/t",
        environment=["TEST_OUTPUT_DIRECTORY=/tmp", "GIT_TEST_DEFAULT_HASH=sha1", "TERM=dumb"])
    check(any(re.match(r"1\.\.[0-9]+", line) for line in lines),
          f"{name} did not end well:\n" + "\n".join(lines[-30:]))
    passed = sum(bool(re.match(r"ok [0-9]+", line)) for line in lines)
    # A breakage that git itself knows of has a mark.
    return passed, [re.sub(r"^not ok [0-9]+ - ", "", line) for line in lines
                    if line.startswith("not ok ") and "# TODO" not in line]


def work(_, path):
    """The same for git at work."""
    status, lines = suites.inside(*USER, "bash", "-c", WORK, directory=path)
    passed = sum(line.startswith("ok - ") for line in lines)
    return passed, [] if status == 0 else [f"after {passed} steps: {' '.join(lines[-3:])}"]


def client():
    """git at work, then its tests, script by script."""
    version = os.environ["VARIANT"]
    results = suites.Results("git")
    with Mount(version) as mount:
        versions.check_version()
        suites.make()
        os.mkdir(f"{mount.path}/git")
        os.chown(f"{mount.path}/git", 1000, 1000)
        for name in ["work", *SCRIPTS]:
            began = time.monotonic()
            found = (work if name == "work" else script)(name, f"{mount.path}/git")
            results.add(f"{name} {version}", *found, time.monotonic() - began)
        stats = xprt_stats(mount.path)
        check(stats["connect_count"] == 1, f"connected {stats['connect_count']} times")
        check(stats["bad_xids"] == 0 and stats["bad_reply"] == 0, "bad Replies")
        results.finish()


main(client)
