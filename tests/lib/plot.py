# SPDX-License-Identifier: GPL-2.0
"""What `tools/bench --plot` runs, in a root with matplotlib: `plot.py DIRECTORY`.

Each `NAME.json` there that `tools/bench --json` has written becomes `NAME.svg`. The same figures
give the same picture. There is no background, and colours are of a middle lightness, so that
pictures can be seen on light pages and on dark ones.
"""

import glob
import json
import os
import re
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402 - the kind of output comes first

#: Text and lines, and the modules.
GREY = "#7a7a7a"
COLOURS = {"stock": "#7a7a7a", "ours": "#2f7fc1", "two": "#d9730d", "2016": "#2e9e5b"}
NAMES = {"stock": "stock module", "ours": "Version One", "two": "Version Two", "2016": "2016 draft"}
STYLE = {
    "svg.hashsalt": "rpcrdma", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 8,
    "text.color": GREY, "axes.labelcolor": GREY, "axes.edgecolor": GREY, "xtick.color": GREY,
    "ytick.color": GREY, "axes.titlecolor": GREY, "axes.titlesize": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": GREY, "grid.alpha": 0.3,
    "grid.linewidth": 0.5, "legend.frameon": False, "legend.fontsize": 8,
}
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
#: The most that a picture may have, in octets.
LIMIT = 60 << 10


def short(rows):
    """Rows' names without their units, where that is not another row's name."""
    names = [re.sub(r" \((us|/s|IOPS|MB/s)\)$", "", row) for row in rows]
    return [name if names.count(name) == 1 else row for name, row in zip(names, rows)]


def below(figure, modules, text):
    """What is written below a picture: what its axis is, and what the colours mean."""
    height = figure.get_figheight()
    figure.supxlabel(text, fontsize=8, y=0.28 / height)
    figure.legend(handles=[pyplot.Line2D([], [], color=COLOURS[m], linewidth=3, label=NAMES[m])
                           for m in modules],
                  loc="lower center", ncols=len(modules))
    figure.tight_layout(rect=(0, 0.4 / height, 1, 1))


def beside(axes, rows, modules, ratio):
    """A line for each row and module, from 1 to a ratio."""
    step = 0.8 / len(modules)
    for number, module in enumerate(modules):
        places = [at - 0.4 + (number + 0.5) * step for at in range(len(rows))]
        found = [ratio(row, module) for row in rows]
        axes.hlines(places, 1, found, color=COLOURS[module], linewidth=2.2, clip_on=False)
    axes.axvline(1, color=GREY, linewidth=1)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def instructions(found):
    """Instructions of a row, each module's in parts of those of the first one."""
    rows, (first, *others) = found["rows"], found["modules"]
    shown = {"whole": "executed", "without device": "without device", "own": "own"}
    figure, panels = pyplot.subplots(1, len(shown), sharey=True, figsize=(9, 0.8 + 0.3 * len(rows)))
    for axes, (title, name) in zip(panels, shown.items()):
        beside(axes, list(rows), others, lambda row, module, n=name:
               rows[row][module][n] / rows[row][first][n])
        axes.set_title(title)
    panels[0].set_yticks(range(len(rows)), list(rows))
    below(figure, others, f"instructions relative to the {first} module; left is fewer "
          f"(fabric {found['fabric']})")
    return figure


def times(found):
    """How much better a row is than the first pair's, with the range of chance."""
    rows, (first, *others) = found["rows"], found["pairs"]
    modules = {pair: pair.split("-")[0] for pair in others if len(set(pair.split("-"))) == 1}
    # Not every pair has all rows.
    rows = {row: each for row, each in rows.items() if all(pair in each for pair in modules)}
    figure, axes = pyplot.subplots(figsize=(7, 0.8 + 0.22 * len(rows)))
    step = 0.7 / len(modules)
    for number, (pair, module) in enumerate(modules.items()):
        places = [at - 0.35 + (number + 0.5) * step for at in range(len(rows))]
        axes.hlines(places, *zip(*[each[pair]["interval"] for each in rows.values()]),
                    color=COLOURS[module], linewidth=1.2)
        axes.plot([each[pair]["ratio"] for each in rows.values()], places, "o", markersize=3.5,
                  color=COLOURS[module])
    axes.axvline(1, color=GREY, linewidth=1)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    # Beyond that it is chance.
    axes.set_xlim(0.85, 1.6)
    axes.set_yticks(range(len(rows)), short(rows))
    axes.tick_params(axis="y", length=0)
    below(figure, modules.values(), f"speed relative to {first}; right is faster "
          f"(fabric {found['fabric']})")
    return figure


def curve(found):
    """What an operation takes, by connections; a column for each number of CPUs."""
    points = {(p["module"], p["cpus"], p["connections"]): p for p in found["points"]}
    cpus = sorted({c for _, c, _ in points})
    connections = sorted({n for _, _, n in points})
    shown = {"without device": "instructions, all CPUs", "busiest CPU": "instructions, busiest CPU",
             "locks that were taken": "locks found taken"}
    figure, panels = pyplot.subplots(len(shown), len(cpus), sharex=True, sharey="row",
                                     squeeze=False, figsize=(9, 6.5))
    for axes_row, (name, title) in zip(panels, shown.items()):
        for axes, c in zip(axes_row, cpus):
            for module in found["modules"]:
                axes.plot(range(len(connections)),
                          [points[module, c, n][name] for n in connections], "-", color=COLOURS[module], linewidth=1.5)
            axes.set_xticks(range(len(connections)), connections)
            axes.locator_params(axis="y", nbins=5)
            axes.grid(axis="x", visible=False)
            axes.tick_params(length=0)
        axes_row[0].set_ylabel(title)
        # One scale for all of the row.
        axes_row[0].set_ylim(0, 1.05 * max(p[name] for p in found["points"]))
        axes_row[0].yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    for axes, c in zip(panels[0], cpus):
        axes.set_title(f"{c} CPUs" if c > 1 else "1 CPU")
    below(figure, found["modules"], f"connections; for one {found['row']}, {found['jobs']} "
          f"processes, fabric {found['fabric']}")
    return figure


KINDS = {"instructions": instructions, "times": times, "curve": curve}


def main():
    """Draws all that can be drawn."""
    matplotlib.rcParams.update(STYLE)
    for path in sorted(glob.glob(f"{sys.argv[1]}/*.json")):
        with open(path, encoding="ascii") as f:
            found = json.load(f)
        if found["kind"] not in KINDS:
            continue
        picture = f"{path.removesuffix('.json')}.svg"
        KINDS[found["kind"]](found).savefig(picture, transparent=True, metadata=NO_METADATA)
        pyplot.close()
        with open(picture, encoding="utf-8") as f:
            text = f.read()
        # What nobody sees is left out: digits, fonts that readers do not have, blanks.
        for long, less in ((r"(\d+\.\d\d)\d+", r"\1"),
                           (r"font-family: [^;\"]*", "font-family: sans-serif"),
                           (r' transform="rotate\(-0 [^"]*\)"', ""), (r"\n +", "\n"),
                           (r"\n([LCQMz])", r" \1"), (r"([\dz]) *\n\"", r'\1"')):
            text = re.sub(long, less, text)
        # Every file of the tree names its licence.
        text = text.replace("\n", "\n<!-- SPDX-License-Identifier: GPL-2.0 -->\n", 1)
        with open(picture, "w", encoding="utf-8") as f:
            f.write(text)
        size = os.path.getsize(picture)
        print(f"{picture}: {size:,} octets")
        if size > LIMIT:
            sys.exit(f"{picture}: more than {LIMIT:,} octets")


if __name__ == "__main__":
    main()
