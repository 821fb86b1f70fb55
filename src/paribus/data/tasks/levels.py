"""Whether chance and floor of a task are those of its rows: with the knobs and the row length that a study uses.

Chance is what predicting nothing but how often each answer is asked for costs. Frequencies that are counted on some
thousand targets are themselves uncertain: scored on the same targets they cost too little, scored on other seeds too
much, to first order alike, so the true loss lies between the two and their common standard error.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.data.tasks.contract import Levels, Task
from paribus.data.tasks.faults import broken, refuse_leak
from paribus.data.tasks.readers import (
    LEAST_UNITS,
    SEEDS_AT_FULL_SIZE,
    STANDARD_ERRORS_AT_FULL_SIZE,
    Asked,
    draw,
    one_distance_leak,
)

NEGLIGIBLE_NATS = 0.01
"""how far a level may be off whatever the standard error, which sees nothing of events too rare to be drawn"""


@dataclass(frozen=True)
class Frequencies:
    """What predicting nothing but how often each answer is asked for costs on one slice, nats per target."""

    low: float
    """of frequencies scored on the targets that they were counted on: too low by what they fit of chance"""
    high: float
    """of frequencies scored on other seeds: too high by as much"""
    standard_error: float
    """of either, with seeds as the independent units"""

    def admit(self, nats: float) -> bool:
        """Whether the loss may be `nats`, within STANDARD_ERRORS_AT_FULL_SIZE and NEGLIGIBLE_NATS."""
        slack = STANDARD_ERRORS_AT_FULL_SIZE * self.standard_error + NEGLIGIBLE_NATS
        return self.low - slack <= nats <= self.high + slack


def frequencies(asks: Asked, label: int, *, own: bool) -> Frequencies | None:
    """Of the answers of all targets, or of the slice's `own`, scored on the slice; None with too few targets."""
    here = asks.label == label
    if len(np.unique(asks.seed[here])) < LEAST_UNITS:
        return None
    counted = here if own else np.ones_like(here)
    answers, answer = np.unique(asks.target, return_inverse=True)
    count = np.bincount(answer[counted], minlength=len(answers))
    share = np.bincount(answer[here], minlength=len(answers)) / here.sum()
    with np.errstate(divide="ignore"):  # answers that nobody counted are not scored either
        nats = -np.log(count / count.sum())
    low = float(nats[answer[here]].mean())
    # What each target adds to the mean, and, by the frequencies that it is counted into, to all others: first order.
    scored = np.bincount(asks.seed[here], weights=nats[answer[here]] - low, minlength=SEEDS_AT_FULL_SIZE)
    moved = 1 - share[answer[counted]] * count.sum() / count[answer[counted]]
    fitted = np.bincount(asks.seed[counted], weights=moved, minlength=SEEDS_AT_FULL_SIZE)
    by_seed = scored / here.sum() + fitted / count.sum()
    high = 0.0
    for learning in (asks.learning, ~asks.learning):
        seen = np.bincount(answer[counted & learning], minlength=len(answers)) + 0.5 * (count > 0)
        high += float((np.log(seen.sum()) - np.log(seen[answer[here & ~learning]])).sum()) / int(here.sum())
    return Frequencies(low, high, float(np.sqrt((by_seed**2).sum())))


def mean_floor(asks: Asked, label: int) -> tuple[float, float] | None:
    """Mean of the best predictor's loss on a slice and its standard error; None with too few targets to say."""
    here = asks.label == label
    if len(np.unique(asks.seed[here])) < LEAST_UNITS:
        return None
    mean = float(asks.floor_nats[here].mean())
    by_seed = np.bincount(asks.seed[here], weights=asks.floor_nats[here] - mean)
    return mean, float(np.sqrt((by_seed**2).sum())) / int(here.sum())


def check_levels(task: Task, row_length: int) -> None:
    """Raise CorpusError where rows of `row_length` tokens do not cost what `levels` says.

    That is chance and floor of every slice, by some thousand targets; and no token of a row may say more of a target
    than the task declares.
    """
    drawn, levels = draw(task, row_length), task.levels(row_length)
    check_labels(task, drawn.asks.label, levels)
    answers = np.unique(drawn.asks.target)
    if len(answers) == 1:
        raise broken(
            task,
            f"every target is the token {answers[0]}",
            "at least two different answers",
            remedy="ask for something that a model has to find out",
        )
    for name, level in levels.items():
        _check_chance(task, drawn.asks, name, level.chance)
        _check_floor(task, drawn.asks, name, level.floor)
    refuse_leak(task, one_distance_leak(task, row_length, drawn))


def check_labels(task: Task, labels: NDArray[np.integer], levels: Mapping[str, Levels]) -> None:
    """Raise CorpusError where one of the slices of some targets has no levels."""
    for label in np.unique(labels).tolist():
        if not 0 <= label < len(task.slices) or task.slices[label] not in levels:
            name = f" ('{task.slices[label]}')" if 0 <= label < len(task.slices) else ""
            raise broken(
                task,
                "a target lies in a slice that `levels` does not name",
                ", ".join(f"{task.slices.index(each)} ('{each}')" for each in levels),
                received=f"{label}{name}",
                remedy="label targets by their index in `slices`, and give levels to every slice that occurs",
            )


def _check_chance(task: Task, asks: Asked, name: str, chance: float) -> None:
    """By the frequencies over all targets, or by the slice's own, whichever the task means."""
    if chance == 0:
        raise broken(
            task,
            f"on slice '{name}' there is nothing to learn",
            "a chance above 0",
            received="chance = 0",
            remedy="ask for more than one answer there, or leave it unasked",
        )
    label = task.slices.index(name)
    pooled, own = frequencies(asks, label, own=False), frequencies(asks, label, own=True)
    if pooled is None or own is None or pooled.admit(chance) or own.admit(chance):
        return
    raise broken(
        task,
        f"chance on slice '{name}' is not the loss of how often each answer is asked for",
        f"{pooled.high:.3f} nats by frequencies over all targets, or {own.high:.3f} by those of the slice "
        f"(standard errors {pooled.standard_error:.3f} and {own.standard_error:.3f})",
        received=f"{chance:.3f} nats",
        remedy="correct `levels`: of n answers that are equally often asked for it is `uniform_nats(n)`, whatever the "
        "size of the vocabulary",
    )


def _check_floor(task: Task, asks: Asked, name: str, floor: float) -> None:
    measured = mean_floor(asks, task.slices.index(name))
    if measured is None:
        return
    mean, error = measured
    # A floor that is itself simulated has an error of its own, taken to be no larger: hence the root of two.
    if abs(mean - floor) > math.sqrt(2) * STANDARD_ERRORS_AT_FULL_SIZE * error + NEGLIGIBLE_NATS:
        raise broken(
            task,
            f"the floor of slice '{name}' is not the mean of `floor_nats`",
            f"{mean:.3f} nats, the mean of `floor_nats` there (standard error {error:.3f})",
            received=f"{floor:.3f} nats",
            remedy="correct `levels`, or `floor_nats` of the rows",
        )
