"""The verdict, by a rule that was fixed before the run (rules of evidence, sections 1 and 2).

**Which word.** The first line that holds gives it; gain is the difference, turned so that positive is good.

 1. the contrast, or the page's primary, has fewer pairs than planned    waiting for the planned seeds, and no number
 2. at most 2 pairs planned, or there                                    exploratory
 3. pairs were added after words were shown                              exploratory extension
 4. a cell diverged                                                      withheld: divergence
 5. the differences are identical up to rounding                         no information
 6. a secondary, and the primary's null of no difference still stands    not tested: primary undecided
 7. interval excludes 0, mean and median agree in sign, |mean| >= d      better / worse, "by at least the smallest
                                                                         effect" where the interval lies beyond d
 8. equivalence interval inside +-d                                      equivalent, "and not zero" where the interval
                                                                         excludes 0 and mean and median agree in sign
 9. interval excludes 0, mean and median agree in sign (so |mean| < d)   real but below the smallest effect
10. mean and median disagree in sign                                     inconclusive, skewed
11. otherwise                                                            inconclusive

Skew withdraws every claim of a difference but not equivalence: around a true 0, mean and median disagree in sign in a
fifth of normal studies, which would cost a fifth of the power of equivalence that the rules state.

**Families.** The primary is tested alone at alpha = 1 - confidence. Secondaries are tested only if it is rejected
(serial gatekeeping): on a page where nothing differs any better or worse needs a false primary, so at most alpha of
such pages carry one. Opening the gate on an equivalent primary would add a second chance of alpha to exactly those
pages. Behind the gate Holm tests the secondaries at alpha together, so with a real primary, too, at most alpha of pages
hold a false claim. Equivalence of the secondaries is a family of its own, Holm on the p values of the two one-sided
tests. The interval of a secondary is at the level at which Holm tested it, so that it excludes 0 exactly where Holm
rejects. A secondary without a p value (lines 1, 3, 4, 5) keeps its place in the family with p = 1: what went wrong in
one contrast makes no other easier to win. Contrasts planned as exploratory were never in it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from paribus.seeds import generator
from paribus.stats import paired
from paribus.stats.holm import holm
from paribus.stats.rule import Comparison, Rule, Verdict, Word, check_page
from paribus.stats.sentences import notes, sentence

__all__ = ["Comparison", "Rule", "Verdict", "Word", "decide"]

EXPLORATORY_SEEDS = 2


def decide(comparisons: Sequence[Comparison]) -> tuple[Verdict, ...]:
    """The verdicts of one page, in the order given. ParibusError unless exactly one comparison is primary."""
    primary = check_page(comparisons)
    alpha = 1 - primary.rule.confidence
    early = {comparison.name: _early_word(comparison, primary) for comparison in comparisons}
    verdicts = {comparison.name: _described(comparison, early[comparison.name]) for comparison in comparisons}

    if early[primary.name] is None:
        verdicts[primary.name] = _tested(primary, verdicts[primary.name], alpha, alpha)

    family = [c for c in comparisons if not c.primary and c.rule.planned_seeds > EXPLORATORY_SEEDS]
    p_t = [_or_one(verdicts[c.name].p_t, early[c.name]) for c in family]
    p_equivalence = [_or_one(verdicts[c.name].p_equivalence, early[c.name]) for c in family]
    by_difference, by_equivalence = holm(p_t, alpha), holm(p_equivalence, alpha)
    for index, secondary in enumerate(family):
        if early[secondary.name] is not None:
            continue
        verdict = verdicts[secondary.name]
        if verdicts[primary.name].word.not_zero:
            verdict = replace(
                verdict,
                p_holm=by_difference.adjusted[index],
                p_equivalence_holm=by_equivalence.adjusted[index],
            )
            verdict = _tested(secondary, verdict, by_difference.levels[index], by_equivalence.levels[index])
        else:
            verdict = _not_tested(secondary, verdict, alpha / len(family))
        verdicts[secondary.name] = verdict
    return tuple(_worded(comparison, verdicts[comparison.name]) for comparison in comparisons)


def _early_word(comparison: Comparison, primary: Comparison) -> Word | None:
    """Lines 1 to 5; None where the contrast goes on to the tests."""
    pairs, planned = comparison.differences, comparison.rule.planned_seeds
    word = None
    if pairs.pairs < planned or primary.differences.pairs < primary.rule.planned_seeds:
        word = Word.WAITING
    elif min(planned, pairs.pairs) <= EXPLORATORY_SEEDS:
        word = Word.EXPLORATORY
    elif any(seen < pairs.pairs for seen in comparison.verdict_seen_at):
        word = Word.EXPLORATORY_EXTENSION
    elif pairs.diverged:
        word = Word.DIVERGENCE
    elif _uninformative(comparison):
        word = Word.NO_INFORMATION
    return word


def _uninformative(comparison: Comparison) -> bool:
    differences = comparison.differences.differences
    # An interaction is a difference of two differences: twice the roundings of one.
    largest = max((abs(value) for values in comparison.values for value in values), default=0.0)
    return len(differences) < 2 or paired.constant(differences, largest * len(comparison.values) / 2)


def _or_one(p: float | None, early_word: Word | None) -> float:
    return p if p is not None and early_word is None else 1.0


def _described(comparison: Comparison, early_word: Word | None) -> Verdict:
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
    )
    if early_word is Word.WAITING:
        return verdict
    verdict = _with_description(comparison, verdict)
    with_p = early_word not in (Word.EXPLORATORY, Word.NO_INFORMATION)
    if not pairs.diverged and not _uninformative(comparison):
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
    return 0.0 if _uninformative(comparison) else float(np.std(differences, ddof=1))


def _with_t(comparison: Comparison, verdict: Verdict, with_p: bool) -> Verdict:
    differences, rule = comparison.differences.differences, comparison.rule
    test = paired.paired_t(differences)
    return replace(
        verdict,
        standard_error=test.standard_error,
        interval=paired.t_interval(differences, rule.confidence),
        interval_confidence=rule.confidence,
        p_t=test.p_two_sided if with_p else None,
        p_equivalence=paired.equivalence_p(differences, rule.smallest_effect) if with_p else None,
    )


def _tested(comparison: Comparison, verdict: Verdict, level: float, equivalence_level: float) -> Verdict:
    """Lines 7 to 11, with the intervals at the levels of the two tests."""
    differences = comparison.differences.differences
    confidence, equivalence_confidence = _complement(level), _complement(2 * equivalence_level)
    verdict = replace(
        verdict,
        interval=paired.t_interval(differences, confidence),
        interval_confidence=confidence,
        equivalence_interval=paired.t_interval(differences, equivalence_confidence),
        equivalence_confidence=equivalence_confidence,
    )
    return replace(verdict, word=_word(verdict, comparison.rule))


def _word(verdict: Verdict, rule: Rule) -> Word:
    assert verdict.interval is not None
    assert verdict.equivalence_interval is not None
    assert verdict.mean is not None
    low, high = sorted(rule.sign * bound for bound in verdict.interval)
    gain, margin = rule.sign * verdict.mean, rule.smallest_effect
    skewed = verdict.median is not None and verdict.mean * verdict.median < 0
    not_zero = (low > 0 or high < 0) and not skewed
    if not_zero and gain >= margin:
        return Word.BETTER_BY_SMALLEST_EFFECT if low >= margin else Word.BETTER
    if not_zero and gain <= -margin:
        return Word.WORSE_BY_SMALLEST_EFFECT if high <= -margin else Word.WORSE
    if -margin < verdict.equivalence_interval[0] and verdict.equivalence_interval[1] < margin:
        return Word.EQUIVALENT_NOT_ZERO if not_zero else Word.EQUIVALENT
    if not_zero:
        return Word.BELOW_SMALLEST_EFFECT
    return Word.SKEWED if skewed else Word.INCONCLUSIVE


def _not_tested(comparison: Comparison, verdict: Verdict, level: float) -> Verdict:
    """Behind a closed gate there is no test: no p value, and an interval at Holm's first level as a description."""
    return replace(
        verdict,
        word=Word.NOT_TESTED,
        interval=paired.t_interval(comparison.differences.differences, _complement(level)),
        interval_confidence=_complement(level),
        p_t=None,
        p_equivalence=None,
        p_sign_flip=None,
    )


def _complement(level: float) -> float:
    """1 - level without the rounding that 1 - 0.95 leaves behind: 0.975, not 0.97499999999999998."""
    return round(1 - level, 12)


def _worded(comparison: Comparison, verdict: Verdict) -> Verdict:
    return replace(verdict, sentence=sentence(verdict), notes=notes(comparison, verdict))
