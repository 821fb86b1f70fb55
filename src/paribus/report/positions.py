"""Diagnostics by position in the row: a mean over layers for each bucket of positions, arm by arm."""

import math
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from paribus.report import canvas
from paribus.report.content import EVERY_POSITION, DiagnosticValue
from paribus.report.depth import place, source_of
from paribus.report.numbers import significant

_COLUMNS = 3


def positions_svg(values: Sequence[DiagnosticValue], arms: Sequence[str], baseline: str, name: str) -> str | None:
    """One diagnostic at one scale, a panel a site and group; None where it was read at every position alike."""
    shown = [
        v
        for v in values
        if v.bucket != EVERY_POSITION and not v.of_head and source_of(v) is None and math.isfinite(v.value)
    ]
    if not shown:
        return None
    buckets = sorted({v.bucket for v in shown}, key=_first_position)
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
            for arm in present:
                means = _by_bucket([v for v in shown if (v.arm, v.site, v.group) == (arm, site, group)])
                x = [i for i, bucket in enumerate(buckets) if bucket in means]
                y = [means[buckets[i]] for i in x]
                colour, dash, marker = looks[arm]
                panel.plot(x, y, color=colour, ls=dash, lw=1.6, marker=marker, ms=3.6)
                if y:
                    reached = ", ".join(f"{buckets[i]} {significant(of)}" for i, of in zip(x, y, strict=True))
                    words.append(f"{arm}, {place(site, group)}: {reached} {shown[0].unit}")
            panel.set_xticks(range(len(buckets)), buckets)
            panel.set_title(place(site, group))
            panel.set_xlabel("position in the row")
            canvas.quiet(panel)
        for panel in panels[len(places) :]:
            panel.set_visible(False)
        for row in range(rows):
            panels[row * columns].set_ylabel(canvas.label(shown[0].unit, 28))
        canvas.key(figure, present, looks, markers=True)
        described = f"Mean over layers and seeds by position in the row. {'; '.join(words)}"
        return canvas.to_svg(figure, name, f"{shown[0].diagnostic} by position in the row", described)


def _by_bucket(values: Sequence[DiagnosticValue]) -> dict[str, float]:
    read: dict[str, list[float]] = defaultdict(list)
    for value in values:
        read[value.bucket].append(value.value)
    return {bucket: float(np.mean(of)) for bucket, of in read.items()}


def _first_position(bucket: str) -> tuple[int, str]:
    number = re.match(r"\d+", bucket)
    return int(number[0]) if number else -1, bucket
