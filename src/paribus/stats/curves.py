"""Losses or gaps over budgets, fitted seed by seed under three forms, and how far they may be carried.

A claim over budgets B (training tokens) uses cells that each finished their own schedule. The loss of an arm, or the
gap between two, is fitted for each seed by least squares under three forms (rules of evidence, section 6):

    c B^-g                 -1 <= g <= 2: a gap may also grow, at most in proportion to B
    c_inf + c B^-g          0 <= g <= 2: tends to c_inf; its limit g -> 0 is the third form
    a + b ln B

All three are linear but for g, so g alone is searched (variable projection: Golub and Pereyra 1973). With
x = ln(B / B_ref), B_ref the geometric mean of the budgets, the second and third are level + slope phi_g(x) with
phi_g(x) = (1 - e^(-g x)) / g and phi_0(x) = x, which stays well conditioned down to g = 0.

No one of them is known to be right, and they part quickly outside the measured budgets: nothing is said beyond 4x the
largest budget or below a quarter of the smallest. A form is left out, and said to be, where the seeds themselves refute
it: where at some budget the mean residual over seeds is not 0 (t test at 1 % divided by the number of budgets), or
where the form cannot change its sign and the values do (95 % t intervals at two budgets on opposite sides of 0).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from paribus.errors import ParibusError
from paribus.stats.paired import constant, t_critical
from paribus.stats.power import count_of

Array = NDArray[np.float64]
Interval = tuple[float, float]

FEWEST_BUDGETS = 3
FEWEST_SEEDS = 3
EXTRAPOLATION = 4.0
"""Nothing is said beyond this factor outside the measured budgets."""

LACK_OF_FIT_LEVEL = 0.01
_SELECTED = "A mean of the cells that are left favours an arm that diverges"
_GRID, _ZOOMS = 41, 8
"""Each zoom keeps two of forty steps, so g is located to (1/20)^8 of its range before rounding."""
_ROUNDING_OF_FIT = 1e-7
"""A residual below this share of the largest value comes from the search for g, not from the form."""


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


@dataclass(frozen=True, eq=False)
class Curves:
    """Values over budgets and what each form makes of them; empty fits and a `refusal` where there is too little."""

    budgets_tokens: Array
    seeds: tuple[int, ...]
    """Those with at least three budgets, in the order of the rows."""
    values: Array
    """[seed budget]; NaN where a cell is missing"""
    fits: tuple[CurveFit, ...] = ()
    refusal: str = ""
    notes: tuple[str, ...] = ()

    @property
    def usable(self) -> tuple[CurveFit, ...]:
        """The fits that enter an envelope."""
        return tuple(fit for fit in self.fits if not fit.unusable)

    @property
    def measured_tokens(self) -> Interval:
        """The smallest and the largest budget that every kept seed has."""
        there = np.isfinite(self.values)
        smallest = max(float(self.budgets_tokens[row].min()) for row in there)
        return smallest, min(float(self.budgets_tokens[row].max()) for row in there)

    @property
    def limits_tokens(self) -> Interval:
        """A quarter of the smallest and four times the largest measured budget."""
        smallest, largest = self.measured_tokens
        return smallest / EXTRAPOLATION, largest * EXTRAPOLATION

    def beyond(self, tokens: float) -> str:
        """Why nothing is said at this budget; empty where something may be."""
        low, high = self.limits_tokens
        # The product of a budget and a ratio may miss the limit by a rounding.
        if low * (1 - 1e-12) <= tokens <= high * (1 + 1e-12):
            return ""
        limit = (
            f"{EXTRAPOLATION:g}x the largest budget ({high:.4g})"
            if tokens > high
            else f"a quarter of the smallest ({low:.4g})"
        )
        return f"{tokens:.4g} tokens lie beyond {limit}: nothing is extrapolated that far"


def fit_curves(
    budgets_tokens: ArrayLike, values: ArrayLike, *, seeds: Sequence[int] | None = None, quantity: str = "loss"
) -> Curves:
    """Fit the three forms to every seed of `values` [seed budget]; see the module's text.

    NaN or None marks a cell without a finite value; its seed is kept where three budgets remain. Fewer than 3 budgets
    or 3 seeds come back as a refusal. Malformed arrays are a ParibusError.
    """
    budgets, (table,), names = checked(budgets_tokens, (values,), seeds)
    there = np.isfinite(table)
    notes = []
    kept = there.sum(1) >= FEWEST_BUDGETS
    if missing := [
        f"seed {names[row]} at {', '.join(f'{budgets[column]:.4g}' for column in np.flatnonzero(~there[row]))} tokens"
        for row in np.flatnonzero(~there.all(1) & kept)
    ]:
        notes.append(f"no finite {quantity}, so left out: {'; '.join(missing)}. {_SELECTED}")
    if dropped := [str(names[row]) for row in np.flatnonzero(~kept)]:
        seeds_left_out = f"seed {', '.join(dropped)} left out"
        notes.append(f"{seeds_left_out}: a finite {quantity} at fewer than {FEWEST_BUDGETS} budgets. {_SELECTED}")
    table, there = table[kept], there[kept]
    curves = Curves(budgets, tuple(name for name, keep in zip(names, kept, strict=True) if keep), table)
    refusal = ""
    if len(budgets) < FEWEST_BUDGETS:
        refusal = (
            f"a claim over budgets needs at least {FEWEST_BUDGETS} budgets whose cells each finished their own "
            f"schedule; there are {len(budgets)}"
        )
    elif len(table) < FEWEST_SEEDS:
        refusal = (
            f"a claim over budgets needs at least {FEWEST_SEEDS} seeds with a finite {quantity} at {FEWEST_BUDGETS} "
            f"budgets or more; there are {len(table)}"
        )
    if refusal:
        return Curves(curves.budgets_tokens, curves.seeds, table, refusal=refusal, notes=tuple(notes))
    fits = tuple(_fit(form, budgets, table, there) for form in FORMS)
    notes += [f"{fit.form.name} is left out: {fit.unusable}" for fit in fits if fit.unusable]
    notes += [f"{fit.form.name}: {remark}" for fit in fits for remark in fit.remarks]
    if all(fit.unusable for fit in fits):
        refusal = f"none of the three forms describes this {quantity} over budgets"
    return Curves(curves.budgets_tokens, curves.seeds, table, fits, refusal, tuple(notes))


def checked(
    budgets_tokens: ArrayLike, tables: Sequence[ArrayLike], seeds: Sequence[int] | None
) -> tuple[Array, list[Array], tuple[int, ...]]:
    """Budgets [budget], every table as float64 [seed budget] with NaN for what is not finite, and the seeds' names."""
    budgets = np.atleast_1d(np.asarray(budgets_tokens, np.float64))
    if not (np.isfinite(budgets).all() and (budgets > 0).all() and (np.diff(budgets) > 0).all()):
        raise ParibusError(
            "budgets are not increasing numbers of tokens",
            expected="finite, positive, each larger than the one before",
            received=str(budgets.tolist()),
            remedy="sort the budgets with their columns and give each once",
        )
    found = []
    for table in tables:
        values = np.array(table, dtype=np.float64)  # None becomes NaN
        if values.size == 0:
            values = values.reshape(0, len(budgets))
        found.append(np.where(np.isfinite(values), values, np.nan))
    names = tuple(range(len(found[0]))) if seeds is None else tuple(seeds)
    shape = (len(names), len(budgets))
    if any(values.shape != shape for values in found) or len(set(names)) != len(names):
        raise ParibusError(
            "values do not have the axes [seed budget]",
            expected=f"shape {shape} with each seed once",
            received=f"shapes {[values.shape for values in found]}, seeds {names}",
            remedy="give one row for each seed and one column for each budget, NaN for a missing cell",
        )
    return budgets, found, names


def _fit(form: Form, budgets: Array, values: Array, there: NDArray[np.bool_]) -> CurveFit:
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
    unusable = _lack_of_fit(form, values, residuals)
    return CurveFit(form, reference, level, slope, g, residuals, unusable, tuple(remarks))


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


def _lack_of_fit(form: Form, values: Array, residuals: Array) -> str:
    """Why the seeds refute the form, or nothing."""
    columns = [column[np.isfinite(column)] for column in values.T]
    if not form.has_level:
        intervals = [seed_interval(column, 0.95) for column in columns]
        below = any(interval and interval[1] < 0 for interval in intervals)
        above = any(interval and interval[0] > 0 for interval in intervals)
        if below and above:
            return "the sign changes between budgets, which this form cannot do"
    if form.parameters >= np.isfinite(residuals).sum(1).max():
        return ""
    rounding = _ROUNDING_OF_FIT * float(np.nanmax(np.abs(values)))
    for column in residuals.T:
        left = column[np.isfinite(column)]
        if len(left) < FEWEST_SEEDS or abs(left.mean()) <= rounding:
            continue
        error = max(float(left.std(ddof=1)) / math.sqrt(len(left)), rounding * 1e-3)
        p = 2 * float(scipy.special.stdtr(len(left) - 1, -abs(float(left.mean())) / error))
        if p < LACK_OF_FIT_LEVEL / len(columns):
            return "it misses the measured budgets by more than the seeds differ"
    return ""


def seed_interval(values: Array, confidence: float, extra_variance: float = 0.0) -> Interval | None:
    """t interval of the mean over seeds [seed], S - 1 degrees of freedom; None below two seeds or without spread.

    `extra_variance` is that of an error which all seeds share, in the squared unit of the values.
    """
    if len(values) < 2 or (constant(values.tolist()) and not extra_variance):
        return None
    variance = float(np.var(values, ddof=1)) / len(values) + extra_variance
    half = t_critical(len(values) - 1, confidence) * math.sqrt(variance)
    return float(values.mean()) - half, float(values.mean()) + half
