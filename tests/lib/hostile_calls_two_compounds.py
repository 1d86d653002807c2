# SPDX-License-Identifier: GPL-2.0
"""COMPOUNDs with several chunks in Version Two."""

from hostile_calls_compounds import several
from hostile_calls_two import case
from hostile_two_caller import TwoCaller
from rpcrdma2_header import REVERSE


@case
def compounds(t):
    """Several data items in one RPC: each has its chunk, in order."""
    several(t, TwoCaller().open([(REVERSE, 1)]))
