# SPDX-License-Identifier: GPL-2.0
"""The workload of the matrix: one function for each thing done to a mount."""

import time

from common import log
from workload_data import direct, mapped, odd, processes, tree
from workload_locks import locks
from workload_names import names, space, symlinks
from workload_xattrs import acls, xattrs

#: Everything, in the order in which it is done.
ALL = (tree, odd, direct, mapped, names, symlinks, acls, xattrs, locks, processes, space)


def everything(mount, only=ALL):
    """Runs the whole workload and says how long each part took."""
    for part in only:
        began = time.monotonic()
        part(mount)
        log(f"{part.__name__}: {time.monotonic() - began:.1f} s")
