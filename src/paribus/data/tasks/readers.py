"""Readers that see one token of a row: what a task shows before it must be predicted, they find.

A reader knows the place t of a target and ONE token of the row, d places back or at a fixed place, and, where one token
of every row tells the slice, the slice. It is a table of frequencies learned on one half of some seeds and scored on
the other (one half is added to every count), so what a task keeps for one seed only is nothing that it could learn. No
reader may be better than the lowest loss that the task declares for a slice (chance and shortcuts): a target visible in
the row, a row shifted by one place or an undeclared shortcut all show here. Where slices depend on the answer, a bet on
one slice at the cost of another is a shortcut of that slice, to be declared as any other.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.data.tasks.contract import Levels, Task, sample
from paribus.seeds import stream_key

STANDARD_ERRORS = 4.0
"""how far below its declared level a reader must be to be a finding"""
_SEEDS, _ROWS_PER_SEED = 64, 128
_TARGETS_PER_KEY = 16


@dataclass(frozen=True)
class Leak:
    """A reader that knows more than the task admits."""

    slice: str
    clue: str
    """the token that it sees, in words"""
    nats: float
    """its loss on the slice, nats per target"""
    declared_nats: float
    """the lowest loss that the task declares"""


def one_token_leak(task: Task, row_length: int) -> Leak | None:
    """The best of the readers that beat what the task declares by STANDARD_ERRORS, None where there is none."""
    drawn = [
        sample(task, stream_key("task checks", "readers", s), 0, _ROWS_PER_SEED, row_length) for s in range(_SEEDS)
    ]
    tokens, targets, asked, labels = (
        np.concatenate([getattr(rows, name) for rows in drawn]) for name in ("tokens", "targets", "asked", "slice")
    )
    row, place = np.nonzero(asked)
    asks = _Asked(
        row=row, place=place, target=targets[row, place], label=labels[row, place].astype(np.int64),
        learning=row < len(tokens) // 2,
    )  # fmt: skip
    clues = list(_clues(tokens, row, place, task.vocabulary_size))
    keys = [place * (task.vocabulary_size + 1) + token for _, token in clues]
    visible = next((key for key in keys if _is_function(key, asks.label)), None)
    levels = {task.slices.index(name): _lowest(found) for name, found in task.levels(row_length).items()}
    leaks = []
    for (words, _), key in zip(clues, keys, strict=True):
        nats = asks.nats(key if visible is None else key * len(task.slices) + asks.label)
        for label, declared in levels.items():
            mean, error = asks.mean(nats, label)
            if mean < declared - STANDARD_ERRORS * error:
                leaks.append(Leak(slice=task.slices[label], clue=words, nats=mean, declared_nats=declared))
    return min(leaks, key=lambda leak: leak.nats - leak.declared_nats, default=None)


@dataclass(frozen=True)
class _Asked:
    """Every target of some rows, `[target]` each."""

    row: NDArray[np.int64]
    place: NDArray[np.int64]
    target: NDArray[np.int64]
    label: NDArray[np.int64]
    learning: NDArray[np.bool_]
    """whether a reader learns from it; it is scored on the others"""

    def nats(self, known: NDArray[np.int64]) -> NDArray[np.float64]:
        """Loss on every target of a table from what is `known` to the target, nats `[target]`."""
        answers, answer = np.unique(self.target, return_inverse=True)
        _, cell = np.unique(known, return_inverse=True)
        _, pair = np.unique(cell * len(answers) + answer, return_inverse=True)
        seen = np.bincount(pair[self.learning], minlength=pair.max() + 1)[pair] + 0.5
        total = np.bincount(cell[self.learning], minlength=cell.max() + 1)[cell] + 0.5 * len(answers)
        return np.log(total) - np.log(seen)

    def mean(self, nats: NDArray[np.float64], label: int) -> tuple[float, float]:
        """Mean over the scored targets of a slice and its standard error; nan where there is none."""
        scored = ~self.learning & (self.label == label)
        if not scored.any():
            return math.nan, math.nan
        mean = float(nats[scored].mean())
        # Targets of one row lean on each other: the row is the unit.
        by_row = np.bincount(self.row[scored], weights=nats[scored] - mean)
        return mean, float(np.sqrt((by_row**2).sum())) / int(scored.sum())


def _clues(
    tokens: NDArray[np.int64], row: NDArray[np.int64], place: NDArray[np.int64], nothing: int
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """What each reader sees of every target `[target]`: a token, or `nothing` where the place is before the row or
    behind the target."""
    for back in range(tokens.shape[1]):
        at = place - back
        yield f"the token {back} places back", np.where(at >= 0, tokens[row, at], nothing)
    for fixed in range(tokens.shape[1]):
        yield f"the token at place {fixed}", np.where(fixed <= place, tokens[row, fixed], nothing)


def _is_function(key: NDArray[np.int64], label: NDArray[np.int64]) -> bool:
    """Whether equal keys always come with equal labels, in so many targets of each key that it is no accident."""
    pairs = np.unique(np.stack([key, label]), axis=1)
    return len(np.unique(pairs[0])) == pairs.shape[1] <= len(key) / _TARGETS_PER_KEY


def _lowest(levels: Levels) -> float:
    return min(levels.chance, *levels.shortcuts.values()) if levels.shortcuts else levels.chance
