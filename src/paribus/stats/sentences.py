"""Verdicts in plain words, made of the fields of the verdict and nothing else; what was not found is said too."""

from paribus.stats.extension import FEWEST_PAIRS_OF_A_STAGE
from paribus.stats.looks import FUTILE
from paribus.stats.outcome import Verdict
from paribus.stats.power import count_of, seeds_to_settle
from paribus.stats.rounding import MINUS, decimals_for, declared, fixed, percent, probability
from paribus.stats.words import Word

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
        _stop(verdict),
        _more_or_less(verdict),
        _estimate(verdict),
        _interval(verdict),
        _score(verdict),
        _diverged(verdict) if verdict.word is not Word.DIVERGENCE else "",
        _rest(verdict),
    ]
    return " ".join(part for part in parts if part)


def _waiting(verdict: Verdict) -> str:
    awaited = next((stop for stop in verdict.looks if stop > verdict.seeds), verdict.planned_seeds)
    if verdict.seeds in verdict.looks[:-1]:
        return (
            f"{verdict.word.value}; {verdict.seeds} of {verdict.planned_seeds} pairs are there, "
            f"and no word is due before {awaited}."
        )
    if verdict.seeds < awaited:
        which = (
            f" for look {verdict.looks.index(awaited) + 1} of {len(verdict.looks)}" if awaited in verdict.looks else ""
        )
        if verdict.extension:
            which = f" for stage {verdict.looks.index(awaited) + 1}"
        beyond = len(verdict.uncounted_seeds)
        more = f" {count_of(beyond, 'further pair')} cannot count while an earlier one is missing." if beyond else ""
        return f"{verdict.word.value}; {verdict.seeds} of {awaited} pairs are there{which}.{more}"
    return f"waiting for the planned seeds of the primary; its own {count_of(verdict.seeds, 'pair')} are there."


def _stop(verdict: Verdict) -> str:
    """At which look or stage the word is said, and what stopping there means."""
    if verdict.look is None:
        return ""
    if verdict.extension:
        if verdict.look > 1:
            return f"Both stages of the declared extension ({verdict.looks[0]} and {_added(verdict)} pairs) together."
        text = f"Stage 1 of a declared extension ({verdict.seeds} pairs)."
        if verdict.early and verdict.word.settled:
            text += " It was settled there and stands, whatever further seeds show."
        return text
    text = f"At look {verdict.look} of {len(verdict.looks)} ({verdict.seeds} of {verdict.planned_seeds} pairs)."
    if verdict.early and verdict.word.settled:
        text += " Stopped early: the interval is the repeated one, which allows for every planned look."
    return text


def _added(verdict: Verdict) -> int:
    return verdict.seeds - verdict.looks[0]


def _more_or_less(verdict: Verdict) -> str:
    """What better and worse mean for a difference of two differences."""
    if not verdict.interaction or not (verdict.word.better or verdict.word.worse):
        return ""
    return f"{verdict.treatment} gains {'more' if verdict.word.better else 'less'} than {verdict.baseline}."


def _estimate(verdict: Verdict) -> str:
    if verdict.word is Word.NOT_INFORMATIVE and verdict.mean is None:
        return "No pair differs."
    if verdict.word is Word.DIVERGENCE or verdict.mean is None:
        median = "falls on a diverged seed" if verdict.median is None else _amount(verdict, verdict.median)
        return f"No mean is taken over the surviving cells; median difference {median}."
    text = f"Mean difference {_amount(verdict, verdict.mean)}"
    if verdict.word is Word.SKEWED and verdict.median is not None:
        text += f", median {_amount(verdict, verdict.median)}"
    return text + ("." if verdict.interval is None else ",")


def _interval(verdict: Verdict) -> str:
    if verdict.interval is None or verdict.interval_confidence is None:
        return ""
    low, high = verdict.interval
    return f"{percent(verdict.interval_confidence)} interval {_signed(verdict, low)} to {_signed(verdict, high)}."


def _score(verdict: Verdict) -> str:
    if verdict.word is Word.NO_INFORMATION and not verdict.mean:
        return "No pair differs."
    if verdict.wins is None:
        return ""
    direction = "lower" if verdict.lower_is_better else "higher"
    text = (
        f"{verdict.treatment} is better in {verdict.wins} of {count_of(verdict.seeds, 'pair')} ({direction} is better)"
    )
    if verdict.p_sign_flip is not None:
        text += f", sign-flip p {probability(verdict.p_sign_flip)}"
    return text + "."


def _rest(verdict: Verdict) -> str:
    """The part that each word needs: what it means against the smallest effect, and what was not found."""
    margin = f"the smallest effect ({declared(verdict.smallest_effect)} {verdict.unit})"
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
        case Word.NOT_TESTED:
            rest = _behind_the_gate(verdict)
        case Word.FUTILE:
            rest = (
                "This look serves futility only: no win and no equivalence can be said at it. "
                f"More seeds will not settle this: {_seldom(verdict)}."
            )
        case _:
            rest = _WITHOUT_A_TEST[verdict.word]
    return rest


_WITHOUT_A_TEST = {
    Word.EXPLORATORY: "Too few pairs for a verdict by design: not a win, whatever the numbers.",
    Word.EXPLORATORY_EXTENSION: "Seeds were added after words were seen and no extension was declared: not a win.",
    Word.RULE_CHANGED: (
        "The rule was chosen after words had been seen: no win and no equivalence can be concluded from these seeds; "
        "the numbers only describe. A verdict needs fresh seeds under the present rule."
    ),
    Word.NOT_INFORMATIVE: (
        "The task could not tell the arms apart: neither a difference nor equivalence can be concluded, and the "
        "numbers only describe. More seeds will not settle this; a longer budget or easier knobs may "
        "(`paribus calibrate`)."
    ),
    Word.NO_INFORMATION: (
        "All differences (of the study, or of one stage) are identical: the seeds carry no information about chance, "
        "so neither a difference nor equivalence can be concluded."
    ),
}


def _behind_the_gate(verdict: Verdict) -> str:
    """Why the primary left the gate closed: its null of no difference was not rejected, in one of several ways."""
    match verdict.primary_word:
        case Word.EQUIVALENT:
            why = "The primary is equivalent, so its null of no difference stands"
        case Word.SKEWED | Word.INCONCLUSIVE | None:
            why = "The primary is undecided, so its null of no difference stands"
        case other:
            why = f"The primary has no test (its word is: {other.value})"
    return f"{why}: this contrast was not tested, and its interval only describes."


def _divergence(verdict: Verdict) -> str:
    lost = f"{verdict.treatment} diverged" if not verdict.interaction else f"a cell counts against {verdict.treatment}"
    where = (
        f"seed {verdict.worst_seed}, where {lost}"
        if verdict.worst_difference is None
        else f"seed {verdict.worst_seed} with {_amount(verdict, verdict.worst_difference)}"
    )
    p = "" if verdict.p_divergence is None else f" (exact McNemar p {probability(verdict.p_divergence)})"
    worst = "" if verdict.worst_seed is None else f" Worst: {where}."
    return (
        f"{_diverged(verdict).removesuffix('.')}{p}.{worst} "
        "The t verdict is withheld: neither a mean difference nor equivalence can be concluded."
    )


def _diverged(verdict: Verdict) -> str:
    """Of how many pairs a side diverged, whatever the word; empty where none did."""
    if not (verdict.treatment_diverged or verdict.baseline_diverged):
        return ""
    what = "Seeds with a diverged cell that counts against" if verdict.interaction else "Diverged:"
    lost = f"{verdict.treatment} {verdict.treatment_diverged}, {verdict.baseline} {verdict.baseline_diverged}"
    return f"{what} {lost} of {verdict.seeds}."


def _more_seeds(verdict: Verdict) -> str:
    if not verdict.sd or verdict.mean is None or not verdict.interval_confidence or not verdict.equivalence_confidence:
        return ""
    if verdict.early:
        what = "stage 2 ends" if verdict.extension else "the next look is"
        text = f"Not settled at this point: {what} at {verdict.looks[verdict.look or 0]} pairs."
        return f"{text} More seeds will not settle this: {_seldom(verdict)}." if verdict.futile else text
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
    more, where = total - verdict.seeds, "in a new study or an extension declared beforehand"
    if verdict.extension and verdict.look == 1:
        # A second stage below its fewest pairs is refused.
        more, where = max(more, FEWEST_PAIRS_OF_A_STAGE), "in the extension that was declared beforehand"
    return f"If the present estimate is the truth, about {count_of(more, 'more seed')} would settle this, {where}."


def _seldom(verdict: Verdict) -> str:
    return (
        f"were the present estimate the truth, {verdict.planned_seeds} pairs would bring a word in fewer than "
        f"{percent(FUTILE)} of studies"
    )


def _equivalence(verdict: Verdict) -> str:
    if verdict.equivalence_interval is None or verdict.equivalence_confidence is None:
        return "equivalence interval"
    low, high = verdict.equivalence_interval
    return f"{percent(verdict.equivalence_confidence)} interval ({_signed(verdict, low)} to {_signed(verdict, high)})"


def _amount(verdict: Verdict, value: float) -> str:
    return f"{_signed(verdict, value)} {verdict.unit}"


def _signed(verdict: Verdict, value: float) -> str:
    """To the decimals that show the standard error to two digits, as the table does."""
    return fixed(value, decimals_for(verdict.standard_error), signed=True)
