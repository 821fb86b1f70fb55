"""The envelope of an extrapolated gap, in numbers: what the fitted forms span together, and where nothing is said.

Three forms that fit the measured budgets alike part beyond them, and no measurement chooses between them. What is told
of a budget is therefore the span from the lowest lower to the highest upper bound of all forms, never one form's own
interval (rules of evidence, section 6).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paribus.report.content import BudgetGap, BudgetSummary, GapForm
from paribus.report.numbers import interval, short_count
from paribus.report.tables import Column, Table
from paribus.stats.rounding import decimals_for, declared

LIMIT = 4.0
"""times the largest budget: beyond it nothing is said"""
TIMES = (2.0, LIMIT)
"""of the largest budget: where the envelope is told in numbers"""


@dataclass(frozen=True)
class Envelope:
    """What the forms of one gap say of one budget, in the unit of the gap."""

    budget_tokens: float
    low: float
    """lowest lower bound of any form"""
    high: float
    """highest upper bound of any form"""
    lowest_mean: float
    highest_mean: float
    forms: tuple[str, ...]


def envelope_at(forms: Sequence[GapForm], budget_tokens: float) -> Envelope | None:
    """The envelope at a budget, interpolated along each form's grid in the logarithm of the budget.

    None where a form does not reach it or has no finite bound there: the others alone would be a narrower claim.
    """
    fitted = [form for form in forms if form.budgets_tokens]
    found = [values for form in fitted if (values := _read(form, budget_tokens)) is not None]
    if not found or len(found) < len(fitted) or not all(math.isfinite(value) for read in found for value in read):
        return None
    means, lows, highs = zip(*found, strict=True)
    names = tuple(form.form for form in fitted)
    return Envelope(budget_tokens, min(lows), max(highs), min(means), max(means), names)


def beyond(forms: Sequence[GapForm], largest_tokens: float, furthest_tokens: float) -> list[tuple[float, Envelope]]:
    """Times the largest budget, and the envelope there: at 2 and 4 times, as far as something may be said."""
    limit = furthest_tokens * (1 + 1e-9)  # a multiple of a budget may miss the limit by a rounding
    at = [(times, envelope_at(forms, times * largest_tokens)) for times in TIMES if times * largest_tokens <= limit]
    return [(times, found) for times, found in at if found is not None]


def envelopes_table(
    gaps: Sequence[BudgetGap],
    forms: Sequence[GapForm],
    summaries: Sequence[BudgetSummary],
    unit: str = "nats per token",
) -> Table | None:
    """A row a contrast and budget beyond the largest, in `unit`; None where no form was fitted."""
    columns = (
        Column("contrast"),
        Column("scale"),
        Column("budget", "tokens", numeric=True),
        Column("times the largest", numeric=True),
        Column("envelope", unit, numeric=True),
        Column("means of the forms", unit, numeric=True),
        Column("forms"),
    )
    rows = []
    for contrast, scale in dict.fromkeys((gap.contrast, gap.scale) for gap in gaps):
        largest = max(gap.budget_tokens for gap in gaps if (gap.contrast, gap.scale) == (contrast, scale))
        own = [form for form in forms if (form.contrast, form.scale) == (contrast, scale)]
        for times, found in beyond(own, largest, furthest_budget(gaps, summaries, contrast, scale)):
            digits = decimals_for((found.high - found.low) / 4)
            rows.append(
                (
                    contrast,
                    scale,
                    short_count(found.budget_tokens),
                    declared(times),
                    interval((found.low, found.high), digits),
                    interval((found.lowest_mean, found.highest_mean), digits),
                    ", ".join(found.forms),
                )
            )
    note = "From the lowest to the highest bound of all forms. Not measured: no budget beyond the largest was trained."
    return Table("Extrapolated difference", columns, tuple(rows), note) if rows else None


def furthest_budget(gaps: Sequence[BudgetGap], summaries: Sequence[BudgetSummary], contrast: str, scale: str) -> float:
    """The budget in tokens beyond which nothing is said of a contrast: its own limit, never more than `LIMIT` times."""
    limit = LIMIT * max(gap.budget_tokens for gap in gaps if (gap.contrast, gap.scale) == (contrast, scale))
    own = [of.furthest_budget_tokens for of in summaries if (of.contrast, of.scale) == (contrast, scale)]
    return min([limit, *own])


def in_words(found: Sequence[tuple[float, Envelope]]) -> str:
    """The same numbers for a figure's text alternative."""
    told = []
    for times, of in found:
        bounds = interval((of.low, of.high), decimals_for((of.high - of.low) / 4))
        told.append(f"at {short_count(of.budget_tokens)} tokens ({declared(times)} times the largest budget) {bounds}")
    return "; ".join(told)


def _read(form: GapForm, budget_tokens: float) -> tuple[float, float, float] | None:
    """Mean, lower and upper bound of a form at a budget; None where its grid does not reach it."""
    grid = np.log(form.budgets_tokens)
    # A budget and a multiple of one may miss each other by a rounding.
    at = math.log(budget_tokens)
    if not grid[0] - 1e-9 <= at <= grid[-1] + 1e-9:
        return None
    mean, low, high = (float(np.interp(at, grid, line)) for line in (form.mean, form.low, form.high))
    return mean, low, high
