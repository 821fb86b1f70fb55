"""The numbers of a comparison that may be shown before any test: counts, centre, spread, and the plain t interval."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from paribus.seeds import generator
from paribus.stats import paired
from paribus.stats.outcome import Verdict
from paribus.stats.rule import Comparison
from paribus.stats.words import Word

_WITHOUT_P = (Word.EXPLORATORY, Word.NO_INFORMATION, Word.NOT_INFORMATIVE, Word.RULE_CHANGED, Word.FUTILE)
"""Words beside which numbers describe and nothing was tested, nor will be."""


def described(comparison: Comparison, early_word: Word | None) -> Verdict:
    """The numbers that may be shown before any test."""
    rule, pairs = comparison.rule, comparison.differences
    treatment, baseline = comparison.sides
    verdict = Verdict(
        name=comparison.name,
        treatment=treatment,
        baseline=baseline,
        arms=comparison.arms,
        scale=comparison.scale,
        metric=comparison.metric,
        unit=comparison.unit,
        primary=comparison.primary,
        lower_is_better=rule.lower_is_better,
        smallest_effect=rule.smallest_effect,
        design_effect=rule.design_effect,
        seeds=pairs.pairs,
        planned_seeds=rule.planned_seeds,
        word=early_word or Word.INCONCLUSIVE,
        looks=rule.stops if rule.looks or rule.stage_1_seeds is not None else (),
        extension=rule.stage_1_seeds is not None,
        uncounted_seeds=comparison.uncounted_seeds,
    )
    if early_word is Word.WAITING:
        return verdict
    stop = rule.stop_reached(pairs.pairs)
    verdict = _with_description(
        comparison, replace(verdict, look=stop + 1 if verdict.looks and stop is not None else None)
    )
    with_p = early_word not in _WITHOUT_P
    if not pairs.diverged and not uninformative(comparison):
        verdict = _with_t(comparison, verdict, with_p)
    if with_p:
        flips = generator("verdict", comparison.scale, 0, "sign-flip", comparison.name)
        verdict = replace(verdict, p_sign_flip=paired.sign_flip_p(paired.scored(pairs, rule.sign), flips))
    return verdict


def _with_description(comparison: Comparison, verdict: Verdict) -> Verdict:
    """Counts, centre and spread; a mean over the surviving cells alone would be a mean of selected data."""
    pairs, sign = comparison.differences, comparison.rule.sign
    worst = paired.worst_seed(pairs, sign)
    verdict = replace(
        verdict,
        median=paired.median_difference(pairs, sign),
        wins=paired.wins(pairs, sign),
        treatment_diverged=len(pairs.treatment_diverged),
        baseline_diverged=len(pairs.baseline_diverged),
        worst_seed=worst[0] if worst else None,
        worst_difference=worst[1] if worst else None,
    )
    if pairs.diverged and len(comparison.arms) > 2:
        return verdict  # McNemar's test compares the rates of two arms; an interaction has four
    if pairs.diverged:
        p = paired.mcnemar_exact_p(len(pairs.only_treatment_diverged), len(pairs.only_baseline_diverged))
        return replace(verdict, p_divergence=p)
    return replace(
        verdict,
        mean=float(np.mean(pairs.differences)),
        sd=_sd(comparison),
        unpaired_standard_error=paired.unpaired_standard_error(*_weighted_values(comparison)),
        pair_correlation=paired.pair_correlation(*_values_of_sides(comparison)),
    )


def _weighted_values(comparison: Comparison) -> list[NDArray[np.float64]]:
    """Values of each distinct arm times its weight in the contrast; an arm may enter an interaction twice."""
    weighted: dict[str, NDArray[np.float64]] = {}
    for arm, sign, values in zip(comparison.arms, (1, -1, -1, 1), comparison.values, strict=False):
        weighted[arm] = weighted.get(arm, np.zeros(len(values))) + sign * np.asarray(values)
    return list(weighted.values())


def _values_of_sides(comparison: Comparison) -> tuple[Sequence[float], Sequence[float]]:
    """What is compared with what at each seed: the arms' values, or the two differences of an interaction."""
    if len(comparison.values) == 2:
        return comparison.treatment_values, comparison.baseline_values
    t, b, mt, mb = (np.asarray(values) for values in comparison.values)
    return (t - b).tolist(), (mt - mb).tolist()


def _sd(comparison: Comparison) -> float | None:
    differences = comparison.differences.differences
    if len(differences) < 2:
        return None
    return 0.0 if uninformative(comparison) else float(np.std(differences, ddof=1))


def _with_t(comparison: Comparison, verdict: Verdict, with_p: bool) -> Verdict:
    """The plain t interval, which describes where no test follows; a look for futility only shows none."""
    differences, rule = comparison.differences.differences, comparison.rule
    test = paired.paired_t(differences)
    verdict = replace(
        verdict,
        standard_error=test.standard_error,
        p_t=test.p_two_sided if with_p else None,
        p_equivalence=paired.equivalence_p(differences, rule.smallest_effect) if with_p else None,
    )
    if verdict.word is Word.FUTILE:
        return verdict
    return replace(
        verdict, interval=paired.t_interval(differences, rule.confidence), interval_confidence=rule.confidence
    )


def uninformative(comparison: Comparison) -> bool:
    """Whether the differences, identical up to rounding or fewer than two, say nothing about their spread."""
    differences = comparison.differences.differences
    # An interaction is a difference of two differences: twice the roundings of one.
    largest = max((abs(value) for values in comparison.values for value in values), default=0.0)
    return len(differences) < 2 or paired.constant(differences, largest * len(comparison.values) / 2)
