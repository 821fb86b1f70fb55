"""The figure a study exists for: paired differences, one row per contrast, every seed a point.

A row shows the seeds, their mean, its interval, zero, and the band of differences declared too small to matter. What
is not due (`evidence.Shown`) is not drawn: a waiting contrast is a sentence, not an axis to read ahead of time.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from paribus.report import canvas
from paribus.report.canvas import INK, Picture
from paribus.report.evidence import Shown
from paribus.report.numbers import interval
from paribus.stats.rounding import MINUS, decimals_for, fixed, percent

_ACCENT = "#0072b2"


@dataclass(frozen=True)
class _Layout:
    """Inches: the figure, its margins left and right of the panel, the height of a contrast; and the places in a row.

    `seeds`, `mean` and `band` are shares of a row's height below its middle; `band` is the half height of the margin.
    """

    width: float
    left: float
    right: float
    row: float
    seeds: float
    mean: float
    band: float

    @property
    def stacked(self) -> bool:
        """Whether names and numbers stand above the data."""
        return self.left < 1


_WIDE = _Layout(9.6, 2.35, 2.25, 0.72, -0.12, 0.2, 0.42)
_NARROW = _Layout(4.2, 0.12, 0.12, 1.5, 0.16, 0.33, 0.17)


def paired_differences(rows: Sequence[Shown], name: str = "differences", *, narrow: bool = False) -> Picture:
    """Paired differences, treatment minus baseline, in the unit of the metric (nats per token for a likelihood).

    Contrasts of another unit get an axis of their own. `narrow` sets names and numbers above each row instead of
    beside it, for a screen of a phone's width.
    """
    layout = _NARROW if narrow else _WIDE
    groups = [[row for row in rows if _axis_of(row) == axis] for axis in dict.fromkeys(map(_axis_of, rows))]
    with canvas.style():
        top, bottom = 0.42, 0.55
        heights = [top + bottom + layout.row * len(group) for group in groups] or [0.5]
        total = sum(heights)
        figure = Figure(figsize=(layout.width, total))
        offset = total
        for group, height in zip(groups, heights, strict=False):
            offset -= height
            box = (
                layout.left / layout.width,
                (offset + bottom) / total,
                1 - (layout.left + layout.right) / layout.width,
                layout.row * len(group) / total,
            )
            _panel(figure.add_axes(box), group, layout)
        if not groups:
            figure.text(0.5, 0.5, "no contrast is declared", ha="center", va="center")
        return Picture(figure, name, "Paired differences per contrast", describe(rows), narrow)


def describe(rows: Sequence[Shown]) -> str:
    """The figure in words, for those who hear it."""
    sentences = []
    for row in rows:
        if row.waiting or row.mean is None:
            lost = f", {row.lost_pairs} of them diverged" if row.lost_pairs else ""
            sentences.append(f"{row.name} at scale {row.scale}: {row.word.value}, {_pairs(row)}{lost}.")
            continue
        digits = decimals_for(row.standard_error)
        bounds = (
            f", {percent(row.interval_confidence)} interval {interval(row.interval, digits)}" if row.interval else ""
        )
        sentences.append(
            f"{row.name} at scale {row.scale}, {row.compared}: mean difference "
            f"{fixed(row.mean, digits, signed=True)} {row.unit}{bounds}; {row.word.value}."
        )
    return " ".join(sentences) or "No contrast is declared."


def _panel(axes: Axes, rows: Sequence[Shown], layout: _Layout) -> None:
    low, high = _limits(rows)
    axes.set_xlim(low, high)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    told = any(not row.waiting for row in rows)
    canvas.quiet(axes, grid="x" if told else "")
    for place, row in enumerate(rows):
        if place:
            axes.axhline(place - 0.5, color=INK, linewidth=0.5, alpha=0.15)
        _row(axes, place, row, layout)
    differences = all(row.interaction for row in rows)
    first, second = ("first difference", "second") if differences else ("treatment", "baseline")
    axes.set_xlabel(f"{first} {MINUS} {second}, {canvas.label(rows[0].unit)}", labelpad=4)
    if told:
        left, right = ("better", "worse") if rows[0].lower_is_better else ("worse", "better")
        for x, side, text in ((0.0, "left", f"← {first} {left}"), (1.0, "right", f"{first} {right} →")):
            axes.annotate(
                text, (x, 1), xytext=(0, 5), xycoords="axes fraction", textcoords="offset points", ha=side,
                va="bottom", fontsize=8, alpha=0.8,
            )  # fmt: skip


def _limits(rows: Sequence[Shown]) -> tuple[float, float]:
    """From the smallest to the largest thing drawn, zero included, with room for half a marker."""
    ends = [0.0]
    for row in rows:
        if not row.waiting:
            ends += [*row.finite_differences, *(row.interval or ()), row.mean or 0.0]
    ends = [end for end in ends if math.isfinite(end)]
    drawn = max(ends) - min(ends)
    for row in rows:
        # A margin far wider than the data would squeeze the data into a line; then the band fills the row instead.
        if drawn == 0 or row.smallest_effect <= 2 * drawn:
            ends += [-row.smallest_effect, row.smallest_effect]
    low, high = min(ends), max(ends)
    room = 0.08 * (high - low) or 1e-3
    return low - room, high + room


def _row(axes: Axes, place: int, row: Shown, layout: _Layout) -> None:
    d, seeds_at, mean_at = row.smallest_effect, place + layout.seeds, place + layout.mean
    middle = (seeds_at + mean_at) / 2 if layout.stacked else place
    bottom, height = middle - layout.band - 0.08 * layout.stacked, 2 * layout.band + 0.08 * layout.stacked
    axes.add_patch(Rectangle((-d, bottom), 2 * d, height, facecolor=INK, alpha=0.1, linewidth=0))
    colour = _ACCENT if row.primary else INK
    if row.waiting:
        axes.annotate(
            "nothing is shown before the planned seeds", (0.5, middle), xycoords=("axes fraction", "data"),
            ha="center", va="center", fontsize=8, alpha=0.85,
        )  # fmt: skip
    else:
        ends = [bottom, bottom + height] if layout.stacked else [place - 0.5, place + 0.5]
        axes.plot([0, 0], ends, color=INK, lw=1.0, alpha=0.75, solid_capstyle="butt")
        # Seeds above, their mean below: neither hides the other, and no point is moved sideways.
        seeds = sorted(row.finite_differences)
        axes.plot(seeds, _lanes(seeds, seeds_at, axes, layout), "o", ms=5.2, mfc=colour, mec="none", alpha=0.75)
        _lost(axes, seeds_at, row, colour)
        if row.interval is not None and all(math.isfinite(x) for x in row.interval):
            axes.plot(row.interval, [mean_at] * 2, color=colour, lw=2.6, solid_capstyle="butt", zorder=3)
            axes.plot(row.interval, [mean_at] * 2, "|", color=colour, ms=8, mew=1.4, zorder=3)
        if row.mean is not None and math.isfinite(row.mean):
            axes.plot([row.mean], [mean_at], "D", ms=6.5, color=colour, zorder=4)
    if layout.stacked:
        _above(axes, place, row)
    else:
        _names(axes, place, row, layout)
        _words(axes, place, row)


def _lost(axes: Axes, height: float, row: Shown, colour: str) -> None:
    """A cross at the edge for each side that lost pairs to divergence: they count there, at no finite place."""
    low, high = axes.get_xlim()
    worse, better = (high, low) if row.lower_is_better else (low, high)
    for edge, lost in ((worse, row.treatment_diverged), (better, row.baseline_diverged)):
        if lost:
            axes.plot([edge], [height], "x", ms=7, mew=1.8, color=colour, clip_on=False)


def _lanes(points: Sequence[float], middle: float, axes: Axes, layout: _Layout) -> list[float]:
    """Heights of sorted points: one line, except that a point too close to its neighbour steps up."""
    low, high = axes.get_xlim()
    heights: list[float] = []
    step = 0.108 / layout.row  # inches: the height of a marker and a half
    for i, point in enumerate(points):
        close = i > 0 and point - points[i - 1] < 0.02 * (high - low)
        heights.append(middle - step if close and heights[-1] == middle else middle)
    return heights


def _names(axes: Axes, place: int, row: Shown, layout: _Layout) -> None:
    arms = canvas.label(row.compared, 36)
    where = f"{canvas.label(row.scale, 10)} · {canvas.label(row.metric, 16)}" + (" · primary" if row.primary else "")
    _beside(axes, -(layout.left - 0.02) * 72, place, [(canvas.label(row.name, 24), row.primary)], [arms, where])


def _words(axes: Axes, place: int, row: Shown) -> None:
    words = [(line, True) for line in textwrap.wrap(row.word.value, 27)[:2]]
    _beside(axes, 12, place, words, _numbers(row))


def _numbers(row: Shown) -> list[str]:
    digits = decimals_for(row.standard_error)
    if row.waiting:
        return [_pairs(row)]
    if row.mean is not None and row.interval is not None:
        estimate = f"{fixed(row.mean, digits, signed=True)}  {interval(row.interval, digits)}"
        return [estimate, f"{percent(row.interval_confidence)} interval"]
    if row.mean is not None:
        return [fixed(row.mean, digits, signed=True)]
    return [f"{row.lost_pairs} of {row.seeds} pairs diverged"] if row.lost_pairs else []


def _above(axes: Axes, place: int, row: Shown) -> None:
    """Four lines over the data: the contrast, its arms, the word, the numbers."""
    bold = [(canvas.label(row.name, 40), True), (canvas.label(row.compared, 46), False)]
    told = [(row.word.value, True), ("  ".join(_numbers(row)), False)]
    down = 9.0
    for text, heavy in (*bold, *told):
        axes.annotate(
            text, (0, place - 0.5), xytext=(0, -down), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="left", va="center", fontsize=9.5 if heavy else 8.5,
            alpha=1.0 if heavy else 0.8, fontweight="bold" if heavy else "normal", annotation_clip=False,
        )  # fmt: skip
        down += 12.5


def _beside(axes: Axes, points: float, place: int, heads: Sequence[tuple[str, bool]], rest: Sequence[str]) -> None:
    """Lines of text in the margin, centred on a row: `points` left of the panel if negative, else right of it."""
    lines = [(text, 9.5, 1.0, bold) for text, bold in heads] + [(text, 8, 0.8, False) for text in rest]
    below = sum(size + 2.6 for _, size, _, _ in lines) / 2
    for text, size, alpha, bold in lines:
        below -= (size + 2.6) / 2
        axes.annotate(
            text, (0 if points < 0 else 1, place), xytext=(points, below), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="left", va="center", fontsize=size, alpha=alpha,
            fontweight="bold" if bold else "normal", annotation_clip=False,
        )  # fmt: skip
        below -= (size + 2.6) / 2


def _axis_of(row: Shown) -> tuple[str, bool]:
    return row.unit, row.lower_is_better


def _pairs(row: Shown) -> str:
    return f"{row.seeds} of {row.planned_seeds} planned pairs complete"
