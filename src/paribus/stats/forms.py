"""The three forms of a curve over budgets, and their least-squares fit seed by seed.

    c B^-g                 -1 <= g <= 2: a gap may also grow, at most in proportion to B
    c_inf + c B^-g          0 <= g <= 2: tends to c_inf; its limit g -> 0 is the third form
    a + b ln B

All three are linear but for g, so g alone is searched (variable projection: Golub and Pereyra 1973). With
x = ln(B / B_ref), B_ref the geometric mean of the budgets, the second and third are level + slope phi_g(x) with
phi_g(x) = (1 - e^(-g x)) / g and phi_0(x) = x, which stays well conditioned down to g = 0.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from paribus.stats.power import count_of

Array = NDArray[np.float64]

_GRID, _ZOOMS = 41, 8
"""Each zoom keeps two of forty steps, so g is located to (1/20)^8 of its range before rounding."""


@dataclass(frozen=True)
class Form:
    """A law over budgets."""

    name: str
    parameters: int
    exponents: tuple[float, float]
    """Where g is searched; equal ends fix it."""
    has_level: bool
    """Whether a constant is added; without one the law cannot change its sign."""


POWER = Form("c B^-g", 2, (-1.0, 2.0), has_level=False)
FLOOR = Form("c_inf + c B^-g", 3, (0.0, 2.0), has_level=True)
LOG = Form("a + b ln B", 2, (0.0, 0.0), has_level=True)
FORMS = (POWER, FLOOR, LOG)


@dataclass(frozen=True, eq=False)
class CurveFit:
    """One form fitted to every seed. With x = ln(tokens / reference_tokens) a seed's curve is

    level e^(-g x) without a level of its own (POWER), else level + slope phi_g(x).
    """

    form: Form
    reference_tokens: float
    level: Array
    """[seed], in the unit of the values"""
    slope: Array
    """[seed], unit of the values per ln B at the reference budget; NaN for POWER, which has none of its own"""
    exponent: Array
    """[seed], g"""
    residuals: Array
    """[seed budget]; NaN where a cell is missing"""
    unusable: str = ""
    """Why the form is left out of every envelope."""
    remarks: tuple[str, ...] = ()

    def at(self, tokens: ArrayLike) -> Array:
        """Fitted values [seed budget] at budgets [budget] that all seeds share."""
        x = np.log(np.atleast_1d(np.asarray(tokens, np.float64)) / self.reference_tokens)
        g, level, slope = self.exponent[:, None], self.level[:, None], self.slope[:, None]
        return level + slope * _phi(g, x) if self.form.has_level else level * np.exp(-g * x)

    def slope_at(self, tokens: float) -> Array:
        """d value / d ln B [seed] at a budget, in the unit of the values."""
        decay = np.exp(-self.exponent * math.log(tokens / self.reference_tokens))
        return (self.slope if self.form.has_level else -self.exponent * self.level) * decay

    def log_ratio_to(self, values: Array, tokens: float) -> Array:
        """ln(B' / tokens) [seed] with B' the budget at which the fitted curve has the value given [seed].

        Infinite where the curve tends to its limit before, NaN where it does not fall with the budget at `tokens`.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.form.has_level:
                phi = (values - self.level) / self.slope
                shrunk = np.maximum(-self.exponent * phi, -1.0)
                x = np.where(shrunk == 0, phi, np.log1p(shrunk) / -self.exponent)
            else:
                x = -np.log(np.maximum(values / self.level, 0.0)) / self.exponent
        found = x - math.log(tokens / self.reference_tokens)
        return np.where(self.slope_at(tokens) < 0, found, np.nan)


def fit_form(form: Form, budgets: Array, values: Array) -> CurveFit:
    """Least squares of one form for every row of `values` [seed budget]; NaN marks a cell that is missing."""
    there = np.isfinite(values)
    reference = math.exp(float(np.log(budgets).mean()))
    x = np.log(budgets / reference)
    y = np.where(there, values, 0.0)
    low, high = (np.full(len(y), end) for end in form.exponents)
    g = low
    steps = np.linspace(0.0, 1.0, _GRID)
    rows = np.arange(len(y))
    for _ in range(_ZOOMS if form.exponents[0] < form.exponents[1] else 0):
        grid = low[:, None] + (high - low)[:, None] * steps
        squares = (_project(form, grid, x, y, there)[2] ** 2).sum(-1)
        best = squares.argmin(1)
        g = grid[rows, best]
        low, high = grid[rows, np.maximum(best - 1, 0)], grid[rows, np.minimum(best + 1, _GRID - 1)]
    level, slope, residuals = (part[:, 0] for part in _project(form, g[:, None], x, y, there))
    residuals = np.where(there, residuals, np.nan)
    remarks = []
    if (there.sum(1) <= form.parameters).all():
        most = count_of(int(there.sum(1).max()), "budget")
        remarks.append(f"{form.parameters} parameters on {most} leave nothing to check the form by")
    ends = [end for end in form.exponents if form.exponents[0] < form.exponents[1]]
    if at_end := int(sum((np.abs(g - end) < 1e-6).sum() for end in ends)):
        remarks.append(f"g lies at the end of its range {form.exponents} in {at_end} of {count_of(len(g), 'seed')}")
    return CurveFit(form, reference, level, slope, g, residuals, remarks=tuple(remarks))


def _project(form: Form, g: Array, x: Array, y: Array, there: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Least squares in the linear parameters for every g [seed grid]: level, slope and residuals [seed grid budget]."""
    weight, y = there[:, None, :].astype(np.float64), y[:, None, :]
    if not form.has_level:
        decay = np.exp(-g[..., None] * x) * weight
        level = (y * decay).sum(-1) / (decay**2).sum(-1)
        return level, np.full(level.shape, np.nan), y - level[..., None] * decay
    phi = _phi(g[..., None], x)
    count = weight.sum(-1)
    mean_phi, mean_y = (phi * weight).sum(-1) / count, y.sum(-1) / count
    from_phi, from_y = (phi - mean_phi[..., None]) * weight, (y - mean_y[..., None]) * weight
    slope = (from_phi * from_y).sum(-1) / (from_phi**2).sum(-1)
    return mean_y - slope * mean_phi, slope, from_y - slope[..., None] * from_phi


def _phi(g: Array, x: Array) -> Array:
    return x * scipy.special.exprel(-g * x)
