# SPDX-License-Identifier: GPL-2.0
"""The tables of `make bench`: what is made of many turns, and what counts have to be.

A row's name ends with its unit: where that is `(us)` less is better, else more.
"""

import random
import statistics

from common import check, fabric
from tap import work_requests

#: What a row has to reach of the first pair's, to be spoken of as no worse.
ENOUGH = 0.98


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


def print_rates(rows):
    """The rows of each pair, compared with the first pair."""
    first, *others = rows
    print("| | " + " | ".join(rows) + " | " + " | ".join(f"ratio {o}" for o in others)
          + " |\n" + "|---" * (1 + len(rows) + len(others)) + "|")
    behind = []
    for name in rows[first][0]:
        values = {pair: [r[name] for r in rows[pair]] for pair in rows}
        cells = [f"{fastest(name, v):,.0f}" for v in values.values()]
        for other in others:
            found = ratio(name, values[other], values[first])
            low, high = spread(name, values[other], values[first])
            cells.append(f"{found:.3f} ({low:.2f} to {high:.2f})")
            if found < ENOUGH:
                behind.append(f"{other}: {name} {found:.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(f"\nBelow {ENOUGH} of {first}: {'; '.join(behind) or 'nothing'}.")


def compared(rows):
    """Row -> pair -> its value, with the ratio to the first pair and its interval."""
    first = next(iter(rows), None)
    found = {}
    for name in rows[first][0] if first else ():
        values = {pair: [r[name] for r in turns] for pair, turns in rows.items()}
        found[name] = {pair: {"value": fastest(name, v)} if pair == first else
                       {"value": fastest(name, v), "ratio": ratio(name, v, values[first]),
                        "interval": spread(name, v, values[first])}
                       for pair, v in values.items()}
    return found


#: What is counted at a Queue Pair. What no row of a table has is left out of it.
COLUMNS = (
    ("work requests", work_requests), ("doorbells", lambda f: f["posts"]),
    ("signaled", lambda f: f["signaled"]), ("completions", lambda f: f["completions"]),
    ("Sends", lambda f: f["sends"]), ("Sends With Invalidate", lambda f: f["sends_with_inv"]),
    ("RDMA Reads", lambda f: f["rdma_reads"]), ("RDMA Writes", lambda f: f["rdma_writes"]),
    ("registrations", lambda f: f["registrations"]),
    ("local invalidations", lambda f: f["local_invs"]),
    ("remote invalidations", lambda f: f["remote_invs"]))


def print_counts(counts, end):
    """What was counted at one end: pair -> row -> end -> figures."""
    pairs = list(counts)
    shown = [(title, count) for title, count in COLUMNS
             if any(count(found[end]) for rows in counts.values() for found in rows.values())]
    print(f"\nFor each operation, counted at {end}: {' / '.join(pairs)}.\n")
    print("| | " + " | ".join(c for c, _ in shown) + " |\n|---" + "|---" * len(shown) + "|")
    for name in counts[pairs[0]]:
        cells = [" / ".join(f"{count(counts[pair][name][end]):.3g}" for pair in pairs)
                 for _, count in shown]
        print(f"| {name} | " + " | ".join(cells) + " |")


#: Rows of one large read or write.
LARGE = ("1024 KiB read", "1024 KiB write", "1 MiB READ", "1 MiB WRITE")
#: Beginnings of rows that need no memory of the client's, in Version Two.
SMALL = ("GETATTR", "LOOKUP", "OPEN", "create", "rename", "unlink", "4 KiB", "8 KiB")


def total(ends, *names):
    """What was counted at all ends together."""
    return sum(found[name] for found in ends.values() for name in names)


def check_counts(counts):
    """Fails when a count contradicts what is promised."""
    for pair, rows in counts.items():
        if pair.startswith("stock"):
            continue
        for name, ends in rows.items():
            if name in LARGE and fabric() != "siw":
                check(total(ends, "registrations") == total(ends, "remote_invs") == 1,
                      f"{pair}: {name} takes more than one registration, invalidated remotely")
            if pair == "two-two" and name.startswith(SMALL):
                check(not total(ends, "registrations", "rdma_reads", "rdma_writes"),
                      f"{pair}: {name}: {ends}")


def print_rnr(rnr):
    """How often a message found no Receive: pair -> number. Fails if that was with ours."""
    if fabric() != "siw":
        print("\nMessages that found no Receive: "
              + ", ".join(f"{pair} {number}" for pair, number in rnr.items()) + ".")
    bad = [pair for pair, number in rnr.items() if number and pair != "stock-stock"]
    check(not bad, f"messages found no Receive: {', '.join(bad)}")
