"""Losses or gaps over budgets, fitted seed by seed under three forms, and how far they may be carried.

A claim over budgets B (training tokens) uses cells that each finished their own schedule. The loss of an arm, or the
gap between two, is fitted for each seed by least squares under three forms (`paribus.stats.forms`; rules of evidence,
section 6): c B^-g, c_inf + c B^-g and a + b ln B.

No one of them is known to be right, and they part quickly outside the measured budgets: nothing is said beyond 4x the
largest budget or below a quarter of the smallest. A form is left out, and said to be, where the seeds themselves refute
it: where at some budget the mean residual over seeds is not 0 (t test at 1 % divided by the number of budgets), or
where the form cannot change its sign and the values do (95 % t intervals at two budgets on opposite sides of 0).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from paribus.errors import ParibusError
from paribus.stats.forms import FORMS, Array, CurveFit, Form, fit_form
from paribus.stats.paired import constant, t_critical
from paribus.stats.rounding import tokens_text

Interval = tuple[float, float]

FEWEST_BUDGETS = 3
FEWEST_SEEDS = 3
EXTRAPOLATION = 4.0
"""Nothing is said beyond this factor outside the measured budgets."""

LACK_OF_FIT_LEVEL = 0.01
_SELECTED = "A mean of the cells that are left favours an arm that diverges"
_ROUNDING_OF_FIT = 1e-7
"""A residual below this share of the largest value comes from the search for g, not from the form."""


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
            f"{EXTRAPOLATION:g}x the largest budget ({tokens_text(high)})"
            if tokens > high
            else f"a quarter of the smallest ({tokens_text(low)})"
        )
        return f"{tokens_text(tokens)} tokens lie beyond {limit}: nothing is extrapolated that far"


def fit_curves(
    budgets_tokens: ArrayLike, values: ArrayLike, *, seeds: Sequence[int] | None = None, quantity: str = "loss"
) -> Curves:
    """Fit the three forms to every seed of `values` [seed budget]; see the module's text.

    NaN or None marks a cell without a finite value; its seed is kept where three budgets remain. Fewer than 3 budgets
    or 3 seeds come back as a refusal. Malformed arrays are a ParibusError.
    """
    budgets, (table,), names = checked(budgets_tokens, (values,), seeds)
    kept = np.isfinite(table).sum(1) >= FEWEST_BUDGETS
    notes = _left_out(budgets, table, names, kept, quantity)
    table = table[kept]
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
    fits = tuple(_checked_fit(form, budgets, table) for form in FORMS)
    notes += [f"{fit.form.name} is left out: {fit.unusable}" for fit in fits if fit.unusable]
    notes += [f"{fit.form.name}: {remark}" for fit in fits for remark in fit.remarks]
    if all(fit.unusable for fit in fits):
        refusal = f"none of the three forms describes this {quantity} over budgets"
    return Curves(curves.budgets_tokens, curves.seeds, table, fits, refusal, tuple(notes))


def _left_out(
    budgets: Array, table: Array, names: tuple[int, ...], kept: NDArray[np.bool_], quantity: str
) -> list[str]:
    """Cells and seeds that do not count, and what a mean without them is worth."""
    there = np.isfinite(table)
    # Below three budgets no seed has a curve: then the refusal says why, and only cells that are missing are named.
    enough = len(budgets) >= FEWEST_BUDGETS
    found = []
    partly = ~there.all(1) & (kept if enough else True)
    if missing := [
        f"seed {names[row]} at {', '.join(map(tokens_text, budgets[~there[row]]))} tokens"
        for row in np.flatnonzero(partly)
    ]:
        said = f"no finite {quantity}, so left out: {'; '.join(missing)}"
        some_left = (there.any(0) & ~there.all(0)).any()
        found.append(f"{said}. {_SELECTED}" if some_left else said)
    if dropped := [str(name) for name, keep in zip(names, kept, strict=True) if enough and not keep]:
        said = f"seed {', '.join(dropped)} left out: a finite {quantity} at fewer than {FEWEST_BUDGETS} budgets"
        found.append(f"{said}. {_SELECTED}" if kept.any() else said)
    return found


def _checked_fit(form: Form, budgets: Array, values: Array) -> CurveFit:
    fit = fit_form(form, budgets, values)
    return replace(fit, unusable=_lack_of_fit(form, values, fit.residuals))


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
