"""Paired differences in the order of their seeds, a panel a contrast: which seed is worst, and whether one carries all.

Panels of one unit share their axis, so that a contrast that looks large is large.
"""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paribus.report import canvas
from paribus.report.canvas import INK, Picture
from paribus.report.evidence import Shown
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MINUS, MISSING, decimals_for, fixed

_COLUMNS = 4
_ACCENT = "#0072b2"


def by_seed(rows: Sequence[Shown], name: str) -> Picture:
    """Differences of each contrast against its seeds, unit of the metric; rows without a finite one are left out."""
    rows = [row for row in rows if row.finite_differences]
    columns = max(min(len(rows), _COLUMNS), 1)
    lines = max(math.ceil(len(rows) / columns), 1)
    with canvas.style():
        width = canvas.WIDTH_INCHES * (0.5 if columns == 1 else 1)
        figure = Figure(figsize=(width, 0.2 + 1.95 * lines), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).ravel()
        for panel, row in zip(panels, rows, strict=False):
            _panel(panel, row)
            panel.set_ylim(*_limits([other for other in rows if other.unit == row.unit]))
            _lost(panel, row)
        for panel in panels[len(rows) :]:
            panel.set_visible(False)
        for line in range(lines):
            if rows[line * columns :]:
                panels[line * columns].set_ylabel(canvas.label(rows[line * columns].unit, 28))
        return Picture(figure, name, "Paired differences by seed", _in_words(rows))


def by_seed_table(rows: Sequence[Shown]) -> Table | None:
    """The same numbers, a row a contrast and a column a seed; None where no pair may be shown."""
    told = [row for row in rows if row.differences]
    if not told:
        return None
    seeds = sorted({seed for row in told for seed in row.difference_seeds})
    columns = (Column("contrast"), *(Column(f"seed {seed}", numeric=True) for seed in seeds), Column("unit"))
    body = []
    for row in told:
        held = dict(zip(row.difference_seeds, row.differences, strict=True))
        digits = decimals_for(row.standard_error)
        numbers = (
            MISSING
            if seed not in held
            else "diverged"
            if held[seed] is None
            else fixed(held[seed], digits, signed=True)
            for seed in seeds
        )
        body.append((f"{row.name}\n{row.compared}", *numbers, row.unit))
    direction = "lower" if all(row.lower_is_better for row in told) else "higher"
    mixed = len({row.lower_is_better for row in told}) > 1
    note = "" if mixed else f"A {direction} value of the metric is better."
    return Table("Treatment minus baseline, seed by seed", columns, tuple(body), note)


def _panel(panel: Axes, row: Shown) -> None:
    colour = _ACCENT if row.primary else INK
    places = {seed: place for place, seed in enumerate(row.difference_seeds)}
    points = [(places[s], d) for s, d in zip(row.difference_seeds, row.differences, strict=True) if d is not None]
    if row.interval is not None and all(map(math.isfinite, row.interval)):
        panel.axhspan(*row.interval, color=colour, alpha=0.13, lw=0)
    if row.mean is not None and math.isfinite(row.mean):
        panel.axhline(row.mean, color=colour, lw=1.4, alpha=0.8)
    panel.axhline(0, color=INK, lw=1.0, alpha=0.75)
    for edge in (-row.smallest_effect, row.smallest_effect):
        panel.axhline(edge, color=INK, lw=0.8, ls=(0, (4, 3)), alpha=0.5)
    panel.plot([x for x, _ in points], [y for _, y in points], "o", ms=5.2, mfc=colour, mec="none")
    panel.set_xticks(range(len(places)), [str(seed) for seed in places])
    panel.set_xlim(-0.6, max(len(places), 1) - 0.4)
    panel.set_xlabel("seed")
    panel.set_title(canvas.label(row.name, 34))
    panel.yaxis.set_major_locator(MaxNLocator(5))
    canvas.quiet(panel)


def _lost(panel: Axes, row: Shown) -> None:
    for place, difference in enumerate(row.differences):
        if difference is None:
            colour = _ACCENT if row.primary else INK
            panel.plot([place], [panel.get_ylim()[0]], "x", ms=7, mew=1.8, color=colour, clip_on=False)


def _limits(rows: Sequence[Shown]) -> tuple[float, float]:
    """What is drawn, and zero; a margin far wider than the data is left outside rather than flattening it."""
    ends = [0.0]
    for row in rows:
        ends += [*row.finite_differences, *(row.interval or ())]
    ends = [end for end in ends if math.isfinite(end)]
    drawn = max(ends) - min(ends)
    for row in rows:
        if row.smallest_effect <= 2 * drawn:
            ends += [-row.smallest_effect, row.smallest_effect]
    room = 0.08 * (max(ends) - min(ends)) or 1e-3
    return min(ends) - room, max(ends) + room


def _in_words(rows: Sequence[Shown]) -> str:
    told = []
    for row in rows:
        digits = decimals_for(row.standard_error)
        pairs = zip(row.difference_seeds, row.differences, strict=True)
        each = ", ".join(f"seed {s} {'diverged' if d is None else fixed(d, digits, signed=True)}" for s, d in pairs)
        told.append(f"{row.name}, treatment {MINUS} baseline in {row.unit}: {each}.")
    return " ".join(told) or "No pair is complete."
