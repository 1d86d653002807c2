# SPDX-License-Identifier: GPL-2.0
"""Whose instructions a guest executes, in a guest of `tools/guest run --icount --profile`.

`tools/guest.d/profile.c` counts them by address, between two marks that a program makes. Here
they are given to modules, by `/proc/kallsyms`, and to parts of the kernel: its directories are
linked one after the other, so a function is in that of the last landmark before it.

Functions that copy are given to the part that calls them where that is the device, its checksums or
the network: those copies are what an adapter does by itself. So `ON_HARDWARE` is all that is left
where an adapter does its own work.

With `--writes` it counts writes to memory too, by who writes and by the line of a cache.
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
MOVED = "device's copies"
NETWORK, SUNRPC, CLIENT, SERVER = "network", "SUNRPC", "NFS client", "NFS server"
FILES, SCHEDULER, CORE, USER = "files, memory", "scheduler", "other kernel", "user"
PARTS = (TRANSPORT, VERBS, DEVICE, CHECKSUM, MOVED, NETWORK, COPY, SUNRPC, CLIENT, SERVER, FILES,
         SCHEDULER, CORE, USER)
#: What is not there when nothing is sent over RDMA. Copies, memory and the scheduler are left out
#: of it, although the transport has its share in them.
RDMA = (TRANSPORT, VERBS, DEVICE, CHECKSUM, MOVED, NETWORK)
#: What an adapter does, and not the CPU.
ADAPTER = (DEVICE, CHECKSUM, MOVED, NETWORK)
#: What remains for the CPU then.
ON_HARDWARE = tuple(part for part in PARTS if part not in ADAPTER)

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


#: Functions whose calls are counted, by what they do. What calls another of its group counts once.
WATCHED = {
    "locks": re.compile(r"_raw_(spin|read|write)_(try)?lock(_\w+)?$|mutex_(try)?lock(_\w+)?$"
                        r"|down_(read|write)(_\w+)?$"),
    "slow locks": re.compile(r"(native_)?queued_(spin|read|write)_lock_slowpath$"
                             r"|__mutex_lock(_slowpath|\.\w+)|rwsem_down_(read|write)_slowpath"),
    "allocations": re.compile(r"_*k(v?m|v?z|c|v?re)alloc\w*$|kmem_cache_alloc\w*$|_*vmalloc\w*$"
                              r"|kmemdup\w*$"),
    "pages": re.compile(r"_*(alloc_pages|alloc_frozen_pages|get_free_pages|folio_alloc)\w*$"),
}

#: Functions that write for whoever calls them: helpers of Rust, locks, wakeups, references.
THROUGH = re.compile(
    r"rust_helper_|rpcrdma_helper_|_raw_(spin|read|write)_|(native_)?queued_\w+_slowpath$"
    r"|(__)?mutex_|__mutex_|(__)?down_|(__)?up(_\w+)?$|down$|rwsem_|osq_|_atomic_dec_and_"
    r"|refcount_|kref_|lockref_|llist_|(__)?complete(_\w+)?$|swake_up_|(__)?wake_up(_\w+)?$"
    r"|(__)?queue_(delayed_)?work\w*$|mod_delayed_work_on$|insert_work$|kick_pool$"
    r"|(__)?(add|remove)_wait_queue\w*$|prepare_to_(s)?wait\w*$|finish_(s)?wait$"
    r"|percpu_counter_|(try_|module_)(get|put)|get_device$|put_device$|kobject_(get|put)$")


def group(name):
    """The group of `WATCHED` that a function is of, or nothing."""
    return next((g for g, pattern in WATCHED.items() if pattern.match(name)), None)


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
        at = bisect.bisect_right(table, (address, "~")) - 1
        return table[max(at, 0)][1:]

    def place(self, address):
        """As `find`, with how far behind its beginning the address is."""
        last = self.kernel[-1][0]
        table = self.modules if address > last and self.modules else self.kernel
        first, part, name = table[max(bisect.bisect_right(table, (address, "~")) - 1, 0)]
        return part, name, address - first

    def watched_writers(self):
        """What the plugin is to watch to count writes: `THROUGH`, and what the transport has of its own."""
        lines = []
        for (address, _, name), (end, *_) in zip(self.kernel, self.kernel[1:]):
            # What the kernel has of Rust is generic.
            if (THROUGH.match(name) or name.startswith("_R")) and end > address:
                lines.append(f"{address:x} {end:x} through\n")
        own = [(address, name) for address, part, name in self.modules
               if part == TRANSPORT]
        # What follows the last one is not known: it does not matter if that is taken for its.
        ends = [address for address, _ in own[1:]] + [own[-1][0] + 4096] if own else []
        for (address, name), end in zip(own, ends):
            kind = "through" if THROUGH.match(name) else "own"
            if kind == "own" and lines and lines[-1].endswith(f" {address:x} own\n"):
                lines[-1] = f"{lines[-1].split()[0]} {end:x} own\n"
            elif end > address:
                lines.append(f"{address:x} {end:x} {kind}\n")
        return lines

    def watched(self):
        """What the plugin is to watch: lines of functions that copy, and of those of `WATCHED`."""
        lines = []
        for (address, part, name), (end, *_) in zip(self.kernel, self.kernel[1:]):
            kind = "leaf" if part == COPY else "calls" if group(name) else None
            # Another name of the same function comes first.
            if kind and end > address:
                lines.append(f"{address:x} {end:x} {kind}\n")
        return lines


class Counted:
    """What was executed between two marks."""

    def __init__(self):
        #: Instructions by part, by function, and by CPU and part.
        self.parts, self.functions, self.cpus = dict.fromkeys(PARTS, 0), {}, []
        #: The functions that are the transport's own.
        self.own = set()
        #: How often functions of `WATCHED` were called: group, part of the caller -> number.
        self.calls = {}
        #: Writes to memory, if they were counted: whether atomic, addresses of who writes and of the
        #: instruction, number of the line, how often, and a bit for each CPU that did.
        self.writes = []

    def add(self, part, name, count):
        """Counts instructions of the last CPU that there is."""
        self.parts[part] += count
        self.cpus[-1][part] += count
        self.functions[name] = self.functions.get(name, 0) + count
        if part == TRANSPORT:
            self.own.add(name)

    def called(self, symbols, words):
        """Counts a line of calls."""
        caller, callee = symbols.find(int(words[0], 16)), symbols.find(int(words[1], 16))
        kind = group(callee[1])
        if kind and group(caller[1]) != kind:
            key = (kind, caller[0])
            self.calls[key] = self.calls.get(key, 0) + int(words[2])
        moved = int(words[3])
        if callee[0] != COPY or not moved:
            return
        # A function that another one of them goes on with is the first one's, as the call is.
        for_whom = f"copies for {caller[1]}"
        self.functions[for_whom] = self.functions.get(for_whom, 0) + moved
        if caller[0] in (DEVICE, CHECKSUM, NETWORK):
            for parts in (self.parts, self.cpus[-1]):
                parts[COPY] -= moved
                parts[MOVED] += moved


class Profile:
    """A context: what the guest executes within it is counted."""

    def __init__(self, symbols):
        self.symbols = symbols
        self.files = 0
        self.watch(symbols.watched())
        self.code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE
                              | mmap.PROT_EXEC)
        self.code.write(MARK_BEGIN + MARK_END)
        first = ctypes.addressof(ctypes.c_char.from_buffer(self.code))
        function = ctypes.CFUNCTYPE(None)
        self.begin, self.end = function(first), function(first + len(MARK_BEGIN))
        # The second time nothing has to be translated or looked up.
        with self:
            pass
        self.counted()

    @staticmethod
    def watch(lines):
        """Has the plugin watch functions from the next time on."""
        with open(f"{os.environ['PROFILE']}.watch", "w", encoding="ascii") as f:
            f.writelines(lines)

    def __enter__(self):
        self.begin()

    def __exit__(self, kind, value, traceback):
        self.end()
        self.files += 1

    def counted(self):
        """What was executed the last time, as `Counted`."""
        found = Counted()
        path = f"{os.environ['PROFILE']}.{self.files - 1}"
        with open(path, encoding="ascii") as f:
            for line in f:
                where, *words = line.split()
                if where == "cpu":
                    found.cpus.append(dict.fromkeys(PARTS, 0))
                elif where == "lost":
                    check(words == ["0"], f"{path}: more than the plugin has room for")
                elif where == "call":
                    found.called(self.symbols, words)
                elif where in ("atomic", "store"):
                    place, instruction, line, count, cpus = words
                    found.writes.append((where == "atomic", int(place, 16), int(instruction, 16),
                                         int(line, 16), int(count), int(cpus, 16)))
                else:
                    # A line belongs to the function that begins in it, if one does.
                    found.add(*((USER, USER) if where == "user" else
                                self.symbols.find(int(where, 16) + 15)), int(words[0]))
        os.unlink(path)
        return found
