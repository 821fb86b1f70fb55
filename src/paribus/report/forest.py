"""A forest: one estimate a line with its interval, zero as a line, the names at the left."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from paribus.report import canvas
from paribus.report.canvas import INK, Picture


@dataclass(frozen=True)
class Estimate:
    """A line of a forest; `low` and `high` None leave the bar out, an infinite one runs off the panel."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    look: int = 0
    """number of its colour and marker: lines of one kind look alike"""


def forest(estimates: Sequence[Estimate], axis: str, name: str, title: str, description: str) -> Picture:
    """The estimates from top to bottom; `axis` says what is measured, in which unit, and which side is better."""
    with canvas.style():
        figure = Figure(figsize=(canvas.WIDTH_INCHES * 0.8, 0.75 + 0.29 * len(estimates)), layout="constrained")
        panel = figure.subplots()
        for y, estimate in enumerate(estimates):
            colour, marker = canvas.ARM_COLOURS[estimate.look % 6], canvas.ARM_MARKERS[estimate.look % 6]
            if estimate.low is not None and estimate.high is not None:
                panel.plot([estimate.low, estimate.high], [y, y], color=colour, lw=1.6, solid_capstyle="butt")
            if estimate.value is not None and math.isfinite(estimate.value):
                panel.plot([estimate.value], [y], ls="", marker=marker, ms=6, color=colour)
            else:
                panel.annotate(
                    "no value", (0, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8, alpha=0.8
                )
        panel.axvline(0, color=INK, lw=1.0, alpha=0.75)
        panel.set_yticks(range(len(estimates)), [canvas.label(estimate.name, 52) for estimate in estimates])
        panel.set_ylim(len(estimates) - 0.4, -0.6)
        panel.set_xlabel(axis)
        canvas.quiet(panel, grid="x")
        return Picture(figure, name, title, description)
