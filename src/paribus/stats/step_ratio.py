"""How much longer a step takes, from interleaved rounds on one host.

Every round times each arm once, so that what drifts between rounds (clocks, temperature, other load) is in both and
leaves the ratio of a round. Of the n log ratios the g = 0.2 n largest and smallest are trimmed (rounded down, at least
one), which leaves h = n - 2g. Their mean has the standard error

    se = sqrt(SSD_w / (h (h - 1)))        SSD_w: sum of squared deviations of all n after winsorising

with t on h - 1 degrees of freedom (Tukey and McLaughlin 1963). One slow round moves it no further than the next one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from paribus.errors import ParibusError
from paribus.stats.curves import Interval
from paribus.stats.forms import Array
from paribus.stats.paired import t_critical
from paribus.stats.power import count_of

FEWEST_ROUNDS = 5
TRIMMED_SHARE = 0.2


@dataclass(frozen=True)
class StepRatio:
    """Seconds per step of the treatment over those of the baseline; above 1 the treatment is slower."""

    rounds: int
    """Rounds in which both were timed."""
    log_ratio: float
    """Trimmed mean over rounds of ln(ratio); NaN where refused"""
    se_log_ratio: float
    """of `log_ratio`, over rounds"""
    degrees_of_freedom: int
    mean_log_ratio: float
    """Of all rounds, beside the trimmed one: far from it where some rounds were disturbed."""
    again_log_ratio: float | None = None
    """A/A: the baseline's second column over its first, trimmed likewise; 0 but for what the clock cannot tell apart"""
    again_se_log_ratio: float | None = None
    refusal: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """exp of the trimmed mean"""
        return math.exp(self.log_ratio)

    def interval(self, confidence: float = 0.95) -> Interval | None:
        """of the ratio; None where refused"""
        if self.refusal:
            return None
        half = t_critical(self.degrees_of_freedom, confidence) * self.se_log_ratio
        return math.exp(self.log_ratio - half), math.exp(self.log_ratio + half)


def require_one_host(hosts: Sequence[str]) -> str:
    """Why times from these hosts [round or cell] may not be compared; empty where all come from one."""
    distinct = sorted(set(hosts))
    if not distinct or not all(distinct):
        return "no host was recorded for some of the times: seconds are compared on one host only"
    if len(distinct) > 1:
        return (
            f"the times come from {len(distinct)} hosts ({', '.join(distinct)}): seconds are compared on one host only"
        )
    return ""


def step_ratio(
    seconds: ArrayLike,
    baseline: int,
    treatment: int,
    *,
    again: int | None = None,
    hosts: Sequence[str] | None = None,
) -> StepRatio:
    """The ratio of two columns of `seconds` [round arm] of interleaved rounds.

    `again` is the column of a second baseline, timed like the others (A/A). NaN or None marks a time that is missing:
    its round is left out and said. Fewer than 5 rounds or several hosts come back as a refusal. Times that are not
    positive, or no such columns, are a ParibusError.
    """
    table = np.array(seconds, dtype=np.float64)
    columns = [column for column in (baseline, treatment, again) if column is not None]
    if table.ndim != 2 or not all(0 <= column < table.shape[1] for column in columns):
        raise ParibusError(
            "times do not have the axes [round arm]",
            expected=f"two axes and columns {columns}",
            received=f"shape {table.shape}",
            remedy="give one row for each interleaved round and one column for each arm",
        )
    if (table <= 0).any() or np.isinf(table).any():
        raise ParibusError(
            "a time is not a positive number of seconds",
            expected="finite, above 0, or NaN where it is missing",
            received=str(table[(table <= 0) | np.isinf(table)].tolist()),
            remedy="time the round again",
        )
    notes = []
    there = np.isfinite(table[:, columns]).all(1)
    if missing := int((~there).sum()):
        notes.append(f"{count_of(missing, 'round')} left out: a time is missing")
    logs = np.log(table[there])
    ratios = logs[:, treatment] - logs[:, baseline]
    refusal = require_one_host(hosts) if hosts is not None else ""
    if not refusal and len(ratios) < FEWEST_ROUNDS:
        refusal = f"{count_of(len(ratios), 'round')} of times; a ratio needs at least {FEWEST_ROUNDS} interleaved ones"
    if refusal:
        nan = math.nan
        return StepRatio(len(ratios), nan, nan, 0, nan, refusal=refusal, notes=tuple(notes))
    mean, error, freedom = _trimmed(ratios)
    again_mean, again_error = None, None
    if again is not None:
        again_mean, again_error, _ = _trimmed(logs[:, again] - logs[:, baseline])
        if abs(again_mean) > t_critical(freedom, 0.95) * again_error:
            notes.append(
                f"the baseline against itself takes {math.exp(again_mean):.4f}x the time: "
                "the rounds tell the same program apart, so no ratio nearer to 1 than this means anything"
            )
    plain = float(ratios.mean())
    return StepRatio(len(ratios), mean, error, freedom, plain, again_mean, again_error, notes=tuple(notes))


def _trimmed(values: Array) -> tuple[float, float, int]:
    """Trimmed mean, its standard error and degrees of freedom."""
    count = len(values)
    cut = max(1, math.floor(TRIMMED_SHARE * count))
    ordered = np.sort(values)
    winsorised = np.clip(ordered, ordered[cut], ordered[count - cut - 1])
    left = count - 2 * cut
    error = math.sqrt(float(((winsorised - winsorised.mean()) ** 2).sum()) / (left * (left - 1)))
    return float(ordered[cut : count - cut].mean()), error, left - 1
