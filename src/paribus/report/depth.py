"""Diagnostics over depth: what happened inside, layer by layer. Descriptive: none of these carries a verdict word.

A diagnostic whose groups are depth sources (`source:3`) is a map of layers by sources per arm and site; every other
one is a line over layers per arm, a panel per site and group.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paribus.report import canvas
from paribus.report.content import DiagnosticValue
from paribus.report.numbers import significant

_SOURCE = "source:"
_COLUMNS = 3
_MAP = "cividis"
"""even in lightness and the same to every kind of colour vision"""


def diagnostic_svgs(
    values: Sequence[DiagnosticValue], arms: Sequence[str], baseline: str, name: str, *, bands: bool = True
) -> list[tuple[str, str]]:
    """The figures of one diagnostic at one scale, each with its caption: maps for depth sources, lines for the rest.

    `bands` false leaves the errors over documents out, as every other interval while a study waits.
    """
    values = [value for value in values if value.summary]
    values = values if bands else [replace(value, standard_error=None) for value in values]
    finite = [value for value in values if math.isfinite(value.value)]
    sources = [value for value in finite if source_of(value) is not None]
    others = [value for value in finite if source_of(value) is None]
    present = [arm for arm in arms if any(value.arm == arm for value in values)]
    present += sorted({value.arm for value in values} - set(present))
    looks = canvas.look_of([*arms, *(arm for arm in present if arm not in arms)], baseline)  # one look on all figures
    figures = []
    with canvas.style():
        if len({value.layer for value in others}) > 1:  # a read that the model makes once is a row of the table
            caption = "Thin lines: seeds; thick lines: their mean."
            if any(value.standard_error is not None for value in others):
                caption += " Bands: two standard errors over documents to either side, as one seed has them on average."
            figures.append((_lines(others, present, looks, name), caption))
        if sources:
            caption = "Mean over seeds. Colour runs by the square root of the value where none is negative."
            figures.append((_maps(sources, present, f"{name}-sources"), caption))
    return figures


def largest(values: Iterable[DiagnosticValue]) -> float | None:
    """The largest absolute value, for diagnostics that only check correctness; NaN wins over every number."""
    sizes = [abs(value.value) for value in values]
    return (math.nan if any(math.isnan(size) for size in sizes) else max(sizes)) if sizes else None


def _lines(values: Sequence[DiagnosticValue], arms: Sequence[str], looks: dict, name: str) -> str:
    places = list(dict.fromkeys((value.site, value.group) for value in values))
    columns = min(len(places), _COLUMNS)
    rows = math.ceil(len(places) / columns)
    # One panel across the whole page would be a ribbon; it takes two thirds instead.
    width = canvas.WIDTH_INCHES * (0.68 if columns == 1 else 1)
    figure = Figure(figsize=(width, 0.35 + 2.45 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    shown = [arm for arm in arms if any(value.arm == arm for value in values)]
    for panel, (site, group) in zip(panels, places, strict=False):
        here = [value for value in values if (value.site, value.group) == (site, group)]
        for arm in shown:
            _arm(panel, [value for value in here if value.arm == arm], looks[arm])
        panel.set_title(place(site, group))
        panel.set_xlabel("layer")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        canvas.quiet(panel)
    for panel in panels[len(places) :]:
        panel.set_visible(False)
    for row in range(rows):
        panels[row * columns].set_ylabel(canvas.label(values[0].unit, 28))
    canvas.key(figure, shown, looks, markers=True)
    words = f"Mean over seeds by layer. {_summary(values, arms, lambda value: place(value.site, value.group))}"
    return canvas.to_svg(figure, name, f"{values[0].diagnostic} over layers", words)


def _arm(panel: Axes, values: Sequence[DiagnosticValue], look: tuple) -> None:
    colour, dash, marker = look
    seeds: dict[int, dict[int, float]] = defaultdict(dict)
    layers: dict[int, list[float]] = defaultdict(list)
    errors: dict[int, list[float]] = defaultdict(list)
    for value in values:
        seeds[value.seed][value.layer] = value.value
        layers[value.layer].append(value.value)
        errors[value.layer].append(math.nan if value.standard_error is None else value.standard_error)
    for read in seeds.values():
        panel.plot(sorted(read), [read[layer] for layer in sorted(read)], color=colour, lw=0.7, alpha=0.35)
    x = sorted(layers)
    means = [sum(layers[layer]) / len(layers[layer]) for layer in x]
    # The seeds read the same documents, so a mean over seeds has about the error that one of them has.
    half = [2 * float(np.mean(errors[layer])) for layer in x]
    if np.isfinite(half).any():
        low, high = ([m + sign * h for m, h in zip(means, half, strict=True)] for sign in (-1, 1))
        panel.fill_between(x, low, high, color=colour, alpha=0.14, lw=0)
    panel.plot(x, means, color=colour, ls=dash, lw=1.8, marker=marker, ms=3.6)


def _maps(values: Sequence[DiagnosticValue], arms: Sequence[str], name: str) -> str:
    shown = [arm for arm in arms if any(value.arm == arm for value in values)]
    sites = list(dict.fromkeys(value.site for value in values))
    grids = {(arm, site): _grid(values, arm, site) for arm in shown for site in sites}
    norm = _colour_scale(list(grids.values()))
    first = min(value.layer for value in values)
    width = min(canvas.WIDTH_INCHES, 2.0 + 2.6 * len(sites))
    layers = max(value.layer for value in values) - first + 1
    panel_height, title_height = (1.35, 0.42) if layers > 2 else (0.42, 0.42)
    height = 0.5 + (panel_height + title_height) * len(shown)
    # Placed by hand: all labels are whole numbers of known width, and a solver's passes over every panel cost more than
    # all other figures of the page together.
    figure = Figure(figsize=(width, height))
    place = {"left": 0.55 / width, "right": 1 - 0.85 / width, "bottom": 0.5 / height, "top": 1 - 0.32 / height}
    gaps = {"hspace": title_height / panel_height, "wspace": 0.08}
    panels = figure.subplots(
        len(shown), len(sites), squeeze=False, sharex=True, sharey=True, gridspec_kw={**place, **gaps}
    )
    for j, site in enumerate(sites):
        there = [i for i, arm in enumerate(shown) if np.isfinite(grids[arm, site]).any()]
        for i, arm in enumerate(shown):
            _map(panels[i, j], grids[arm, site], first, f"{canvas.label(arm, 22)} · {canvas.label(site, 18)}", norm)
            panels[i, j].set_visible(i in there)
            # A site that only some arms have ends above the others' last row, and needs its own numbers there.
            panels[i, j].tick_params(labelbottom=i == there[-1])
            panels[i, j].set_xlabel("depth source" if i == there[-1] else "")
            panels[i, j].set_ylabel("layer" if j == 0 else "")
    tall = min(height - 0.82, 3.2)
    beside = figure.add_axes((1 - 0.7 / width, 1 - (0.32 + tall) / height, 0.13 / width, tall / height))
    bar = figure.colorbar(ScalarMappable(norm, _MAP), cax=beside)
    bar.set_label(canvas.label(values[0].unit, 28))
    bar.outline.set_visible(False)
    words = f"Mean over seeds, layers by depth sources. {_summary(values, arms, lambda value: value.site)}"
    return canvas.to_svg(figure, name, f"{values[0].diagnostic} over layers and depth sources", words)


def _map(panel: Axes, grid: np.ndarray, first: int, title: str, norm: Normalize) -> None:
    extent = (-0.5, grid.shape[1] - 0.5, grid.shape[0] - 0.5, first - 0.5)
    grid = grid[first:]
    panel.imshow(np.ma.masked_invalid(grid), cmap=_MAP, norm=norm, aspect="auto", interpolation="none", extent=extent)
    panel.set_title(title)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    if len(grid) == 1:
        panel.set_yticks([first])
    canvas.quiet(panel, grid="")


def _colour_scale(grids: Sequence[np.ndarray]) -> Normalize:
    """One scale for every map. From zero by square roots where nothing is negative: most shares are small."""
    every = np.concatenate([grid[np.isfinite(grid)] for grid in grids])
    low, high = (float(every.min()), float(every.max())) if every.size else (0.0, 1.0)
    if low >= 0:
        return PowerNorm(0.5, 0.0, high or 1.0)
    return Normalize(low, high if high > low else low + 1.0)


def _grid(values: Sequence[DiagnosticValue], arm: str, site: str) -> np.ndarray:
    """Mean over seeds at (layer, source) of one arm and site; NaN where a layer has no such source."""
    shape = (max(v.layer for v in values) + 1, max(source_of(v) or 0 for v in values) + 1)
    total, held = np.zeros(shape), np.zeros(shape)
    for value in values:
        if (value.arm, value.site) == (arm, site):
            total[value.layer, source_of(value) or 0] += value.value
            held[value.layer, source_of(value) or 0] += 1
    out = np.full(shape, np.nan)
    np.divide(total, held, out=out, where=held > 0)
    return out


def source_of(value: DiagnosticValue) -> int | None:
    """The number of the depth source that a value was read for; None where it was read for something else."""
    number = value.group.removeprefix(_SOURCE)
    return int(number) if number != value.group and number.isascii() and number.isdigit() else None


def place(site: str, group: str) -> str:
    """What a value was read for, as a panel's title or a table's cell."""
    return " · ".join(canvas.label(part, 24) for part in dict.fromkeys((site, group)) if part) or "all"


def _summary(values: Sequence[DiagnosticValue], arms: Sequence[str], place: Callable[[DiagnosticValue], str]) -> str:
    """Lowest and highest value per arm and place: a text alternative that stays short at any depth."""
    ranges: Mapping[tuple[str, str], list[float]] = defaultdict(list)
    for value in values:
        if math.isfinite(value.value):
            ranges[value.arm, place(value)].append(value.value)
    ordered = sorted(ranges.items(), key=lambda item: (arms.index(item[0][0]), item[0][1]))
    return "; ".join(
        f"{arm}, {where}: {significant(min(read))} to {significant(max(read))} {values[0].unit}"
        for (arm, where), read in ordered
    )
