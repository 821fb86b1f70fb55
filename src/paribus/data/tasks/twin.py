"""Twin: fetch the colour that stood at the last occurrence of one's own id.

Source: task T1 of the project's wind tunnel; a recall task in the manner of associative recall (Ba et al. 2016;
Arora et al. 2023) in which the query is itself a record, so that the best match in the row is always oneself.

Definition. Every token carries an id and a colour, both uniform and independent: token = id x colours + colour. The
target is the colour (a token number below `colours`) at the most recent earlier place with the same id. A place whose
id is new to the row is not asked.

- overlap `free`: as above.
- overlap `never`: the colours are cut into a lower and an upper half. Each id begins in one of them by a fair coin and
  changes sides at each occurrence, so that the answer never equals the own colour.
- overlap `split`: each record is two tokens, the id (colours + id) and then its colour, and the question is put at the
  id. The own colour is the one that follows, which no reader has seen: the slices say how the two compare.

Chance: every colour is asked for equally often, ln colours. Floor: 0.

Shortcut of `free` and `split`, "a colour of the row": the best predictor that reads colours and places and no id. The
last occurrence is d records back with probability proportional to (1 - 1/ids)^(d - 1), whatever the colours are, so it
gives each colour the sum of those weights over the records that show it. Shortcut of `never`, "the other half": the own
colour tells the half of the answer, ln (colours / 2).

Slices: `same` where the answer equals the own colour (1 in `colours`; absent under `never`), `different` elsewhere.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from paribus.data.tasks.contract import Levels, Rows, Task, one_document, uniform_nats
from paribus.data.tasks.padding import refuse_short

SAME, DIFFERENT = 0, 1


class Twin(Task):
    """Fetch the colour that stood at the last occurrence of one's own id."""

    name: ClassVar[str] = "twin"
    title: ClassVar[str] = "fetch the twin's content"
    sentence: ClassVar[str] = (
        "Each token carries an id and a colour; asked is the colour at the last earlier place with the same id."
    )
    slices: ClassVar[tuple[str, ...]] = ("same", "different")
    primary: ClassVar[str] = "same-different"
    tiny: ClassVar[Mapping[str, Any]] = {"ids": 2, "colours": 2}
    tiny_row_length: ClassVar[int] = 4

    ids: int = Field(default=16, ge=2, le=4096)
    """different ids, 2 to 4,096; the last occurrence is on average this many records back"""
    colours: int = Field(default=8, ge=2, le=256)
    """different colours, 2 to 256; even where `overlap` is "never" """
    overlap: Literal["free", "never", "split"] = "free"
    """whether the answer may equal the own colour ("free"), never does ("never"), or comes as a token of its own after
    the id ("split")"""

    @model_validator(mode="after")
    def _halves(self) -> "Twin":
        if self.overlap == "never" and self.colours % 2:
            raise ValueError(f"overlap 'never' cuts the colours into two halves: {self.colours} colours are odd")
        return self

    @property
    def vocabulary_size(self) -> int:
        return self.colours + self.ids if self.overlap == "split" else self.ids * self.colours

    @property
    def least_row_length(self) -> int:
        return 3 if self.overlap == "split" else 2

    def rows(self, seed: int, step: NDArray[np.int64], row: NDArray[np.int64], row_length: int) -> Rows:
        records = self._records(row_length)
        draws = self.draws(seed, step, row)
        ids = draws.integers("id", self.ids, records)
        previous = _last_occurrence(ids, self.ids)
        if self.overlap == "never":
            first = np.take_along_axis(draws.integers("half", 2, self.ids), ids, axis=1)
            colours = draws.integers("colour", self.colours // 2, records)
            colours += _alternating(first, previous) * (self.colours // 2)
        else:
            colours = draws.integers("colour", self.colours, records)
        asked = previous >= 0
        targets = np.where(asked, np.take_along_axis(colours, np.maximum(previous, 0), axis=1), 0)
        slices = np.where(asked & (targets != colours), DIFFERENT, SAME)
        if self.overlap == "split":
            tokens = _interleaved(self.colours + ids, colours, row_length)
            previous = np.where(asked, 2 * previous + 1, -1)
            targets, slices = (_interleaved(a, np.zeros_like(a), row_length) for a in (targets, slices))
            asked = _interleaved(asked, np.zeros_like(asked), row_length)
            previous = _interleaved(previous, np.full_like(previous, -1), row_length)
        else:
            tokens = ids * self.colours + colours
        return Rows(
            tokens=tokens,
            targets=targets,
            asked=asked,
            slice=slices.astype(np.int16),
            floor_nats=np.zeros(tokens.shape),
            answer=previous,
            document=one_document(tokens.shape),
        )

    def levels(self, row_length: int) -> Mapping[str, Levels]:
        records = self._records(row_length)
        chance = uniform_nats(self.colours)
        if self.overlap == "never":
            return {"different": Levels(chance, 0.0, {"the other half": uniform_nats(self.colours // 2)})}
        # The own colour is independent of all that precedes it: the shortcut loses equally on both slices.
        levels = Levels(chance, 0.0, {"a colour of the row": _nats_without_ids(self.ids, self.colours, records)})
        return {"same": levels, "different": levels}

    def oracle(self, tokens: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        del seed  # nothing in the rows is fixed by the seed
        answers = np.full((*tokens.shape, self.vocabulary_size), 1 / self.vocabulary_size)
        for r, row in enumerate(tokens.tolist()):
            last: dict[int, int] = {}
            open_id = -1
            for t, token in enumerate(row):
                if self.overlap == "split":
                    if token < self.colours:
                        last[open_id] = token
                        continue
                    asked, colour = token - self.colours, -1
                    open_id = asked
                else:
                    asked, colour = divmod(token, self.colours)
                if asked in last:
                    answers[r, t] = 0
                    answers[r, t, last[asked]] = 1
                if colour >= 0:
                    last[asked] = colour
        return answers

    def _records(self, row_length: int) -> int:
        """How many records a row shows, the last of `split` perhaps without its colour."""
        refuse_short(self, row_length)
        return (row_length + 1) // 2 if self.overlap == "split" else row_length


def _last_occurrence(ids: NDArray[np.int64], kinds: int) -> NDArray[np.int64]:
    """Index of the most recent earlier occurrence of each id in its row, -1 where there is none: `[row record]`."""
    rows, records = ids.shape
    found = np.empty((records, rows), dtype=np.int64)
    last = np.full(rows * kinds, -1, dtype=np.int64)
    cell = (np.arange(rows) * kinds)[None, :] + ids.T
    for t in range(records):
        found[t] = last[cell[t]]
        last[cell[t]] = t
    return np.ascontiguousarray(found.T)


def _alternating(first: NDArray[np.int64], previous: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 or 1 by turns along the occurrences of an id, beginning with `first` (`[row record]`, read where new)."""
    side = first.copy()
    every = np.arange(len(side))
    for t in range(side.shape[1]):
        side[:, t] = np.where(previous[:, t] < 0, first[:, t], 1 - side[every, previous[:, t]])
    return side


def _interleaved(even: NDArray[Any], odd: NDArray[Any], row_length: int) -> NDArray[Any]:
    """`even` at the places 0, 2, ... and `odd` between them, cut to the row: `[row time]`."""
    return np.stack([even, odd], axis=-1).reshape(len(even), -1)[:, :row_length]


@cache
def _nats_without_ids(ids: int, colours: int, records: int) -> float:
    """Loss of the best predictor that reads colours and places but no id, over all asked places of a row.

    At the record after n others it gives the answer W = w_a + sum over d != a of w_d B_d, where a is the record that
    holds it (drawn by the weights w) and B_d says whether another record shows the same colour. The expectation of
    -ln W is the integral over x = ln s of E exp(-s W) - exp(-s) (Frullani), and E exp(-s W) is a sum of products. The
    trapezoid rule on a function that is analytic in a strip of half-width pi / 2 errs by exp(-pi^2 / 0.25) < 1e-16;
    what is cut off on the left is below exp(-24), on the right below 32 exp(-30).
    """
    s = np.exp(np.arange(-24.0, 32.0, 0.25))[:, None]
    total = weight = 0.0
    for n in range(1, records):
        w = (1 - 1 / ids) ** np.arange(n)
        seen = 1 - (1 - 1 / ids) ** n
        w /= w.sum()
        shown = np.log1p(np.expm1(-s * w) / colours)
        transform = np.sum(w * np.exp(-s * w + shown.sum(axis=1, keepdims=True) - shown), axis=1)
        total += seen * 0.25 * float(np.sum(transform - np.exp(-s[:, 0])))
        weight += seen
    return total / weight
