"""Readers that see one token of a row: what a task shows before it must be predicted, they find.

A reader knows the place t of a target and ONE token of the row, d places back or at a fixed place, and, where one token
of every row tells the slice, the slice. It is a table of frequencies learned on one half of some seeds and scored on
the other (one half is added to every count), so what a task keeps for one seed only is nothing that it could learn. No
reader may be better than the lowest loss that the task declares for a slice (chance and shortcuts): a target visible in
the row, a row shifted by one place or an undeclared shortcut all show here. Where slices depend on the answer, a bet on
one slice at the cost of another is a shortcut of that slice, to be declared as any other.

In rows of a tiny instance a reader has a table for every place. In rows of full size there are too few targets for
that: there it has one table for all places, which still finds every answer that stands at one distance or one place;
and as tables with gaps bet by accident, slices that depend on the answer are compared all together.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from paribus.data.tasks.contract import ALL, Levels, Task, sample
from paribus.seeds import generator, stream_key

STANDARD_ERRORS = 4.0
"""how far below its declared level a reader must be to be a finding"""
STANDARD_ERRORS_AT_FULL_SIZE = 5.0
"""the same where rows are long, and with them the readers many"""
SEEDS_AT_FULL_SIZE = 128
_SEEDS, _ROWS_PER_SEED = 64, 128
_TARGETS_PER_SEED, _MOST_ROWS_PER_SEED = 48, 48
"""at full size"""
_MOST_TARGETS = 8192
"""of those at full size that one-token readers see: what they cost grows with rows times places"""
LEAST_UNITS = 16
"""rows or seeds that must hold a target of a slice before a standard error over them means anything"""
_TARGETS_PER_KEY = 16


@dataclass(frozen=True)
class Leak:
    """A reader that knows more than the task admits."""

    slice: str
    """or ALL"""
    clue: str
    """the token that it sees, in words"""
    nats: float
    """its loss on the slice, nats per target"""
    declared_nats: float
    """the lowest loss that the task declares"""


@dataclass(frozen=True)
class Drawn:
    """Rows of many seeds, and every target of them."""

    tokens: NDArray[np.int64]
    """`[row time]`"""
    asks: "Asked"


def draw(task: Task, row_length: int) -> Drawn:
    """A few thousand targets of the task, each seed with as many rows as that takes."""
    first = sample(task, stream_key("task checks", "levels", 0), 0, _MOST_ROWS_PER_SEED, row_length)
    per_row = max(first.asked.mean() * row_length, 1 / _MOST_ROWS_PER_SEED)
    rows = min(math.ceil(_TARGETS_PER_SEED / per_row), _MOST_ROWS_PER_SEED)
    return _drawn(task, row_length, "levels", SEEDS_AT_FULL_SIZE, rows)


def one_token_leak(task: Task, row_length: int) -> Leak | None:
    """The best of the readers that beat what the task declares by STANDARD_ERRORS, None where there is none."""
    drawn = _drawn(task, row_length, "readers", _SEEDS, _ROWS_PER_SEED)
    clues = list(_clues(drawn.tokens, drawn.asks.row, drawn.asks.place, task.vocabulary_size))
    keys = [drawn.asks.place * (task.vocabulary_size + 1) + token for _, token in clues]
    return _best_leak(task, row_length, drawn.asks, [words for words, _ in clues], keys, STANDARD_ERRORS)


def one_distance_leak(task: Task, row_length: int, drawn: Drawn) -> Leak | None:
    """The same in rows of full size, by readers with one table for all places: what knobs or lengths that differ from
    those of the tiny instance give away."""
    count = len(drawn.asks.target)
    few = generator("task checks", "targets").permutation(count)[:_MOST_TARGETS]
    asks = Asked(**{field.name: getattr(drawn.asks, field.name)[few] for field in fields(Asked)})
    clues = list(_clues(drawn.tokens, asks.row, asks.place, task.vocabulary_size))
    words, keys = [words for words, _ in clues], [token for _, token in clues]
    return _best_leak(task, row_length, asks, words, keys, STANDARD_ERRORS_AT_FULL_SIZE, bets=False)


def _best_leak(
    task: Task,
    row_length: int,
    asks: "Asked",
    words: list[str],
    keys: list[NDArray[np.int64]],
    standard_errors: float,
    *,
    bets: bool = True,
) -> Leak | None:
    """Without `bets` slices that no token tells apart are compared all together."""
    visible = next((key for key in keys if _is_function(key, asks.label)), None)
    levels = {task.slices.index(name): _lowest(found) for name, found in task.levels(row_length).items()}
    groups = {task.slices[label]: (asks.label == label, declared) for label, declared in levels.items()}
    if visible is None and not bets:
        scored = asks.label[~asks.learning]
        mean = sum(declared * float((scored == label).mean()) for label, declared in levels.items())
        groups = {ALL: (np.ones_like(asks.learning), mean)}
    leaks = []
    for clue, key in zip(words, keys, strict=True):
        nats = asks.nats(key if visible is None else key * len(task.slices) + asks.label)
        for name, (here, declared) in groups.items():
            mean, error = asks.mean(nats, here)
            if mean < declared - standard_errors * error:
                leaks.append(Leak(slice=name, clue=clue, nats=mean, declared_nats=declared))
    return min(leaks, key=lambda leak: leak.nats - leak.declared_nats, default=None)


def _drawn(task: Task, row_length: int, purpose: str, seeds: int, rows_per_seed: int) -> Drawn:
    drawn = [sample(task, stream_key("task checks", purpose, s), 0, rows_per_seed, row_length) for s in range(seeds)]
    tokens, targets, asked, labels, floor = (
        np.concatenate([getattr(rows, name) for rows in drawn])
        for name in ("tokens", "targets", "asked", "slice", "floor_nats")
    )
    row, place = np.nonzero(asked)
    asks = Asked(
        seed=row // rows_per_seed, row=row, place=place, target=targets[row, place],
        label=labels[row, place].astype(np.int64), floor_nats=floor[row, place], learning=row < len(tokens) // 2,
    )  # fmt: skip
    return Drawn(tokens, asks)


@dataclass(frozen=True)
class Asked:
    """Every target of some rows, `[target]` each."""

    seed: NDArray[np.int64]
    """number of the seed that it was drawn with"""
    row: NDArray[np.int64]
    place: NDArray[np.int64]
    target: NDArray[np.int64]
    label: NDArray[np.int64]
    floor_nats: NDArray[np.float64]
    """its loss under the best predictor"""
    learning: NDArray[np.bool_]
    """whether a reader learns from it; it is scored on the others"""

    def nats(self, known: NDArray[np.int64]) -> NDArray[np.float64]:
        """Loss on every target of a table from what is `known` to the target, nats `[target]`."""
        answers, answer = np.unique(self.target, return_inverse=True)
        cell = _compact(known)
        pair = _compact(cell * len(answers) + answer)
        seen = np.bincount(pair[self.learning], minlength=pair.max() + 1)[pair] + 0.5
        total = np.bincount(cell[self.learning], minlength=cell.max() + 1)[cell] + 0.5 * len(answers)
        return np.log(total) - np.log(seen)

    def mean(self, nats: NDArray[np.float64], here: NDArray[np.bool_]) -> tuple[float, float]:
        """Mean over the scored targets among those `here` and its standard error; nan where there are too few."""
        scored = ~self.learning & here
        if len(np.unique(self.row[scored])) < LEAST_UNITS:
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
    kinds = int(label.max()) + 1
    keys, pairs = (np.count_nonzero(np.bincount(_compact(values))) for values in (key, key * kinds + label))
    return keys == pairs <= len(key) / _TARGETS_PER_KEY


def _compact(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers from 0 that are equal where the values are, small enough to be counted in a table."""
    return values if values.max() < 8 * len(values) else np.unique(values, return_inverse=True)[1]


def _lowest(levels: Levels) -> float:
    return min(levels.chance, *levels.shortcuts.values()) if levels.shortcuts else levels.chance
