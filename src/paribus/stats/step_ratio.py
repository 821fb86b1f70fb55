"""How much longer a step takes, from mirrored blocks of turns on one host.

A block gives every arm two turns, the second in the reverse order of the first: A B B A, and with more arms
A B C C B A. All arms then have the same mean place in their block, so that any drift that is linear over a block
(clocks, temperature, a load that sets in) is in both arms' means and leaves the ratio of a block,

    r_b = ln((A_1 + A_2) / 2) - ln((B_1 + B_2) / 2)

The estimate is the median of r_b over blocks: a block that was disturbed counts as one block, however slow it was. Its
interval is the percentile bootstrap over whole blocks (Efron 1979), because two turns of a block are not independent.

A second copy of the baseline takes part (A/A). What the same program shows against itself is no difference between
programs: a ratio is only called slower or faster where its interval excludes 1 *and* it lies beyond both ends of the
A/A interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.curves import Interval
from paribus.stats.forms import Array
from paribus.stats.power import count_of

TURNS_OF_A_BLOCK = 2
"""of each arm"""
FEWEST_BLOCKS = 5
"""below it the interval would not even reach the outermost blocks' share of 95 %"""
DRAWS = 4000
"""resamples; the end of an interval moves by less than a fortieth of its width between generators (20 blocks)"""
TAIL = 0.025


class Reading(StrEnum):
    """What may be said of a ratio of times. No verdict word: times are facts about a machine."""

    SLOWER = "slower"
    FASTER = "faster"
    NOT_RESOLVED = "not resolved"


@dataclass(frozen=True)
class StepRatio:
    """Seconds per step of the treatment over those of the baseline; above 1 the treatment is slower."""

    blocks: int
    """in which both were timed"""
    log_ratio: float
    """median over blocks of ln(ratio); NaN where refused"""
    se_log_ratio: float
    """standard deviation of that median over resampled blocks"""
    log_interval: Interval
    """95 %"""
    again: "StepRatio | None" = None
    """A/A: the baseline's second copy over its first, from the same blocks"""
    refusal: str = ""
    notes: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        """turns of each arm"""
        return TURNS_OF_A_BLOCK * self.blocks

    @property
    def ratio(self) -> float:
        return math.exp(self.log_ratio)

    def interval(self) -> Interval | None:
        """95 % interval of the ratio; None where refused"""
        return None if self.refusal else (math.exp(self.log_interval[0]), math.exp(self.log_interval[1]))

    @property
    def half_width(self) -> float:
        """of the interval, as a relative difference; NaN where refused"""
        return (self.log_interval[1] - self.log_interval[0]) / 2

    @property
    def floor(self) -> float:
        """Largest |ln(ratio)| in the A/A interval: nothing nearer to 1 is claimed. Infinite without A/A."""
        if self.again is None or self.again.refusal:
            return math.inf
        return max(map(abs, self.again.log_interval))

    @property
    def reading(self) -> Reading:
        """The claim, which is refused where the interval holds 1 or the ratio lies within the A/A interval."""
        low, high = self.log_interval
        if self.refusal or low <= 0 <= high or abs(self.log_ratio) <= self.floor:
            return Reading.NOT_RESOLVED
        return Reading.SLOWER if low > 0 else Reading.FASTER

    def meets(self, target: float) -> bool:
        """Whether the upper end of the interval is at most the target plus half the A/A interval; never without A/A."""
        bounds, again = self.interval(), None if self.again is None else self.again.interval()
        return bounds is not None and again is not None and bounds[1] <= target + (again[1] - again[0]) / 2


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
    """The ratio of two columns of `seconds` [turn arm]; turns 2b and 2b + 1 are the two of block b.

    `again` is the column of a second baseline, timed like the others (A/A). NaN or None marks a time that is missing:
    its block is left out and said. Fewer than 5 blocks or several `hosts` [turn] come back as a refusal. Times that are
    not positive, an odd number of turns, or no such columns, are a ParibusError.
    """
    table = np.array(seconds, dtype=np.float64)
    columns = [column for column in (baseline, treatment, again) if column is not None]
    if table.ndim != 2 or len(table) % TURNS_OF_A_BLOCK or not all(0 <= c < table.shape[1] for c in columns):
        raise ParibusError(
            "times do not have the axes [turn arm]",
            expected=f"two axes, {TURNS_OF_A_BLOCK} turns a block and columns {columns}",
            received=f"shape {table.shape}",
            remedy="give one row for each turn, whole blocks, and one column for each arm",
        )
    if (table <= 0).any() or np.isinf(table).any():
        raise ParibusError(
            "a time is not a positive number of seconds",
            expected="finite, above 0, or NaN where it is missing",
            received=str(table[(table <= 0) | np.isinf(table)].tolist()),
            remedy="time the block again",
        )
    blocks = table.reshape(-1, TURNS_OF_A_BLOCK, table.shape[1]).mean(1)
    there = np.isfinite(blocks[:, columns]).all(1)
    notes = []
    if missing := int((~there).sum()):
        notes.append(f"{count_of(missing, 'block')} left out: a time is missing")
    logs = np.log(blocks[there])
    refusal = require_one_host(hosts) if hosts is not None else ""
    if not refusal and len(logs) < FEWEST_BLOCKS:
        refusal = (
            f"{count_of(len(logs), 'block')} of times; a ratio needs at least {FEWEST_BLOCKS}, which are "
            f"{TURNS_OF_A_BLOCK * FEWEST_BLOCKS} rounds"
        )
    if refusal:
        return StepRatio(len(logs), math.nan, math.nan, (math.nan, math.nan), None, refusal, tuple(notes))
    same = None if again is None else _median(logs[:, again] - logs[:, baseline])
    if same is not None and not same.log_interval[0] <= 0 <= same.log_interval[1]:
        notes.append(
            f"the baseline against itself takes {same.ratio:.4f}x the time: the blocks tell the same program apart, "
            "and no ratio as near to 1 is claimed"
        )
    return _median(logs[:, treatment] - logs[:, baseline], same, tuple(notes))


def _median(values: Array, again: StepRatio | None = None, notes: tuple[str, ...] = ()) -> StepRatio:
    """Median, its bootstrap standard error and percentile interval."""
    below, above = _middle_ranks(len(values))
    ordered = np.sort(values)
    medians = (ordered[below] + ordered[above]) / 2
    low, high = np.quantile(medians, [TAIL, 1 - TAIL])
    return StepRatio(
        len(values), float(np.median(values)), float(medians.std()), (float(low), float(high)), again, notes=notes
    )


@cache
def _middle_ranks(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each resample of `count` blocks, the ranks [draw] of the one or two in its middle. They depend on no value."""
    drawn = np.sort(generator("step ratio", "bootstrap", count).integers(0, count, (DRAWS, count)), axis=1)
    return drawn[:, (count - 1) // 2], drawn[:, count // 2]
