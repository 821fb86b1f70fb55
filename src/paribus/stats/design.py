"""One design with one standard deviation: what it would see, and the seeds that it would need.

Effects and standard deviations are in the unit of the metric here; `paribus.stats.power` works in units of the sd.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy

from paribus.seeds import generator
from paribus.stats.extension import combination_bound, combined_z
from paribus.stats.power import (
    equivalence_power,
    rule_power,
    seeds_needed,
    seeds_needed_for_equivalence,
    seen_effect_sd,
)


@dataclass(frozen=True)
class DesignPower:
    """What a design with one sd of the paired difference can and cannot do; effects in the unit of the metric."""

    seen_effect: float
    """The smallest effect called better (or worse) with 80 % power by the whole rule."""
    seen_effect_sd: float
    """The same in units of the sd."""
    at_design_effect: float
    """Power of the whole rule at a true effect of the design effect."""
    at_smallest_effect: float
    """Power of the whole rule at a true effect of exactly the smallest effect; at most 1/2."""
    equivalence: float
    """Power of equivalence at a true 0."""
    seeds_for_design_effect: int | None
    """Fewest seeds for 80 % at the design effect; None where 10,000 are too few."""
    seeds_for_equivalence: int | None
    """Fewest seeds for 80 % power of equivalence at a true 0; None where 10,000 are too few."""


def design_power(
    seeds: int, smallest_effect: float, design_effect: float, sd: float, confidence: float = 0.95
) -> DesignPower:
    """Power of `seeds` (at least 3) pairs whose difference has this sd; effects and sd in the unit of the metric.

    `confidence` is that of the interval that decides: 1 - the nominal level of a look. The seeds that are needed are
    those of a study decided at that same level.
    """
    margin, effect = smallest_effect / sd, design_effect / sd
    seen = seen_effect_sd(seeds, margin, confidence=confidence)
    return DesignPower(
        seen_effect=seen * sd,
        seen_effect_sd=seen,
        at_design_effect=rule_power(seeds, effect, margin, confidence),
        at_smallest_effect=rule_power(seeds, margin, margin, confidence),
        equivalence=equivalence_power(seeds, margin, 0.0, confidence),
        seeds_for_design_effect=seeds_needed(effect, margin, confidence=confidence),
        seeds_for_equivalence=seeds_needed_for_equivalence(margin, confidence=confidence),
    )


SIMULATED_STUDIES = 20_000
"""For the power of two stages; its standard error is at most 0.36 percentage points."""


def two_stage_power(
    stage_1_seeds: int, seeds: int, effect_sd: float, margin_sd: float, stage_1_alpha: float, alpha: float = 0.05
) -> float:
    """Power of the whole rule over both stages of a declared extension to `seeds` pairs in all, by simulation.

    Effect and margin are in units of the sd. Better at stage 1 stands; else the combination test and the mean of all
    pairs decide. The same draws serve every effect and margin, so powers are comparable to better than their error.
    """
    rng = generator("power", "two stages", stage_1_seeds, "differences", str(seeds))
    gains = rng.standard_normal((SIMULATED_STUDIES, seeds)) + effect_sd
    first = gains[:, :stage_1_seeds]
    mean_1, error_1 = first.mean(1), first.std(1, ddof=1) / math.sqrt(stage_1_seeds)
    t_1 = -float(scipy.special.stdtrit(stage_1_seeds - 1, stage_1_alpha / 2))
    at_stage_1 = (mean_1 > t_1 * error_1) & (mean_1 >= margin_sd)
    z = combined_z(first, gains[:, stage_1_seeds:])
    at_the_end = (z > combination_bound(stage_1_alpha, alpha)) & (gains.mean(1) >= margin_sd)
    return float(np.mean(at_stage_1 | at_the_end))
