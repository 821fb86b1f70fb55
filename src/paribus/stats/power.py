"""What a design can conclude, before it is run.

Effects and margins are in units of sd, the standard deviation of the paired difference. Under normal noise the mean of
S differences is N(e, 1/S), their s is independent of it with (S - 1) s^2 ~ chi-square(S - 1). Whether an interval
excludes 0 is the non-central t; the whole rule (interval excludes 0 *and* |mean| >= d) is one integral over s,

    P(better | e, d) = E_s Phi( sqrt(S) (e - max(d, t s / sqrt(S))) ),

computed by Gauss-Legendre on both sides of the kink. The skew rule is left out: up to S = 8 it cannot take a rejection
away (the largest t with a median of the other sign is smaller than the critical value); from 9 on it does so rarely.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from paribus.stats.paired import t_critical

DEFAULT_POWER = 0.8


def t_power(seeds: int, effect_sd: float, confidence: float = 0.95) -> float:
    """Power of the two-sided paired t test by the non-central t. The margin is not part of it: see `rule_power`."""
    dof, critical = seeds - 1, t_critical(seeds - 1, confidence)
    shift = abs(effect_sd) * math.sqrt(seeds)
    upper = 1 - float(scipy.special.nctdtr(dof, shift, critical))
    # P(T' < -t) with shift >= 0 equals P(T'' > t) with -shift.
    return upper + 1 - float(scipy.special.nctdtr(dof, -shift, critical))


def minimum_detectable_effect_sd(seeds: int, power: float = DEFAULT_POWER, confidence: float = 0.95) -> float:
    """The effect (in sd) that the two-sided paired t test finds with this power. S = 5: 1.68; S = 8: 1.16."""
    return _smallest(lambda effect: t_power(seeds, effect, confidence) >= power)


def rule_power(seeds: int, effect_sd: float, margin_sd: float, confidence: float = 0.95) -> float:
    """Probability of "better" at a true gain `effect_sd` with the margin `margin_sd`; never above 1/2 at the margin."""
    critical = t_critical(seeds - 1, confidence) / math.sqrt(seeds)

    def given(s: NDArray[np.float64]) -> NDArray[np.float64]:
        return scipy.special.ndtr(math.sqrt(seeds) * (effect_sd - np.maximum(margin_sd, critical * s)))

    return _over_sd(seeds, given, kink=margin_sd / critical)


def seen_effect_sd(seeds: int, margin_sd: float, power: float = DEFAULT_POWER, confidence: float = 0.95) -> float:
    """The smallest true gain (in sd) that the whole rule calls better, or loss that it calls worse, with this power.

    Never below `margin_sd`, where the power is at most 1/2; without a margin that matters it is close to
    `minimum_detectable_effect_sd`, which counts a rejection in the wrong direction too.
    """
    return _smallest(lambda effect: rule_power(seeds, effect, margin_sd, confidence) >= power)


def below_margin_power(seeds: int, effect_sd: float, margin_sd: float, confidence: float = 0.95) -> float:
    """Probability that the interval excludes 0 and |mean| < margin: "real but below the smallest effect"."""
    root, critical = math.sqrt(seeds), t_critical(seeds - 1, confidence) / math.sqrt(seeds)

    def given(s: NDArray[np.float64]) -> NDArray[np.float64]:
        inner = np.minimum(margin_sd, critical * s)
        above = scipy.special.ndtr(root * (margin_sd - effect_sd)) - scipy.special.ndtr(root * (inner - effect_sd))
        below = scipy.special.ndtr(root * (-inner - effect_sd)) - scipy.special.ndtr(root * (-margin_sd - effect_sd))
        return above + below

    return _over_sd(seeds, given, kink=margin_sd / critical)


def equivalence_power(seeds: int, margin_sd: float, effect_sd: float = 0.0, confidence: float = 0.95) -> float:
    """Probability that the 90 % interval (1 - 2a for confidence 1 - a) lies inside +-margin at a true `effect_sd`."""
    root = math.sqrt(seeds)
    critical = t_critical(seeds - 1, 1 - 2 * (1 - confidence)) / root

    def given(s: NDArray[np.float64]) -> NDArray[np.float64]:
        room = np.maximum(margin_sd - critical * s, 0.0)
        return scipy.special.ndtr(root * (room - effect_sd)) - scipy.special.ndtr(root * (-room - effect_sd))

    return _over_sd(seeds, given, kink=margin_sd / critical)


def equivalence_margin_sd(seeds: int, power: float = DEFAULT_POWER, confidence: float = 0.95) -> float:
    """The smallest margin (in sd) at which equivalence is found with this power at a true 0."""
    return _smallest(lambda margin: equivalence_power(seeds, margin, 0.0, confidence) >= power)


def seeds_needed(
    effect_sd: float, margin_sd: float, power: float = DEFAULT_POWER, confidence: float = 0.95, max_seeds: int = 10_000
) -> int | None:
    """Fewest seeds (at least 3) for this power of the whole rule; None where `max_seeds` are too few."""
    return _fewest(lambda seeds: rule_power(seeds, effect_sd, margin_sd, confidence) >= power, 3, max_seeds)


def seeds_needed_for_equivalence(
    margin_sd: float, power: float = DEFAULT_POWER, confidence: float = 0.95, max_seeds: int = 10_000
) -> int | None:
    """Fewest seeds (at least 3) for this power of equivalence at a true 0; None where `max_seeds` are too few."""
    return _fewest(lambda seeds: equivalence_power(seeds, margin_sd, 0.0, confidence) >= power, 3, max_seeds)


def seeds_to_settle(
    seeds: int,
    effect_sd: float,
    margin_sd: float,
    *,
    confidence: float = 0.95,
    equivalence_confidence: float = 0.90,
    max_seeds: int = 100,
) -> int | None:
    """Fewest seeds in all at which, were the present estimate the truth, one word would come with power 80 %.

    Above the margin that word is better (or worse), below it equivalent, or real but below the smallest effect. None
    where `max_seeds` are too few: then more seeds will not settle it. It speaks of one study run afresh at that size,
    with the interval at `confidence` and the equivalence interval at `equivalence_confidence`.
    """
    effect = abs(effect_sd)
    reachable: list[Callable[[int], bool]]
    if effect >= margin_sd:
        reachable = [lambda n: rule_power(n, effect, margin_sd, confidence) >= DEFAULT_POWER]
    else:
        reachable = [
            lambda n: equivalence_power(n, margin_sd, effect, (1 + equivalence_confidence) / 2) >= DEFAULT_POWER,
            lambda n: below_margin_power(n, effect, margin_sd, confidence) >= DEFAULT_POWER,
        ]
    found = [_fewest(enough, seeds + 1, max_seeds) for enough in reachable]
    return min((count for count in found if count is not None), default=None)


@dataclass(frozen=True)
class SdScenarios:
    """The three standard deviations for which power is printed (rules of evidence, section 3), unit of the metric."""

    estimate: float
    upper_80: float
    """The upper bound of a one-sided 80 % interval, s sqrt((n - 1) / chi2_{0.2, n - 1}); 1.56 s at n = 5."""
    doubled: float


def sd_scenarios(sd: float, seeds: int) -> SdScenarios:
    """The estimate `sd` from `seeds` pairs, its 80 % upper bound, and twice the estimate; unit of the metric."""
    dof = seeds - 1
    chi_square_lower_fifth = 2 * float(scipy.special.gammaincinv(dof / 2, 0.2))
    return SdScenarios(sd, sd * math.sqrt(dof / chi_square_lower_fifth), 2 * sd)


def cannot_conclude(
    seeds: int,
    smallest_effect: float,
    design_effect: float,
    sd_of_difference: float | None = None,
    sd_seeds: int | None = None,
    confidence: float = 0.95,
) -> tuple[str, ...]:
    """What a study of `seeds` pairs cannot conclude, in plain sentences for the plan.

    Effects and `sd_of_difference` are in the unit of the metric. An sd estimated from `sd_seeds` pairs is used at its
    estimate, its 80 % upper bound and doubled; without `sd_seeds` it is called assumed and used as given and doubled;
    without an sd the sentences say how small it would have to be. `confidence` is 1 - the level of the (last) look.
    """
    if seeds <= 2:
        return (f"{count_of(seeds, 'pair')} can only be exploratory: no win, no equivalence, whatever the result.",)
    sentences = [
        f"A true effect of exactly the smallest effect ({smallest_effect:g}) is called better or worse in at most 50 % "
        "of studies, whatever the number of seeds."
    ]
    reach = equivalence_margin_sd(seeds, confidence=confidence)
    if sd_of_difference is None:
        largest_sd = smallest_effect / _design_margin_sd(seeds, design_effect / smallest_effect, confidence)
        sentences.append(
            f"A true effect of the design effect ({design_effect:g}) is missed in more than 20 % of studies of {seeds} "
            f"seeds unless the sd of the paired difference is at most {largest_sd:.3g}."
        )
        sentences.append(
            f"Cannot conclude equivalence at {seeds} seeds (power below 80 % at a true 0) unless the smallest effect "
            f"is at least {reach:.2f} sd of the paired difference: an sd of at most {smallest_effect / reach:.3g}."
        )
    else:
        for label, sd in _named_sds(sd_of_difference, sd_seeds):
            effect, margin = design_effect / sd, smallest_effect / sd
            power = rule_power(seeds, effect, margin, confidence)
            if power < DEFAULT_POWER:
                sentences.append(
                    f"With {label}, a true effect of the design effect ({design_effect:g}) is called better or worse "
                    f"in only {100 * power:.0f} % of studies of {seeds} seeds; "
                    f"{_needs(seeds_needed(effect, margin, confidence=confidence))}."
                )
            power = equivalence_power(seeds, margin, 0.0, confidence)
            if power < DEFAULT_POWER:
                sentences.append(
                    f"With {label}, cannot conclude equivalence at {seeds} seeds: found in {100 * power:.0f} % of "
                    f"studies with no effect at all; "
                    f"{_needs(seeds_needed_for_equivalence(margin, confidence=confidence))}."
                )
    if 2.0 ** (1 - seeds) > 0.05:
        sentences.append(
            f"The exact sign-flip p cannot fall below {2.0 ** (1 - seeds):g} with {seeds} seeds: "
            "at this size the verdict leans on the t interval."
        )
    return tuple(sentences)


def _design_margin_sd(seeds: int, ratio: float, confidence: float) -> float:
    """The smallest margin (in sd) at which a true effect of `ratio` margins is found by the whole rule."""
    return _smallest(lambda margin: rule_power(seeds, ratio * margin, margin, confidence) >= DEFAULT_POWER)


def count_of(count: int, noun: str) -> str:
    """`1 pair`, `2 pairs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _named_sds(sd: float, sd_seeds: int | None) -> tuple[tuple[str, float], ...]:
    if sd_seeds is None or sd_seeds < 2:
        return (f"an assumed sd of {sd:.3g}", sd), (f"twice that sd ({2 * sd:.3g})", 2 * sd)
    three = sd_scenarios(sd, sd_seeds)
    return (
        (f"the estimated sd {three.estimate:.3g} (from {sd_seeds} pairs)", three.estimate),
        (f"the 80 % upper bound of the sd ({three.upper_80:.3g})", three.upper_80),
        (f"twice the estimated sd ({three.doubled:.3g})", three.doubled),
    )


def _needs(seeds: int | None) -> str:
    return "no practical number of seeds reaches 80 %" if seeds is None else f"80 % needs {seeds} seeds"


def _over_sd(seeds: int, given: Callable[[NDArray[np.float64]], NDArray[np.float64]], kink: float) -> float:
    """E of given(s) over the sample sd s of `seeds` standard normal differences; relative error below 1e-9."""
    half_dof = (seeds - 1) / 2
    low = math.sqrt(float(scipy.special.gammaincinv(half_dof, 1e-15)) / half_dof)
    high = math.sqrt(float(scipy.special.gammainccinv(half_dof, 1e-15)) / half_dof)
    log_constant = math.log(2) + half_dof * math.log(half_dof) - math.lgamma(half_dof)
    middle = min(max(kink, low), high)
    nodes, weights = _gauss_legendre()
    total = 0.0
    for start, stop in ((low, middle), (middle, high)):
        if stop > start:
            s = start + (stop - start) * (nodes + 1) / 2
            density = np.exp(log_constant + (2 * half_dof - 1) * np.log(s) - half_dof * s * s)
            total += float(np.sum(weights * density * given(s))) * (stop - start) / 2
    return min(max(total, 0.0), 1.0)


@functools.cache
def _gauss_legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # 200 nodes resolve the normal distribution's step at S = 2, where t = 12.7 makes it steepest in s.
    return np.polynomial.legendre.leggauss(200)


def _smallest(enough: Callable[[float], bool]) -> float:
    """The smallest positive number that is enough, by doubling and 60 halvings (below 1e-15 of the bracket)."""
    high = 1.0
    while not enough(high):
        high *= 2
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _fewest(enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """The smallest integer in [low, high] that is enough, for a condition that stays true once true."""
    if low > high or not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
