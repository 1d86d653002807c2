# SPDX-License-Identifier: GPL-2.0
"""What counts as a report in a guest's console."""

import re

# Each ends the run as failed, whatever the command said.
REPORTS = [
    r"Kernel panic",
    r"\bOops\b",
    r"\bBUG:",
    r"kernel BUG at",
    r"WARNING: ",
    r"Unable to handle kernel",
    r"general protection fault",
    r"Internal error:",
    r"invalid opcode:",
    r"divide error:",
    r"Segfault with no mm",
    r"Kernel tried to access user memory",
    # Lockdep, RCU and sleeping in the wrong place.
    r"possible circular locking dependency",
    r"possible recursive locking",
    r"possible irq lock inversion",
    r"inconsistent lock state",
    r"suspicious RCU usage",
    r"bad unlock balance",
    r"held lock freed",
    r"still has locks held",
    r"lock held when returning to user space",
    r"INVALID wait context|Invalid wait context",
    r"nested lock was not taken",
    r"trying to register non-static key",
    r"DEBUG_LOCKS_WARN_ON",
    r"sleeping function called from invalid context",
    r"scheduling while atomic",
    r"voluntary context switch within RCU",
    r"rcu: INFO:",
    r"rcu_preempt detected",
    # Memory.
    r"KASAN:",
    r"KFENCE:",
    r"UBSAN:",
    r"guest: kmemleak report",
    r"guest: rpcrdma is in use",
    r"refcount_t:",
    r"(list_add|list_del) corruption",
    r"BUG \S+ \(.*\): ",
    r"Objects remaining in",
    r"Object remaining in",
    r"ODEBUG:",
    r"Bad page state",
    r"bad page map",
    r"Out of memory:",
    # The kernel's own check of DMA mappings: driver, device, what is wrong. Only the first is told.
    r"DMA-API: \S+ \S+: ",
    r"DMA-API: debugging out of memory",
    # Time.
    r"blocked (for more than|in I/O wait for more than) \d+",
    r"soft lockup",
    r"hard LOCKUP",
    r"workqueue lockup",
    # Ours and the runner's own.
    r"rust_kernel: panicked|panicked at",
    r"^\S*\s*(\[[^]]*\]\s*)?# .*: (pass:\d+ )?fail:[1-9]",
    r"(^|\] )\s*not ok \d+",
    r"guest: lockdep is off",
    r"guest: kernel tainted",
]

# After these the guest is not expected to get anywhere.
FATAL = [
    r"Kernel panic",
    r"\bOops\b",
    r"kernel BUG at",
    r"general protection fault",
    r"Unable to handle kernel",
]

# Lines of an ordinary boot that look like a report.
HARMLESS = [
    # KTAP's directive for what was not run, and every command line.
    r"# SKIP",
    r"[Cc]ommand line:",
    r"\bpanic=",
]

# Warnings of others, for what they do themselves when a connection is lost. The second
# of each is who: None for anybody, else the module "stock" must be in the guest.
KNOWN = [
    # rxe_resp_queue_pkt() queues a packet, and with it its reference to the QP, and then
    # uses the QP: whoever handles the packet on another CPU may have put the last one.
    (r"WARNING: \S*rxe_task\.c:\d+ at rxe_sched_task", None),
    # rxe ends a work request on an answer that it does not expect, and does not say why.
    (r"WARNING: \S*rxe_comp\.c:\d+ at rxe_completer", None),
    # The stock server destroys a QP while RDMA Reads or Writes still hold regions of its
    # pool (iWARP).
    (r"WARNING: \S*verbs\.c:\d+ at ib_destroy_qp_user", "stock"),
    # The stock server hands the RPC layer a message with another length than its parts have,
    # when the Read list of its header is odd.
    (r"WARNING: \S*sunrpc/svc\.h:\d+ at svc_process", "stock"),
]

# The mark that an excused warning leaves.
_TAINT = re.compile(r"guest: kernel tainted by a report, bits 512$")
_REPORTS = re.compile("|".join(f"(?:{p})" for p in REPORTS))
_FATAL = re.compile("|".join(f"(?:{p})" for p in FATAL))
_HARMLESS = re.compile("|".join(f"(?:{p})" for p in HARMLESS))


def find(lines, expected=(), module=None):
    """Returns the indices of the lines that report something, in a guest with a `module`."""
    known = [re.compile(p) for p, who in KNOWN if who in (None, module)]
    found = []
    excused = False
    for i, line in enumerate(lines):
        if not _REPORTS.search(line) or _HARMLESS.search(line):
            continue
        if any(p.search(line) for p in known):
            excused = True
        elif not any(word in line for word in expected):
            found.append(i)
    return [i for i in found if not (excused and _TAINT.search(lines[i].strip()))]


def is_fatal(text):
    """Says whether a piece of console shows that the guest is lost."""
    return bool(_FATAL.search(text))
