#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A kernel that takes signed modules only, as with Secure Boot, takes ours when it is signed.
# mode: run
# kernels: cfi
# kernel-options: lockdown=integrity
# soak: only
# timeout: 120 120
"""The kernel trusts the key that was made when it was built. DKMS signs with one of the machine's."""

import os
import shutil
import sys

sys.path.insert(0, "tests/lib")
from common import check, log, module_loaded, run, status  # noqa: E402

OURS = os.environ["OURS_KO"]
#: Where the kernel was built.
BUILD = os.path.join(os.path.dirname(os.path.dirname(os.environ["STOCK_KO"])), "build")


def signed(name, key, certificate):
    """A copy of the module that is signed with a key."""
    copy = f"/run/{name}.ko"
    shutil.copy(OURS, copy)
    run(f"{BUILD}/scripts/sign-file", "sha512", key, certificate, copy)
    return copy


def refused(path):
    """The kernel does not take it, and says why."""
    run("dmesg", "--clear")
    code, said = status("insmod", path)
    log(f"{path}: {said.strip()}; {run('dmesg', '--notime').strip()}")
    check(code != 0 and not module_loaded(), f"it was taken: {path}")


def main():
    """Without a signature, with a stranger's, and with one that the kernel trusts."""
    refused(OURS)
    run("openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
        "-subj", "/CN=stranger/", "-keyout", "/run/key.pem", "-out", "/run/key.x509")
    refused(signed("stranger", "/run/key.pem", "/run/key.x509"))
    trusted = signed("trusted", f"{BUILD}/certs/signing_key.pem", f"{BUILD}/certs/signing_key.x509")
    run("insmod", trusted)
    check(module_loaded(), "it was not taken")
    run("rmmod", "rpcrdma")


main()
