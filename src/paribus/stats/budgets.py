"""The gap between two arms over budgets: as measured, and as an envelope of three forms at budgets asked for.

The gap (treatment - baseline) of each seed is fitted under the forms of `paribus.stats.curves`. Each gives a mean over
seeds with a t interval (S - 1 degrees of freedom: seeds are the unit of replication), and what is printed is their
*envelope*, the lowest low to the highest high (rules of evidence, section 6).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from paribus.stats.curves import Curves, Interval, checked, fit_curves, seed_interval

DEPENDENT = (
    "the budgets of a seed are cool-down branches of one trunk: its points are dependent. The intervals are over seeds "
    "and stand; agreement between budgets is no independent confirmation"
)


@dataclass(frozen=True)
class FormEstimate:
    """The mean over seeds under one form, in the unit of the values."""

    form: str
    mean: float
    interval: Interval | None
    """None where the seeds show no spread."""


@dataclass(frozen=True)
class BudgetEstimate:
    """What the forms say at one budget."""

    budget_tokens: float
    extrapolated: bool
    """Outside the measured budgets."""
    by_form: tuple[FormEstimate, ...] = ()
    """The usable forms."""
    envelope: Interval | None = None
    """The lowest low to the highest high of the forms' intervals."""
    refusal: str = ""


@dataclass(frozen=True)
class MeasuredBudget:
    """The gap of the cells at one budget; nothing fitted."""

    budget_tokens: float
    seeds: int
    mean: float
    interval: Interval | None
    """t interval over seeds; None below two seeds or without spread."""


@dataclass(frozen=True, eq=False)
class GapOverBudget:
    """The gap (treatment - baseline) over budgets, in the unit of the metric; below 0 is a gain where lower is better.

    It takes either sign of a metric: no direction of better enters here.
    """

    curves: Curves
    """of the gap, seed by seed"""
    measured: tuple[MeasuredBudget, ...]
    estimates: tuple[BudgetEstimate, ...]
    """At the budgets asked for, in their order."""
    dependent: bool
    """Whether the budgets of a seed share a trunk (cool-down branches) and so are not independent runs."""
    confidence: float
    refusal: str = ""
    notes: tuple[str, ...] = ()


def gap_over_budget(
    budgets_tokens: ArrayLike,
    baseline: ArrayLike,
    treatment: ArrayLike,
    at_tokens: Sequence[float],
    *,
    seeds: Sequence[int] | None = None,
    dependent: bool = False,
    confidence: float = 0.95,
) -> GapOverBudget:
    """The gap at each measured budget, and its envelope at each of `at_tokens`.

    `baseline` and `treatment` are [seed budget] in the unit of the metric, NaN or None for a cell without a finite
    value; `budgets_tokens` [budget] increases. Fewer than 3 budgets or 3 seeds come back as a refusal. Malformed
    arrays are a ParibusError.
    """
    budgets, (base, treat), names = checked(budgets_tokens, (baseline, treatment), seeds)
    gaps = treat - base
    curves = fit_curves(budgets, gaps, seeds=names, quantity="gap")
    measured = []
    for budget, column in zip(budgets, gaps.T, strict=True):
        there = column[np.isfinite(column)]
        if len(there):
            interval = seed_interval(there, confidence)
            measured.append(MeasuredBudget(float(budget), len(there), float(there.mean()), interval))
    estimates = tuple(estimate_at(curves, float(tokens), confidence) for tokens in at_tokens)
    notes = (*curves.notes, *((DEPENDENT,) if dependent else ()))
    return GapOverBudget(curves, tuple(measured), estimates, dependent, confidence, curves.refusal, notes)


def estimate_at(curves: Curves, tokens: float, confidence: float = 0.95) -> BudgetEstimate:
    """Mean over seeds, t interval and envelope of fitted curves at one budget."""
    if curves.refusal:
        return BudgetEstimate(tokens, extrapolated=True, refusal=curves.refusal)
    smallest, largest = curves.measured_tokens
    extrapolated = not smallest <= tokens <= largest
    if beyond := curves.beyond(tokens):
        return BudgetEstimate(tokens, extrapolated, refusal=beyond)
    found = []
    for fit in curves.usable:
        values = fit.at(tokens)[:, 0]
        found.append(FormEstimate(fit.form.name, float(values.mean()), seed_interval(values, confidence)))
    return BudgetEstimate(tokens, extrapolated, tuple(found), envelope([form.interval for form in found]))


def envelope(intervals: Sequence[Interval | None]) -> Interval | None:
    """The lowest low to the highest high; None for none, or where one is missing."""
    there = [interval for interval in intervals if interval is not None]
    if not there or len(there) < len(intervals):
        return None
    return min(low for low, _ in there), max(high for _, high in there)
