# SPDX-License-Identifier: GPL-2.0
"""How much memory a guest has in use."""

import collections
import concurrent.futures
import re
import time

from common import check, log, remote, run

#: How many octets more may be in use in the end: pages that the kernel keeps at hand, and slabs
#: that are partly in use, whatever was done meanwhile.
TOLERANCE = 4 << 20

#: Settles, and prints what the kernel says of its memory. What waits for a grace period is freed,
#: and caches are dropped. Free pages that a CPU keeps at hand are told apart from the others, by
#: another file, and a megabyte of them may change sides in between: so both are read several times.
SHOW = """
for i in 1 2 3; do
    sync; echo 3 > /proc/sys/vm/drop_caches; sleep 0.4
done
cat /proc/vmallocinfo
for i in 1 2 3 4 5; do
    echo sample
    cat /proc/meminfo /proc/zoneinfo
    sleep 0.03
done
"""

Kernel = collections.namedtuple("Kernel", "used available slab percpu vmalloc queues programs")


def sample(text):
    """What a sample of `SHOW` says, in octets: what is in use, what could be, and all fields by name."""
    fields = {name: int(size) << 10
              for name, size in re.findall(r"^(\S+): +(\d+)(?: kB)?$", text, re.M)}
    # Free pages that a CPU keeps at hand do not count as free.
    kept = sum(int(count) for count in re.findall(r"^ +count: +(\d+)$", text, re.M)) * 4096
    reclaimable = fields["Buffers"] + fields["Cached"] + fields["SReclaimable"]
    return (fields["MemTotal"] - fields["MemFree"] - kept - reclaimable,
            fields["MemAvailable"] + kept, fields)


def parse(text):
    """What `SHOW` has printed, in octets."""
    areas, *samples = text.split("sample\n")
    samples = sorted((sample(text) for text in samples), key=lambda found: found[:2])
    used, available, fields = samples[len(samples) // 2]
    queues = 0
    for line in areas.splitlines():
        words = line.split()
        # The guard page is not memory.
        if any(name in line for name in ("rxe_queue_init", "siw_create_qp", "siw_create_cq",
                                         "siw_qp_readq_init")):
            queues += int(words[1]) - 4096
    return Kernel(used, available, fields["SUnreclaim"], fields["Percpu"], fields["VmallocUsed"],
                  queues, fields["AnonPages"])


class Memory:
    """The memory of this guest."""

    @staticmethod
    def here():
        """What is in use."""
        time.sleep(0.5)
        return parse(run("bash", "-c", SHOW, quiet=True))


def server_memory():
    """What is in use in the server guest."""
    return parse(remote(SHOW))


def both_memories():
    """What is in use in the client guest and in the server guest, at the same time."""
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        server = other.submit(server_memory)
        return {"client": parse(run("bash", "-c", SHOW, quiet=True)), "server": server.result()}


def check_memories(before, after):
    """Fails if a guest has more in use than before.

    But for queues: a device keeps its completion queues, as many as connections have wanted at a
    time, until it goes itself. And but for what programs have mapped of their own.
    """
    grown = {}
    for guest in before:
        more = {field: getattr(after[guest], field) - getattr(before[guest], field)
                for field in Kernel._fields}
        grown[guest] = more["used"] - more["queues"] - more["programs"]
        log(f"{grown[guest]:,} octets more than before in use in the {guest} guest: "
            + ", ".join(f"{name} {number:,}" for name, number in more.items()))
    for guest, octets in grown.items():
        check(octets <= TOLERANCE, f"{octets:,} octets are missing in the {guest} guest")


def shown(before, during, after, count):
    """A table of what `count` connections take, in octets for each."""
    lines = [f"  {'octets for each connection':28} {'open':>10} {'closed':>10}"]
    names = {"used": "all", "available": "MemAvailable", "slab": "of it unreclaimable slab",
             "percpu": "of it percpu", "vmalloc": "of it vmalloc",
             "queues": "of that the device's queues"}
    for field, name in names.items():
        first, second, third = (getattr(k, field) for k in (before, during, after))
        lines.append(f"  {name:28} {(second - first) // count:>10,} {(third - first) // count:>10,}")
    return "\n".join(lines)
