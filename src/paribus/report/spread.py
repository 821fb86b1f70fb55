"""What may be said of a number that several seeds read: its mean, and a t interval that describes and decides nothing.

No word, no p value and no family: diagnostics and interventions never get one (rules of evidence, section 2).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from paribus.report.content import DiagnosticValue
from paribus.report.numbers import significant
from paribus.stats.paired import constant, t_interval
from paribus.stats.rounding import MISSING, decimals_for, fixed

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Spread:
    """The mean over seeds with its t interval; None below two seeds, or where all seeds read the same."""

    mean: float
    interval: tuple[float, float] | None
    seeds: int


def over_seeds(values: Sequence[float]) -> Spread:
    """Mean and 95 % t interval of one number a seed."""
    known = len(values) > 1 and bool(np.isfinite(values).all()) and not constant(values)
    return Spread(float(np.mean(values)), t_interval(values, CONFIDENCE) if known else None, len(values))


def mean_over_layers(values: Iterable[DiagnosticValue]) -> dict[int, float]:
    """By seed: the mean over layers of one reading of one arm."""
    seeds: dict[int, list[float]] = defaultdict(list)
    for value in values:
        seeds[value.seed].append(value.value)
    return {seed: float(np.mean(read)) for seed, read in sorted(seeds.items())}


def by_layer(values: Iterable[DiagnosticValue]) -> dict[int, float]:
    """By layer: the mean over seeds of one reading of one arm."""
    layers: dict[int, list[float]] = defaultdict(list)
    for value in values:
        layers[value.layer].append(value.value)
    return {layer: float(np.mean(read)) for layer, read in sorted(layers.items())}


def written(spread: Spread) -> tuple[str, str]:
    """Mean and interval to the digits that the interval's width supports; a dash where there is no interval."""
    if spread.interval is None:
        return significant(spread.mean), MISSING
    low, high = spread.interval
    # One digit of the half width, but two of a mean that lies close to 0.
    digits = max(decimals_for((high - low) / 2) - 1, decimals_for(abs(spread.mean), otherwise=0))
    return fixed(spread.mean, digits), f"{fixed(low, digits)} to {fixed(high, digits)}"


def mean_error(errors: Iterable[float | None]) -> str:
    """Standard errors over documents, averaged over seeds; a dash where none is known."""
    known = [error for error in errors if error is not None]
    return significant(float(np.mean(known)), 2) if known else MISSING
