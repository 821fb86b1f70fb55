"""The learning curve of one slice of a synthetic task, in a few numbers (rules of evidence, section 8).

The data of a task never repeat, so the training loss of an update is a test loss, and the whole curve may be used:

    area = mean over updates u with targets of e_u      e_u: excess loss, nats per target: loss minus best predictor's

Every update counts equally, however many targets of the slice its rows happened to hold. The area depends on the
budget, which belongs beside it. A milestone is a short window that ends at a mark of the run, and a window weights its
updates by their targets: its loss is that of all its targets together. A hypothesis about a mechanism is the difference
of two slices, the one on which it must act minus the one on which it must not, so that what merely speeds everything up
cancels.

Arrays are `[update]` of one cell and one slice. An update without a target of the slice has no loss: NaN.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paribus.errors import ParibusError

Array = NDArray[np.float64]

MARKS = (1 / 3, 2 / 3, 1.0)
"""Shares of the run at which milestones end: a sign may change twice on the way."""

MILESTONE_SHARE = 1 / 24
"""Of the run, that a milestone averages over; at least one update."""

WINDOWS = 80
"""Of the smoothed curve, where the run has as many updates."""

DEPENDS = "depends on the learning rate"


@dataclass(frozen=True)
class Milestone:
    """The excess loss in a window that ends at a mark of the run."""

    update: int
    """updates finished at its end"""
    updates: int
    """in the window"""
    excess: float | None
    """Nats per target, weighted by targets; None where the window holds no target."""


@dataclass(frozen=True, eq=False)
class Windows:
    """A smoothed curve; every array is `[window]`."""

    ends: NDArray[np.int64]
    """updates finished at the end of each"""
    excess: Array
    """nats per target, weighted by targets; NaN where a window holds no target"""
    targets: NDArray[np.int64]


@dataclass(frozen=True)
class SliceDifference:
    """Acted slice minus control slice of one cell, in nats per target."""

    area: float
    milestones: tuple[Milestone, ...]


@dataclass(frozen=True)
class RateDifference:
    """A contrast at a multiple of the learning rate, in the unit of the metric."""

    factor: float
    """of the learning rate, such as 0.5"""
    mean: float
    interval: tuple[float, float] | None
    """None where the seeds show no spread: it excludes nothing then"""


def area(excess: ArrayLike, targets: ArrayLike) -> float:
    """Area under the full curve divided by the budget, nats per target: the mean of the updates that have targets.

    `excess` and `targets` are [update]. ParibusError where no update has a target.
    """
    values, counts = checked(excess, targets)
    return float(values[counts > 0].mean())


def milestones(excess: ArrayLike, targets: ArrayLike, marks: Sequence[float] = MARKS) -> tuple[Milestone, ...]:
    """The excess loss, nats per target, in the 1/24 of the run that ends at each of `marks` (shares of the run).

    `excess` and `targets` are [update]. ParibusError for a mark outside (0, 1].
    """
    values, counts = checked(excess, targets)
    if not all(0 < mark <= 1 for mark in marks):
        raise ParibusError(
            "a milestone lies outside the run",
            expected="marks above 0 and at most 1, as shares of the run",
            received=str(tuple(marks)),
            remedy="use 1/3, 2/3 and 1",
        )
    found = []
    for mark in marks:
        end = max(1, math.floor(mark * len(values) + 0.5))
        start = max(0, end - max(1, math.floor(len(values) * MILESTONE_SHARE)))
        weights = counts[start:end]
        mean = float(values[start:end][weights > 0] @ weights[weights > 0] / weights.sum()) if weights.any() else None
        found.append(Milestone(end, end - start, mean))
    return tuple(found)


def windows(excess: ArrayLike, targets: ArrayLike, count: int = WINDOWS) -> Windows:
    """At most `count` consecutive windows of equal length, of which the last may be shorter.

    `excess` and `targets` are [update]. A run of at most `count` updates has one update a window.
    """
    values, counts = checked(excess, targets)
    if count < 1:
        raise ParibusError(
            "a curve has no windows",
            expected="at least 1 window",
            received=str(count),
            remedy=f"use {WINDOWS}",
        )
    length = math.ceil(len(values) / count)
    starts = np.arange(0, len(values), length)
    totals = np.add.reduceat(counts, starts)
    nats = np.add.reduceat(np.where(counts > 0, values * counts, 0.0), starts)
    means = np.divide(nats, totals, out=np.full(len(starts), np.nan), where=totals > 0)
    return Windows(np.minimum(starts + length, len(values)), means, totals)


def difference_of_slices(
    acted_excess: ArrayLike,
    acted_targets: ArrayLike,
    control_excess: ArrayLike,
    control_targets: ArrayLike,
    marks: Sequence[float] = MARKS,
) -> SliceDifference:
    """Acted slice minus control slice of one cell, nats per target: of the areas, and of every milestone.

    All four are [update] of the same run. Each slice is averaged over the updates that have targets of it. A milestone
    at which either has none is None.
    """
    acted, control = np.shape(acted_excess), np.shape(control_excess)
    if acted != control:
        raise ParibusError(
            "two slices are not of one run",
            expected="as many updates in both",
            received=f"shapes {acted} and {control}",
            remedy="give both slices of the same cell",
        )
    pairs = zip(
        milestones(acted_excess, acted_targets, marks), milestones(control_excess, control_targets, marks), strict=True
    )
    return SliceDifference(
        area(acted_excess, acted_targets) - area(control_excess, control_targets),
        tuple(
            Milestone(a.update, a.updates, None if a.excess is None or c.excess is None else a.excess - c.excess)
            for a, c in pairs
        ),
    )


def depends_on_rate(differences: Sequence[RateDifference]) -> str:
    """ "depends on the learning rate" where the sign of a contrast does, else empty.

    Only differences whose interval excludes 0 have a sign; it must be both + and - among them. An empty answer says
    that no reversal was resolved, not that there is none. ParibusError below two different rates.
    """
    factors = [difference.factor for difference in differences]
    if len(differences) < 2 or len(set(factors)) != len(factors):
        raise ParibusError(
            "nothing says whether a difference depends on the learning rate",
            expected="one difference at each of at least two learning rates",
            received=f"factors {factors}",
            remedy="run every arm at 0.5, 1 and 2 times its learning rate",
        )
    signs = set()
    for difference in differences:
        interval = difference.interval
        if not math.isfinite(difference.mean) or (interval and not interval[0] <= difference.mean <= interval[1]):
            raise ParibusError(
                f"the difference at {difference.factor:g} times the learning rate is malformed",
                expected="a finite mean inside its interval",
                received=f"mean {difference.mean}, interval {interval}",
                remedy="leave out a rate at which cells diverged, and say so beside the differences",
            )
        if interval and (interval[0] > 0 or interval[1] < 0):
            signs.add(math.copysign(1, difference.mean))
    return DEPENDS if len(signs) > 1 else ""


def checked(excess: ArrayLike, targets: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    """`excess` as float64 and `targets` as int64, both [update].

    ParibusError unless they are of the same updates, some update has targets, counts are whole and not negative, and
    the excess is finite exactly where there are targets and NaN elsewhere.
    """
    values, given = np.asarray(excess, np.float64), np.asarray(targets)
    if values.ndim != 1 or values.shape != given.shape:
        raise ParibusError(
            "excess losses and targets are of other updates",
            expected="two arrays [update] of equal length",
            received=f"shapes {values.shape} and {given.shape}",
            remedy="give one excess loss and one number of targets for every update of the run",
        )
    if not np.isfinite(given).all() or (given < 0).any() or (given != np.floor(given)).any():
        raise ParibusError(
            "a number of targets is no count",
            expected="whole numbers, 0 or above",
            received=str(given[~(np.isfinite(given) & (given >= 0) & (given == np.floor(given)))][:5].tolist()),
            remedy="count the targets of the slice in every update",
        )
    counts = given.astype(np.int64)
    if not counts.any():
        raise ParibusError(
            "no update has a target of this slice",
            expected="at least one update with targets",
            received=f"{len(counts)} updates without",
            remedy="leave the slice out, or choose knobs under which it has targets",
        )
    wrong = np.flatnonzero(np.where(counts > 0, ~np.isfinite(values), ~np.isnan(values)))
    if len(wrong):
        first = int(wrong[0])
        raise ParibusError(
            "an excess loss does not fit its number of targets",
            expected="finite where there are targets, NaN where there are none",
            received=f"{values[first]} with {counts[first]} targets at update {first + 1}; {len(wrong)} such updates",
            remedy="a diverged cell has no learning curve: say that its seed diverged instead",
        )
    return values, counts
