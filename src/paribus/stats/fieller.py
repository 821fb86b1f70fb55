"""Confidence sets of a ratio by inverting a paired t test (Fieller 1954), in closed form and for curves.

theta is in the set where a t test over seeds (S - 1 degrees of freedom) does not reject a mean of T_s(theta) of 0.
For a ratio of two means T_s = n_s - theta d_s, and the set is given by a quadratic; it is exact for jointly normal
(n_s, d_s). Where the test does not reject a mean denominator of 0 the set is no interval: it is everything, or
everything but a middle part.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from paribus.stats.paired import t_critical

Array = NDArray[np.float64]
HalfOpen = tuple[float | None, float | None]
"""Bounds of an interval; None where it is not bounded on that side."""

_GRID = 401


@dataclass(frozen=True)
class Fieller:
    """The confidence set of a ratio of two means."""

    estimate: float
    low: float | None
    high: float | None
    kind: str
    """bounded; complement (everything but a middle part); everything"""


def fieller(numerators: Array, denominators: Array, confidence: float = 0.95) -> Fieller:
    """Fieller's set for mean(numerators) / mean(denominators), paired by seed [seed]; dimension of their ratio.

    The set of theta for which a t test with S - 1 degrees of freedom does not reject mean(n_s - theta d_s) = 0
    (Fieller 1954). It is bounded exactly where that test rejects a mean denominator of 0.
    """
    count = len(numerators)
    n, d = float(np.mean(numerators)), float(np.mean(denominators))
    scale = t_critical(count - 1, confidence) ** 2 / count
    (nn, nd), (_, dd) = scale * np.cov(numerators, denominators)
    a, half_b, c = d * d - dd, n * d - nd, n * n - nn
    discriminant = half_b * half_b - a * c
    estimate = n / d if d else math.nan
    if a > 0:
        root = math.sqrt(max(discriminant, 0.0))
        return Fieller(estimate, (half_b - root) / a, (half_b + root) / a, "bounded")
    return Fieller(estimate, None, None, "complement" if discriminant > 0 else "everything")


def inverted(
    excess: Callable[[Array], Array], low: float, high: float, confidence: float = 0.95
) -> tuple[float | None, int, HalfOpen]:
    """The same for curves: `excess` gives T [seed theta] at theta [theta], searched between `low` and `high`.

    Returned are the root of the mean of T (which rises with theta), or None; on which side of the range the root lies
    (-1, 0, +1); and the hull of what is not rejected. A bound is None where the hull reaches the end of the range.
    """

    def mean(thetas: Array) -> Array:
        return excess(thetas).mean(0)

    def rejection(thetas: Array) -> Array:
        """above 0 where the test rejects"""
        values = excess(thetas)
        critical = t_critical(len(values) - 1, confidence) / math.sqrt(len(values))
        return np.abs(values.mean(0)) - critical * values.std(0, ddof=1)

    grid = np.linspace(low, high, _GRID)
    means = mean(grid)
    crossings = np.flatnonzero((means[:-1] <= 0) & (means[1:] > 0))
    point, beyond = None, 1 if means[-1] <= 0 else -1
    if len(crossings):
        point, beyond = _root(mean, float(grid[crossings[0]]), float(grid[crossings[0] + 1])), 0
        # The set may be narrower than a step of the grid; the root of the mean always belongs to it.
        grid = np.sort(np.append(grid, point))
    inside = np.flatnonzero((rejection(grid) <= 0) | (grid == point))
    if not len(inside):
        return point, beyond, (high, None) if beyond > 0 else (None, low)
    first, last = int(inside[0]), int(inside[-1])
    lower = None if first == 0 else _root(rejection, float(grid[first - 1]), float(grid[first]))
    upper = None if last == len(grid) - 1 else _root(rejection, float(grid[last]), float(grid[last + 1]))
    return point, beyond, (lower, upper)


def _root(function: Callable[[Array], Array], left: float, right: float) -> float:
    """Between two ends at which the function differs in sign, to 1e-12; an end where rounding hides the change."""
    ends = function(np.array([left, right]))
    if ends[0] * ends[1] > 0:
        return left if abs(ends[0]) < abs(ends[1]) else right
    return float(scipy.optimize.brentq(lambda theta: float(function(np.array([theta]))[0]), left, right))
