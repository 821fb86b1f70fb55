"""Interventions on trained models: the change in NLL that each makes, by arm and variant, as a forest and a table.

Positive: the changed model's loss is higher. A change says how much the trained model relies on what was changed, not
how a model would do that was trained without it.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from paribus.report import canvas
from paribus.report.content import InterventionValue
from paribus.report.numbers import interval
from paribus.report.spread import Spread, mean_error, over_seeds
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, decimals_for, fixed

UNIT = "nats per token"
FOREST_ROWS = 30
"""the largest changes that a forest shows; the table has all"""
Row = tuple[str, str, Spread, list[InterventionValue]]
"""variant, arm, change over seeds, the values it came from"""


def rows_of(values: Sequence[InterventionValue], arms: Sequence[str]) -> list[Row]:
    """One row a variant and arm of one intervention at one scale."""
    found = []
    for variant in dict.fromkeys(value.variant for value in values):
        present = {value.arm for value in values if value.variant == variant}
        for arm in [arm for arm in arms if arm in present] + sorted(present - set(arms)):
            own = [value for value in values if (value.variant, value.arm) == (variant, arm)]
            found.append((variant, arm, over_seeds([value.change for value in own]), own))
    return found


def forest_svg(
    rows: Sequence[Row],
    arms: Sequence[str],
    baseline: str,
    name: str,
    title: str,
    *,
    intervals: bool = True,
    unit: str = UNIT,
) -> str:
    """The change of each row: dots are seeds, the marker their mean, the bar its 95 % t interval."""
    largest = sorted(rows, key=lambda row: -abs(row[2].mean))[:FOREST_ROWS]
    shown = [row for row in rows if row in largest]
    looks = canvas.look_of(list(dict.fromkeys([*arms, *(row[1] for row in rows)])), baseline)
    with canvas.style():
        figure = Figure(figsize=(canvas.WIDTH_INCHES, 0.9 + 0.26 * len(shown)), layout="constrained")
        panel = figure.subplots()
        for y, (_, arm, spread, own) in enumerate(shown):
            colour, _, marker = looks[arm]
            seeds = [value.change for value in own]
            panel.plot(seeds, [y] * len(seeds), ls="", marker="o", ms=3, color=colour, alpha=0.4)
            if intervals and spread.interval is not None:
                panel.plot(spread.interval, (y, y), color=colour, lw=1.4)
            panel.plot([spread.mean], [y], ls="", marker=marker, ms=5, color=colour)
        panel.axvline(0, color=canvas.INK, lw=1.0, alpha=0.75)
        panel.set_yticks(
            range(len(shown)), [f"{canvas.label(row[0], 40)} · {canvas.label(row[1], 22)}" for row in shown]
        )
        panel.set_ylim(len(shown) - 0.4, -0.6)
        panel.set_xlabel(f"change in NLL, {unit} (positive: the loss rises)")
        canvas.quiet(panel, grid="x")
        words = "; ".join(f"{arm}, {variant}: {fixed(s.mean, 4, signed=True)} {unit}" for variant, arm, s, _ in shown)
        return canvas.to_svg(figure, name, title, words)


def changes_table(rows: Sequence[Row], caption: str, *, intervals: bool = True, unit: str = UNIT) -> Table:
    """Every variant and arm: mean over seeds with its interval over seeds, and the error over documents beside it."""
    columns = (
        Column("changed"),
        Column("arm"),
        Column("change in NLL", unit, numeric=True),
        *([Column("t interval over seeds", "95 %", numeric=True)] if intervals else []),
        Column("standard error over documents", "of a seed", numeric=True),
        Column("seeds", numeric=True),
        Column("documents", numeric=True),
    )
    body = []
    for variant, arm, spread, own in rows:
        width = (spread.interval[1] - spread.interval[0]) / 4 if spread.interval else None
        digits = decimals_for(width)
        counts = sorted({value.documents for value in own})
        documents = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        errors = mean_error(value.standard_error for value in own)
        body.append(
            (
                variant,
                arm,
                fixed(spread.mean, digits, signed=True),
                *([interval(spread.interval, digits)] if intervals else []),
                errors,
                str(spread.seeds),
                documents if counts else MISSING,
            )
        )
    return Table(caption, columns, tuple(body))


def finite(values: Sequence[InterventionValue]) -> list[InterventionValue]:
    """Values that a figure can place."""
    return [value for value in values if np.isfinite(value.change)]
