# SPDX-License-Identifier: GPL-2.0
"""The client's half of `make bench`: both modules in turn, on one mount each time.

Prints a table in Markdown. Options come from the environment: `ROUNDS` (20), how
often each module has its turn, and `SECONDS_EACH` (0.5), how long a row is measured.
"""

import itertools
import os
import random
import statistics
import time

import tap
from common import Mount, children, check, fabric, log, run, wait_for, module_refs

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


def turn(ko, prepare, count):
    """Inserts a module, mounts, measures, and takes everything down again."""
    run("rmmod", "rpcrdma")
    run("insmod", ko)
    with Mount("4.2", options="rsize=1048576,wsize=1048576") as mount:
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
                    counts[size, writing] = tap.per_operation(path, size, writing)
        # Counting costs a little, the same for both.
        row = measure(mount)
    wait_for("release of the transport", 60, lambda: module_refs() == 0)
    return row, counts


def middle(values):
    """The mean of the middle half: turns that something else disturbed do not count."""
    values = sorted(values)
    cut = len(values) // 4
    return statistics.fmean(values[cut:len(values) - cut])


def ratio(name, own, other):
    """How much better ours is: above 1 is better, whatever the unit."""
    own, other = middle(own), middle(other)
    return other / own if "(us)" in name else own / other


def spread(name, own, other, samples=400):
    """Between which ratios nine of ten lie when the turns are drawn anew: what chance does."""
    rng = random.Random(1)
    found = sorted(ratio(name, rng.choices(own, k=len(own)), rng.choices(other, k=len(other)))
                   for _ in range(samples))
    return found[samples // 20], found[-samples // 20]


def client():
    """Measures, and prints both tables. Fails when a count contradicts what is promised."""
    kos = {"stock": os.environ["STOCK_KO"], "ours": os.environ["OURS_KO"] or None}
    if os.environ.get("BENCH_STOCK_ONLY"):
        kos["ours"] = kos["stock"]
    check(kos["ours"] and os.path.exists(kos["ours"]), "there is no module of ours")
    rows = {which: [] for which in kos}
    counts = {}
    tap.insert()
    number = int(os.environ.get("ROUNDS") or 20)
    for n in range(number):
        order = list(kos) if n % 2 == 0 else list(kos)[::-1]
        for which in order:
            row, found = turn(kos[which], n == 0 and which == order[0], n == 0)
            rows[which].append(row)
            counts.update({(which, *k): v for k, v in found.items()})
            log(f"round {n}, {which}: " + ", ".join(f"{k} {v:.0f}" for k, v in row.items()))
    print(f"\nFabric {fabric()}, NFSv4.2, O_DIRECT, rsize 1 MiB, medians of batches, of which the "
          f"middle half of {number} turns is averaged. A ratio above 1 means that ours is better; "
          "90 % of what chance makes of it lies in the interval.\n")
    print("| | stock | ours | ratio | interval |\n|---|---|---|---|---|")
    for name in rows["ours"][0]:
        own = [r[name] for r in rows["ours"]]
        other = [r[name] for r in rows["stock"]]
        low, high = spread(name, own, other)
        print(f"| {name} | {middle(other):,.0f} | {middle(own):,.0f} | "
              f"{ratio(name, own, other):.2f} | {low:.2f} to {high:.2f} |")
    print("\nFor each operation, counted at the client's Queue Pair: stock / ours.\n")
    columns = (("work requests", tap.work_requests), ("doorbells", lambda f: f["posts"]),
               ("signaled", lambda f: f["signaled"]),
               ("completions", lambda f: f["completions"]),
               ("registrations", lambda f: f["registrations"]),
               ("local invalidations", lambda f: f["local_invs"]),
               ("remote invalidations", lambda f: f["remote_invs"]))
    print("| | " + " | ".join(c for c, _ in columns) + " |\n|---" * 1 + "|---" * len(columns) + "|")
    for size in COUNTED:
        for writing in (False, True):
            name = f"{size >> 10} KiB {'write' if writing else 'read'}"
            cells = [f"{f(counts['stock', size, writing]):.4g} / "
                     f"{f(counts['ours', size, writing]):.4g}" for _, f in columns]
            print(f"| {name} | " + " | ".join(cells) + " |")
    print(flush=True)
