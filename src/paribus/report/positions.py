"""Diagnostics by position in the row, or by slice of a task's targets: a mean over layers for each bucket, arm by arm.

A bucket of positions is written as a range, "16-63" or "1024+"; no slice of a task can be called so.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.figure import Figure

from paribus.report import canvas
from paribus.report.content import EVERY_POSITION, DiagnosticValue
from paribus.report.depth import place, source_of
from paribus.report.numbers import significant

_COLUMNS = 3
_RANGE = re.compile(r"\d+-\d+|\d+\+")


def by_slice(values: Iterable[DiagnosticValue]) -> bool:
    """Whether the buckets are slices of a task; those of a text are ranges of positions."""
    return any(value.bucket != EVERY_POSITION and not _RANGE.fullmatch(value.bucket) for value in values)


def grouping(values: Iterable[DiagnosticValue]) -> str:
    """What the buckets are, in words that follow "by"."""
    return "slice of the targets" if by_slice(values) else "position in the row"


def positions_svg(values: Sequence[DiagnosticValue], arms: Sequence[str], baseline: str, name: str) -> str | None:
    """One diagnostic at one scale, a panel a site and group; None where it was read over all positions only."""
    shown = [
        v
        for v in values
        if v.bucket != EVERY_POSITION and not v.of_head and source_of(v) is None and math.isfinite(v.value)
    ]
    if not shown:
        return None
    what, in_slices = grouping(shown), by_slice(shown)
    # Slices have no order but the task's, in which they were written, and nothing lies between two of them.
    buckets = list(dict.fromkeys(v.bucket for v in shown))
    if not in_slices:
        buckets.sort(key=_first_position)
    places = list(dict.fromkeys((v.site, v.group) for v in shown))
    present = [arm for arm in arms if any(v.arm == arm for v in shown)]
    present += sorted({v.arm for v in shown} - set(present))
    looks = canvas.look_of([*arms, *(arm for arm in present if arm not in arms)], baseline)  # one look on all figures
    columns = min(len(places), _COLUMNS)
    rows = math.ceil(len(places) / columns)
    words = []
    with canvas.style():
        width = canvas.WIDTH_INCHES * (0.5 if columns == 1 else 1)
        figure = Figure(figsize=(width, 0.35 + 1.9 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for panel, (site, group) in zip(panels, places, strict=False):
            for number, arm in enumerate(present):
                means = _by_bucket([v for v in shown if (v.arm, v.site, v.group) == (arm, site, group)])
                held = [i for i, bucket in enumerate(buckets) if bucket in means]
                y = [means[buckets[i]] for i in held]
                # Without lines, arms at one place would hide each other.
                aside = min(0.1, 0.8 / len(present)) * (number - (len(present) - 1) / 2) if in_slices else 0.0
                x = [i + aside for i in held]
                colour, dash, marker = looks[arm]
                panel.plot(x, y, color=colour, ls="none" if in_slices else dash, lw=1.6, marker=marker, ms=3.6)
                if y:
                    reached = ", ".join(f"{buckets[i]} {significant(of)}" for i, of in zip(held, y, strict=True))
                    words.append(f"{arm}, {place(site, group)}: {reached} {shown[0].unit}")
            panel.set_xticks(range(len(buckets)), buckets)
            panel.set_title(place(site, group))
            panel.set_xlabel(what)
            if in_slices:
                panel.margins(x=0.25)
            canvas.quiet(panel)
        for panel in panels[len(places) :]:
            panel.set_visible(False)
        for row in range(rows):
            panels[row * columns].set_ylabel(canvas.label(shown[0].unit, 28))
        canvas.key(figure, present, looks, markers=True)
        described = f"Mean over layers and seeds by {what}. {'; '.join(words)}"
        return canvas.to_svg(figure, name, f"{shown[0].diagnostic} by {what}", described)


def _by_bucket(values: Sequence[DiagnosticValue]) -> dict[str, float]:
    read: dict[str, list[float]] = defaultdict(list)
    for value in values:
        read[value.bucket].append(value.value)
    return {bucket: float(np.mean(of)) for bucket, of in read.items()}


def _first_position(bucket: str) -> tuple[int, str]:
    number = re.match(r"\d+", bucket)
    return int(number[0]) if number else -1, bucket
