"""What a task is: rows of tokens with targets whose difficulty, shortcuts and best possible answer are known.

A task is a pure function of (seed, step, row). Its rows are never stored and never repeat, so the training loss of a
step is a test loss. A task file holds, top to bottom: docstring (source, definition, chance, floor, shortcuts, slices)
· frozen knobs with a sentence each · `rows` · the known losses · `oracle`. Nothing here knows mechanisms: which sign a
contrast is expected to have on a slice is declared by the experiment.

Losses are nats per target.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from paribus.data.tasks.hashing import Draws

ALL = "all"
"""every target, whatever its slice; no slice may be called so"""


@dataclass(frozen=True)
class Rows:
    """Some rows of a task. Every array is `[row time]`."""

    tokens: NDArray[np.int64]
    """what the model reads"""
    targets: NDArray[np.int64]
    """what it must predict after the token at the same place; 0 where it need not"""
    asked: NDArray[np.bool_]
    """whether the target counts"""
    slice: NDArray[np.int16]
    """index in the task's `slices` of each target that counts; 0 elsewhere"""
    floor_nats: NDArray[np.float64]
    """-ln p of the target under the best predictor of this task; 0 where the row determines the answer"""
    answer: NDArray[np.int64]
    """place of the token from which the target can be read, -1 where there is no single one"""
    document: NDArray[np.int32]
    """which example of the row a place belongs to, from 0; padding at the end counts as one more"""


ROUNDING = 1e-9
"""nats per target by which chance must lie above the floor for a slice to hold anything that can be acquired"""
_AT_THE_FLOOR = 0.05
"""of chance - floor: nearer to the floor than that an arm sits on it (`paribus.stats.plateaus`)"""


@dataclass(frozen=True)
class Levels:
    """The losses on one slice that need no training to know."""

    chance: float
    """of predicting nothing but how often each answer is asked for, counted over seeds: over the targets of this slice
    where the tokens up to the place show which slice it is, over all targets where that is part of the answer; in
    expectation, nats per target, above 0"""
    floor: float
    """of the best predictor, in expectation"""
    shortcuts: Mapping[str, float]
    """of predictors that solve a part, by what they do, in words such as "any content of the row" """

    @property
    def teaches(self) -> bool:
        """Whether there is anything to acquire: chance lies above the floor, by more than rounding."""
        return self.chance - self.floor > ROUNDING

    @property
    def threshold(self) -> float:
        """Below it a slice counts as acquired: half-way from the floor to chance, and below every shortcut.

        Where a shortcut is as low as that, it is half-way from the floor to the lowest one: whoever found the shortcut
        has not acquired the slice. A shortcut at the floor solves the slice and is no other way to it.
        """
        span = self.chance - self.floor
        lowest = min((at for at in self.shortcuts.values() if at > self.floor + _AT_THE_FLOOR * span), default=None)
        half = self.floor + span / 2
        return half if lowest is None or half < lowest else self.floor + (lowest - self.floor) / 2


@dataclass(frozen=True)
class Learnt:
    """What a loss on a slice amounts to in a unit of what is learnt there, such as bits of a table; linear in it."""

    unit: str
    """in words that follow a number, such as "bits of the table" """
    whole: float
    """all there is to learn: what a loss of 0 amounts to"""
    per_nat: float
    """how much less each nat per target amounts to, above 0"""

    def amount(self, nats_per_target: float) -> float:
        """What a model with this loss has learnt; below 0 where it is worse than knowing nothing."""
        return self.whole - self.per_nat * nats_per_target


class Task(BaseModel):
    """Knobs of a task, and what follows from them. Subclasses are found by their `name`."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    name: ClassVar[str]
    title: ClassVar[str]
    """a few words, such as "fetch the twin's content" """
    sentence: ClassVar[str]
    """what a row is and what is asked, in one sentence"""
    slices: ClassVar[tuple[str, ...]]
    """names of the parts that the targets fall into, each target into one; letters, digits and "_" only"""
    primary: ClassVar[str]
    """the slice that a claim is about, or "acted-control": the difference of two"""
    tiny: ClassVar[Mapping[str, Any]]
    """knobs of an instance so small that all of its rows can be enumerated"""
    tiny_row_length: ClassVar[int]
    """its row length, in tokens"""

    @property
    def vocabulary_size(self) -> int:
        """Token ids are 0..vocabulary_size-1; targets are tokens too."""
        raise NotImplementedError

    @property
    def least_row_length(self) -> int:
        """The shortest row that holds one example, in tokens."""
        raise NotImplementedError

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        """The rows numbered `row` of the steps numbered `step` (both `[row]`), each a function of its own numbers."""
        raise NotImplementedError

    def levels(self, row_length: int) -> Mapping[str, Levels]:
        """Of each slice that has targets in rows of this length, in the order of `slices`: as these rows show them,
        with these knobs, within sampling error. `paribus.data.tasks.checks` compares some thousand targets."""
        raise NotImplementedError

    def learnt(self) -> Mapping[str, Learnt]:
        """By slice, the unit in which a report says beside the loss what was learnt; empty where the loss says all."""
        return {}

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        """Probability of every token after every place, `[row time vocab]`, by the best predictor, from the tokens up
        to that place alone. Written from the definition, one row at a time; only checks and tests run it, and a task
        need not have one.

        `tokens` are whole rows as `rows` draws them, never rows cut short: an oracle may read where the example ends
        off the row length. `seed` is the one that they were drawn with.

        Places where nothing is asked may hold anything.
        """
        raise NotImplementedError

    def draws(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64]) -> Draws:
        """The random numbers of some rows."""
        return Draws.of(seed, step, row)

    def describe(self, row_length: int) -> dict[str, Any]:
        """What a report needs without the task's code, as JSON types."""
        return {
            "name": self.name,
            "title": self.title,
            "sentence": self.sentence,
            "primary": self.primary,
            "knobs": self.model_dump(mode="json"),
            "order": list(self.levels(row_length)),
            "slices": {
                name: {
                    "chance": found.chance,
                    "floor": found.floor,
                    "threshold": found.threshold,
                    "shortcuts": dict(found.shortcuts),
                }
                for name, found in self.levels(row_length).items()
            },
        }


def sample(task: Task, seed: int, step: int, rows: int, row_length: int) -> Rows:
    """The first `rows` rows of a step. Row i depends on (seed, step, i) alone."""
    number = np.arange(rows, dtype=np.int64)
    return task.rows(seed, np.full(rows, step, dtype=np.int64), number, row_length)


def one_document(shape: tuple[int, int]) -> NDArray[np.int32]:
    """`document` of rows that are one example each, without padding."""
    return np.zeros(shape, dtype=np.int32)


def uniform_nats(choices: int) -> float:
    """ln of the number of equally likely answers."""
    return math.log(choices)
