"""Paired differences of bits per byte of the right answer, task by task: the mean over seeds, and each seed's own."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from paribus.report import canvas
from paribus.report.canvas import INK, Picture
from paribus.report.numbers import interval
from paribus.report.of_answers import TaskPairRow, TaskRow, named
from paribus.stats.rounding import MINUS, decimals_for, fixed

_TICK = 0.2
"""half the height of a seed's tick, in lines of the figure"""
_COLOUR = canvas.ARM_COLOURS[0]


def gold_bits_picture(tasks: Sequence[TaskRow], pairs: Sequence[TaskPairRow], name: str) -> Picture | None:
    """One contrast's tasks at the end of the schedule; None where no task has such a difference.

    Filled: tasks that may join a family; hollow: those that may not.
    """
    means = {task: mean for task in tasks if (mean := task.gold_bits_difference) is not None and not task.mid_schedule}
    told = list(means)
    if not told:
        return None
    seeds = {_key(task): [p for p in pairs if _key(p) == _key(task) and not p.mid_schedule] for task in told}
    with canvas.style():
        figure = Figure(figsize=(canvas.WIDTH_INCHES * 0.8, 0.75 + 0.29 * len(told)), layout="constrained")
        panel = figure.subplots()
        for y, task in enumerate(told):
            if task.gold_bits_interval is not None:
                panel.plot(task.gold_bits_interval, [y, y], color=_COLOUR, lw=2.0, solid_capstyle="butt")
            own = _known(seeds[_key(task)])
            # One broken line, since a marker each would be most of the picture's bytes.
            ticks = [(value, value, math.nan) for value in own], [(y - _TICK, y + _TICK, math.nan)] * len(own)
            panel.plot(*(np.ravel(part) for part in ticks), color=INK, lw=0.9, alpha=0.65)
            fill = _COLOUR if task.admitted else "none"
            panel.plot([means[task]], [y], ls="", marker="o", ms=6, mfc=fill, mec=_COLOUR, mew=1.4)
        panel.axvline(0, color=INK, lw=1.0, alpha=0.75)
        panel.set_yticks(range(len(told)), [canvas.label(named(*_key(task)[:3]), 44) for task in told])
        panel.set_ylim(len(told) - 0.4, -0.6)
        panel.set_title(canvas.label(told[0].contrast, 60))
        panel.set_xlabel("bits per byte of the right answer, treatment minus baseline (left of 0 is better)")
        canvas.quiet(panel, grid="x")
        title = f"Bits per byte of the right answer by task: {told[0].contrast}"
        return Picture(figure, name, title, _in_words(told, seeds))


def _known(pairs: Sequence[TaskPairRow]) -> list[float]:
    return [value for pair in pairs if (value := pair.gold_bits_difference) is not None]


def _key(row: TaskRow | TaskPairRow) -> tuple[str, str, str, str]:
    return row.suite, row.task, row.variant, row.after


def _in_words(tasks: Sequence[TaskRow], seeds: Mapping[tuple[str, str, str, str], Sequence[TaskPairRow]]) -> str:
    told = []
    for task in tasks:
        bounds = task.gold_bits_interval
        digits = decimals_for((bounds[1] - bounds[0]) / 4 if bounds else None)
        mean = fixed(task.gold_bits_difference, digits, signed=True)
        each = ", ".join(fixed(value, digits, signed=True) for value in _known(seeds[_key(task)]))
        spread = f" {interval(bounds, digits)}" if bounds else ""
        told.append(f"{named(*_key(task)[:3])} {mean}{spread}, seeds {each}")
    return f"Treatment {MINUS} baseline in bits per byte: {'; '.join(told)}."
