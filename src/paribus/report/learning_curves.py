"""Learning curves of a task, a panel a slice: when each arm leaves which plateau.

Chance, every shortcut and the floor are lines, since a curve means something only beside what needs no training. Both
axes are linear: area under a curve, the primary metric, is area on the paper.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from paribus.report import canvas
from paribus.report.canvas import INK, Picture
from paribus.report.numbers import short_count
from paribus.report.of_tasks import LearningCurve, SliceLevels, asked
from paribus.stats.rounding import fixed

_COLUMNS = 2
_PANEL = 2.5
"""height of a panel with its axis, inches"""
_WIDE, _NARROW = canvas.WIDTH_INCHES, 4.2
_LETTERS = 22
"""of a line of a level's label"""
_LINE = 0.056
"""height of a line of such a label, as a share of a panel"""
_SAME = 0.012
"""levels closer than this share of a panel are one line, whose label names them all"""


@dataclass(frozen=True)
class Level:
    """A horizontal line and what stands beside it."""

    nats: float
    text: str


def learning_curves(
    curves: Sequence[LearningCurve],
    levels: Sequence[SliceLevels],
    baseline: str,
    name: str,
    *,
    narrow: bool = False,
) -> Picture:
    """Loss (nats per target) of one scale's cells against updates; `narrow` sets the panels below each other.

    An arm has no mean where it lacks a seed that another arm has, and none at an update where a seed has no value: a
    mean over survivors would be a selection.
    """
    arms = list(dict.fromkeys(curve.arm for curve in curves))
    looks = canvas.look_of(arms, baseline)
    known = {level.slice: level for level in levels}
    drawn = {curve.slice for curve in curves}
    slices = [name for name in known if name in drawn]
    slices += [name for name in dict.fromkeys(curve.slice for curve in curves) if name not in known]
    columns = 1 if narrow else min(_COLUMNS, max(len(slices), 1))
    lines = max(math.ceil(len(slices) / columns), 1)
    with canvas.style():
        width = _NARROW if narrow else _WIDE * (0.62 if columns == 1 else 1)
        figure = Figure(figsize=(width, 0.3 + _PANEL * lines), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).ravel()
        end = max((curve.updates[-1] for curve in curves if curve.updates), default=1)
        for place, (panel, part) in enumerate(zip(panels, slices, strict=False)):
            own = [curve for curve in curves if curve.slice == part]
            _panel(panel, own, known.get(part), looks, end)
            panel.set_title(asked(part))
            if place % columns == 0:
                panel.set_ylabel("nats per target")
            if place + columns >= len(slices):
                panel.set_xlabel("updates")
        for panel in panels[len(slices) :]:
            panel.set_visible(False)
        canvas.key(figure, arms, looks, limit=24 if narrow else 30)
        return Picture(figure, name, "Learning curves by slice", _in_words(curves, levels, slices), narrow)


def named_levels(levels: SliceLevels) -> list[Level]:
    """Chance, shortcuts and floor from the highest down."""
    named = [Level(levels.chance, "chance"), Level(levels.floor, "floor")]
    named += [Level(nats, what) for what, nats in levels.shortcuts.items()]
    return sorted(named, key=lambda level: (-level.nats, level.text))


def mean_at_shared_updates(curves: Sequence[LearningCurve]) -> tuple[list[int], NDArray[np.float64]]:
    """Updates at which every curve has a finite value, and the mean there; both `[update]`."""
    held = [dict(zip(curve.updates, curve.loss_nats_per_target, strict=True)) for curve in curves]
    shared = [u for u in (held[0] if held else ()) if all(math.isfinite(one.get(u, math.nan)) for one in held)]
    return shared, np.array([[one[update] for one in held] for update in shared]).reshape(len(shared), -1).mean(-1)


def apart(places: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Middles of labels of these heights that stand nearest to the ascending `places` without overlapping.

    Neighbours that would overlap stand as one block around the mean of where they wish to be; blocks that then meet are
    merged, as in isotonic regression by pooling.
    """
    blocks: list[tuple[list[int], float]] = []  # members, lower end
    for i, (place, height) in enumerate(zip(places, heights, strict=True)):
        blocks.append(([i], place - height / 2))
        while len(blocks) > 1 and blocks[-2][1] + sum(heights[j] for j in blocks[-2][0]) > blocks[-1][1]:
            members = blocks[-2][0] + blocks[-1][0]
            offset, wished = 0.0, []
            for j in members:
                wished.append(places[j] - heights[j] / 2 - offset)
                offset += heights[j]
            blocks[-2:] = [(members, sum(wished) / len(wished))]
    middles = [0.0] * len(places)
    for members, lower in blocks:
        below = lower
        for j in members:
            middles[j] = below + heights[j] / 2
            below += heights[j]
    return middles


def _panel(panel: Axes, curves: Sequence[LearningCurve], levels: SliceLevels | None, looks: dict, end: int) -> None:
    seeds = {curve.seed for curve in curves}
    for arm in dict.fromkeys(curve.arm for curve in curves):
        own = [curve for curve in curves if curve.arm == arm]
        colour, dash, _ = looks[arm]
        for curve in own:
            panel.plot(curve.updates, curve.loss_nats_per_target, color=colour, lw=0.7, alpha=0.4)
            if curve.updates and curve.updates[-1] < end:
                height = next((y for y in reversed(curve.loss_nats_per_target) if math.isfinite(y)), math.nan)
                panel.plot([curve.updates[-1]], [height], "x", ms=7, mew=1.8, color=colour)
        if {curve.seed for curve in own} == seeds:
            panel.plot(*mean_at_shared_updates(own), color=colour, ls=dash, lw=2.2)
    named = [] if levels is None else named_levels(levels)
    low, high = _limits(curves, named)
    panel.set_ylim(low, high)
    panel.set_xlim(0, end)
    panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    panel.yaxis.set_major_locator(MaxNLocator(5))
    canvas.quiet(panel)
    _draw_levels(panel, named, low, high)


def _draw_levels(panel: Axes, named: Sequence[Level], low: float, high: float) -> None:
    """Dashed lines, labelled right of the panel where no curve can run through a word."""
    groups: list[list[Level]] = []
    for level in reversed(named):  # from the lowest up
        if groups and (level.nats - groups[-1][0].nats) / (high - low) < _SAME:
            groups[-1].append(level)
        else:
            groups.append([level])
    texts = [textwrap.fill(", ".join(_label(level) for level in reversed(group)), _LETTERS) for group in groups]
    places = [(sum(level.nats for level in group) / len(group) - low) / (high - low) for group in groups]
    heights = [_LINE * (text.count("\n") + 1) + 0.03 for text in texts]
    for group, text, place, middle in zip(groups, texts, places, apart(places, heights), strict=True):
        for level in group:
            panel.axhline(level.nats, color=INK, lw=0.9, ls=(0, (4, 3)), alpha=0.55, zorder=1.5)
        panel.annotate(
            text, (1, place), xytext=(1.05, middle), xycoords="axes fraction", textcoords="axes fraction", fontsize=7,
            ha="left", va="center", alpha=0.85, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "lw": 0.6, "color": INK, "alpha": 0.5, "shrinkA": 1, "shrinkB": 0,
                        "relpos": (0, 0.5)},
        )  # fmt: skip


def _label(level: Level) -> str:
    return f"{canvas.label(level.text, 40)} {fixed(level.nats, 2)}"


def _limits(curves: Sequence[LearningCurve], named: Sequence[Level]) -> tuple[float, float]:
    """All levels and all that is learned; the first updates, far above chance, may leave at the top."""
    finite = [[y for y in curve.loss_nats_per_target if math.isfinite(y)] for curve in curves]
    finite = [values for values in finite if values]
    late = [y for values in finite for y in values[len(values) // 10 :]]
    ends = [level.nats for level in named]
    lowest = min([*ends, *late], default=0.0)
    # One run about to diverge must not flatten the others.
    highest = max([*ends, float(np.quantile(late, 0.98)) if late else lowest + 1.0])
    room = 0.06 * (highest - lowest) or 0.05
    return lowest - room, highest + room


def _in_words(curves: Sequence[LearningCurve], levels: Sequence[SliceLevels], slices: Sequence[str]) -> str:
    known = {level.slice: level for level in levels}
    sentences = []
    for part in slices:
        ends = []
        for arm in dict.fromkeys(curve.arm for curve in curves if curve.slice == part):
            own = [curve for curve in curves if (curve.slice, curve.arm) == (part, arm)]
            lasts = [next((y for y in reversed(c.loss_nats_per_target) if math.isfinite(y)), math.nan) for c in own]
            lasts = [last for last in lasts if math.isfinite(last)]
            if lasts:
                ends.append(f"{arm} ends between {fixed(min(lasts), 3)} and {fixed(max(lasts), 3)} nats per target")
        lines = "" if part not in known else "; ".join(_label(level) for level in named_levels(known[part]))
        sentences.append(f"{asked(part)}: {'; '.join(ends) or 'no finite loss'}" + (f" ({lines})." if lines else "."))
    return " ".join(sentences) or "No cell has trained yet."
