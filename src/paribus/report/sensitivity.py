"""The effect beside what a longer decay moves, and beside the same arm at other values of a field.

No row here has a word. A reader sees whether the effect is larger than what a change of recipe does that nobody asked
about, and whether it holds at the neighbours of the value that was chosen.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paribus.report import canvas
from paribus.report.blocks import Absent, PageFigure, PageTable, Section, picture_figure
from paribus.report.canvas import ARM_COLOURS, INK, Picture
from paribus.report.evidence import Shown, is_due, may_span
from paribus.report.forest import Estimate, forest
from paribus.report.numbers import interval
from paribus.report.of_sensitivity import SensitivityRow, Value
from paribus.report.tables import Column, Table, without_empty_columns
from paribus.stats.rounding import MINUS, MISSING, decimals_for, fixed

TITLE = "Sensitivity: the schedule and other values"
_ANCHOR = "sensitivity"
_PANEL = 2.05
"""inches of height of one swept field"""
_HOW = (
    "Nothing is shown under another schedule or at other values of a field; `schedule = true` in [robustness] trains "
    'the baseline with a longer decay, and sweep = { "optimiser.matrix_learning_rate" = [0.01, 0.04] } in an arm '
    "trains it at these values."
)
_CAPTION = (
    "Bars: 95 % intervals over seeds. Grey band and its line: the primary's difference with its interval. Ring: the "
    "arm's own value."
)
_WITH_SCHEDULE = " At the right: the baseline with a longer decay."


def due_sensitivity(found: Sequence[SensitivityRow], rows: Sequence[Shown]) -> tuple[SensitivityRow, ...]:
    """Those beside contrasts that are due, once the primary is; beside a stop for futility without an interval."""
    if not all(row.settled for row in rows if row.primary):
        return ()
    return tuple(
        row if may_span(rows, row.scale) else replace(row, interval=None)
        for row in found
        if is_due(rows, row.contrast, row.scale)
    )


def sensitivity_section(found: Sequence[SensitivityRow], withheld: str = "") -> Section | Absent:
    """Of rows that went through `due_sensitivity`. `withheld` says why there may be no row yet."""
    if not found:
        return Absent(TITLE, withheld or _HOW)
    table = without_empty_columns(sensitivity_table(found), keep=3)
    return Section(
        _ANCHOR,
        TITLE,
        schedule_sentences(found),
        tuple(_figures(found)),
        (PageTable(f"{_ANCHOR}-1", table),),
    )


def schedule_sentences(found: Sequence[SensitivityRow]) -> tuple[str, ...]:
    """What the longer decay moves, beside the primary's difference in the same unit."""
    effects = {(row.scale, row.unit): row for row in found if row.kind == "effect"}
    said = []
    for row in found:
        if row.kind != "schedule" or row.mean is None:
            continue
        effect = effects.get((row.scale, row.unit))
        beside = "" if effect is None or effect.mean is None else f"; the difference of {effect.compared} is "
        beside += "" if effect is None or effect.mean is None else _amount(effect)
        said.append(
            f"{row.knob} {_written(row.value)} in place of {_written(row.own)} moves {row.of} by {_amount(row)} "
            f"{row.unit}{beside}."
        )
    return tuple(said)


def sensitivity_table(found: Sequence[SensitivityRow]) -> Table:
    """One row a value, of rows that went through `due_sensitivity`: the effect, the schedule, then field by field."""
    columns = (
        Column("compared", "beside the contrast"),
        Column("field"),
        Column("value", numeric=True),
        Column("difference", "95 %", numeric=True),
        Column("unit"),
        Column("pairs", numeric=True),
        Column("diverged", "cells", numeric=True),
    )
    digits = {row.unit: max(_digits(other) for other in found if other.unit == row.unit) for row in found}
    body = tuple(
        (
            f"{row.compared}\n{row.contrast}, scale\u00a0{row.scale}{' · primary' * (row.kind == 'effect')}",
            row.knob or MISSING,
            _value_of(row),
            _amount(row, digits[row.unit], "\n"),
            row.unit,
            str(row.pairs) if row.pairs == row.planned else f"{row.pairs} of {row.planned}",
            str(row.diverged) if row.diverged else MISSING,
        )
        for row in _ordered(found)
    )
    note = (
        "Treatment minus baseline, paired t over seeds, not adjusted; lower is better. No verdict uses these cells, "
        "and nothing is chosen among them: the best of several values is better by having been picked. Where a cell "
        "diverged no mean is taken of the others."
    )
    return Table("The effect, a longer decay, and other values of a field", columns, body, note)


def sensitivity_picture(found: Sequence[SensitivityRow], name: str) -> Picture:
    """The rows of one scale and unit: a panel a swept field, the decay beside each; lines without any sweep."""
    sweeps = list(_sweeps(found))
    effect = next((row for row in found if row.kind == "effect" and row.mean is not None), None)
    schedule = next((row for row in found if row.kind == "schedule"), None)
    description = "; ".join(_told(row) for row in _ordered(found)) + "."
    axis = f"difference, {found[0].unit} (lower is better)"
    if not sweeps:
        lines = [(row, "primary: " if row.kind == "effect" else "") for row in _ordered(found)]
        estimates = [
            Estimate(f"{kind}{row.compared}", row.mean, *(row.interval or (None, None)), row.kind != "effect")
            for row, kind in lines
        ]
        return forest(estimates, axis, name, TITLE, description)
    with canvas.style():
        figure = Figure(figsize=(canvas.WIDTH_INCHES * 0.8, 0.25 + _PANEL * len(sweeps)), layout="constrained")
        widths = [5, 1] if schedule is not None else [1]
        panels = figure.subplots(len(sweeps), len(widths), squeeze=False, sharey="row", width_ratios=widths)
        for row, sweep in zip(panels, sweeps, strict=True):
            _sweep_panel(row[0], sweep)
            if schedule is not None:
                _points(row[1], [0.0], [schedule], 1, "D")
                row[1].set_xticks([0.0], [f"decay\n{_written(schedule.value)} for {_written(schedule.own)}"])
                row[1].set_xlim(-1, 1)
            for panel in row:
                _ground(panel, effect)
        figure.supylabel(axis, fontsize=8.5)
        return Picture(figure, name, TITLE, description)


def _figures(found: Sequence[SensitivityRow]) -> Iterator[PageFigure]:
    places = list(dict.fromkeys((row.scale, row.unit) for row in found))
    groups = [(place, _at(found, *place)) for place in places]
    drawn = [(place, own) for place, own in groups if any(row.kind != "effect" and row.mean is not None for row in own)]
    for number, ((scale, unit), own) in enumerate(drawn, 1):
        caption = _CAPTION if any(_sweeps(own)) else "Bars: 95 % intervals over seeds."
        if any(_sweeps(own)) and any(row.kind == "schedule" for row in own):
            caption += _WITH_SCHEDULE
        stem = "sensitivity" if len(drawn) == 1 else f"sensitivity-{number}"
        heading = f"Scale {scale}, {unit}" if len(drawn) > 1 else ""
        picture = sensitivity_picture(own, f"figure-sensitivity-{number}")
        yield picture_figure(heading, caption, picture, stem)


def _at(found: Sequence[SensitivityRow], scale: str, unit: str) -> list[SensitivityRow]:
    return [row for row in found if (row.scale, row.unit) == (scale, unit)]


def _sweeps(found: Sequence[SensitivityRow]) -> Iterator[list[SensitivityRow]]:
    """The rows of each swept field, in the order of their values: numbers ascending, others as the file has them."""
    values = [row for row in found if row.kind == "value"]
    for of, knob in dict.fromkeys((row.of, row.knob) for row in values):
        own = [row for row in values if (row.of, row.knob) == (of, knob)]
        yield sorted(own, key=lambda row: float(row.value or 0)) if _numeric(own) else own


def _ordered(found: Sequence[SensitivityRow]) -> list[SensitivityRow]:
    ends = [row for kind in ("effect", "schedule") for row in found if row.kind == kind]
    return [*ends, *(row for sweep in _sweeps(found) for row in sweep)]


def _numeric(rows: Sequence[SensitivityRow]) -> bool:
    return all(isinstance(row.value, int | float) and not isinstance(row.value, bool) for row in rows)


def _sweep_panel(panel: Axes, sweep: Sequence[SensitivityRow]) -> None:
    """Values along x: to scale where they are numbers, on a logarithmic one where they are equal factors apart."""
    places = [float(row.value or 0) for row in sweep] if _numeric(sweep) else [float(i) for i in range(len(sweep))]
    if _numeric(sweep) and _equal_factors(places):
        places = [math.log(place) for place in places]
    _points(panel, places, sweep, 0, "s")
    panel.set_xticks(places, [canvas.label(_written(row.value), 14) for row in sweep])
    room = 0.12 * (places[-1] - places[0]) or 1.0
    panel.set_xlim(places[0] - room, places[-1] + room)
    first = sweep[0]
    beside = "itself" if first.own is not None and not any(row.is_own for row in sweep) else _baseline(first)
    own = "" if any(row.is_own for row in sweep) else f", own value {_written(first.own)}"
    panel.set_title(canvas.label(f"{first.of} minus {beside}: {first.knob}{own}", 80))


def _baseline(row: SensitivityRow) -> str:
    return row.compared.rpartition(f" {MINUS} ")[2]


def _equal_factors(values: Sequence[float]) -> bool:
    """Whether neighbours differ by one factor rather than by one step."""
    if min(values) <= 0 or len(values) < 3:
        return bool(min(values) > 0 and len(values) == 2 and values[1] >= 4 * values[0])
    return bool(np.std(np.diff(np.log(values))) < np.std(np.diff(values)) / np.mean(np.diff(values)))


def _points(panel: Axes, places: Sequence[float], rows: Sequence[SensitivityRow], look: int, marker: str) -> None:
    colour = ARM_COLOURS[look]
    for place, row in zip(places, rows, strict=True):
        if row.mean is None:
            why = "diverged" if row.diverged else "no pair"
            panel.annotate(
                why, (place, 0.02), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=8, alpha=0.8
            )
            continue
        if row.interval is not None:
            panel.plot([place, place], row.interval, color=colour, lw=1.8, solid_capstyle="butt")
        panel.plot([place], [row.mean], ls="", marker=marker, ms=6, color=colour)
        if row.is_own:
            panel.plot([place], [row.mean], ls="", marker="o", ms=12, mfc="none", mec=INK, mew=1.2)


def _ground(panel: Axes, effect: SensitivityRow | None) -> None:
    panel.axhline(0, color=INK, lw=1.0, alpha=0.75)
    if effect is not None and effect.mean is not None:
        if effect.interval is not None:
            panel.axhspan(*effect.interval, facecolor=INK, alpha=0.1, linewidth=0, zorder=0)
        panel.axhline(effect.mean, color=INK, lw=0.9, alpha=0.6, ls=(0, (4, 2)), zorder=0)
    canvas.quiet(panel)


def _told(row: SensitivityRow) -> str:
    at = {"effect": "primary", "schedule": f"{row.knob} {_written(row.value)}"}.get(
        row.kind, f"{row.knob} {_value_of(row)}"
    )
    return f"{row.compared}, {at}: " + ("no difference" if row.mean is None else _amount(row))


def _value_of(row: SensitivityRow) -> str:
    if row.kind == "effect":
        return MISSING
    if row.kind == "schedule":
        return f"{_written(row.value)}\nown {_written(row.own)}"
    return f"{_written(row.value)}\nits own" if row.is_own else _written(row.value)


def _written(value: Value | None) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    text = f"{value:.6g}" if isinstance(value, int | float) else value
    return text.replace("-", MINUS) if isinstance(value, int | float) else text


def _amount(row: SensitivityRow, digits: int | None = None, joint: str = " ") -> str:
    """The difference with its interval, rounded to what the interval shows where `digits` are not given."""
    digits = _digits(row) if digits is None else digits
    bounds = "" if row.interval is None else f"{joint}{interval(row.interval, digits)}"
    return fixed(row.mean, digits, signed=True) + bounds


def _digits(row: SensitivityRow) -> int:
    spread = None if row.interval is None else (row.interval[1] - row.interval[0]) / 4
    return min(max(decimals_for(spread, otherwise=3), 2), 5)
