# SPDX-License-Identifier: GPL-2.0
"""The tables of `tools/bench --curve`: `curve_tables.py OUT FILE…`, a file for each number of CPUs."""

import json
import sys

import results

#: What is shown: a title, and what it is called in the files.
TABLES = {
    "Instructions for one operation without the device, of all CPUs": "without device",
    "Of them those of the CPU that executes most": "busiest CPU",
    "Operations per second, if that CPU executed one instruction in a nanosecond, and never waited":
        "operations per second",
    "The module's own": "own",
    "How often a lock, or a mutex, was found taken": "locks that were taken",
    "Instructions for all that, in a lock's slow path": "spinning",
}


def number(value):
    """A figure as people write it."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main():
    """Joins the files, and prints their tables."""
    out, *paths = sys.argv[1:]
    parts = []
    for path in paths:
        with open(path, encoding="ascii") as f:
            parts.append(json.load(f))
    first = parts[0]
    points = {(p["module"], p["cpus"], p["connections"]): p for part in parts
              for p in part["points"]}
    for point in points.values():
        point["operations per second"] = 1e9 / point["busiest CPU"]
    cpus = sorted({p["cpus"] for p in points.values()})
    connections = sorted({p["connections"] for p in points.values()})
    print(f"\n{first['row']} by {first['jobs']} processes, fabric {first['fabric']}, the module at "
          f"both ends: {' / '.join(first['modules'])}.")
    for title, name in TABLES.items():
        print(f"\n{title}:\n\n| connections | "
              + " | ".join(f"{c} CPUs" if c > 1 else "1 CPU" for c in cpus)
              + " |\n|---" + "|---" * len(cpus) + "|")
        for n in connections:
            cells = [" / ".join(number(points[m, c, n][name]) for m in first["modules"])
                     for c in cpus]
            print(f"| {n} | " + " | ".join(cells) + " |")
    print()
    results.write(out, {**first, "points": list(points.values())})


if __name__ == "__main__":
    main()
