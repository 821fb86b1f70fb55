"""The compute multiplier: how many times the budget the baseline needs to reach the treatment's loss.

At a budget B the multiplier m solves L_base(m B) = L_base(B) + D, with D = L_treatment(B) - L_base(B) of the same seed
and L_base the baseline's curve over budgets that each finished their own schedule (`paribus.stats.curves`). It is at
the same time the break-even overhead r*: what a step of the treatment may cost, in steps of the baseline, before the
gain is gone. m > 1 is a gain. For losses only: lower is better.

**Headline interval: Fieller's, by inverting the paired t test** (`paribus.stats.fieller`). ln m = theta is in the set
where the excess

    T_s(theta) = D_s - [L_s(B e^theta) - L_s(B)],    s = 1..S

does not differ from 0 on average (t, S - 1 degrees of freedom). For a + b ln B, T_s = D_s - theta b_s and the set is
Fieller's for the ratio mean D / mean b, exact for jointly normal (D_s, b_s) at any S; for the other two forms it is the
same test on their curves. The alternatives are not exact: ln m_s = D_s / b_s has no mean where b_s may be near 0, and
below 20 seeds the percentile bootstrap covers 80 to 92 % (rules of evidence, section 3), so neither is offered. The
interval printed is the envelope over the usable forms.

Where the slope at B is not clearly below 0 the set is reported as unbounded on both sides (None). A bound beyond the
budgets for which the curve may be used (4x the largest, a quarter of the smallest) is None on its side.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from paribus.errors import ParibusError
from paribus.stats.budgets import DEPENDENT
from paribus.stats.curves import Curves, Interval, checked, fit_curves
from paribus.stats.fieller import Fieller, HalfOpen, fieller, inverted
from paribus.stats.forms import Array, CurveFit
from paribus.stats.paired import constant
from paribus.stats.power import count_of
from paribus.stats.rounding import tokens_text

CLEAR_SLOPE_SDS = 3.0
"""A seed's slope is clearly negative where it lies this many sd over seeds below 0."""


@dataclass(frozen=True, eq=False)
class BaselineAndGap:
    """A baseline's curves, and of the same seeds the gap (treatment - baseline) at one budget."""

    at_tokens: float
    curves: Curves
    gaps: Array
    """[seed], the rows of `curves`"""
    refusal: str
    notes: tuple[str, ...]

    def excess(self, fit: CurveFit, log_ratios: Array) -> Array:
        """T_s(theta) [seed theta] at theta = ln(budget of the baseline / budget of the treatment) [theta]."""
        here = fit.at(self.at_tokens)
        return self.gaps[:, None] - (fit.at(self.at_tokens * np.exp(log_ratios)) - here)

    def log_multipliers(self, fit: CurveFit) -> Array:
        """ln m_s [seed]; infinite where the seed's curve never reaches the loss, NaN where it does not fall."""
        return fit.log_ratio_to(fit.at(self.at_tokens)[:, 0] + self.gaps, self.at_tokens)

    @property
    def log_limits(self) -> Interval:
        """The theta for which the curve may be used."""
        low, high = self.curves.limits_tokens
        return math.log(low / self.at_tokens), math.log(high / self.at_tokens)


@dataclass(frozen=True, eq=False)
class FormMultiplier:
    """ln m under one form of the baseline's curve."""

    form: str
    log_multiplier: float | None
    """The root of the mean of T_s; None where it lies beyond the budgets for which the curve may be used."""
    beyond: int
    """+1 where m lies above that range, -1 below, 0 inside"""
    log_interval: HalfOpen
    by_seed: Array
    """[seed], ln m_s; infinite where the seed's curve never reaches the loss, NaN where it does not fall"""
    local: Fieller
    """D over the slope at B alone, in ln budget: the approximation for a small gain"""


@dataclass(frozen=True, eq=False)
class Multiplier:
    """The compute multiplier at one budget, in ln m; above 0 is a gain."""

    at_tokens: float
    seeds: tuple[int, ...]
    confidence: float
    by_form: tuple[FormMultiplier, ...] = ()
    """The usable forms."""
    log_multiplier: float | None = None
    """The middle between the forms' lowest and highest estimate; None where one lies beyond the range."""
    log_interval: HalfOpen = (None, None)
    """Envelope of the forms' Fieller intervals."""
    dependent: bool = False
    refusal: str = ""
    notes: tuple[str, ...] = ()
    sentence: str = ""

    @property
    def multiplier(self) -> float | None:
        """m"""
        return None if self.log_multiplier is None else math.exp(self.log_multiplier)

    @property
    def interval(self) -> HalfOpen:
        """of m; a lower side without a bound is None, though m is above 0"""
        low, high = (None if bound is None else math.exp(bound) for bound in self.log_interval)
        return low, high


def compute_multiplier(
    budgets_tokens: ArrayLike,
    baseline: ArrayLike,
    treatment: ArrayLike,
    *,
    at_tokens: float | None = None,
    seeds: Sequence[int] | None = None,
    dependent: bool = False,
    confidence: float = 0.95,
) -> Multiplier:
    """The compute multiplier at `at_tokens`, one of the budgets (the largest where not given).

    `baseline` and `treatment` are losses [seed budget], NaN or None for a cell without a finite value; of the treatment
    only the column of that budget is used. Fewer than 3 budgets or seeds come back as a refusal.
    """
    pair = baseline_and_gap(budgets_tokens, baseline, treatment, at_tokens, seeds, dependent)
    return multiplier_of(pair, confidence=confidence, dependent=dependent)


def baseline_and_gap(
    budgets_tokens: ArrayLike,
    baseline: ArrayLike,
    treatment: ArrayLike,
    at_tokens: float | None,
    seeds: Sequence[int] | None,
    dependent: bool = False,
) -> BaselineAndGap:
    """Fit the baseline of every seed that has a gap at `at_tokens`; arguments as `compute_multiplier`."""
    budgets, (base, treat), names = checked(budgets_tokens, (baseline, treatment), seeds)
    at = float(budgets[-1]) if at_tokens is None else float(at_tokens)
    if at not in budgets:
        raise ParibusError(
            f"no cells finished their schedule at {tokens_text(at)} tokens",
            expected=f"one of {', '.join(map(tokens_text, budgets))}",
            received=tokens_text(at),
            remedy="ask for a budget that was run",
        )
    gaps = (treat - base)[:, int(np.flatnonzero(budgets == at)[0])]
    paired = np.isfinite(gaps)
    notes = []
    if left_out := [str(name) for name, there in zip(names, paired, strict=True) if not there]:
        notes.append(f"seed {', '.join(left_out)} left out: no gap at {tokens_text(at)} tokens")
    kept = tuple(name for name, there in zip(names, paired, strict=True) if there)
    curves = fit_curves(budgets, base[paired], seeds=kept, quantity="baseline loss")
    gap_of = dict(zip(kept, gaps[paired], strict=True))
    gaps = np.array([gap_of[name] for name in curves.seeds])
    refusal = curves.refusal
    if not refusal and constant(gaps.tolist(), float(np.nanmax(np.abs(curves.values)))):
        refusal = "the gap is the same at every seed: no information about its spread"
    notes += [*curves.notes, *((DEPENDENT,) if dependent else ())]
    return BaselineAndGap(at, curves, gaps, refusal, tuple(notes))


def multiplier_of(
    pair: BaselineAndGap,
    *,
    confidence: float = 0.95,
    dependent: bool = False,
) -> Multiplier:
    """The compute multiplier of a fitted baseline and its gap; see `compute_multiplier`."""
    found = Multiplier(
        pair.at_tokens, pair.curves.seeds, confidence, dependent=dependent, refusal=pair.refusal, notes=pair.notes
    )
    if pair.refusal:
        return replace(found, sentence=f"No compute multiplier: {pair.refusal}.")
    forms = tuple(_of_form(pair, fit, confidence) for fit in pair.curves.usable)
    points = [form.log_multiplier for form in forms if form.log_multiplier is not None]
    lows, highs = ([form.log_interval[side] for form in forms] for side in (0, 1))
    found = replace(
        found,
        by_form=forms,
        log_multiplier=(min(points) + max(points)) / 2 if len(points) == len(forms) else None,
        log_interval=(_outermost(lows, -1), _outermost(highs, 1)),
    )
    return replace(found, sentence=_sentence(pair, found))


def _outermost(bounds: list[float | None], side: int) -> float | None:
    """The lowest (side -1) or highest (+1) bound; None where one is missing."""
    there = [bound for bound in bounds if bound is not None]
    return side * max(side * bound for bound in there) if len(there) == len(bounds) else None


def _of_form(pair: BaselineAndGap, fit: CurveFit, confidence: float) -> FormMultiplier:
    slopes = fit.slope_at(pair.at_tokens)
    local = fieller(pair.gaps, slopes, confidence)
    by_seed = pair.log_multipliers(fit)
    falls = local.kind == "bounded" and slopes.mean() < 0
    if not falls:
        return FormMultiplier(fit.form.name, None, 0, (None, None), by_seed, local)
    point, beyond, interval = inverted(lambda thetas: pair.excess(fit, thetas), *pair.log_limits, confidence)
    return FormMultiplier(fit.form.name, point, beyond, interval, by_seed, local)


def clearly_falls(slopes: Array) -> bool:
    """Whether every seed's slope [seed] lies three sd over seeds below 0, so that D_s / b_s stays far from its pole."""
    return bool((slopes < 0).all() and slopes.max() <= -CLEAR_SLOPE_SDS * slopes.std(ddof=1))


def _sentence(pair: BaselineAndGap, found: Multiplier) -> str:
    low, high = (math.exp(limit) for limit in pair.log_limits)
    forms = f"{count_of(len(found.seeds), 'seed')}, {count_of(len(found.by_form), 'form')}"
    head = f"To reach the treatment's loss at {tokens_text(pair.at_tokens)} tokens the baseline needs"
    interval = f"{100 * found.confidence:.4g} % interval {_bounds(found.interval)}; {forms}"
    if any(form.log_multiplier is None and form.beyond == 0 for form in found.by_form):
        return (
            f"{head} a multiple of the budget that these cells do not bound: under some form the slope of the "
            f"baseline's loss over budgets is not clearly below 0 ({interval})."
        )
    if found.multiplier is None:
        sides = {form.beyond for form in found.by_form}
        if sides == {1}:
            amount = f"more than {high:.3g}x the budget"
        elif sides == {-1}:
            amount = f"less than {low:.3g}x the budget"
        else:
            amount = f"a multiple of the budget that some form puts outside {low:.3g}x to {high:.3g}x"
        return f"{head} {amount}, which is as far as its curve may be used ({interval})."
    return f"{head} {found.multiplier:.3g}x the budget ({interval})."


def _bounds(interval: HalfOpen) -> str:
    low, high = interval
    if low is None and high is None:
        return "not bounded on either side"
    if high is None:
        return f"at least {low:.3g}x, not bounded above"
    return f"at most {high:.3g}x, not bounded below" if low is None else f"{low:.3g}x to {high:.3g}x"
