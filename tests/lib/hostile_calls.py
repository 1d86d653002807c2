# SPDX-License-Identifier: GPL-2.0
"""What the hostile client can do wrong, in the order in which it is tried."""

import hostile_calls_headers  # noqa: F401 - enters its cases
import hostile_calls_chunks  # noqa: F401 - enters its cases
import hostile_calls_data  # noqa: F401 - enters its cases
import hostile_calls_gss  # noqa: F401 - enters its cases
import hostile_calls_compounds  # noqa: F401 - enters its case
import hostile_calls_flow  # noqa: F401 - enters its cases
import hostile_calls_callback  # noqa: F401 - enters its cases
from hostile_attack import Attack, CASES

__all__ = ["Attack", "CASES"]
