"""Divergence of depth routes over layers, an arm a panel, with its nulls in the same panel.

A divergence between the routes of two roles says little by itself. Beside it stand a pair of routes that nobody claims
to serve one purpose, and the same route in another seed of the same arm (dotted).
"""

import math
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paribus.report import canvas
from paribus.report.content import DiagnosticValue, RouteChange
from paribus.report.numbers import significant
from paribus.report.readings import divergences

_COLUMNS = 3


def divergences_svg(
    values: Sequence[DiagnosticValue], changes: Sequence[RouteChange], arms: Sequence[str], name: str
) -> str | None:
    """JS in nats by layer, mean over seeds (or over pairs of seeds); None where no arm has routes to compare."""
    found = divergences(values, changes, arms)
    if not found:
        return None
    held = list(dict.fromkeys(one.arm for one in found))
    compared = list(dict.fromkeys(one.compared for one in found))
    nulls = list(dict.fromkeys(one.compared for one in found if one.null))
    # A null has no colour of its own: ink, thin and dotted, told apart by its marker.
    looks = canvas.look_of([what for what in compared if what not in nulls], "")
    looks |= {what: (canvas.INK, ":", canvas.ARM_MARKERS[i % 6]) for i, what in enumerate(nulls)}
    columns = min(len(held), _COLUMNS)
    rows = math.ceil(len(held) / columns)
    with canvas.style():
        width = canvas.WIDTH_INCHES * (0.68 if columns == 1 else 1)
        figure = Figure(figsize=(width, 0.7 + 0.15 * len(compared) + 2.3 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for panel, arm in zip(panels, held, strict=False):
            for one in [one for one in found if one.arm == arm]:
                colour, dash, marker = looks[one.compared]
                thick = 1.0 if one.null else 1.8
                line = list(one.layers.values())
                panel.plot(list(one.layers), line, color=colour, ls=dash, lw=thick, marker=marker, ms=3.6)
            panel.set_title(canvas.label(arm))
            panel.set_xlabel("layer")
            panel.set_ylim(bottom=0)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
            canvas.quiet(panel)
        for panel in panels[len(held) :]:
            panel.set_visible(False)
        for row in range(rows):
            panels[row * columns].set_ylabel("nats")
        canvas.key(figure, compared, looks, markers=True, limit=60)
        words = "; ".join(
            f"{one.arm}, {one.compared}: {significant(min(one.layers.values()))} to "
            f"{significant(max(one.layers.values()))} nats"
            for one in found
        )
        return canvas.to_svg(figure, name, "Divergence of depth routes over layers, and its nulls", words)
