# SPDX-License-Identifier: GPL-2.0
"""What `tools/bench --instructions` runs: guest instructions for one operation, stock and ours.

In one guest whose clock counts its instructions (`tools/guest run --icount`): the module is
inserted, an export is served and mounted through it, so that it is at both ends, and the
operations are done; then the other module has its turn. A row's value is the mean over many
operations of one kind, until the system call returns. What client, server, device, file system
and this program execute counts, and all but the transport is the same for both modules.

A profile, which leaves out nothing and nobody's time, tells whose instructions they are. So it
also tells what no transport could save: what remains when all that the transport itself executes
is taken away, and what remains without verbs, device, checksums and network too; and what remains
without the device, of which an adapter does the work itself: driver, checksums and network.

Options come from the environment: `ROUNDS` (3), how often each module has its turn; `WANTED`, a word
that the names of the rows to be measured contain; `TOP` (0), how many functions are shown of each
row; and `MODULES`, what is compared with what comes first there ("stock ours two";
also "2016" and "one-default").
"""

import os
import statistics
import subprocess
import sys
import traceback

import results
from common import Failure, check, fabric, log, module_refs, read, run, wait_for
from operations import SIDES, SPAN, rows
from profiling import COPY, ON_HARDWARE, PARTS, RDMA, TRANSPORT, Profile, Symbols
from versions import DEBUGFS

MOUNT = "/mnt"
EXPORT = "/srv/export"


def shell(command):
    """Runs what `$GUEST_LIB` has."""
    return run("bash", "-c", f'. "$GUEST_LIB"; {command}', timeout=600)


class Found:
    """What one turn found for one row, for one step: a clock's instructions, RPCs, a profile's."""

    def __init__(self, row, profile):
        self.clock, self.rpcs = row.measure(MOUNT, profile)
        steps = row.batch * row.batches
        counted = profile.counted()
        self.parts = {part: count / steps for part, count in counted.parts.items()}
        self.functions = {name: count / steps for name, count in counted.functions.items()}
        self.own = counted.own
        #: All that was executed.
        self.executed = sum(self.parts.values())


def turn(side, number, profile):
    """One turn of a module: row -> `Found`."""
    run("insmod", *SIDES[side].arguments())
    # Before lockd's grace period has ended nfsd grants no delegation, with which there are fewer RPCs.
    shell(f"start_nfs_server; sleep 4; mount_nfs 4.2 {MOUNT} rsize=1048576,wsize=1048576")
    wanted = os.environ.get("WANTED") or ""
    found = {}
    if SIDES[side].dialect:
        spoken = [line for number in os.listdir(DEBUGFS) if number.isdigit()
                  for line in read(f"{DEBUGFS}/{number}/state").splitlines() if line.startswith("dialect: ")]
        check(spoken == [f"dialect: {SIDES[side].dialect}"], f"{side}: {spoken}")
    with open(f"{MOUNT}/data", "wb") as f:
        f.write(b"\xA5" * SPAN)
    profile.symbols.modules_changed()
    for name, make in rows(MOUNT, EXPORT, f"{number}{side}", shell):
        # Renamed and removed is what was made before.
        if wanted in name or name in ("create", "rename", "unlink"):
            row = make()
            found[name] = Found(row, profile)
            row.close()
    run("umount", MOUNT)
    shell("stop_nfs_server")
    wait_for("release of the transport", 60, lambda: module_refs() == 0)
    run("rmmod", "rpcrdma")
    return found


def mean(values):
    """Their mean, and how far the farthest is from it."""
    middle = statistics.fmean(values)
    return middle, max(abs(v - middle) for v in values)


def executed(turns, name):
    """What was executed in a row, mean of the turns."""
    return statistics.fmean([t[name].executed for t in turns])


def part(turns, name, parts):
    """What some parts executed in a row, mean of the turns."""
    return statistics.fmean([sum(t[name].parts[p] for p in parts) for t in turns])


def heading(*columns):
    """The first two lines of a table."""
    print("| | " + " | ".join(columns) + " |\n" + "|---" * (1 + len(columns)) + "|")


def row_names(found):
    """The rows, in their order."""
    return list(next(iter(found.values()))[0])


def table(found):
    """Prints what one operation takes: side -> list of turns."""
    first, *others = found
    print(f"\nInstructions of the guest for one operation: fabric {fabric()}, NFSv4.2, direct I/O, "
          f"the module at both ends (ours: in Version One, two: in Version Two, 2016: in that protocol); "
          f"{len(found[first])} turns each. Spread: how far the farthest turn is from the mean. "
          "Clock: the same by the guest's clock, in parts of it.\n")
    heading("RPCs", first, *[c for o in others for c in (o, "ratio")], "spread", "clock")
    for name in row_names(found):
        means = {side: mean([t[name].executed for t in turns]) for side, turns in found.items()}
        rpcs = " / ".join(f"{statistics.fmean([t[name].rpcs for t in turns]):.3g}"
                          for turns in found.values())
        clock = " / ".join(f"{statistics.fmean([t[name].clock for t in turns]) / means[side][0]:.3f}"
                           for side, turns in found.items())
        other = means[first][0]
        cells = [f"{other:,.0f}"] + [f"{means[o][0]:,.0f} | {means[o][0] / other:.4f}" for o in others]
        spread = max(off / value for value, off in means.values())
        print(f"| {name} | {rpcs} | {' | '.join(cells)} | {100 * spread:.2f} % | {clock} |")


def shares(found):
    """Prints whose instructions they are."""
    print(f"\nWhose they are, in thousands: {' / '.join(found)}. Copies, memory and what follows "
          "work for all the others.\n")
    heading(*PARTS, "most")
    for name in row_names(found):
        cells = [" / ".join(f"{part(turns, name, [p]) / 1000:.1f}" for turns in found.values())
                 for p in PARTS]
        most = [max(PARTS, key=lambda p, t=turns: part(t, name, [p])) for turns in found.values()]
        print(f"| {name} | {' | '.join(cells)} | {' / '.join(most)} |")


#: What matters of an operation, and the parts that it is made of.
SUMMARY = {"without device": ON_HARDWARE, "own": (TRANSPORT,), "copies": (COPY,)}


def summary(found):
    """Prints what an operation takes without the device, and what of it is own, and copies."""
    first, *others = found
    print("\nWithout device: all but what an adapter does itself, here the driver of the device, "
          "its checksums, its copies and the network below it. Own: the module's text, and the "
          "kernel's Rust with its helpers. Copies: copying and clearing of memory, for whomever, "
          "but for the device.\n")
    heading(*[c for title in SUMMARY
              for c in (f"{title}, {first}", *[w for o in others for w in (o, "ratio")])])
    for name in row_names(found):
        cells = []
        for parts in SUMMARY.values():
            base = part(found[first], name, parts)
            cells.append(f"{base:,.0f}")
            for other in others:
                own = part(found[other], name, parts)
                cells += [f"{own:,.0f}", f"{own / base:.3f}"]
        print(f"| {name} | {' | '.join(cells)} |")


def figures(found):
    """Row -> side -> what is kept of it."""
    return {name: {side: {"rpcs": statistics.fmean([t[name].rpcs for t in turns]),
                          "executed": executed(turns, name),
                          "off": mean([t[name].executed for t in turns])[1],
                          **{title: part(turns, name, parts) for title, parts in SUMMARY.items()},
                          "parts": {p: part(turns, name, [p]) for p in PARTS}}
                   for side, turns in found.items()}
            for name in row_names(found)}


def ceiling(found):
    """Prints how much less a transport could execute at best, and how near each is to it."""
    first, *others = found
    print(f"\nThe ceiling, in parts of all that {first} executes. None: {first} with transport, "
          "verbs, device, checksums and network taken out, as if messages moved by themselves. Free: "
          "a module with only what is executed in itself taken out, as if it did the same for "
          "nothing. What others do for it, such as copies and the scheduler, is still in both. "
          "Reached: how much of the way from what stock takes to its ceiling, free, was gone.\n")
    heading(f"{first} none", f"{first} free", *[c for o in others for c in (o, f"{o} free", "reached")])
    for name in row_names(found):
        whole = executed(found[first], name)
        free = {side: (executed(turns, name) - part(turns, name, [TRANSPORT])) / whole
                for side, turns in found.items()}
        cells = [f"{1 - part(found[first], name, RDMA) / whole:.3f}", f"{free[first]:.3f}"]
        for side in others:
            own = executed(found[side], name) / whole
            cells += [f"{own:.3f}", f"{free[side]:.3f}",
                      f"{100 * (1 - own) / (1 - min(free.values())):.0f} %"]
        print(f"| {name} | " + " | ".join(cells) + " |")


def functions(found, number):
    """Prints the functions that execute most, of each row and side; then the module's own."""
    for name in row_names(found) if number else ():
        for side, turns in found.items():
            total, own = {}, set()
            for each in turns:
                own |= each[name].own
                for function, count in each[name].functions.items():
                    total[function] = total.get(function, 0) + count / len(turns)
            most = sorted(total, key=total.get, reverse=True)
            for title, shown in ("", most), (", own", [f for f in most if f in own]):
                print(f"\n{name}, {side}{title}:")
                for function in shown[:number]:
                    print(f"  {total[function]:10,.0f}  {function}")


def main():
    """Measures all sides in turn, and prints the tables."""
    for module in ("nfs", "nfsv4", "nfsd", "rdma_cm", "ib_core"):
        run("modprobe", "-q", module)
    # One for all: the plugin numbers what it writes.
    profile = Profile(Symbols())
    found = {side: [] for side in (os.environ.get("MODULES") or " ".join(SIDES)).split()}
    for number in range(int(os.environ.get("ROUNDS") or 3)):
        for side in (list(found) if number % 2 == 0 else list(found)[::-1]):
            found[side].append(turn(side, number, profile))
            log(f"round {number}, {side}: " +
                ", ".join(f"{k} {v.executed:.0f}" for k, v in found[side][-1].items()))
    table(found)
    summary(found)
    shares(found)
    ceiling(found)
    functions(found, int(os.environ.get("TOP") or 0))
    print(flush=True)
    results.keep("instructions", fabric=fabric(), rounds=len(next(iter(found.values()))),
                 modules=list(found), rows=figures(found))


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError, subprocess.SubprocessError):
        traceback.print_exc()
        sys.exit(1)
