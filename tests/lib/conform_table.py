# SPDX-License-Identifier: GPL-2.0
"""What `tools/conform` prints: case by case what a peer has done, and what the text wants."""

import collections
import textwrap

#: How wide a table is.
WIDTH = 90


def indented(text, by):
    """A paragraph that begins `by` columns to the right."""
    return textwrap.fill(text, WIDTH, initial_indent=" " * by, subsequent_indent=" " * by)


def shortened(text):
    """An outcome without the octets in it, so that like ones count together."""
    return text.partition(":")[0] if text.startswith(("a wrong", "wrong")) else text


def outcomes(checks, problems):
    """Lines about checks `(label, outcome, allowed)`: how many were as the text wants, and the others.

    `problems` are what a case has seen besides; some cases have nothing else.
    """
    good = sum(outcome in allowed for _, outcome, allowed in checks)
    if good == len(checks) and not problems:
        return ["    as required" + (f", {good} messages" if good else "")]
    lines = [f"    {good} of {len(checks)} as required"]
    others = collections.defaultdict(list)
    for label, outcome, allowed in checks:
        if outcome not in allowed:
            others[shortened(outcome), " or ".join(sorted(allowed))].append(label)
    for (outcome, wanted), labels in others.items():
        some = "; ".join(labels[:3]) + ("; ..." if len(labels) > 3 else "")
        lines.append(indented(f"{len(labels)}: {outcome}, not {wanted}: {some}", 4))
    return lines + [indented(f"also: {text}", 4) for text in problems]


def heading(section, name, text):
    """The line of a case."""
    first = " ".join((text or "").split("\n\n")[0].split())
    return [f"{name}  [{section}]", indented(first, 4)]
