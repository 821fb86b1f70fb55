"""Loss against tokens: how training went, and what the held-out loss was at each milestone.

Raw values are stored; smoothing happens here and nowhere else, and each caption says so. A difference between arms is
always between cells of one seed, which saw the same batches, and is left out while a verdict waits for its seeds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from paribus.report import canvas
from paribus.report.canvas import INK, Picture
from paribus.report.content import Curve, Measurement
from paribus.report.numbers import short_count, significant
from paribus.report.of_training import SpikeRow
from paribus.stats.rounding import fixed

NATS = "nats per token"
Line = NDArray[np.float64]
Losses = Mapping[tuple[str, int, int], float]
"""nats per token (of a task per target), or a difference of them, by arm, seed and tokens seen"""
BLOCKS = 160
"""points a curve is drawn with: each is the mean of the updates in its block"""
WINDOW = 7
"""blocks of the moving average behind thick lines and differences"""
_BEGIN = 0.1
"""share of the tokens left of which the loss may fall outside the axis: the drop from ln(vocabulary) says nothing"""
_HEIGHT = 3.5


def loss_curves(
    curves: Sequence[Curve],
    baseline: str,
    name: str,
    *,
    differences: bool = True,
    noise: Sequence[tuple[str, float]] = (),
    unit: str = NATS,
    spikes: Sequence[SpikeRow] = (),
) -> Picture:
    """Training loss of one scale's cells in `unit` against tokens, and the difference to `baseline`.

    `differences` false leaves the second panel out: a study that waits for its seeds shows no difference. `noise` is
    kinds of A/A with the sd of their differences in `unit`: bars of two sd around zero at the right edge. `spikes` of
    the cells that are drawn are marked.
    """
    arms = list(dict.fromkeys(curve.arm for curve in curves))
    looks = canvas.look_of(arms, baseline)
    middles, cells = in_blocks(curves)
    with canvas.style():
        compare = differences and baseline in arms and len(arms) > 1
        width = canvas.WIDTH_INCHES * (1 if compare else 0.68)
        figure = Figure(figsize=(width, _HEIGHT), layout="constrained")
        panels = list(figure.subplots(1, 2 if compare else 1, squeeze=False)[0])
        seeds = {seed for _, seed in cells}
        whole = [arm for arm in arms if all((arm, seed) in cells for seed in seeds)]
        for arm in arms:
            lines = [line for (of, _), line in cells.items() if of == arm]
            _family(panels[0], middles, lines, looks[arm], mean=arm in whole)
        panels[0].set_ylim(*_zoom(list(cells.values())))
        _mark_ends(panels[0], middles, cells, looks)
        marked = _mark_spikes(panels[0], spikes, middles, cells, looks)
        _axis(panels[0], "Training loss", unit)
        if compare:
            paired = {key: line - cells[baseline, key[1]] for key, line in cells.items() if (baseline, key[1]) in cells}
            for arm in [a for a in arms if a != baseline]:
                lines = [smooth(line) for (of, _), line in paired.items() if of == arm]
                _family(panels[1], middles, lines, looks[arm], smoothed=True, mean=len(lines) == len(seeds))
            panels[1].axhline(0, color=INK, lw=1.0, alpha=0.75)
            panels[1].set_ylim(*_band([smooth(line) for key, line in paired.items() if key[0] != baseline]))
            _noise(panels[1], float(middles[-1]), noise)
            _axis(panels[1], f"Difference to {canvas.label(baseline, 24)}, same seed and tokens", unit)
        canvas.key(figure, arms, looks)
        words = _in_words(arms, cells, unit) + (_noise_in_words(noise, unit) if compare else "")
        words += f" {marked} loss spikes are marked." if marked else ""
        return Picture(figure, name, "Training loss against tokens", words)


def in_blocks(curves: Sequence[Curve]) -> tuple[Line, dict[tuple[str, int], Line]]:
    """Block means on one grid of tokens: block middles, and per (arm, seed) the mean loss of each block or NaN."""
    longest = max((curve.tokens[-1] for curve in curves if curve.tokens), default=1)
    updates = max((len(curve.tokens) for curve in curves), default=1)
    edges = np.linspace(0, longest, min(BLOCKS, max(updates, 1)) + 1)
    cells = {}
    for curve in curves:
        loss = np.asarray(curve.loss_nats_per_token, dtype=np.float64)
        # An update that ends exactly on an edge belongs to the block before it, whichever way the edge was rounded.
        reached = np.asarray(curve.tokens, dtype=np.float64) - 1e-6 * edges[1]
        block = np.clip(np.searchsorted(edges, reached) - 1, 0, len(edges) - 2)
        total = np.bincount(block, weights=loss, minlength=len(edges) - 1)
        held = np.bincount(block, minlength=len(edges) - 1)
        means = np.full(len(edges) - 1, np.nan)
        np.divide(total, held, out=means, where=held > 0)
        means[~np.isfinite(means)] = np.nan
        cells[curve.arm, curve.seed] = means
    return (edges[:-1] + edges[1:]) / 2, cells


def smooth(line: Line) -> Line:
    """Centred moving average over `WINDOW` blocks; shorter at both ends, and NaN stays NaN."""
    present = np.isfinite(line)
    window = np.ones(min(WINDOW, max(len(line), 1)))
    weights = np.convolve(present.astype(float), window, mode="same")
    sums = np.convolve(np.where(present, line, 0.0), window, mode="same")
    out = np.full(len(line), np.nan)
    np.divide(sums, weights, out=out, where=present & (weights > 0))
    return out


def mean_where_all(lines: Sequence[Line]) -> Line:
    """The mean over seeds where every seed has a value: a mean over fewer would jump when a cell ends."""
    return np.mean(np.stack(lines), axis=0)


def milestones(
    measurements: Sequence[Measurement],
    baseline: str,
    name: str,
    *,
    lost: Iterable[tuple[str, int]] = (),
    differences: bool = True,
    unit: str = NATS,
) -> Picture:
    """Test loss (`unit`, as of `loss_curves`) of one scale at each milestone, and the paired difference to `baseline`.

    `lost` names (arm, seed) of diverged cells. An arm has no mean, drawn or in words, at a milestone where it lacks a
    seed that any arm has: a mean over 4 seeds beside one over 2 would compare seeds, not arms.
    """
    arms = list(dict.fromkeys(m.arm for m in measurements))
    looks = canvas.look_of(arms, baseline)
    table = dict.fromkeys(((a, s, m.tokens_seen) for a, s in lost if a in arms for m in measurements), math.nan)
    table |= {(m.arm, m.seed, m.tokens_seen): m.nats_per_token for m in measurements}
    last = {m.tokens_seen for m in measurements if not m.mid_schedule}
    budgets = {tokens: tokens in last for tokens in sorted({m.tokens_seen for m in measurements})}
    table |= {key: math.nan for key in product(arms, {s for _, s, _ in table}, budgets) if key not in table}
    with canvas.style():
        compare = differences and baseline in arms and len(arms) > 1
        width = canvas.WIDTH_INCHES * (1 if compare else 0.68)
        figure = Figure(figsize=(width, _HEIGHT), layout="constrained")
        panels = list(figure.subplots(1, 2 if compare else 1, squeeze=False)[0])
        _points(panels[0], table, arms, looks, budgets)
        _axis(panels[0], "Test loss", unit)
        if compare:
            paired = {
                key: value - table[baseline, key[1], key[2]]
                for key, value in table.items()
                if (baseline, key[1], key[2]) in table
            }
            panels[1].axhline(0, color=INK, lw=1.0, alpha=0.75)
            _points(panels[1], paired, [a for a in arms if a != baseline], looks, budgets)
            _axis(panels[1], f"Difference to {canvas.label(baseline, 24)}, same seed", unit)
        for panel in panels:
            _budget_axis(panel, budgets)
        canvas.key(figure, arms, looks, markers=True)
        words = "; ".join(
            f"{arm} at {short_count(b)} tokens{'' if b in last else ' (mid-schedule)'}: {fixed(mean, 4)}"
            for arm in arms
            for b in budgets
            if (mean := _mean(table, arm, b)) is not None
        )
        return Picture(figure, name, "Test loss at each milestone", f"Mean over seeds, {unit}. {words}.")


def _points(axes: Axes, table: Losses, arms: Sequence[str], looks: Mapping, budgets: Mapping[int, bool]) -> None:
    """Seeds and mean per milestone; `arms` share out the width of a milestone, `budgets` says which is the last."""
    # Arms stand side by side within a milestone: at one place their seeds would hide each other.
    for place, arm in enumerate(arms):
        shift = 0.06 * (place - (len(arms) - 1) / 2)
        colour, dash, marker = looks[arm]
        means = [(i, mean) for i, budget in enumerate(budgets) if (mean := _mean(table, arm, budget)) is not None]
        axes.plot([i + shift for i, _ in means], [m for _, m in means], color=colour, ls=dash, lw=1.4, alpha=0.8)
        for i, (budget, last) in enumerate(budgets.items()):
            seeds = [v for (a, _, b), v in table.items() if a == arm and b == budget and math.isfinite(v)]
            axes.plot([i + shift] * len(seeds), seeds, "o", ms=3, mfc=colour, mec="none", alpha=0.5)
            if (mean := _mean(table, arm, budget)) is not None:
                axes.plot([i + shift], [mean], marker, ms=6.5, mfc=colour if last else "none", mec=colour, mew=1.4)


def _mean(table: Losses, arm: str, budget: int) -> float | None:
    """The mean over an arm's seeds where all of them have a finite value: survivors alone are a selection."""
    values = [value for (a, _, b), value in sorted(table.items()) if (a, b) == (arm, budget)]
    return sum(values) / len(values) if values and all(map(math.isfinite, values)) else None


def _budget_axis(axes: Axes, budgets: Mapping[int, bool]) -> None:
    names = [short_count(tokens) + ("" if last else "\nmid-schedule") for tokens, last in budgets.items()]
    axes.set_xticks(range(len(budgets)), names)
    axes.set_xlim(-0.6, len(budgets) - 0.4)


def _family(
    axes: Axes, x: Line, lines: Sequence[Line], look: tuple, *, smoothed: bool = False, mean: bool = True
) -> None:
    """The seeds of an arm, and their `mean` unless a seed is not among them: survivors alone are a selection."""
    colour, dash, _ = look
    for line in lines:
        axes.plot(x, line, color=colour, lw=0.7, alpha=0.35)
    if lines and mean:
        middle = mean_where_all(lines)
        axes.plot(x, middle if smoothed else smooth(middle), color=colour, ls=dash, lw=2.0)


def _zoom(lines: Sequence[Line]) -> tuple[float, float]:
    """Losses from the lowest to where the fall from ln(vocabulary) is over, so that arms can be told apart."""
    finite = [line[np.isfinite(line)] for line in lines]
    finite = [line for line in finite if line.size]
    if not finite:
        return 0.0, 1.0
    low = min(float(line.min()) for line in finite)
    top = float(np.median([line[min(int(_BEGIN * len(line)), line.size - 1)] for line in finite]))
    drop = top - low or max(1.0, 0.1 * abs(low))
    return low - 0.06 * drop, top + 0.1 * drop


def _band(lines: Sequence[Line]) -> tuple[float, float]:
    """Differences after the first tenth, zero in view: the first updates are noise far larger than any effect.

    The outermost fiftieth on each side may leave the panel, so that one run about to diverge does not flatten the rest.
    """
    late = [line[len(line) // 10 :] for line in lines]
    values = np.concatenate([line[np.isfinite(line)] for line in late]) if late else np.zeros(0)
    if not values.size:
        return -0.1, 0.1
    inner = np.quantile(values, (0.02, 0.98))
    low, high = min(float(inner[0]), 0.0), max(float(inner[1]), 0.0)
    room = 0.2 * (high - low) or 0.01
    return low - room, high + room


def _noise(axes: Axes, end: float, kinds: Sequence[tuple[str, float]]) -> None:
    """A bar of two sd around zero for each kind of A/A, right of the curves and cut at the panel's edge."""
    low, high = axes.get_ylim()
    for place, (kind, sd) in enumerate(kinds):
        x = end * (1.03 + 0.07 * place)
        bottom, top = max(-2 * sd, low), min(2 * sd, high)
        axes.plot([x, x], [bottom, top], color=INK, lw=5, alpha=0.3, solid_capstyle="butt")
        axes.annotate(
            f"A/A {canvas.label(kind, 16)}", (x, 0), xytext=(7, 0), textcoords="offset points", rotation=90,
            ha="center", va="center", fontsize=7, alpha=0.8,
        )  # fmt: skip


def _noise_in_words(kinds: Sequence[tuple[str, float]], unit: str) -> str:
    return "".join(f" A/A, {kind}: sd of a difference {significant(sd)} {unit}." for kind, sd in kinds)


def _mark_ends(axes: Axes, x: Line, cells: Mapping[tuple[str, int], Line], looks: Mapping) -> None:
    """A cross where a cell stops before the others: it diverged, failed or still runs."""
    for (arm, _), line in cells.items():
        there = np.flatnonzero(np.isfinite(line))
        if there.size and there[-1] < len(line) - 1:
            end = int(there[-1])
            height = min(float(line[end]), axes.get_ylim()[1])
            axes.plot([float(x[end])], [height], "x", ms=7, mew=1.8, color=looks[arm][0], clip_on=False)


def _mark_spikes(
    axes: Axes, spikes: Sequence[SpikeRow], x: Line, cells: Mapping[tuple[str, int], Line], looks: Mapping
) -> int:
    """A triangle above the cell's own line where a spike begins; how many. One that the blocks average away is still
    marked, and one beyond the panel stands at its edge."""
    own = [row for row in spikes if not row.variant and (row.arm, row.seed) in cells]
    low, high = axes.get_ylim()
    for row in own:
        line = cells[row.arm, row.seed]
        there = np.flatnonzero(np.isfinite(line))
        block = int(there[np.argmin(np.abs(x[there] - row.tokens_seen))])
        height = min(max(float(line[block]) + 0.04 * (high - low), low), high)
        axes.plot([row.tokens_seen], [height], "v", ms=5.5, mew=0, color=looks[row.arm][0], clip_on=False)
    return len(own)


def _axis(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.set_xlabel("training tokens")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    canvas.quiet(axes)


def _in_words(arms: Sequence[str], cells: Mapping[tuple[str, int], Line], unit: str) -> str:
    ends = []
    for arm in arms:
        lasts = [
            float(line[np.isfinite(line)][-1]) for (a, _), line in cells.items() if a == arm and np.isfinite(line).any()
        ]
        if lasts:
            ends.append(f"{arm}: {len(lasts)} seeds, last training loss {min(lasts):.3f} to {max(lasts):.3f} {unit}")
    return "; ".join(ends) + "." if ends else "No cell has trained yet."
