"""The verdict, by a rule that was fixed before the run (rules of evidence, sections 1 and 2).

**Which word.** The first line that holds gives it; gain is the difference, turned so that positive is good.

 1. the contrast, or the page's primary, stands before its planned       waiting for the planned seeds, and no number
    seeds, first look or stage 1, or at a look for futility only         (a futile primary there: stop for futility)
 2. at most 2 pairs planned, or there                                    exploratory
 3. pairs were added after words were shown, and no look or extension    exploratory extension
    declared that
 4. the rule was another one when words were shown                       exploratory: rule changed
 5. a cell diverged                                                      withheld: divergence
 6. the differences are identical up to rounding (of either stage)       no information
 7. a secondary, and the primary's null of no difference still stands    not tested: primary not rejected
 8. interval excludes 0, mean and median agree in sign, |mean| >= d      better / worse, "by at least the smallest
                                                                         effect" where the interval lies beyond d
 9. equivalence interval inside +-d                                      equivalent, "and not zero" where the interval
                                                                         excludes 0 and mean and median agree in sign
10. interval excludes 0, mean and median agree in sign (so |mean| < d)   real but below the smallest effect
11. mean and median disagree in sign                                     inconclusive, skewed
12. otherwise                                                            inconclusive

Skew withdraws every claim of a difference but not equivalence: around a true 0, mean and median disagree in sign in a
fifth of normal studies, which would cost a fifth of the power of equivalence that the rules state.

**Looks and extensions.** A comparison stands at a stop of its rule: the planned seeds, a declared look, or stage 1 of a
declared extension (`procedure.at_look` takes it there). Its intervals are those of that stop, and its p values allow
for all stops, so the page errs in at most alpha over all of them together. What stage 1 settled stands as it was.

**Families.** The primary is tested alone at alpha = 1 - confidence. Secondaries are tested only if it is rejected
(serial gatekeeping): on a page where nothing differs any better or worse needs a false primary, so at most alpha of
such pages carry one. Opening the gate on an equivalent primary would add a second chance of alpha to exactly those
pages. Behind the gate Holm tests the secondaries at alpha together, so with a real primary, too, at most alpha of pages
hold a false claim. With looks a step of Holm's at alpha / j uses the levels calibrated for alpha / j, not the levels
for alpha divided by j: the first true null that falls, at whatever look, falls at a level for alpha / (true nulls) or
below, and Bonferroni's inequality over true nulls, each with all its looks, gives alpha. Equivalence of the secondaries
is a family of its own, Holm on the p values of the two one-sided tests. The interval of a secondary is at the level at
which Holm tested it, so that it excludes 0 exactly where Holm rejects. A secondary without a p value (lines 1 and 3 to
6) keeps its place in the family with p = 1: what went wrong in one contrast makes no other easier to win. Contrasts
planned as exploratory were never in it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from paribus.seeds import generator
from paribus.stats import paired
from paribus.stats.holm import holm
from paribus.stats.looks import futile
from paribus.stats.procedure import OneTest, TwoStages, complement, procedure, restricted, stage_1_of
from paribus.stats.rule import Comparison, Rule, Verdict, Word, check_page
from paribus.stats.sentences import notes, sentence

__all__ = ["Comparison", "Rule", "Verdict", "Word", "decide"]

EXPLORATORY_SEEDS = 2
_WITHOUT_P = (Word.EXPLORATORY, Word.NO_INFORMATION, Word.RULE_CHANGED, Word.FUTILE)
"""Words beside which numbers describe and nothing was tested, nor will be."""


def decide(comparisons: Sequence[Comparison]) -> tuple[Verdict, ...]:
    """The verdicts of one page, in the order given. ParibusError unless exactly one comparison is primary.

    Where the rule declares looks or an extension, take each comparison to its stop first (`procedure.at_look`).
    """
    primary = check_page(comparisons)
    alpha = primary.rule.alpha
    early = {comparison.name: _early_word(comparison, primary) for comparison in comparisons}
    verdicts = {comparison.name: _described(comparison, early[comparison.name]) for comparison in comparisons}
    tests = {c.name: procedure(c) for c in comparisons if early[c.name] is None}

    if primary.name in tests:
        verdicts[primary.name] = _tested(primary, verdicts[primary.name], tests[primary.name], alpha, alpha)

    family = [c for c in comparisons if not c.primary and c.rule.planned_seeds > EXPLORATORY_SEEDS]
    p = [tests[c.name].p if c.name in tests else 1.0 for c in family]
    p_equivalence = [tests[c.name].p_equivalence if c.name in tests else 1.0 for c in family]
    by_difference, by_equivalence = holm(p, alpha), holm(p_equivalence, alpha)
    for index, secondary in enumerate(family):
        if secondary.name not in tests:
            continue
        verdict, test = verdicts[secondary.name], tests[secondary.name]
        if verdicts[primary.name].word.not_zero:
            levels = by_difference.levels[index], by_equivalence.levels[index]
            verdict = replace(
                _tested(secondary, verdict, test, *levels),
                p_holm=by_difference.adjusted[index],
                p_equivalence_holm=by_equivalence.adjusted[index],
            )
        else:
            verdict = _not_tested(verdict, test, alpha / len(family), verdicts[primary.name].word)
        verdicts[secondary.name] = verdict
    return tuple(_worded(comparison, verdicts[comparison.name]) for comparison in comparisons)


def _early_word(comparison: Comparison, primary: Comparison) -> Word | None:
    """Lines 1 to 6; None where the contrast goes on to the tests."""
    pairs, rule = comparison.differences, comparison.rule
    word = None
    if _waits(comparison) or _waits(primary):
        word = Word.WAITING
    elif any(c.rule.futility_only(c.differences.pairs) for c in (comparison, primary)):
        due = comparison.primary and not comparison.rule_changed_after_words
        word = Word.FUTILE if due and _futile(comparison) else Word.WAITING
    elif min(rule.planned_seeds, pairs.pairs) <= EXPLORATORY_SEEDS:
        word = Word.EXPLORATORY
    elif any(seen < pairs.pairs and seen not in rule.stops[:-1] for seen in comparison.verdict_seen_at):
        word = Word.EXPLORATORY_EXTENSION
    elif comparison.rule_changed_after_words:
        word = Word.RULE_CHANGED
    elif pairs.diverged:
        word = Word.DIVERGENCE
    elif any(_uninformative(part) for part in _parts(comparison)):
        word = Word.NO_INFORMATION
    return word


def _waits(comparison: Comparison) -> bool:
    """Whether the pairs stand at no stop, or at one that lies before what has been shown already."""
    pairs, rule = comparison.differences.pairs, comparison.rule
    if pairs >= rule.planned_seeds:
        return False
    return pairs not in rule.stops or any(seen > pairs for seen in comparison.verdict_seen_at)


def _futile(comparison: Comparison) -> bool:
    if not comparison.rule.looks or comparison.differences.diverged or _uninformative(comparison):
        return False
    differences, rule = comparison.differences.differences, comparison.rule
    mean, sd = float(np.mean(differences)), float(np.std(differences, ddof=1))
    return futile(rule.looks, mean / sd, rule.smallest_effect / sd, rule.alpha)


def _parts(comparison: Comparison) -> tuple[Comparison, ...]:
    """What is tested by a t of its own: the whole, or each stage at the end of an extension."""
    first = comparison.rule.stage_1_seeds
    if first is None or comparison.differences.pairs <= first:
        return (comparison,)
    stage_1 = stage_1_of(comparison)
    return stage_1, restricted(comparison, stage_1.uncounted_seeds)


def _uninformative(comparison: Comparison) -> bool:
    differences = comparison.differences.differences
    # An interaction is a difference of two differences: twice the roundings of one.
    largest = max((abs(value) for values in comparison.values for value in values), default=0.0)
    return len(differences) < 2 or paired.constant(differences, largest * len(comparison.values) / 2)


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


def _tested(
    comparison: Comparison, verdict: Verdict, test: OneTest | TwoStages, level: float, equivalence_level: float
) -> Verdict:
    """Lines 8 to 12. What stage 1 of an extension settled at these levels stands, with the numbers it had."""
    if isinstance(test, TwoStages):
        first = stage_1_of(comparison)
        verdict_1 = _at_levels(comparison.rule, _described(first, None), test.first, level, equivalence_level)
        if verdict_1.word.settled:
            return replace(verdict_1, p_t=test.p, p_equivalence=test.p_equivalence)
    return _at_levels(comparison.rule, verdict, test, level, equivalence_level)


def _at_levels(
    rule: Rule, verdict: Verdict, test: OneTest | TwoStages, level: float, equivalence_level: float
) -> Verdict:
    verdict = replace(
        verdict,
        p_t=test.p,
        p_equivalence=test.p_equivalence,
        interval=test.interval(level),
        interval_confidence=complement(test.nominal(level)),
        equivalence_interval=test.equivalence_interval(equivalence_level),
        equivalence_confidence=complement(2 * test.nominal(equivalence_level)),
    )
    return replace(verdict, word=_word(verdict, rule))


def _word(verdict: Verdict, rule: Rule) -> Word:
    assert verdict.interval is not None
    assert verdict.equivalence_interval is not None
    assert verdict.mean is not None
    low, high = sorted(rule.sign * bound for bound in verdict.interval)
    gain, margin = rule.sign * verdict.mean, rule.smallest_effect
    skewed = verdict.median is not None and verdict.mean * verdict.median < 0
    # Two stages may outweigh the mean of all pairs: a difference needs the interval and the mean on one side of 0.
    not_zero = ((low > 0 and gain > 0) or (high < 0 and gain < 0)) and not skewed
    if not_zero and gain >= margin:
        return Word.BETTER_BY_SMALLEST_EFFECT if low >= margin else Word.BETTER
    if not_zero and gain <= -margin:
        return Word.WORSE_BY_SMALLEST_EFFECT if high <= -margin else Word.WORSE
    within = abs(gain) < margin  # likewise
    if within and -margin < verdict.equivalence_interval[0] and verdict.equivalence_interval[1] < margin:
        return Word.EQUIVALENT_NOT_ZERO if not_zero else Word.EQUIVALENT
    if not_zero:
        return Word.BELOW_SMALLEST_EFFECT
    return Word.SKEWED if skewed else Word.INCONCLUSIVE


def _not_tested(verdict: Verdict, test: OneTest | TwoStages, level: float, primary_word: Word) -> Verdict:
    """Behind a closed gate there is no test: no p value, and an interval at Holm's first level as a description."""
    return replace(
        verdict,
        word=Word.NOT_TESTED,
        primary_word=primary_word,
        interval=test.interval(level),
        interval_confidence=complement(test.nominal(level)),
        p_t=None,
        p_equivalence=None,
        p_sign_flip=None,
    )


def _worded(comparison: Comparison, verdict: Verdict) -> Verdict:
    if verdict.early and verdict.word in (Word.INCONCLUSIVE, Word.FUTILE):
        verdict = replace(verdict, futile=_futile(comparison))
    return replace(verdict, sentence=sentence(verdict), notes=notes(comparison, verdict))
