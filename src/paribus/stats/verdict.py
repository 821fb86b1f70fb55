"""The verdict, by a rule that was fixed before the run (rules of evidence, sections 1 and 2).

**Which word.** The first line that holds gives it; gain is the difference, turned so that positive is good.

 1. the contrast, or the page's primary, stands before its planned       waiting for the planned seeds, and no number
    seeds, first look or stage 1, or at a look for futility only         (a futile primary there: stop for futility)
 2. at most 2 pairs planned, or there                                    exploratory
 3. pairs were added after words were shown, and no look or extension    exploratory extension
    declared that
 4. the rule was another one when words were shown, or more pairs were   exploratory: rule changed
    there then
 5. a cell diverged                                                      withheld: divergence
 6. every arm of a synthetic task sits on one plateau                    not informative
    the differences are identical up to rounding (of either stage)       no information
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

from paribus.stats.description import described, uninformative
from paribus.stats.holm import holm
from paribus.stats.looks import futile
from paribus.stats.notes import notes
from paribus.stats.outcome import Verdict
from paribus.stats.procedure import OneTest, TwoStages, complement, procedure, restricted, stage_1_of
from paribus.stats.rule import Comparison, Rule, check_page
from paribus.stats.sentences import sentence
from paribus.stats.words import Word

__all__ = ["Comparison", "Rule", "Verdict", "Word", "decide"]

EXPLORATORY_SEEDS = 2


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


def _described(comparison: Comparison, early_word: Word | None) -> Verdict:
    """As `description.described`; where no pair differs because nothing was measured there is no mean and no score.

    Such as updates to a threshold that no cell reached: all stand at the budget, and 0 of them is no difference.
    """
    verdict = described(comparison, early_word)
    if early_word is Word.NOT_INFORMATIVE and uninformative(comparison) and not verdict.mean:
        return replace(verdict, mean=None, median=None, sd=None, wins=None, worst_seed=None, worst_difference=None)
    return verdict


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
    elif comparison.rule_changed_after_words or comparison.words_seen_with_more_pairs is not None:
        word = Word.RULE_CHANGED
    elif pairs.diverged:
        word = Word.DIVERGENCE
    elif comparison.not_informative:
        word = Word.NOT_INFORMATIVE
    elif any(uninformative(part) for part in _parts(comparison)):
        word = Word.NO_INFORMATION
    return word


def _waits(comparison: Comparison) -> bool:
    """Whether the pairs stand at no stop, or at one that lies before what has been shown already."""
    pairs, rule = comparison.differences.pairs, comparison.rule
    if pairs >= rule.planned_seeds:
        return False
    return pairs not in rule.stops or comparison.words_seen_with_more_pairs is not None


def _futile(comparison: Comparison) -> bool:
    if not comparison.rule.looks or comparison.differences.diverged or uninformative(comparison):
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


def _tested(
    comparison: Comparison, verdict: Verdict, test: OneTest | TwoStages, level: float, equivalence_level: float
) -> Verdict:
    """Lines 8 to 12. What stage 1 of an extension settled at these levels stands, with the numbers it had."""
    if isinstance(test, TwoStages):
        first = stage_1_of(comparison)
        verdict_1 = at_levels(comparison.rule, described(first, None), test.first, level, equivalence_level)
        if verdict_1.word.settled:
            return replace(verdict_1, p_t=test.p, p_equivalence=test.p_equivalence)
    return at_levels(comparison.rule, verdict, test, level, equivalence_level)


def at_levels(
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
