"""How many updates a cell needs until it has acquired a slice of a task, and the ratio of two arms over seeds.

A cell has acquired a slice once two consecutive windows of its smoothed curve lie below the threshold, T updates in.
A cell that never does within the budget of B updates is right-censored: T is only known to exceed B. The mean of the
cells that solved it would favour an arm that solves it rarely, so what is compared is the restricted mean

    D_s = log2 min(T_treatment,s, B) - log2 min(T_baseline,s, B)

by a paired t over seeds and an exact sign flip (rules of evidence, section 8). 2^mean is the ratio of updates
*restricted to the budget*. Of the ratio itself it is a bound: where only the treatment is censored every D_s is at most
the true difference (at least this ratio), where only the baseline is, at least it (at most this ratio); where both are,
nothing is bounded. Beside it stand two descriptions that ignore the pairs, from `paribus.stats.censored`.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from paribus import seeds
from paribus.errors import ParibusError
from paribus.stats import paired
from paribus.stats.censored import Tobit, logrank_p, tobit
from paribus.stats.curves import Interval
from paribus.stats.fieller import HalfOpen
from paribus.stats.learning import WINDOWS, windows
from paribus.stats.paired import PairedDifferences
from paribus.stats.power import count_of
from paribus.stats.rounding import percent

LOWER_IS_BETTER = -1
"""the sign of updates, as `paribus.stats.paired` takes it"""

Updates = Mapping[int, int | None]
"""updates until acquired, by seed; None where a cell did not within the budget"""


@dataclass(frozen=True)
class AcquisitionContrast:
    """Treatment against baseline in log2 of updates until acquired; below 0 the treatment needs fewer."""

    budget_updates: int
    """B: the restricted mean depends on it"""
    differences: PairedDifferences
    """of log2 min(T, B), treatment minus baseline"""
    treatment_censored: tuple[int, ...]
    """paired seeds at which the treatment did not acquire the slice within the budget"""
    baseline_censored: tuple[int, ...]
    mean_log2: float | None
    """None where no pair is finite"""
    interval_log2: Interval | None
    """Paired t; None below two pairs, where all differences are equal, or where a cell diverged."""
    confidence: float
    p_t: float | None
    """None as the interval"""
    p_sign_flip: float | None
    """Exact up to 20 pairs; a diverged cell counts as lost by its arm. None without a pair."""
    treatment_fewer: int
    """pairs in which the treatment needs fewer updates, restricted to the budget"""
    tobit: Tobit | None
    """Descriptive: normal log2 T in two unpaired groups with a common sd. None as `censored.tobit`."""
    p_logrank: float | None
    """Descriptive, unpaired."""

    @property
    def bound(self) -> str:
        """What 2^mean is of the ratio of updates without the restriction: equal "", "at least", "at most", "none"."""
        treatment, baseline = bool(self.treatment_censored), bool(self.baseline_censored)
        return {(0, 0): "", (1, 0): "at least", (0, 1): "at most", (1, 1): "none"}[treatment, baseline]

    @property
    def ratio(self) -> float | None:
        """2^mean: updates of the treatment per update of the baseline, restricted to the budget (geometric mean)."""
        return None if self.mean_log2 is None else 2.0**self.mean_log2

    @property
    def ratio_interval(self) -> Interval | None:
        """of `ratio`, restricted to the budget"""
        return None if self.interval_log2 is None else (2.0 ** self.interval_log2[0], 2.0 ** self.interval_log2[1])

    @property
    def ratio_bounds(self) -> HalfOpen:
        """Of the ratio without the restriction: the interval, without the end on the side where cells are censored."""
        low, high = self.ratio_interval or (None, None)
        return None if self.baseline_censored else low, None if self.treatment_censored else high

    @property
    def sentence(self) -> str:
        """The ratio of updates in words, without a verdict."""
        return _sentence(self)


def acquired_at(excess: ArrayLike, targets: ArrayLike, threshold: float, count: int = WINDOWS) -> int | None:
    """Updates finished at the end of the first of two consecutive windows below `threshold`; None if there are none.

    `excess` (nats per target) and `targets` are [update], `threshold` is of the excess, and `count` is the number of
    windows as in `learning.windows`. A window without targets says nothing and is passed over.
    """
    if not math.isfinite(threshold):
        raise ParibusError(
            "a threshold is not finite",
            expected="nats per target above the floor",
            received=str(threshold),
            remedy="use half of (chance - floor)",
        )
    smooth = windows(excess, targets, count)
    seen = smooth.targets > 0
    below = smooth.excess[seen] < threshold
    both = np.flatnonzero(below[:-1] & below[1:])
    return int(smooth.ends[seen][both[0]]) if len(both) else None


def restricted_log2(updates: int | None, budget: int) -> float:
    """log2 min(T, B); None is a T beyond the budget. ParibusError unless both are at least 1."""
    if budget < 1 or (updates is not None and updates < 1):
        raise ParibusError(
            "updates until acquired are no positive number",
            expected="at least 1 update, or None where a cell did not acquire the slice",
            received=f"{updates} of {budget}",
            remedy="count updates from 1",
        )
    return math.log2(budget if updates is None else min(updates, budget))


def acquisition_contrast(
    treatment: Updates,
    baseline: Updates,
    budget_updates: int,
    *,
    treatment_diverged: Collection[int] = (),
    baseline_diverged: Collection[int] = (),
    confidence: float = 0.95,
) -> AcquisitionContrast:
    """The contrast of two arms over the seeds that both have, at one budget.

    A diverged cell is named in `*_diverged` and not in the mapping: its pair is lost by its arm, and nothing is
    estimated from the others. T beyond the budget counts as censored. ParibusError where a seed is in both, or for a T
    below 1.
    """
    one = _restricted(treatment, treatment_diverged, budget_updates)
    other = _restricted(baseline, baseline_diverged, budget_updates)
    differences = paired.paired_differences(one, other)
    values, limit = differences.differences, math.log2(budget_updates)
    estimable = bool(values) and not differences.diverged
    tested = estimable and len(values) > 1 and not paired.constant(values, limit)
    test = paired.paired_t(values) if tested else None
    scored = paired.scored(differences, LOWER_IS_BETTER)
    flips = seeds.generator("acquisition", "sign-flip", budget_updates, len(scored))
    groups = [
        [None if _censored(arm[seed], budget_updates) else logs[seed] for seed in differences.seeds]
        for arm, logs in ((treatment, one), (baseline, other))
    ]
    return AcquisitionContrast(
        budget_updates=budget_updates,
        differences=differences,
        treatment_censored=tuple(s for s, log in zip(differences.seeds, groups[0], strict=True) if log is None),
        baseline_censored=tuple(s for s, log in zip(differences.seeds, groups[1], strict=True) if log is None),
        mean_log2=float(np.mean(values)) if estimable else None,
        interval_log2=paired.t_interval(values, confidence) if tested else None,
        confidence=confidence,
        p_t=test.p_two_sided if test else None,
        p_sign_flip=paired.sign_flip_p(scored, flips) if scored else None,
        treatment_fewer=paired.wins(differences, LOWER_IS_BETTER),
        tobit=tobit(groups[0], groups[1], limit) if estimable else None,
        p_logrank=logrank_p(groups[0], groups[1], limit) if estimable else None,
    )


def _censored(updates: int | None, budget: int) -> bool:
    return updates is None or updates > budget


def _restricted(updates: Updates, diverged: Collection[int], budget: int) -> dict[int, float | None]:
    """log2 min(T, B) by seed; None where the cell diverged."""
    if both := sorted(updates.keys() & set(diverged)):
        raise ParibusError(
            "a seed has an outcome and diverged",
            expected="each cell once: with its updates (None where it did not acquire the slice), or as diverged",
            received=f"seeds {both} in both",
            remedy="leave a diverged cell out of the updates, whatever it had acquired before",
        )
    return {
        **{seed: restricted_log2(number, budget) for seed, number in updates.items()},
        **dict.fromkeys(diverged),
    }


def _sentence(contrast: AcquisitionContrast) -> str:
    pairs, budget = contrast.differences.pairs, f"{count_of(contrast.budget_updates, 'update')}"
    treatment, baseline = len(contrast.treatment_censored), len(contrast.baseline_censored)
    if contrast.differences.diverged:
        listed = ", ".join(map(str, contrast.differences.diverged))
        return f"no ratio of updates: a cell diverged at {'seed' if ',' not in listed else 'seeds'} {listed}"
    if contrast.ratio is None:
        return "no ratio of updates: no seed has both cells"
    if treatment == baseline == pairs:
        return f"no ratio of updates: no cell of either arm acquired it within {budget}"
    bound = f"{contrast.bound} " if contrast.bound in ("at least", "at most") else ""
    interval = "no interval"
    if contrast.ratio_interval is not None:
        low, high = contrast.ratio_interval
        interval = f"{percent(contrast.confidence)} interval {low:.3g} to {high:.3g}"
    text = f"{bound}{contrast.ratio:.3g} times the baseline's updates ({interval})"
    if contrast.bound:
        text += (
            f", restricted to {budget}, within which {treatment} of {pairs} cells of the treatment and "
            f"{baseline} of {pairs} of the baseline did not acquire it"
        )
    return text + (": the ratio without the restriction is not bounded" if contrast.bound == "none" else "")
