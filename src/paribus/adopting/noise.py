"""A difference beside a public figure of noise: how many sd of a difference of two runs it is, and what it would take.

Two independent runs of one arm with standard deviation s differ with sd sqrt(2) s. Nobody publishes how strongly paired
runs move together, so the sd of a paired difference is assumed to be sqrt(2) s as well: pairing can only help. The
figure belongs to the recipe it was measured on, so it never makes a claim; it can only take one away.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from paribus.adopting.mapping import Metric
from paribus.stats.power import DEFAULT_POWER, count_of, seeds_needed

CONFIDENCE = 0.95
MAX_PAIRS = 100_000


@dataclass(frozen=True)
class NoiseReading:
    """One contrast's mean difference, in units of a public figure."""

    mean_difference: float
    """treatment minus baseline, unit of the metric"""
    pairs: int
    sd_of_difference: float
    """sqrt 2 times the public sd of one run, unit of the metric"""
    source: str
    in_sd: float
    """|mean difference| over sd_of_difference"""
    within_noise: bool
    """whether two runs of one arm differ by more in over 5 % of cases: |mean| <= 1.96 sd_of_difference / sqrt(pairs)"""
    pairs_needed_observed: int | None
    """pairs that tell a true difference of this size from 0 with power 80 %; None above MAX_PAIRS"""
    pairs_needed_design: int | None
    """pairs that find the design effect by the whole rule with power 80 %"""
    sentence: str


def read_noise(differences: Sequence[float], metric: Metric) -> NoiseReading | None:
    """The reading; None where the mapping gives no figure or no difference is there. Differences in metric units."""
    if metric.noise_sd is None or metric.noise_source is None or not differences:
        return None
    pairs, mean = len(differences), float(np.mean(differences))
    sd = math.sqrt(2.0) * metric.noise_sd
    in_sd = abs(mean) / sd
    critical = float(scipy.special.ndtri((1 + CONFIDENCE) / 2))
    observed = seeds_needed(in_sd, 0.0, max_seeds=MAX_PAIRS) if mean else None
    design = seeds_needed(metric.design_effect / sd, metric.smallest_effect / sd, max_seeds=MAX_PAIRS)
    runs = "" if metric.noise_runs is None else f" over {metric.noise_runs} runs"
    sentence = (
        f"The difference of {mean:+.3g} is {in_sd:.2f} sd of a difference of two runs ({sd:.3g}), by a public figure: "
        f"sd of one run {metric.noise_sd:g} {metric.unit}{runs} ({metric.noise_source}). If it holds here (assumed), "
        f"{_needed(observed)} would tell a true difference of this size from 0, and {_needed(design)} would find one "
        f"of {metric.design_effect:g} by the whole rule, each with power {100 * DEFAULT_POWER:.0f} %."
    ).replace(" -", " \N{MINUS SIGN}")
    within = in_sd <= critical / math.sqrt(pairs)
    return NoiseReading(mean, pairs, sd, metric.noise_source, in_sd, within, observed, design, sentence)


def _needed(pairs: int | None) -> str:
    return "no practical number of pairs" if pairs is None else count_of(pairs, "pair")
