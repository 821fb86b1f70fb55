"""A declared extension: a second stage whose size may depend on what the first one showed (Lehmacher & Wassmer 1999).

Stage 1 is tested at its own level a_1, declared beforehand. Where seeds are added, each stage k keeps its own t test,
as the normal score z_k = Phi^-1(F_{n_k - 1}(t_k)), and the final test is

    Z = (z_1 + z_2) / sqrt 2,    rejecting at |Z| > c  with  a_1 + P(|z_1| <= z(a_1), |Z| > c) = alpha.

The weights are fixed, so under the null z_2 is standard normal whatever the number of added seeds, and c, from a
bivariate normal with correlation 1/sqrt 2, holds alpha though that number was chosen after seeing stage 1.

A smaller alpha (a step of Holm's) shrinks a_1 in proportion. The smallest alpha at which either stage would reject is
the p value of the whole. The interval at the end holds every mean theta that |Z(theta)| <= c does not reject, with each
t_k about theta; Z falls as theta rises, so it is one interval.
"""

import functools
import math
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from paribus.errors import ParibusError

FEWEST_PAIRS_OF_A_STAGE = 3
"""Of either stage: one degree of freedom says next to nothing about the spread."""

_LARGEST_SCORE = 37.0
"""Phi of its negative is still above the smallest normal double."""


def check_extension(
    stage_1_seeds: int | None, stage_1_alpha: float | None, planned_seeds: int, alpha: float, looks: tuple[int, ...]
) -> None:
    """ParibusError unless an extension is declared wholly or not at all, with sizes and a level that can work."""
    if stage_1_seeds is None and stage_1_alpha is None:
        return
    if stage_1_seeds is None or stage_1_alpha is None:
        _refuse(
            "an extension needs both stage_1_seeds and stage_1_alpha",
            "both, or neither",
            f"stage_1_seeds {stage_1_seeds}, stage_1_alpha {stage_1_alpha}",
            "declare stage_1_seeds = 5 and stage_1_alpha = 0.01",
        )
    if looks:
        _refuse(
            "an extension and planned looks exclude each other",
            "looks, or an extension",
            f"looks {', '.join(map(str, looks))} and stage_1_seeds {stage_1_seeds}",
            "with a fixed largest number of seeds declare looks, else an extension",
        )
    if stage_1_seeds < FEWEST_PAIRS_OF_A_STAGE:
        _refuse(
            "stage 1 is too small for a test of its own",
            f"stage_1_seeds >= {FEWEST_PAIRS_OF_A_STAGE}",
            str(stage_1_seeds),
            "use 5",
        )
    if not 0 < stage_1_alpha < alpha:
        _refuse(
            "stage_1_alpha must be smaller than the alpha of the whole study",
            f"0 < stage_1_alpha < {alpha:g}",
            str(stage_1_alpha),
            "use 0.01",
        )
    if planned_seeds != stage_1_seeds and planned_seeds < stage_1_seeds + FEWEST_PAIRS_OF_A_STAGE:
        _refuse(
            "the planned seeds fit neither stage 1 nor a second stage",
            f"seeds.count = {stage_1_seeds}, or at least {stage_1_seeds + FEWEST_PAIRS_OF_A_STAGE} once extended",
            str(planned_seeds),
            f"add at least {FEWEST_PAIRS_OF_A_STAGE} seeds in stage 2",
        )


@functools.lru_cache(maxsize=4096)
def combination_bound(stage_1_alpha: float, alpha: float) -> float:
    """c: the final test rejects at |Z| > c, so that both stages together err in `alpha` of null studies.

    Two-sided levels, 0 < stage_1_alpha < alpha. 2.005 for (0.01, 0.05).
    """
    left = alpha - stage_1_alpha
    return float(
        scipy.optimize.brentq(lambda c: final_probability(c, stage_1_alpha) - left, 0.0, _LARGEST_SCORE, xtol=1e-12)
    )


def final_probability(bound: float, stage_1_alpha: float) -> float:
    """P(|z_1| <= z(stage_1_alpha), |Z| > bound) under the null: the part of alpha that the final test spends."""
    z_1 = -float(scipy.special.ndtri(stage_1_alpha / 2))
    nodes, weights = _gauss_legendre()
    z = z_1 * nodes
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return float(2 * z_1 * np.sum(weights * density * scipy.special.ndtr(z - math.sqrt(2) * bound)))


def final_level(stage_1_alpha: float, alpha: float) -> float:
    """The two-sided level of |Z| > c: 0.045 for (0.01, 0.05)."""
    return 2 * float(scipy.special.ndtr(-combination_bound(stage_1_alpha, alpha)))


def normal_score(t: ArrayLike, degrees_of_freedom: int) -> NDArray[np.float64]:
    """z with the tail probability of t, elementwise: standard normal where t is Student's."""
    t = np.asarray(t, np.float64)
    tail = scipy.special.stdtr(degrees_of_freedom, -np.abs(t))
    return np.sign(t) * np.minimum(-scipy.special.ndtri(tail), _LARGEST_SCORE)


def combined_z(stage_1: ArrayLike, stage_2: ArrayLike, theta: float | NDArray[np.float64] = 0.0) -> NDArray[np.float64]:
    """Z of a mean of `theta` from paired differences [... seed] of the two stages (one unit for all).

    The leading axes of the stages agree; theta broadcasts against them. A stage without spread gives nan.
    """
    scores = []
    for stage in (stage_1, stage_2):
        values = np.asarray(stage, np.float64)
        count = values.shape[-1]
        standard_error = values.std(axis=-1, ddof=1) / math.sqrt(count)
        scores.append(normal_score((values.mean(axis=-1) - theta) / standard_error, count - 1))
    return (scores[0] + scores[1]) / math.sqrt(2)


def whole_p(z: float, stage_1_alpha: float, alpha: float) -> float:
    """The smallest alpha at which the final test rejects |Z| = |z|, stage 1 keeping its share stage_1_alpha / alpha."""
    share = stage_1_alpha / alpha

    def excess(whole: float) -> float:
        return share * whole + final_probability(abs(z), share * whole) - whole

    low = float(scipy.special.ndtr(-abs(z)))  # half of the final test's own two-sided p: never enough
    return float(scipy.optimize.brentq(excess, low, 1.0, xtol=1e-14)) if excess(1.0) < 0 < excess(low) else 1.0


def combination_interval(stage_1: Sequence[float], stage_2: Sequence[float], level: float) -> tuple[float, float]:
    """Every mean theta whose combination test at the two-sided `level` (of |Z| alone) does not reject; metric's unit.

    Neither stage may be constant.
    """
    bound = -float(scipy.special.ndtri(level / 2))
    one, two = (np.asarray(stage, np.float64) for stage in (stage_1, stage_2))
    means = float(one.mean()), float(two.mean())
    scale = max(float(one.std(ddof=1)), float(two.std(ddof=1)))

    def excess(theta: float, target: float) -> float:
        return float(combined_z(one, two, theta)) - target

    def solved(target: float) -> float:
        below, above = scale, scale
        while excess(min(means) - below, target) < 0:
            below *= 2
        while excess(max(means) + above, target) > 0:
            above *= 2
        # brentq needs an absolute tolerance in the metric's unit: far below the spread of either stage.
        return float(
            scipy.optimize.brentq(excess, min(means) - below, max(means) + above, args=(target,), xtol=1e-13 * scale)
        )

    return solved(bound), solved(-bound)


def one_sided_equivalence_score(stage_1: Sequence[float], stage_2: Sequence[float], margin: float) -> float:
    """The smaller Z of the two one-sided tests against means of -margin and +margin; `margin` in the metric's unit."""
    return min(float(combined_z(stage_1, stage_2, -margin)), -float(combined_z(stage_1, stage_2, margin)))


@functools.cache
def _gauss_legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.polynomial.legendre.leggauss(100)


def _refuse(what: str, expected: str, received: str, remedy: str) -> NoReturn:
    raise ParibusError(what, expected=expected, received=received, remedy=remedy)
