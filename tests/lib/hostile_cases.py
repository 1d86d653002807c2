# SPDX-License-Identifier: GPL-2.0
"""What the hostile server can do wrong.

The cases are in the modules imported below, in the order in which they are run.
Each is a function that gets a `Reply`, prepared as a correct server would
send it but not yet sent, and spoils it. Its decorator names the procedure whose
Reply it spoils, and what the client's system call may then do:

`error`  it must fail,
`at once`  it must fail, and the Call may not be sent again before,
`data`   it must not fail, but may succeed with fewer of the right data,
`ok`     it must succeed with the right data,
`any`    it may fail, or succeed with the right data.

Nothing may hang beyond a bound in any of them.
"""

import hostile_messages  # noqa: F401 - enters its cases
import hostile_chunks  # noqa: F401 - enters its cases
import hostile_padding
from hostile_reply import CASES, Reply, case

hostile_padding.enter(case)
hostile_padding.reply_chunk(case)

__all__ = ["CASES", "Reply"]
