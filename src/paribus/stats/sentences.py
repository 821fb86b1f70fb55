"""Verdicts in plain words, made of the fields of the verdict and nothing else; what was not found is said too."""

from paribus.stats.paired import EXACT_SIGN_FLIP_SEEDS, SIGN_FLIP_DRAWS
from paribus.stats.power import count_of, seeds_to_settle
from paribus.stats.rule import MINUS, Comparison, Verdict, Word

MAX_SEEDS = 100
"""Above this number in all, more seeds are not offered as a way to a verdict."""


def sentence(verdict: Verdict) -> str:
    """What the page may say about this contrast."""
    against = MINUS if verdict.interaction else "against"
    head = f"{verdict.treatment} {against} {verdict.baseline} at {verdict.scale} on {verdict.metric}"
    if verdict.word is Word.WAITING:
        return f"{head}: {_waiting(verdict)}"
    parts = [
        f"{head}: {verdict.word.value}.",
        _more_or_less(verdict),
        _estimate(verdict),
        _interval(verdict),
        _score(verdict),
        _rest(verdict),
    ]
    return " ".join(part for part in parts if part)


def notes(comparison: Comparison, verdict: Verdict) -> tuple[str, ...]:
    """What a reader must know beside the word: seeds added late, diverged cells, and what the sign-flip can show."""
    if verdict.word is Word.WAITING:
        return ()
    found: list[str] = []
    pairs = comparison.differences
    if comparison.rule_changed_after_words:
        found.append(
            "the rule (contrasts, margins or planned seeds) was changed after words had been seen: "
            "this is not the rule that was fixed before the run"
        )
    earlier = sorted({seen for seen in comparison.verdict_seen_at if seen < pairs.pairs})
    if earlier:
        found.append(
            f"{count_of(pairs.pairs - earlier[-1], 'seed')} added after words were seen at "
            f"{' and '.join(map(str, earlier))}: p values and intervals do not hold their level (testing again errs in "
            "8.6 to 11 % of studies after one extension)"
        )
    elif pairs.pairs > comparison.rule.planned_seeds:
        found.append(
            f"{count_of(pairs.pairs, 'pair')} where {comparison.rule.planned_seeds} were planned; "
            "no words were recorded as seen before"
        )
    found += _diverged(comparison)
    if verdict.p_sign_flip is not None and verdict.seeds > EXACT_SIGN_FLIP_SEEDS:
        found.append(f"sign-flip p from {SIGN_FLIP_DRAWS:,} drawn flips")
    elif verdict.p_sign_flip is not None and 2.0 ** (1 - verdict.seeds) > 1 - comparison.rule.confidence:
        found.append(f"the exact sign-flip p cannot be below {2.0 ** (1 - verdict.seeds):g} with {verdict.seeds} seeds")
    return tuple(found)


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


def _waiting(verdict: Verdict) -> str:
    if verdict.seeds < verdict.planned_seeds:
        return f"{verdict.word.value}; {verdict.seeds} of {verdict.planned_seeds} pairs are there."
    return f"waiting for the planned seeds of the primary; its own {count_of(verdict.seeds, 'pair')} are there."


def _more_or_less(verdict: Verdict) -> str:
    """What better and worse mean for a difference of two differences."""
    if not verdict.interaction or not (verdict.word.better or verdict.word.worse):
        return ""
    return f"{verdict.treatment} gains {'more' if verdict.word.better else 'less'} than {verdict.baseline}."


def _estimate(verdict: Verdict) -> str:
    if verdict.word is Word.DIVERGENCE or verdict.mean is None:
        median = "falls on a diverged seed" if verdict.median is None else _amount(verdict.median, verdict.unit)
        return f"No mean is taken over the surviving cells; median difference {median}."
    text = f"Mean difference {_amount(verdict.mean, verdict.unit)}"
    if verdict.word is Word.SKEWED and verdict.median is not None:
        text += f", median {_amount(verdict.median, verdict.unit)}"
    return text + ("." if verdict.interval is None else ",")


def _interval(verdict: Verdict) -> str:
    if verdict.interval is None or verdict.interval_confidence is None:
        return ""
    low, high = verdict.interval
    return f"{_percent(verdict.interval_confidence)} interval {_signed(low)} to {_signed(high)}."


def _score(verdict: Verdict) -> str:
    direction = "lower" if verdict.lower_is_better else "higher"
    text = (
        f"{verdict.treatment} is better in {verdict.wins} of {count_of(verdict.seeds, 'pair')} ({direction} is better)"
    )
    if verdict.p_sign_flip is not None:
        text += f", sign-flip p {_p(verdict.p_sign_flip)}"
    return text + "."


def _rest(verdict: Verdict) -> str:
    """The part that each word needs: what it means against the smallest effect, and what was not found."""
    margin = f"the smallest effect ({_plain(verdict.smallest_effect)} {verdict.unit})"
    match verdict.word:
        case Word.BETTER_BY_SMALLEST_EFFECT | Word.WORSE_BY_SMALLEST_EFFECT:
            rest = f"The whole interval lies beyond {margin}."
        case Word.BETTER | Word.WORSE:
            rest = (
                f"The mean reaches {margin}. Not found: that the true difference does, the interval falls short of it."
            )
        case Word.BELOW_SMALLEST_EFFECT:
            rest = (
                f"The interval excludes 0. Not found: a mean difference as large as {margin}, nor equivalence: "
                f"the {_equivalence(verdict)} reaches it."
            )
        case Word.EQUIVALENT_NOT_ZERO:
            rest = (
                f"The {_equivalence(verdict)} lies within {margin} and the interval excludes 0. "
                "Not found: a difference that matters."
            )
        case Word.EQUIVALENT:
            rest = f"The {_equivalence(verdict)} lies within {margin}. Not found: a difference from 0."
        case Word.INCONCLUSIVE:
            rest = (
                f"Not found: a difference from 0, nor equivalence: the {_equivalence(verdict)} "
                f"reaches beyond {margin}. {_more_seeds(verdict)}"
            )
        case Word.SKEWED:
            rest = (
                "Mean and median disagree in sign, so no difference is claimed. Not found: equivalence within "
                f"{margin}. More seeds will not settle this: look at the seeds one by one."
            )
        case Word.DIVERGENCE:
            rest = _divergence(verdict)
        case _:
            rest = _WITHOUT_A_TEST[verdict.word]
    return rest


_WITHOUT_A_TEST = {
    Word.EXPLORATORY: "Too few pairs for a verdict by design: not a win, whatever the numbers.",
    Word.EXPLORATORY_EXTENSION: "Seeds were added after words were seen and no extension was declared: not a win.",
    Word.NO_INFORMATION: "All differences are identical: the seeds carry no information about chance.",
    Word.NOT_TESTED: (
        "The primary's null of no difference stands, so this contrast was not tested; its interval only describes."
    ),
}


def _divergence(verdict: Verdict) -> str:
    lost = f"{verdict.treatment} diverged" if not verdict.interaction else f"a cell counts against {verdict.treatment}"
    where = (
        f"seed {verdict.worst_seed}, where {lost}"
        if verdict.worst_difference is None
        else f"seed {verdict.worst_seed} with {_amount(verdict.worst_difference, verdict.unit)}"
    )
    p = "" if verdict.p_divergence is None else f" (exact McNemar p {_p(verdict.p_divergence)})"
    worst = "" if verdict.worst_seed is None else f" Worst: {where}."
    what = "Seeds with a diverged cell that counts against" if verdict.interaction else "Diverged:"
    return (
        f"{what} {verdict.treatment} {verdict.treatment_diverged}, {verdict.baseline} {verdict.baseline_diverged} "
        f"of {verdict.seeds}{p}.{worst} The t verdict is withheld."
    )


def _more_seeds(verdict: Verdict) -> str:
    if not verdict.sd or verdict.mean is None or not verdict.interval_confidence or not verdict.equivalence_confidence:
        return ""
    total = seeds_to_settle(
        verdict.seeds,
        verdict.mean / verdict.sd,
        verdict.smallest_effect / verdict.sd,
        confidence=verdict.interval_confidence,
        equivalence_confidence=verdict.equivalence_confidence,
        max_seeds=MAX_SEEDS,
    )
    if total is None:
        return f"More seeds will not settle this (at the present estimate no word is likely within {MAX_SEEDS} seeds)."
    return (
        f"If the present estimate is the truth, about {count_of(total - verdict.seeds, 'more seed')} would settle "
        "this, in a new study or an extension declared beforehand."
    )


def _equivalence(verdict: Verdict) -> str:
    if verdict.equivalence_interval is None or verdict.equivalence_confidence is None:
        return "equivalence interval"
    low, high = verdict.equivalence_interval
    return f"{_percent(verdict.equivalence_confidence)} interval ({_signed(low)} to {_signed(high)})"


def _amount(value: float, unit: str) -> str:
    return f"{_signed(value)} {unit}"


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "\N{MINUS SIGN}", 1) if value < 0 else f"{value:+.3g}"


def _plain(value: float) -> str:
    return f"{value:.4g}"


def _percent(value: float) -> str:
    return f"{100 * value:.4g} %"


def _p(value: float) -> str:
    return f"{value:.3g}" if value >= 1e-4 else "below 0.0001"
