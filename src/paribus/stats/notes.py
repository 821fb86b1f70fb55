"""What could still be wrong beside a word, in sentences made of the fields of comparison and verdict."""

from paribus.stats.outcome import Verdict
from paribus.stats.paired import EXACT_SIGN_FLIP_SEEDS, SIGN_FLIP_DRAWS
from paribus.stats.power import count_of
from paribus.stats.rounding import percent
from paribus.stats.rule import Comparison
from paribus.stats.words import Word


def notes(comparison: Comparison, verdict: Verdict) -> tuple[str, ...]:
    """What could still be wrong, beside the word: a changed rule, late seeds, looks, diverged cells, the sign-flip."""
    found = _pairs_gone(comparison)
    if verdict.word is Word.WAITING:
        return tuple(found)
    if comparison.rule_changed_after_words:
        found.append(
            "the rule (contrasts, margins or planned seeds) was changed after words had been seen: "
            "this is not the rule that was fixed before the run, so nothing here is a win or an equivalence"
        )
    if verdict.word is Word.NOT_INFORMATIVE:
        found.append(f"not informative: {comparison.not_informative}")
    found += _late_seeds(comparison)
    found += _stops_used(comparison, verdict)
    found += _diverged(comparison)
    if verdict.p_sign_flip is not None and verdict.seeds > EXACT_SIGN_FLIP_SEEDS:
        found.append(f"sign-flip p from {SIGN_FLIP_DRAWS:,} drawn flips")
    elif verdict.p_sign_flip is not None and 2.0 ** (1 - verdict.seeds) > 1 - comparison.rule.confidence:
        found.append(f"the exact sign-flip p cannot be below {2.0 ** (1 - verdict.seeds):g} with {verdict.seeds} seeds")
    return tuple(found)


def _pairs_gone(comparison: Comparison) -> list[str]:
    seen = comparison.words_seen_with_more_pairs
    if seen is None:
        return []
    return [
        f"words were seen at {seen} pairs where {comparison.differences.pairs} count now: fewer seeds are planned, or "
        "cells are missing. No pair is dropped once words were seen, so nothing here is a win or an equivalence; set "
        "seeds.count back or restore the cells"
    ]


def _late_seeds(comparison: Comparison) -> list[str]:
    pairs, rule = comparison.differences.pairs, comparison.rule
    earlier = sorted({seen for seen in comparison.verdict_seen_at if seen < pairs and seen not in rule.stops[:-1]})
    if earlier:
        return [
            f"{count_of(pairs - earlier[-1], 'seed')} added after words were seen at "
            f"{' and '.join(map(str, earlier))}: p values and intervals do not hold their level (testing again errs in "
            "8.6 to 11 % of studies after one extension)"
        ]
    if pairs > rule.planned_seeds:
        return [
            f"{count_of(pairs, 'pair')} where {rule.planned_seeds} were planned; no words were recorded as seen before"
        ]
    return []


def _stops_used(comparison: Comparison, verdict: Verdict) -> list[str]:
    """What several looks or stages do to the numbers, and which pairs do not count yet."""
    if verdict.look is None:
        return []
    found = []
    alpha = percent(comparison.rule.alpha)
    if verdict.p_sign_flip is not None and len(verdict.looks) > 1:
        found.append("the sign-flip p is that of these pairs alone and allows for no other look or stage")
    if verdict.extension:
        sizes = "" if len(verdict.looks) > 1 else "; extending by any number of seeds from 3 on is open"
        found.append(
            f"an extension was declared beforehand: stage 1 of {comparison.rule.stage_1_seeds} pairs at "
            f"{percent(comparison.rule.stage_1_alpha)}, both stages together at {alpha}{sizes}"
        )
    elif len(verdict.looks) > 1:
        shown = sorted({seen for seen in comparison.verdict_seen_at if seen < verdict.seeds})
        before = f"; words were shown before at {' and '.join(map(str, shown))} pairs" if shown else ""
        found.append(
            f"looks were planned at {', '.join(map(str, verdict.looks))} pairs, together at {alpha}"
            f"{_allowing(verdict)}{before}"
        )
    if verdict.uncounted_seeds:
        found.append(
            f"{count_of(len(verdict.uncounted_seeds), 'further pair')} (seed "
            f"{', '.join(map(str, verdict.uncounted_seeds))}) there and not counted here"
        )
    return found


def _allowing(verdict: Verdict) -> str:
    """Whether the numbers beside the word are those of the planned looks: only a test makes them so."""
    if verdict.equivalence_interval is not None:
        return ": p values and intervals allow for all of them"
    if verdict.word is Word.NOT_TESTED:
        return ": the interval, which only describes, allows for all of them"
    if verdict.interval is not None:
        return ": nothing was tested, and the interval allows for none of them"
    return ""


def _diverged(comparison: Comparison) -> list[str]:
    pairs, (treatment, baseline) = comparison.differences, comparison.sides
    of = (pairs.treatment_diverged, pairs.baseline_diverged)
    if len(comparison.arms) > 2:
        t, b, mt, mb = comparison.arms
        return [
            f"{one} or {other} diverged at seed {', '.join(map(str, seeds))}: counted against {side}, never dropped"
            for one, other, side, seeds in ((t, mb, treatment, of[0]), (b, mt, baseline, of[1]))
            if seeds
        ]
    return [
        f"{arm} diverged at seed {', '.join(map(str, seeds))}: counted as a loss, never dropped"
        for arm, seeds in zip((treatment, baseline), of, strict=True)
        if seeds
    ]
