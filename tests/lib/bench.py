# SPDX-License-Identifier: GPL-2.0
"""The client's half of `make bench`: all modules in turn, on one mount each time.

Prints tables in Markdown. Options come from the environment: `ROUNDS` (12), how often each pair of
modules has its turn; `MINUTES` (12), after which no round begins that would not end by then;
`SECONDS_EACH` (0.5), how long a row is measured; `RATES` and `OPERATIONS`, the pairs for which the
rows of `rates` and those of `operations.py` are measured. A pair are the modules of client and
server ("stock-stock ours-stock", see `operations.SIDES`); the first one is what the others are
compared with.
"""

import itertools
import os
import statistics
import time

import results
import tap
from bench_tables import check_counts, compared, print_counts, print_rates, print_rnr
from common import (Mount, children, check, fabric, log, module_back, module_free, module_refs,
                    one_guest, read, remote, remote_call, rnr_events, run, wait_for)
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
    # By then all of them are there.
    begin = time.monotonic() + 1

    def job():
        found = steps_until(path, size, begin) if one_guest() else rate(path, size, False)
        os.write(pipe[1], f"{found}\n".encode())

    children(*[job] * jobs)
    os.close(pipe[1])
    with os.fdopen(pipe[0]) as f:
        return sum(float(line) for line in f)


def steps_until(path, size, begin):
    """Reads per second of one process, from `begin` on for the usual time.

    Where the processes share a CPU the median of batches leaves out the turns of the others.
    """
    io = tap.Direct(path, size, False)
    places = itertools.cycle(range(0, SPAN, size))
    time.sleep(max(0, begin - time.monotonic()))
    steps = 0
    while time.monotonic() < begin + seconds():
        for _ in range(4):
            io.step(next(places))
        steps += 4
    io.close()
    return steps / seconds()


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


def rates(mount, prepare, count):
    """Row -> value, and row -> what was counted at both ends, if `count`."""
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
                counts[name] = both_ends(tap.per_operation(path, size, writing, ENDS.values()))
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
    return row, counts


def operations(mount, word, count):
    """As `rates`, with the rows of `operations.py`; `word` is this turn's own."""
    row, counts = {}, {}
    for name, make in operation_rows(mount.path, EXPORT, word, lambda c: remote(c, timeout=300), 9):
        one = make()
        row[f"{name} (us)"] = one.measure(mount.path)[0] / 1000
        if count:
            counts[name] = both_ends(one.count(ENDS.values()))
        one.close()
    return row, counts


def replace_server(which):
    """Has the server go on with another module."""
    remote_call("nfsd_stop")
    # Connections may still be about to end.
    wait_for("removal of the server's module", 60, lambda: remote(
        "rmmod rpcrdma 2>/dev/null; ! grep -q '^rpcrdma ' /proc/modules && echo gone || true"), 0.2)
    remote(SIDES[which].command())
    remote_call("nfsd_start")


def replace_modules(pair, server):
    """Has the ends go on with the modules of a pair.

    A server in a guest of its own does so only if `server`.
    """
    own, peer = pair.split("-")
    if one_guest():
        module_free()
    elif server:
        replace_server(peer)
    run("rmmod", "rpcrdma")
    run("insmod", *SIDES[own].arguments())
    if one_guest():
        module_back()


def check_version(pair):
    """What is spoken is what is said to be measured."""
    if pair.startswith("stock"):
        return
    wanted = "2" if pair in ("two-two", "2016-2016") else "1"
    states = [read(f"/sys/kernel/debug/rpcrdma/{d}/state")
              for d in os.listdir("/sys/kernel/debug/rpcrdma") if d.isdigit()]
    check(len(states) == 1 and f"version: {wanted}" in states[0].splitlines(),
          f"{pair}: not version {wanted}: {states}")


class Part:
    """Rows that are measured together: for which pairs, and what was found."""

    def __init__(self, variable, measure):
        self.measure = measure
        self.rows = {pair: [] for pair in (os.environ.get(variable) or "").split()}
        self.counts = {}

    def turn(self, pair, *arguments):
        """One pair's turn, if the pair is of this part; says what was seen."""
        if pair not in self.rows:
            return
        row, counts = self.measure(*arguments)
        self.rows[pair].append(row)
        if counts:
            self.counts[pair] = counts
        log(f"round {len(self.rows[pair])}, {pair}: "
            + ", ".join(f"{k} {v:.0f}" for k, v in row.items()))

    def show(self, number):
        """Prints the tables."""
        if not self.rows:
            return
        print(f"\nClient and server, fabric {fabric()}, NFSv4.2, O_DIRECT, rsize 1 MiB, medians of "
              f"batches, of which the fastest quarter of {number} turns is averaged. A ratio above "
              f"1 means better than {next(iter(self.rows))}; 90 % of what chance makes of it lies "
              "in the interval beside it.\n")
        print_rates(self.rows)
        # In the order of the other table, whichever pair was first.
        counts = {pair: self.counts[pair] for pair in self.rows}
        for end in ENDS:
            print_counts(counts, end)


def both_ends(found):
    """What was counted at `ENDS`, by name."""
    return dict(zip(ENDS, found))


#: Where work requests are counted. A guest with both ends has one module that counts them.
ENDS: dict = ({"both Queue Pairs together": tap} if one_guest() else
        {"the client's Queue Pair": tap, "the server's Queue Pair": tap.Server})


def measure_pair(pair, rate_rows, operation_part, n, first):
    """One pair's turn in round `n`, whose modules are there; `first` is the first turn of all.

    Returns how often a message found no Receive.
    """
    before = rnr_events()
    with Mount("4.2", options="rsize=1048576,wsize=1048576") as mount:
        check_version(pair)
        # Counting costs a little, the same for all.
        rate_rows.turn(pair, mount, first, n == 0)
        operation_part.turn(pair, mount, f"{n}{pair}", n == 0)
    found = rnr_events() - before
    if not one_guest():
        # A server in this guest uses the module too, and stops when the module is replaced.
        wait_for("release of the transport", 60, lambda: module_refs() == 0)
    return found


def client():
    """Measures, and prints the tables. Fails when a count contradicts what is promised."""
    parts = rate_rows, operation_part = Part("RATES", rates), Part("OPERATIONS", operations)
    pairs = list(dict.fromkeys([*rate_rows.rows, *operation_part.rows]))
    check(pairs, "there is nothing to be measured")
    check(not one_guest() or all(len(set(pair.split("-"))) == 1 for pair in pairs),
          f"one guest has the same module at both ends: {' '.join(pairs)}")
    servers = {pair.split("-")[1] for pair in pairs}
    for end in ENDS.values():
        end.insert()
    number = int(os.environ.get("ROUNDS") or 12)
    limit = 60 * float(os.environ.get("MINUTES") or 12)
    rnr = dict.fromkeys(pairs, 0)
    began, longest, n = time.monotonic(), 0, 0
    while n < number and (n == 0 or time.monotonic() - began + longest < limit):
        round_began = time.monotonic()
        order = pairs if n % 2 == 0 else pairs[::-1]
        for pair in order:
            first = n == 0 and pair == order[0]
            # Where there is one module only the server's is put there once.
            replace_modules(pair, len(servers) > 1 or first)
            rnr[pair] += measure_pair(pair, *parts, n, first)
        n += 1
        # The first one counts, too, and takes longer for it.
        if n > 1:
            longest = max(longest, time.monotonic() - round_began)
    if n < number:
        log(f"time for {n} rounds only")
    for part in parts:
        part.show(n)
    print_rnr(rnr)
    print(flush=True)
    results.keep("times", fabric=fabric(), turns=n, pairs=pairs,
                 rows={name: row for part in parts for name, row in compared(part.rows).items()})
    for part in parts:
        check_counts(part.counts)
