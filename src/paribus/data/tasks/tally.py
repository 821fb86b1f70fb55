"""Tally: how often has one's own symbol stood in the row so far?

Source: task T2 of the project's wind tunnel; a running form of the histogram task of Weiss, Goldberg and Yahav (2021,
"Thinking like Transformers").

Definition. Symbols are uniform and independent. The target at every symbol is the number of times that it has stood in
the row up to and including its own place, at most `classes`, as a token number: min(count, classes) - 1. With `anchor`
a token of its own opens the row; nothing is asked there.

All levels of a slice are losses of one predictor for all targets, scored on the targets of that slice: to which slice
a target belongs is part of the answer, so a predictor cannot adapt to it.

Chance: the frequency of each class over the row, exact (the count after n other symbols is 1 + Binomial(n, 1/symbols)).
Floor: 0. Shortcut "the place alone": the frequency of each class at each place. With 16 symbols, 8 classes and 64
places these are 1.82 and 1.50 nats over all targets.

Slices: `one` (first occurrence), `few` (second and third), `many` (fourth and later). The claim of this task is about
when a behaviour appears, not where, so its primary is all targets together.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from paribus.data.tasks.contract import ALL, Levels, Rows, Task, one_document
from paribus.data.tasks.padding import refuse_short

FEW, MANY = 2, 4
"""least count of the second and of the third slice"""


class Tally(Task):
    """How often one's own symbol has stood in the row so far."""

    name: ClassVar[str] = "tally"
    title: ClassVar[str] = "count yourself"
    sentence: ClassVar[str] = (
        "Each token is a symbol; asked is how often it has stood in the row so far, itself included, up to a ceiling."
    )
    slices: ClassVar[tuple[str, ...]] = ("one", "few", "many")
    primary: ClassVar[str] = ALL
    tiny: ClassVar[Mapping[str, Any]] = {"symbols": 2, "classes": 3}
    tiny_row_length: ClassVar[int] = 5

    symbols: int = Field(default=16, ge=2, le=4096)
    """different symbols, 2 to 4,096; more than the width of the model entangles their embeddings"""
    classes: int = Field(default=8, ge=2, le=256)
    """counts told apart, 2 to 256; the last means this many or more"""
    anchor: bool = False
    """whether a token that is no symbol opens the row: a fixed thing to compare the count with"""

    @property
    def vocabulary_size(self) -> int:
        return max(self.symbols, self.classes) + int(self.anchor)

    @property
    def least_row_length(self) -> int:
        return 1 + int(self.anchor)

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        symbols = self.draws(seed, step, row).integers("symbol", self.symbols, self._symbols(row_length))
        counts = _running_counts(symbols, self.symbols)
        tokens = symbols
        if self.anchor:
            tokens = np.insert(symbols, 0, self.vocabulary_size - 1, axis=1)
            counts = np.insert(counts, 0, 0, axis=1)
        asked = counts > 0
        return Rows(
            tokens=tokens,
            targets=np.where(asked, np.minimum(counts, self.classes) - 1, 0),
            asked=asked,
            slice=_slice_of(counts).astype(np.int16),
            floor_nats=np.zeros(tokens.shape),
            answer=np.full(tokens.shape, -1, dtype=np.int64),
            document=one_document(tokens.shape),
        )

    def levels(self, row_length: int) -> Mapping[str, Levels]:
        return _levels(self.symbols, self.classes, self._symbols(row_length))

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        del seed  # nothing in the rows is fixed by the seed
        answers = np.zeros((*tokens.shape, self.vocabulary_size))
        for r, row in enumerate(tokens.tolist()):
            for t, symbol in enumerate(row):
                answers[r, t, min(row[: t + 1].count(symbol), self.classes) - 1] = 1
        return answers

    def _symbols(self, row_length: int) -> int:
        """How many symbols a row holds."""
        refuse_short(self, row_length)
        return row_length - int(self.anchor)


def _running_counts(symbols: NDArray[np.int64], kinds: int) -> NDArray[np.int64]:
    """How often each symbol has stood in its row up to and including its own place: `[row time]`."""
    rows, places = symbols.shape
    counts = np.empty((places, rows), dtype=np.int64)
    so_far = np.zeros(rows * kinds, dtype=np.int64)
    cell = (np.arange(rows) * kinds)[None, :] + symbols.T
    for t in range(places):
        so_far[cell[t]] += 1
        counts[t] = so_far[cell[t]]
    return np.ascontiguousarray(counts.T)


def _slice_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 for a count of one (or none), 1 for two and three, 2 from four on."""
    return (counts >= FEW).astype(np.int64) + (counts >= MANY)


@cache
def _levels(symbols: int, classes: int, places: int) -> Mapping[str, Levels]:
    """Exact losses, from the distribution of the count at each place."""
    probability = np.zeros((places, places + 1))
    """`[place count]`"""
    probability[0, 1] = 1
    for t in range(1, places):
        # One more symbol: it is the own one with probability 1 / symbols.
        probability[t] = probability[t - 1] * (1 - 1 / symbols)
        probability[t, 1:] += probability[t - 1, :-1] / symbols
    count = np.arange(places + 1)
    answer = np.minimum(count, classes) - 1
    by_place = np.zeros((places, classes))
    np.add.at(by_place.T, answer[1:], probability[:, 1:].T)
    with np.errstate(divide="ignore"):  # classes that no place can show are never scored
        nats_by_place, nats = -np.log(by_place)[:, answer], -np.log(by_place.mean(axis=0))[answer]
    found = {}
    for index, name in enumerate(Tally.slices):
        weight = np.where(_slice_of(count) == index, probability, 0)
        here = weight > 0
        if here.any():
            chance = np.average(np.broadcast_to(nats, weight.shape)[here], weights=weight[here])
            place = np.average(nats_by_place[here], weights=weight[here])
            found[name] = Levels(float(chance), 0.0, {"the place alone": float(place)})
    return found
