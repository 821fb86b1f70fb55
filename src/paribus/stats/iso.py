"""The same contrast at equal steps, at equal FLOPs and at equal time, and the overhead at which a gain vanishes.

While the treatment takes the steps of budget B, a baseline whose step costs 1/r of the treatment's could have had the
budget r B. So with D the gap at B and L_base the baseline's curve over budgets that each finished their own schedule
(rules of evidence, section 6)

    D_iso = D + [L_base(B) - L_base(r B)]

with r the ratio of FLOPs per step (counted, exact) or of seconds per step (measured in mirrored blocks on one host).
It is formed seed by seed, so that the covariance of D and L_base stays in, under each form of the curve; intervals are
t over seeds (S - 1 degrees of freedom), with the variance of ln r added by the delta method: (dL_base/d ln B at r B)^2
se(ln r)^2, an error that all seeds share. What is printed is the envelope over the forms.

The *break-even overhead* r* at which D_iso is 0 depends on no kernel and no machine. It is the compute
multiplier by its definition. For losses only: lower is better, below 0 is a gain. Costs carry no verdict word.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from paribus.errors import ParibusError
from paribus.stats.budgets import FormEstimate, envelope
from paribus.stats.curves import FEWEST_BUDGETS, Interval, checked, seed_interval
from paribus.stats.multiplier import BaselineAndGap, Multiplier, baseline_and_gap, multiplier_of
from paribus.stats.rounding import MINUS
from paribus.stats.step_ratio import StepRatio


@dataclass(frozen=True)
class IsoView:
    """Treatment minus baseline when both are given the same of one thing."""

    equal: str
    """steps, FLOPs or time"""
    ratio: float | None = None
    """Cost of a step of the treatment over one of the baseline; 1 for steps."""
    se_log_ratio: float = 0.0
    seeds: int = 0
    mean: float | None = None
    """In the unit of the loss; the middle between the forms' lowest and highest."""
    interval: Interval | None = None
    """Envelope over the forms; None where the seeds show no spread."""
    by_form: tuple[FormEstimate, ...] = ()
    refusal: str = ""

    @property
    def side(self) -> int:
        """-1 where the interval lies below 0, +1 where it lies above, else 0."""
        if self.interval is None:
            return 0
        return -1 if self.interval[1] < 0 else 1 if self.interval[0] > 0 else 0


@dataclass(frozen=True, eq=False)
class IsoComparison:
    """One contrast at one budget under the three ways of being equal, side by side."""

    at_tokens: float
    unit: str
    confidence: float
    steps: IsoView
    flops: IsoView
    time: IsoView
    break_even: Multiplier
    """r*: its `multiplier` is the cost of a step, in steps of the baseline, at which the gain is gone."""
    refusal: str = ""
    """Why there is no iso-FLOP, iso-time and break-even; iso-step stands."""
    notes: tuple[str, ...] = ()
    sentence: str = ""


def iso_comparison(
    budgets_tokens: ArrayLike,
    baseline: ArrayLike,
    treatment: ArrayLike,
    *,
    flop_ratio: float | None = None,
    step_time: StepRatio | None = None,
    at_tokens: float | None = None,
    seeds: Sequence[int] | None = None,
    unit: str = "nats",
    dependent: bool = False,
    confidence: float = 0.95,
) -> IsoComparison:
    """Iso-step, iso-FLOP and iso-time at `at_tokens`, one of the budgets (the largest where not given).

    `baseline` and `treatment` are losses [seed budget] in `unit`, NaN or None for a cell without a finite value; of the
    treatment only the column of that budget is used. With fewer than 3 budgets or seeds iso-step stands alone and the
    rest is refused; likewise each view whose ratio is missing or too large for the budgets. A `flop_ratio` that is not
    positive is a ParibusError.
    """
    if flop_ratio is not None and not (math.isfinite(flop_ratio) and flop_ratio > 0):
        raise ParibusError(
            "the ratio of FLOPs per step is not a positive number",
            expected="FLOPs of the treatment's step over the baseline's",
            received=repr(flop_ratio),
            remedy="count the FLOPs of both arms",
        )
    budgets, (base, treat), names = checked(budgets_tokens, (baseline, treatment), seeds)
    pair = baseline_and_gap(budgets, base, treat, at_tokens, names, dependent)
    gaps = (treat - base)[:, int(np.flatnonzero(budgets == pair.at_tokens)[0])]
    gaps = gaps[np.isfinite(gaps)]
    steps = IsoView("steps", 1.0, seeds=len(gaps), refusal="" if len(gaps) else "no seed has both cells")
    if len(gaps):
        steps = replace(steps, mean=float(gaps.mean()), interval=seed_interval(gaps, confidence))
    refusal = pair.refusal
    if len(budgets) < FEWEST_BUDGETS:
        refusal = (
            f"iso-FLOP and iso-time need a baseline at {FEWEST_BUDGETS} budgets or more whose cells each finished "
            f"their own schedule; there {'is' if len(budgets) == 1 else 'are'} {len(budgets)}"
        )
    pair = replace(pair, refusal=refusal)
    found = IsoComparison(
        at_tokens=pair.at_tokens,
        unit=unit,
        confidence=confidence,
        steps=steps,
        flops=_view(pair, "FLOPs", flop_ratio, 0.0, "FLOPs per step were not given", confidence),
        time=_time_view(pair, step_time, confidence),
        break_even=multiplier_of(pair, confidence=confidence, dependent=dependent),
        refusal=refusal,
        notes=(*pair.notes, *(step_time.notes if step_time else ())),
    )
    return replace(found, sentence=_sentence(found))


def _time_view(pair: BaselineAndGap, step_time: StepRatio | None, confidence: float) -> IsoView:
    if step_time is None or step_time.refusal:
        why = step_time.refusal if step_time else "the time of a step was not measured in mirrored blocks"
        return _view(pair, "time", None, 0.0, why, confidence)
    return _view(pair, "time", step_time.ratio, step_time.se_log_ratio, "", confidence)


def _view(
    pair: BaselineAndGap, equal: str, ratio: float | None, se_log_ratio: float, missing: str, confidence: float
) -> IsoView:
    view = IsoView(equal, ratio, se_log_ratio, len(pair.gaps))
    if ratio is None:
        return replace(view, refusal=missing)
    budget = ratio * pair.at_tokens
    if refusal := pair.refusal or pair.curves.beyond(budget):
        return replace(view, refusal=refusal)
    found = []
    for fit in pair.curves.usable:
        differences = pair.excess(fit, np.array([math.log(ratio)]))[:, 0]
        shared = (float(fit.slope_at(budget).mean()) * se_log_ratio) ** 2
        found.append(
            FormEstimate(fit.form.name, float(differences.mean()), seed_interval(differences, confidence, shared))
        )
    means = [form.mean for form in found]
    interval = envelope([form.interval for form in found])
    return replace(view, mean=(min(means) + max(means)) / 2, interval=interval, by_form=tuple(found))


_SIDE = {-1: "lies below 0", 0: "holds 0", 1: "lies above 0"}
"""what may be said of a cost: where its interval lies, and no word"""


def _sentence(found: IsoComparison) -> str:
    views = (found.steps, found.flops, found.time)
    parts = [_of_view(view, found) for view in views if view.refusal != found.refusal or not found.refusal]
    if found.refusal:
        return " ".join([*parts, f"{found.refusal[0].upper()}{found.refusal[1:]}; iso-step still stands."])
    for view in (found.flops, found.time):
        if found.steps.side * view.side < 0:
            sides = f"{_SIDE[found.steps.side]} at equal steps and {_SIDE[view.side]} at equal {view.equal}"
            parts.append(f"The interval {sides}: both stand.")
    return " ".join([*parts, _break_even(found)])


def _of_view(view: IsoView, found: IsoComparison) -> str:
    if view.mean is None:
        return f"Equal {view.equal}: not known ({view.refusal})."
    cost = "" if view.equal == "steps" else f" ({view.ratio:.4g}x per step)"
    if view.interval is None:
        return f"Equal {view.equal}{cost}: {_signed(view.mean)} {found.unit}, without an interval (no spread)."
    low, high = (_signed(bound) for bound in view.interval)
    interval = f"{100 * found.confidence:.4g} % interval {low} to {high}"
    return f"Equal {view.equal}{cost}: {_signed(view.mean)} {found.unit} ({interval}); the interval {_SIDE[view.side]}."


def _break_even(found: IsoComparison) -> str:
    at, (low, high) = found.break_even.multiplier, found.break_even.interval
    if found.break_even.refusal:
        return f"No break-even overhead: {found.break_even.refusal}."
    if at is None:
        return f"Break-even overhead: not found. {found.break_even.sentence}"
    bounds = " to ".join("no bound" if bound is None else f"{_signed(100 * (bound - 1))} %" for bound in (low, high))
    return f"Break-even: the difference vanishes where a step costs {_signed(100 * (at - 1))} % ({bounds})."


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", MINUS, 1) if value < 0 else f"{value:+.3g}"
