"""The figure of a set of tasks: a row a task and contrast, its area difference beside its three milestones.

Effects on tasks differ by a factor of a hundred, and what is asked is their sign: each row has a scale of its own,
written at its ends, and zero is one line through all of them. The milestones stand beside the area because a sign may
turn during training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from paribus.report import canvas
from paribus.report.canvas import INK, Picture
from paribus.report.numbers import interval
from paribus.report.of_tasks import TunnelRow, asked, legend, mark, sign
from paribus.report.tunnel_table import MILESTONE_CONFIDENCE
from paribus.stats.rounding import MINUS, decimals_for, fixed, percent

_ACCENT = "#0072b2"
_UNDECIDED = 0.1
"""half width of the band of a declared 0, as a share of a strip: it marks a place, not a margin"""


@dataclass(frozen=True)
class _Layout:
    """Inches: the figure, its strip of areas and its milestones (left edge, width), the height of a row.

    `text` is the share of a row's height above the data, where names and numbers stand in the stacked layout.
    """

    width: float
    area: tuple[float, float]
    milestones: tuple[float, float]
    row: float
    text: float

    @property
    def stacked(self) -> bool:
        return self.text > 0


_WIDE = _Layout(9.6, (2.45, 3.2), (5.95, 1.45), 0.78, 0.0)
_NARROW = _Layout(4.2, (0.12, 2.45), (2.85, 1.2), 1.5, 0.5)


def scale_of(row: TunnelRow) -> float:
    """Largest absolute value of what a row's strip holds, nats per target; 1 where it holds nothing."""
    of = row.difference
    ends = [*(d for d in of.differences if d is not None), *(of.interval or ()), of.area_difference or 0.0]
    return 1.12 * max((abs(end) for end in ends if math.isfinite(end)), default=0.0) or 1.0


def tunnel_figure(rows: Sequence[TunnelRow], name: str, *, narrow: bool = False) -> Picture:
    """Differences of `rows` (nats per target, treatment minus baseline); `narrow` for a screen of a phone's width."""
    layout = _NARROW if narrow else _WIDE
    top, bottom = 0.5, 0.12
    total = top + bottom + layout.row * max(len(rows), 1)
    with canvas.style():
        figure = Figure(figsize=(layout.width, total))
        area, milestones = (
            figure.add_axes((left / layout.width, bottom / total, width / layout.width, 1 - (top + bottom) / total))
            for left, width in (layout.area, layout.milestones)
        )
        for axes, limits in ((area, (-1.0, 1.0)), (milestones, (-0.35, 2.35))):
            axes.set_xlim(*limits)
            axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
            axes.set_xticks([])
            axes.set_yticks([])
            for side in axes.spines.values():
                side.set_visible(False)
        whole = (-layout.area[0] / layout.area[1], (layout.width - layout.area[0]) / layout.area[1])
        for place, row in enumerate(rows):
            _names(area, place, row, layout)
            if not layout.stacked:
                _numbers(milestones, place, row)
            if place:
                area.plot(
                    whole, [place - 0.5] * 2, color=INK, lw=0.5, alpha=0.15, clip_on=False,
                    transform=area.get_yaxis_transform(),
                )  # fmt: skip
            if row.waiting:
                _say(area, place + layout.text / 2, f"nothing is shown yet: {_pairs(row)}")
                continue
            _area(area, place, row, layout)
            _milestones(milestones, place, row, layout)
        if rows:
            _heads(area, milestones)
        else:
            _say(area, 0, "no task is in this set")
        return Picture(figure, name, "Differences on each task, and at three milestones", _in_words(rows), narrow)


def _area(axes: Axes, place: int, row: TunnelRow, layout: _Layout) -> None:
    of, scale = row.difference, scale_of(row)
    middle, half = place + layout.text / 2, (1 - layout.text) / 2
    declared = {"-": (-1.0, 1.0), "+": (0.0, 1.0), "0": (-_UNDECIDED, 2 * _UNDECIDED)}.get(of.expected)
    if declared is not None:
        corner = (declared[0], middle - 0.78 * half)
        axes.add_patch(Rectangle(corner, declared[1], 1.3 * half, facecolor=INK, alpha=0.09, linewidth=0))
    axes.plot([0, 0], [middle - 0.9 * half, middle + 0.7 * half], color=INK, lw=1.0, alpha=0.75)
    seeds = [d / scale for d in of.differences if d is not None and math.isfinite(d)]
    axes.plot(seeds, [middle - 0.4 * half] * len(seeds), "o", ms=4.6, mfc=_ACCENT, mec="none", alpha=0.6)
    at = middle + 0.15 * half
    if of.interval is not None and all(map(math.isfinite, of.interval)):
        ends = [end / scale for end in of.interval]
        axes.plot(ends, [at, at], color=_ACCENT, lw=2.4, solid_capstyle="butt")
        axes.plot(ends, [at, at], "|", color=_ACCENT, ms=7, mew=1.3)
    if of.area_difference is not None and math.isfinite(of.area_difference):
        axes.plot([of.area_difference / scale], [at], "D", ms=6, color=_ACCENT)
    else:
        lost = sum(d is None for d in of.differences)
        _say(axes, at, f"no mean: {lost} of {len(of.differences)} pairs diverged" if lost else "no value")
    digits = decimals_for(scale / 10)
    for x, side in ((-1.0, "left"), (1.0, "right")):
        axes.annotate(
            fixed(x * scale, digits, signed=True), (x, middle + 0.8 * half), fontsize=7, ha=side, va="center", alpha=0.8
        )


def _milestones(axes: Axes, place: int, row: TunnelRow, layout: _Layout) -> None:
    """Three points with their intervals, up for a larger loss of the treatment; no line joins what was not measured."""
    found = row.difference.milestones[:3]
    ends = [end for one in found for end in (one.mean, *(one.interval or ())) if end is not None and math.isfinite(end)]
    scale = max(map(abs, ends), default=0.0) or 1.0
    half = (1 - layout.text) / 2
    middle, reach = place + layout.text / 2 - 0.12 * half, 0.66 * half
    axes.plot([-0.3, 2.3], [middle, middle], color=INK, lw=1.0, alpha=0.75)
    for x, one in enumerate(found):
        if one.mean is None or not math.isfinite(one.mean):
            continue
        if one.interval is not None and all(map(math.isfinite, one.interval)):
            low, high = (middle - reach * end / scale for end in one.interval)
            axes.plot([x, x], [low, high], color=_ACCENT, lw=2.0, solid_capstyle="butt")
        axes.plot([x], [middle - reach * one.mean / scale], "D", ms=4.5, color=_ACCENT)
    if ends:
        told = f"±{fixed(scale, decimals_for(scale / 10))}"
        axes.annotate(told, (2.35, middle + 0.92 * half), fontsize=7, ha="right", va="center", alpha=0.8)


def _heads(area: Axes, milestones: Axes) -> None:
    """What lies on which side, above the first row."""
    for axes, x, side, text in (
        (area, 0.0, "left", "← treatment loses less"),
        (area, 1.0, "right", "more →"),
        *((milestones, (x + 0.35) / 2.7, "center", text) for x, text in enumerate(("1/3", "2/3", "end"))),
    ):
        axes.annotate(
            text, (x, 1), xytext=(0, 5), xycoords="axes fraction", textcoords="offset points", ha=side, va="bottom",
            fontsize=8, alpha=0.8, annotation_clip=False,
        )  # fmt: skip
    for axes, text in ((area, "area under the learning curve"), (milestones, "milestones")):
        axes.annotate(
            text, (0.5, 1), xytext=(0, 19), xycoords="axes fraction", textcoords="offset points", ha="center",
            va="bottom", fontsize=9, fontweight="bold", annotation_clip=False,
        )  # fmt: skip


def _names(axes: Axes, place: int, row: TunnelRow, layout: _Layout) -> None:
    of = row.difference
    question = f"asked: {canvas.label(asked(of.slice), 22)}, declared {sign(of.expected) or 'nothing'}"
    if layout.stacked:
        estimate = " ".join(_estimate(row)).removesuffix(" interval")  # there is no room for the word
        told = "" if row.waiting else "  ".join(part for part in (mark(of.agreement), estimate) if part)
        lines = [(canvas.label(f"{row.task}: {row.title}", 42), True)]
        lines += [(canvas.label(of.compared, 46), False), (question, False), (told, False)]
        _stack(axes, (0, place - 0.5), 0, 8.0, lines)
        return
    lines = [(canvas.label(row.task, 26), True), (canvas.label(row.title, 34), False)]
    lines += [(canvas.label(of.compared, 34), False), (question, False)]
    _stack(axes, (0, place), -(layout.area[0] - 0.03) * 72, -19.0, lines)


def _numbers(axes: Axes, place: int, row: TunnelRow) -> None:
    if row.waiting:
        return
    lines = [(mark(row.difference.agreement), True), *((text, False) for text in _estimate(row))]
    _stack(axes, (1, place), 12, -13.0, [line for line in lines if line[0]])


def _estimate(row: TunnelRow) -> list[str]:
    of = row.difference
    if row.waiting or of.area_difference is None:
        return []
    if of.interval is None:
        return [fixed(of.area_difference, 3, signed=True)]
    digits = max(decimals_for((of.interval[1] - of.interval[0]) / 4), 2)
    bounds = interval(of.interval, digits)
    return [
        f"{fixed(of.area_difference, digits, signed=True)}  {bounds}",
        f"{percent(of.interval_confidence)} interval",
    ]


def _stack(axes: Axes, at: tuple[float, float], points: float, first: float, lines: Sequence[tuple[str, bool]]) -> None:
    """Lines of text below each other from `first` points below (negative: above) the place `at`."""
    down = first
    for text, heavy in lines:
        axes.annotate(
            text, at, xytext=(points, -down), xycoords=("axes fraction", "data"), textcoords="offset points",
            ha="left", va="center", fontsize=9 if heavy else 8, alpha=1.0 if heavy else 0.8,
            fontweight="bold" if heavy else "normal", annotation_clip=False,
        )  # fmt: skip
        down += 12.5


def _say(axes: Axes, height: float, text: str) -> None:
    axes.annotate(
        text, (0.5, height), xycoords=("axes fraction", "data"), ha="center", va="center", fontsize=8, alpha=0.85
    )


def _pairs(row: TunnelRow) -> str:
    return f"{len(row.difference.seeds)} of {row.planned_seeds} pairs"


def _in_words(rows: Sequence[TunnelRow]) -> str:
    sentences = []
    for row in rows:
        of = row.difference
        head = f"{row.task}, {of.compared}, {asked(of.slice)}"
        if row.waiting:
            sentences.append(f"{head}: {_pairs(row)}, nothing is shown yet.")
            continue
        area = ", ".join(_estimate(row)) or "no mean"
        times = "; ".join(f"{fixed(one.mean, 3, signed=True)} at update {one.update}" for one in of.milestones[:3])
        agreement = of.agreement or "no sign declared"
        sentences.append(f"{head}: area difference {area} nats per target; milestones {times}; {agreement}.")
    return " ".join(sentences) or "No task is in this set."


def caption(rows: Sequence[TunnelRow]) -> str:
    """What the figure of these rows shows and how to read it."""
    drawn = [row.difference for row in rows if not row.waiting]
    levels = list(dict.fromkeys(percent(of.interval_confidence) for of in drawn if of.interval is not None))
    level = f"{levels[0]} paired t interval" if len(levels) == 1 else "paired t interval at the level written beside it"
    grey = "Grey: the side (or 0) that was declared before. " if any(row.difference.expected for row in rows) else ""
    return (
        f"Treatment {MINUS} baseline, nats per target. Dots: seeds, which shared initial weights and rows; diamond and "
        f"bar: mean and {level}. Every row has its own scale, written at its ends: compare a row with zero, "
        f"not with other rows. {grey}Up at a milestone: the treatment loses more; bars there: "
        f"{percent(MILESTONE_CONFIDENCE)} intervals, not adjusted for their number. "
        f"{legend(one for row in rows for one in row.marks)}"
    ).strip()
