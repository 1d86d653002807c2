# SPDX-License-Identifier: GPL-2.0
"""The client's half of `make bench`: both modules in turn, on one mount each time.

Prints tables in Markdown. Options come from the environment: `ROUNDS` (24), how often each module
has its turn, `SECONDS_EACH` (0.5), how long a row is measured, `PAIRS`, the modules of client and
server of each turn ("stock-stock ours-stock", see `operations.SIDES`); the first one is what the
others are compared with. With `OPERATIONS` (1) the rows are those of `operations.py`.
"""

import itertools
import os
import random
import statistics
import time

import tap
from common import (Mount, children, check, fabric, log, module_refs, read, remote, remote_call,
                    run, wait_for)
from nfs_server import EXPORT
from operations import SIDES, rows as operation_rows

KIB, MIB = 1 << 10, 1 << 20
#: Octets of the file that is read and written.
SPAN = 16 * MIB
#: Sizes for which work requests are counted.
COUNTED = (4 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, MIB)


def seconds():
    """How long one measurement lasts."""
    return float(os.environ.get("SECONDS_EACH") or 0.5)


def batches(work, size, least, limit):
    """Operations per second, from the median of batches of `size` calls of `work`.

    What else the machine does makes some batches much slower; the median does not see them. There
    are at least `least` batches, and they take `limit` seconds at least.
    """
    took = []
    end = time.monotonic() + limit
    while len(took) < least or time.monotonic() < end:
        # Clocks are slow in some guests: look at them seldom.
        began = time.monotonic()
        for _ in range(size):
            work()
        took.append(time.monotonic() - began)
    return size / statistics.median(took)


def rate(path, size, writing, limit=None):
    """Operations per second of one process."""
    io = tap.Direct(path, size, writing)
    places = itertools.cycle(range(0, SPAN, size))
    for _ in range(4):
        io.step(next(places))
    found = batches(lambda: io.step(next(places)), 4 if size >= MIB else 16, 5, limit or seconds())
    io.close()
    return found


def rate_of_jobs(path, size, jobs):
    """Operations per second of several processes together."""
    pipe = os.pipe()

    def job():
        os.write(pipe[1], f"{rate(path, size, False)}\n".encode())

    children(*[job] * jobs)
    os.close(pipe[1])
    with os.fdopen(pipe[0]) as f:
        return sum(float(line) for line in f)


def names(top, count=1200, batch=40):
    """Creates, renames and unlinks per second."""
    result = []
    os.makedirs(top, exist_ok=True)
    for action in (lambda i: os.close(os.open(f"{top}/a{i}", os.O_CREAT | os.O_WRONLY)),
                   lambda i: os.rename(f"{top}/a{i}", f"{top}/b{i}"),
                   lambda i: os.unlink(f"{top}/b{i}")):
        numbers = iter(range(count))
        result.append(batches(lambda: action(next(numbers)), batch, count // batch, 0))
    return result


def measure(mount):
    """One turn: row -> (value, whether more is better)."""
    path = f"{mount.path}/bench"
    row = {}
    row["4 KiB read, 1 job (us)"] = 1e6 / rate(path, 4 * KIB, False)
    row["4 KiB read, 8 jobs (IOPS)"] = rate_of_jobs(path, 4 * KIB, 8)
    row["4 KiB write (us)"] = 1e6 / rate(path, 4 * KIB, True)
    row["64 KiB read (us)"] = 1e6 / rate(path, 64 * KIB, False)
    row["64 KiB write (us)"] = 1e6 / rate(path, 64 * KIB, True)
    row["1 MiB reads (MB/s)"] = rate(path, MIB, False) * MIB / 1e6
    row["1 MiB writes (MB/s)"] = rate(path, MIB, True) * MIB / 1e6
    created, renamed, removed = names(f"{mount.path}/names")
    row["create (/s)"] = created
    row["rename (/s)"] = renamed
    row["unlink (/s)"] = removed
    return row


def replace_server(which):
    """Has the server go on with another module."""
    remote_call("nfsd_stop")
    # Connections may still be about to end.
    wait_for("removal of the server's module", 60, lambda: remote(
        "rmmod rpcrdma 2>/dev/null; ! grep -q '^rpcrdma ' /proc/modules && echo gone || true"), 0.2)
    remote(SIDES[which].command())
    remote_call("nfsd_start")


def measure_operations(mount, number, count, server):
    """One turn with the rows of `operations.py`, as `measure`; and the counts of those rows."""
    row, counts = {}, {}
    for name, make in operation_rows(mount.path, EXPORT, number, lambda c: remote(c, timeout=300), 9):
        one = make()
        row[f"{name} (us)"] = one.measure(mount.path)[0] / 1000
        if count:
            counts[name] = one.count(server)
        one.close()
    return row, counts


def check_version(pair):
    """What is spoken is what is said to be measured."""
    if pair.startswith("stock"):
        return
    wanted = "2" if pair == "two-two" else "1"
    states = [read(f"/sys/kernel/debug/rpcrdma/{d}/state")
              for d in os.listdir("/sys/kernel/debug/rpcrdma") if d.isdigit()]
    check(len(states) == 1 and f"version: {wanted}" in states[0].splitlines(),
          f"{pair}: not version {wanted}: {states}")


def turn(pair, number, prepare, count, server=False):
    """Inserts a module, mounts, measures, and takes everything down again."""
    run("rmmod", "rpcrdma")
    run("insmod", *SIDES[pair.split("-")[0]].arguments())
    with Mount("4.2", options="rsize=1048576,wsize=1048576") as mount:
        check_version(pair)
        if os.environ.get("OPERATIONS") == "1":
            row, counts = measure_operations(mount, f"{number}{pair}", count, server)
            return row, counts
        path = f"{mount.path}/bench"
        if prepare:
            with open(path, "wb") as f:
                f.write(b"\xA5" * SPAN)
        # A first pass, so that nothing is measured that happens only once.
        rate(path, MIB, False, 0.2)
        counts = {}
        if count:
            for size in COUNTED:
                for writing in (False, True):
                    name = f"{size >> 10} KiB {'write' if writing else 'read'}"
                    counts[name] = tap.per_operation(path, size, writing, server=server)
        # Counting costs a little, the same for both.
        row = measure(mount)
    return row, counts


def fastest(name, values):
    """The mean of the fastest quarter: what else the machine does only ever makes a turn slower."""
    values = sorted(values, reverse="(us)" not in name)
    return statistics.fmean(values[:max(1, len(values) // 4)])


def ratio(name, own, other):
    """How much better ours is: above 1 is better, whatever the unit."""
    own, other = fastest(name, own), fastest(name, other)
    return other / own if "(us)" in name else own / other


def spread(name, own, other, samples=400):
    """Between which ratios nine of ten lie when the turns are drawn anew: what chance does."""
    rng = random.Random(1)
    found = sorted(ratio(name, rng.choices(own, k=len(own)), rng.choices(other, k=len(other)))
                   for _ in range(samples))
    return found[samples // 20], found[-samples // 20]


#: What is counted at a client's Queue Pair, and at a server's.
CLIENT_COLUMNS = (
    ("work requests", tap.work_requests), ("doorbells", lambda f: f["posts"]),
    ("signaled", lambda f: f["signaled"]), ("completions", lambda f: f["completions"]),
    ("registrations", lambda f: f["registrations"]),
    ("local invalidations", lambda f: f["local_invs"]),
    ("remote invalidations", lambda f: f["remote_invs"]))
SERVER_COLUMNS = (
    ("work requests", lambda f: tap.work_requests(f, "server ")),
    ("doorbells", lambda f: f["server posts"]), ("signaled", lambda f: f["server signaled"]),
    ("completions", lambda f: f["server completions"]),
    ("Sends With Invalidate", lambda f: f["server sends_with_inv"]),
    ("RDMA Reads", lambda f: f["server rdma_reads"]),
    ("RDMA Writes", lambda f: f["server rdma_writes"]))


def print_rates(rows):
    """The rows of each pair, compared with the first pair."""
    first, *others = rows
    print("| | " + " | ".join(rows) + " | "
          + " | ".join(f"ratio {o} | interval" for o in others)
          + " |\n" + "|---" * (1 + len(rows) + 2 * len(others)) + "|")
    for name in rows[first][0]:
        values = {pair: [r[name] for r in rows[pair]] for pair in rows}
        cells = [f"{fastest(name, v):,.0f}" for v in values.values()]
        for other in others:
            low, high = spread(name, values[other], values[first])
            cells += [f"{ratio(name, values[other], values[first]):.2f}",
                      f"{low:.2f} to {high:.2f}"]
        print(f"| {name} | " + " | ".join(cells) + " |")


def print_counts(counts, pairs, columns):
    """The counts of some pairs."""
    print("| | " + " | ".join(c for c, _ in columns) + " |\n|---" + "|---" * len(columns) + "|")
    for name in counts[pairs[0]]:
        cells = [" / ".join(f"{f(counts[pair][name]):.4g}" for pair in pairs)
                 for _, f in columns]
        print(f"| {name} | " + " | ".join(cells) + " |")


#: Rows of one large read or write.
LARGE = ("1024 KiB read", "1024 KiB write", "1 MiB READ", "1 MiB WRITE")


def check_counts(counts):
    """Fails when a count contradicts what is promised."""
    for pair, rows in counts.items():
        if pair.startswith("stock"):
            continue
        for name, found in rows.items():
            if name in LARGE and fabric() == "rxe":
                check((found["registrations"], found["remote_invs"]) == (1, 1),
                      f"{pair}: {name} takes more than one registration, invalidated remotely")
            small = name.split(" ")[0] in ("GETATTR", "LOOKUP", "OPEN", "create", "rename",
                                           "unlink") or name.startswith(("4 KiB", "8 KiB"))
            if pair == "two-two" and small:
                rdma = found["server rdma_reads"] + found["server rdma_writes"]
                check(found["registrations"] == rdma == 0, f"{pair}: {name}: {found}")


def client():
    """Measures, and prints the tables. Fails when a count contradicts what is promised."""
    pairs = (os.environ.get("PAIRS") or "stock-stock ours-stock").split()
    servers = len({pair.split("-")[1] for pair in pairs}) > 1
    rows = {pair: [] for pair in pairs}
    counts = {}
    tap.insert()
    if servers:
        tap.Server.insert()
    number = int(os.environ.get("ROUNDS") or 24)
    for n in range(number):
        order = pairs if n % 2 == 0 else pairs[::-1]
        for pair in order:
            if servers:
                replace_server(pair.split("-")[1])
            row, found = turn(pair, n, n == 0 and pair == order[0], n == 0, servers)
            wait_for("release of the transport", 60, lambda: module_refs() == 0)
            rows[pair].append(row)
            if found:
                counts[pair] = found
            log(f"round {n}, {pair}: " + ", ".join(f"{k} {v:.0f}" for k, v in row.items()))
    print(f"\nClient and server, fabric {fabric()}, NFSv4.2, O_DIRECT, rsize 1 MiB, medians of "
          f"batches, of which the fastest quarter of {number} turns is averaged. A ratio above 1 "
          f"means better than {pairs[0]}; 90 % of what chance makes of it lies in the interval.\n")
    print_rates(rows)
    ends = [("client", CLIENT_COLUMNS)] + [("server", SERVER_COLUMNS)] * servers
    for end, columns in ends:
        # One pair for each module at this end.
        seen = {pair.split("-")[end == "server"]: pair for pair in reversed(pairs)}
        shown = sorted(seen.values(), key=pairs.index)
        print(f"\nFor each operation, counted at the {end}'s Queue Pair: {' / '.join(shown)}.\n")
        print_counts(counts, shown, columns)
    print(flush=True)
    check_counts(counts)
