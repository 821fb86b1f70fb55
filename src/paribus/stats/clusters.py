"""One contrast at several scales: pooled by seed, since scales that share seeds are not independent.

Seed s names one set of documents in one order at every scale, so its differences D_ks at scales k share whatever that
seed was lucky with. The unit of replication stays the seed:

    M_s = mean over the scales k that have seed s of D_ks
    pooled mean = mean_s M_s, with a t interval on S - 1 degrees of freedom
    sign-flip: all differences of a seed keep or change their sign together (2^S flips)

Ten wins of ten at two scales are p = 2/2^10 = 0.002 only if all ten seeds differ. With five seeds shared by the two
scales it is 2/2^5 = 0.0625. Seeds that are to count as independent need different numbers at different scales.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paribus.errors import ParibusError
from paribus.stats import paired

Scales = Mapping[str, Mapping[int, float]]
"""scale -> seed -> treatment minus baseline"""


@dataclass(frozen=True)
class PooledScales:
    """A contrast over scales. It is a description beside the primary; the rule gives no word to it."""

    mean: float
    """over seeds of each seed's mean over scales"""
    standard_error: float
    degrees_of_freedom: int
    """seeds - 1, however many scales there are"""
    interval: tuple[float, float]
    confidence: float
    p_t: float
    p_sign_flip: float
    """whole seeds flipped"""
    wins: int
    """pairs, of `pairs`, in which the treatment is better"""
    pairs: int
    seeds: int
    """clusters: different seed numbers"""
    scales: tuple[str, ...]


def pooled_scales(
    by_scale: Scales,
    *,
    sign: int,
    confidence: float = 0.95,
    generator: np.random.Generator | None = None,
) -> PooledScales:
    """The pooled contrast; `sign` is +1 where higher values are better, -1 where lower values are.

    Every difference counts in the metric's own unit, which asks for a metric that means the same at every scale. A seed
    that a scale lacks counts with the scales that have it. `generator` is needed above 20 seeds, where flips are drawn.
    ParibusError below two scales or two seeds, for differences that are not finite, and where all means are identical.
    """
    values = list(seed_means(by_scale).values())
    test = paired.paired_t(values)
    differences = [difference for scale in by_scale.values() for difference in scale.values()]
    return PooledScales(
        mean=test.mean,
        standard_error=test.standard_error,
        degrees_of_freedom=test.degrees_of_freedom,
        interval=paired.t_interval(values, confidence),
        confidence=confidence,
        p_t=test.p_two_sided,
        p_sign_flip=paired.sign_flip_p(values, generator),
        wins=sum(difference * sign > 0 for difference in differences),
        pairs=len(differences),
        seeds=len(values),
        scales=tuple(by_scale),
    )


def seed_means(by_scale: Scales) -> dict[int, float]:
    """M_s of every seed, in ascending order; in the unit of the metric."""
    _check(by_scale)
    seeds = sorted({seed for scale in by_scale.values() for seed in scale})
    return {seed: float(np.mean([values[seed] for values in by_scale.values() if seed in values])) for seed in seeds}


def _check(by_scale: Scales) -> None:
    if len(by_scale) < 2 or not all(by_scale.values()):
        raise ParibusError(
            "a pooled contrast needs two scales",
            expected="at least two scales, each with differences by seed",
            received=", ".join(f"{scale}: {len(values)} seeds" for scale, values in by_scale.items()) or "none",
            remedy="run the contrast at another scale; one scale has its own verdict",
        )
    for scale, values in by_scale.items():
        lost = [seed for seed, difference in values.items() if not math.isfinite(difference)]
        if lost:
            raise ParibusError(
                f"scale {scale!r}: a difference is not finite",
                expected="finite differences",
                received=f"seeds {', '.join(map(str, lost))}",
                remedy="a diverged cell is never left out: nothing is pooled over scales where one diverged",
            )
