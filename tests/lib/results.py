# SPDX-License-Identifier: GPL-2.0
"""Figures of a run of `tools/bench`, for `--json` and for `tests/lib/plot.py`."""

import json
import os

#: Every file of the tree names its licence.
LICENSE = "SPDX-License-Identifier"


def significant(value):
    """A figure without the digits that mean nothing."""
    if isinstance(value, dict):
        return {key: significant(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [significant(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def lines(value, depth):
    """JSON with a line for each entry down to a depth, so that two runs can be compared."""
    if not depth or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value)
    pad = "\n" + " " * (4 - depth)
    if isinstance(value, list):
        return "[" + ",".join(pad + lines(each, depth - 1) for each in value) + "]"
    return "{" + ",".join(f"{pad}{json.dumps(key)}: {lines(each, depth - 1)}"
                          for key, each in value.items()) + "}"


def write(path, figures):
    """Writes them to a file."""
    with open(path, "w", encoding="ascii") as f:
        f.write(lines(significant({LICENSE: "GPL-2.0", **figures}), 3) + "\n")


def keep(kind, **figures):
    """Writes them where the guest's runner finds them."""
    write(os.environ["RESULTS"], {"kind": kind, **figures})
