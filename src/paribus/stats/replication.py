"""Ours beside a published figure: what may be said of it (rules of evidence, section 10).

The first line that holds gives the word. "Theirs" is the published difference, treatment minus baseline like ours;
gain is our mean turned so that the direction of theirs is positive.

1. the recipes differ in scale, tokens, corpus or schedule         related evidence
2. theirs is 0, or no standard error is known for it and line 3
   does not hold without one                                       not settled
3. our verdict has the sign of theirs, and
   |ours - theirs| <= 1.96 sqrt(se_ours^2 + se_theirs^2)           replicated
4. our interval excludes theirs, and gain < smallest effect        contradicted (reversed, where gain < 0)
5. our verdict has the sign of theirs, and our whole interval
   lies below theirs                                               smaller
6. otherwise                                                       not settled

"Smaller" and "contradicted" can both be read into a real effect below the smallest one that matters. Contradicted is
asked first: an effect too small to matter does not uphold a published one that would. A standard error that nobody
published is imputed as sd/sqrt(seeds) from the standard deviation of our own paired A/A differences, and said to be;
with none to impute, a figure within 1.96 of our own standard errors is replicated whatever its error is.
"""

import math
from dataclasses import dataclass
from enum import Enum

from paribus.errors import ParibusError
from paribus.stats.rounding import decimals_for, declared, fixed

COMPATIBLE_Z = 1.96


class Replicated(Enum):
    """What our result says of a published one."""

    REPLICATED = "replicated"
    SMALLER = "smaller"
    CONTRADICTED = "contradicted"
    RELATED = "related evidence"
    NOT_SETTLED = "not settled"


@dataclass(frozen=True)
class Replication:
    """A published difference beside ours; numbers are in the unit of the metric, treatment minus baseline."""

    word: Replicated
    ours: float
    ours_standard_error: float
    interval: tuple[float, float]
    """ours, as the verdict has it"""
    theirs: float
    theirs_standard_error: float | None
    """published or imputed; None where neither is to be had"""
    imputed: bool
    """whether `theirs_standard_error` comes from our A/A"""
    difference: float
    """ours minus theirs"""
    bound: float | None
    """1.96 sqrt(se_ours^2 + se_theirs^2), within which the two are compatible"""
    sentence: str


def replication(
    *,
    mean: float,
    standard_error: float,
    interval: tuple[float, float],
    verdict_sign: int,
    smallest_effect: float,
    theirs: float,
    theirs_standard_error: float | None,
    theirs_seeds: int | None,
    same_recipe: bool,
    aa_sd: float | None = None,
    unit: str,
) -> Replication:
    """The word for a published difference `theirs`, from our decided verdict. All numbers in `unit`.

    `verdict_sign` is the sign of the difference that our verdict claims, 0 where it claims none (inconclusive,
    equivalent). `aa_sd` is the standard deviation of a paired A/A difference of ours; 0 measured no noise and counts as
    none. `theirs_seeds` of None is taken as 1. Before our verdict is decided nothing may be asked of this function, and
    an exploratory, withheld or untested verdict is never decided (rules, section 2).
    ParibusError for numbers that are not finite or an interval that does not hold the mean.
    """
    _check(mean, standard_error, interval, verdict_sign, smallest_effect, theirs)
    theirs_error, imputed = _their_error(theirs_standard_error, theirs_seeds, aa_sd)
    difference = mean - theirs
    bound = None if theirs_error is None else COMPATIBLE_Z * math.hypot(standard_error, theirs_error)
    direction = (theirs > 0) - (theirs < 0)
    gain, low, high = direction * mean, *sorted(direction * end for end in interval)
    same_sign = direction != 0 and verdict_sign == direction
    excluded = not interval[0] <= theirs <= interval[1]
    # An unknown error only widens the bound, so what lies within ours alone lies within both.
    compatible = abs(difference) <= (COMPATIBLE_Z * standard_error if bound is None else bound)

    decimals = decimals_for(standard_error)

    if not same_recipe:
        word, why = Replicated.RELATED, "the recipes differ, so neither confirms nor contradicts the other"
    elif direction == 0:
        word, why = Replicated.NOT_SETTLED, "a published difference of 0 claims no direction that could be replicated"
    elif same_sign and compatible:
        word, why = Replicated.REPLICATED, "the same sign, and no further apart than 1.96 of both standard errors"
        if bound is None:
            why = "the same sign, and within 1.96 of our own standard errors, however large the unpublished one is"
    elif bound is None:
        word = Replicated.NOT_SETTLED
        why = "no standard error was published and no A/A of ours stands in for it, so the two cannot be compared"
    elif excluded and gain < smallest_effect:
        word = Replicated.CONTRADICTED
        mean_is = "has the opposite sign" if gain < 0 else f"is below the smallest effect {declared(smallest_effect)}"
        why = f"our interval excludes the published difference, and our mean {mean_is}"
    elif same_sign and high < abs(theirs):
        word, why = Replicated.SMALLER, "the same sign, and our whole interval lies below the published difference"
    elif same_sign and low > abs(theirs):
        word, why = Replicated.NOT_SETTLED, "the same sign, but our whole interval lies beyond the published difference"
    elif same_sign:
        word, why = Replicated.NOT_SETTLED, "the same sign, but further apart than their standard errors explain"
    else:
        claims = "claims no direction" if verdict_sign == 0 else "has the opposite sign"
        word = Replicated.NOT_SETTLED
        why = f"our verdict {claims}, and our interval {'excludes' if excluded else 'holds'} the published difference"

    low_end, high_end = (fixed(end, decimals, signed=True) for end in interval)
    numbers = (
        f"ours {fixed(mean, decimals, signed=True)} (standard error {fixed(standard_error, decimals)}, interval "
        f"{low_end} to {high_end}), published {declared(theirs) if theirs <= 0 else '+' + declared(theirs)} "
        f"({_said(theirs_error, imputed, theirs_seeds, decimals)}), {unit}"
    )
    return Replication(
        word=word,
        ours=mean,
        ours_standard_error=standard_error,
        interval=interval,
        theirs=theirs,
        theirs_standard_error=theirs_error,
        imputed=imputed,
        difference=difference,
        bound=bound,
        sentence=f"{word.value[0].upper()}{word.value[1:]}: {why}; {numbers}.",
    )


def _their_error(published: float | None, seeds: int | None, aa_sd: float | None) -> tuple[float | None, bool]:
    """(standard error of the published difference, whether it is imputed)."""
    for name, value in (("published standard error", published), ("A/A standard deviation", aa_sd or None)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ParibusError(
                f"a {name} must be a positive number",
                expected="a finite number above 0, or none",
                received=str(value),
                remedy="leave it out where it is not known",
            )
    if seeds is not None and seeds < 1:
        raise ParibusError("a published figure has at least one seed", expected="1 or more", received=str(seeds))
    if published is not None:
        return published, False
    # A repeat in proof mode differs by exactly 0: it measured no noise, so it has none to lend.
    return (None, False) if not aa_sd else (aa_sd / math.sqrt(seeds or 1), True)


def _check(
    mean: float,
    standard_error: float,
    interval: tuple[float, float],
    verdict_sign: int,
    smallest_effect: float,
    theirs: float,
) -> None:
    low, high = interval
    finite = all(math.isfinite(value) for value in (mean, standard_error, low, high, theirs, smallest_effect))
    if not finite or standard_error <= 0 or smallest_effect <= 0 or not low <= mean <= high:
        raise ParibusError(
            "our estimate cannot be compared with a published one",
            expected="finite numbers, a standard error and a smallest effect above 0, and an interval around the mean",
            received=f"mean {mean}, standard error {standard_error}, interval {interval}, "
            f"smallest effect {smallest_effect}, published {theirs}",
            remedy="compare only verdicts that have an interval: no diverged pair, at least two seeds",
        )
    if verdict_sign not in (-1, 0, 1) or verdict_sign * mean < 0:
        raise ParibusError(
            "a verdict's sign is that of the mean, or 0",
            expected="-1 or 1 as the mean where the verdict claims a direction, 0 where it claims none",
            received=f"{verdict_sign} with a mean of {mean}",
            remedy="take the sign of the difference, not whether it is better or worse",
        )


def _said(error: float | None, imputed: bool, seeds: int | None, decimals: int) -> str:
    if error is None:
        return "no standard error published, none imputed"
    said = f"standard error {fixed(error, decimals)}"
    if not imputed:
        return said
    of = "one seed, since their number is not public" if seeds is None else f"seeds: {seeds}"
    return f"{said}, imputed from our A/A for {of}"
