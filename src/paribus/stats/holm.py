"""Holm's step-down test, with the level at which each hypothesis was tested (Holm 1979)."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Holm:
    """The result, in the order in which the p values came."""

    adjusted: tuple[float, ...]
    """Adjusted p values: at most alpha exactly where rejected."""
    rejected: tuple[bool, ...]
    levels: tuple[float, ...]
    """The level at which the hypothesis was tested. An interval at 1 - level excludes the null value iff rejected."""


def holm(p_values: Sequence[float], alpha: float) -> Holm:
    """Test the i-th smallest of m p values at alpha / (m - i + 1) and stop at the first that fails.

    The ones behind the stop were never tested at a level of their own. Their matching level is the one at which
    testing stopped: their p values are no smaller than the one that failed there, so their intervals contain 0 too.
    """
    count = len(p_values)
    adjusted, rejected, levels = [0.0] * count, [False] * count, [0.0] * count
    running, stopped_at = 0.0, None
    for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        level = alpha / (count - rank)
        running = max(running, min(1.0, (count - rank) * p_values[index]))
        if stopped_at is None and p_values[index] > level:
            stopped_at = level
        adjusted[index], rejected[index] = running, stopped_at is None
        levels[index] = level if stopped_at is None else stopped_at
    return Holm(tuple(adjusted), tuple(rejected), tuple(levels))
