# SPDX-License-Identifier: GPL-2.0
"""Whose instructions a guest executes, in a guest of `tools/guest run --icount --profile`.

`tools/guest.d/profile.c` counts them by address, between two marks that a program makes. Here
they are given to modules, by `/proc/kallsyms`, and to parts of the kernel: its directories are
linked one after the other, so a function is in that of the last landmark before it.
"""

import bisect
import ctypes
import mmap
import os
import re
import subprocess

from common import check

#: NOPs whose displacement the plugin knows, each with a return.
MARK_BEGIN = bytes.fromhex("0f1f80 0d601a5d c3")
MARK_END = bytes.fromhex("0f1f80 0e601a5d c3")

#: The parts, in the order in which they are shown.
TRANSPORT, VERBS, DEVICE, CHECKSUM, COPY = "transport", "verbs", "device", "checksums", "copies"
NETWORK, SUNRPC, CLIENT, SERVER = "network", "SUNRPC", "NFS client", "NFS server"
FILES, SCHEDULER, CORE, USER = "files, memory", "scheduler", "other kernel", "user"
PARTS = (TRANSPORT, VERBS, DEVICE, CHECKSUM, COPY, NETWORK, SUNRPC, CLIENT, SERVER, FILES,
         SCHEDULER, CORE, USER)
#: What is not there when nothing is sent over RDMA. Copies, memory and the scheduler are left out
#: of it, although the transport has its share in them.
RDMA = (TRANSPORT, VERBS, DEVICE, CHECKSUM, NETWORK)

#: Modules by part; the others are of `FILES`.
MODULES = {
    "rpcrdma": TRANSPORT, "rdmatap": TRANSPORT,
    "ib_core": VERBS, "rdma_cm": VERBS, "ib_cm": VERBS, "iw_cm": VERBS, "ib_uverbs": VERBS,
    "rdma_rxe": DEVICE, "siw": DEVICE, "hca": DEVICE,
    "sunrpc": SUNRPC, "auth_rpcgss": SUNRPC,
    "nfs": CLIENT, "nfsv3": CLIENT, "nfsv4": CLIENT, "netfs": CLIENT, "nfs_layout_flexfiles": CLIENT,
    "nfsd": SERVER, "lockd": SERVER, "nfs_acl": SERVER, "grace": SERVER,
    "udp_tunnel": NETWORK, "ip6_udp_tunnel": NETWORK, "dummy": NETWORK,
}
#: The first functions of directories of the kernel, and whose they are. Those that a kernel does
#: not have are passed over.
LANDMARKS = (
    (CORE, ("_stext", "_text")),
    # mm, fs
    (FILES, ("filemap_check_errors",)),
    (CORE, ("crypto_destroy_alg", "crypto_mod_get")),
    # block
    (FILES, ("I_BDEV",)),
    # lib, drivers
    (CORE, ("lockref_get",)),
    (NETWORK, ("devm_free_netdev", "sock_show_fdinfo")),
    # What is linked from libraries comes last, and the sections of other names.
    (CORE, ("argv_free", "strncasecmp", "__sched_text_start", "__noinstr_text_start",
            "__entry_text_start", "__kprobes_text_start", "__lock_text_start",
            "__irqentry_text_start", "__softirqentry_text_start")),
)
#: Functions that belong to a part wherever they are.
NAMES = (
    # What the kernel has of Rust has no other users in these guests.
    (TRANSPORT, re.compile(r"rust_helper_|_R[A-Z]")),
    (CHECKSUM, re.compile(r"_*(crc32|xxh|csum_partial|do_csum)")),
    (COPY, re.compile(r"_*(memcpy|memmove|memset|clear_page|copy_page|rep_(movs|stos)|copy_user"
                      r"|copy_(to|from)_(user|iter)|raw_copy|copy_mc|clear_user)|_copy_(to|from)_"
                      r"|copy_page_(to|from)_iter|memcpy_(to|from)_")),
    (NETWORK, re.compile(r"_*(skb_|napi_|netif_|dev_(hard_|queue_|loopback)|ip_|ip6_|udp|kfree_skb"
                         r"|consume_skb|alloc_skb|build_skb|loopback_xmit|eth_|neigh_|ipv6_|fib)")),
    (FILES, re.compile(r"_*(kmalloc|kfree|kmem_cache|slab_|alloc_pages|free_pages|get_page_from_"
                       r"freelist|folio_|get_user_pages|gup_|vfs_|filemap_|shmem_)")),
    (SCHEDULER, re.compile(r"_*(schedule$|sched_|psi_|update_(load_avg|cfs|curr|se$|rq|entity|irq_load)"
                           r"|(en|de)queue_(task|entit)|pick_|set_next_(task|entity)|put_prev_"
                           r"|avg_vruntime|vruntime|entity_|place_entity|try_to_wake|ttwu_|wakeup_"
                           r"|wake_up|native_sched|switch_|finish_task|resched|activate_task"
                           r"|block_task|select_task|cpuacct|prepare_task|context_switch"
                           r"|calc_delta|pelt|accumulate_sum|check_preempt|yield|reweight)")),
)


def parsed(text, kernel):
    """(address, part, name) of functions, sorted, from lines as of /proc/kallsyms.

    They are those of the kernel itself if `kernel`, else of its modules.
    """
    found = []
    for line in text.splitlines():
        address, _, name, *module = line.split()
        found.append((int(address, 16), name, module[0].strip("[]") if module else ""))
    found.sort()
    check(found and found[-1][0], "the kernel does not show its symbols")
    marks = {name: part for part, names in LANDMARKS for name in names}
    result, part = [], CORE
    for address, name, module in found:
        if kernel:
            part = marks.get(name, part)
            own = next((p for p, pattern in NAMES if pattern.match(name)), part)
        else:
            own = CHECKSUM if "crc32" in module else MODULES.get(module, FILES)
            name = f"{name} [{module}]"
        result.append((address, own, name))
    return result


class Symbols:
    """The functions of the kernel and of its modules, by address."""

    def __init__(self):
        self.kernel = self.read("grep -vF '['", True)
        self.modules = []

    @staticmethod
    def read(selection, kernel):
        """What `parsed` says of some of them; `selection` is a filter of the shell."""
        text = subprocess.run(f"{selection} /proc/kallsyms | grep -i ' [tw] '", shell=True, check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        return parsed(text, kernel)

    def modules_changed(self):
        """To be called when modules were inserted or removed."""
        self.modules = self.read("grep -F '['", False)

    def find(self, address):
        """Part and name of what is at an address."""
        # Modules lie behind the kernel.
        last = self.kernel[-1][0]
        table = self.modules if address > last and self.modules else self.kernel
        at = bisect.bisect_right(table, (address + 15, "~")) - 1
        return table[max(at, 0)][1:]


class Profile:
    """A context: what the guest executes within it is counted."""

    def __init__(self, symbols):
        self.symbols = symbols
        self.files = 0
        self.code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE
                              | mmap.PROT_EXEC)
        self.code.write(MARK_BEGIN + MARK_END)
        first = ctypes.addressof(ctypes.c_char.from_buffer(self.code))
        function = ctypes.CFUNCTYPE(None)
        self.begin, self.end = function(first), function(first + len(MARK_BEGIN))
        # The second time nothing has to be translated or looked up.
        with self:
            pass
        self.parts()

    def __enter__(self):
        self.begin()

    def __exit__(self, kind, value, traceback):
        self.end()
        self.files += 1

    def parts(self):
        """Instructions by part, and by function, of the last time."""
        parts, functions = dict.fromkeys(PARTS, 0), {}
        path = f"{os.environ['PROFILE']}.{self.files - 1}"
        with open(path, encoding="ascii") as f:
            for line in f:
                where, count = line.split()
                if where == "lost":
                    check(count == "0", f"{path}: more text than the plugin has room for")
                    continue
                part, name = (USER, USER) if where == "user" else self.symbols.find(int(where, 16))
                parts[part] += int(count)
                functions[name] = functions.get(name, 0) + int(count)
        os.unlink(path)
        return parts, functions
