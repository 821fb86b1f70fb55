"""Conversations in rows of one length, none of them cut: best fit with padding, as nanochat packs for fine-tuning.

A row has `context_length` + 1 places, so that each of its first `context_length` has a target. From a buffer of the
next conversations, always full while there are more, the longest that still fits is put into the row, among equals the
one that came first; where none fits, the rest of the row is padding. Bin packing with a bounded look-ahead; every
conversation is in exactly one row, whole.
"""

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.data.order import Batch
from paribus.downstream.chat.dataset import ChatData
from paribus.errors import ParibusError


@dataclass(frozen=True)
class Layout:
    """Which conversations each row holds."""

    entries: NDArray[np.int64]
    """`[entry]`: positions in the order that was laid out, row after row"""
    start: NDArray[np.int64]
    """`[row + 1]`: first entry of each row"""
    padding: int
    """places that hold no token of a conversation"""

    def __len__(self) -> int:
        return len(self.start) - 1


def lay_out(lengths: NDArray[np.integer], capacity: int, buffer: int) -> Layout:
    """Rows of `capacity` places for conversations of these lengths, `[conversation]`, in their order.

    ParibusError for a conversation that is empty or longer than a row.
    """
    wrong = np.flatnonzero((lengths < 1) | (lengths > capacity))
    if len(wrong):
        raise ParibusError(
            "a conversation does not fit into a row",
            expected=f"1 to {capacity} tokens",
            received=f"{lengths[wrong[0]]} tokens",
            remedy="truncate or drop conversations that are too long",
        )
    arrived: Iterator[tuple[int, int]] = ((int(length), -place) for place, length in enumerate(lengths))
    waiting: list[tuple[int, int]] = []  # ascending; of equal lengths the first arrival stands last
    entries: list[int] = []
    start = [0]
    _refill(waiting, arrived, buffer)
    while waiting:
        left = capacity
        while waiting:
            place = bisect_right(waiting, (left, 1)) - 1
            if place < 0:
                break
            length, arrival = waiting.pop(place)
            entries.append(-arrival)
            left -= length
            _refill(waiting, arrived, buffer)
        start.append(len(entries))
    used = int(np.asarray(lengths, dtype=np.int64).sum())
    return Layout(np.array(entries, np.int64), np.array(start, np.int64), (len(start) - 1) * capacity - used)


def _refill(waiting: list[tuple[int, int]], arrived: Iterator[tuple[int, int]], buffer: int) -> None:
    while len(waiting) < buffer and (following := next(arrived, None)) is not None:
        insort(waiting, following)


class ChatBatches:
    """The batches of one fine-tuning: `batch(step)` is a pure function of the data and the order.

    The last batch may lack rows; they are padding from end to end, so that all batches have one shape.
    """

    slices: tuple[str, ...] = ()

    def __init__(
        self,
        data: ChatData,
        order: NDArray[np.int64],
        *,
        bos: int,
        context_length: int,
        rows_per_batch: int,
        buffer: int,
    ) -> None:
        self.context_length, self.rows_per_batch = context_length, rows_per_batch
        self._data, self._order, self._bos = data, order, bos
        self.layout = lay_out(data.lengths[order], context_length + 1, buffer)

    @property
    def steps(self) -> int:
        """Batches that hold every row once."""
        return -(-len(self.layout) // self.rows_per_batch)

    def require(self, steps: int) -> None:
        """ParibusError where there are fewer batches."""
        if steps > self.steps:
            raise ParibusError(
                "the mixture does not fill as many updates as the file asks for",
                expected=f"training.updates of at most {self.steps}",
                received=str(steps),
                remedy="lower it, or give parts more epochs",
            )

    def conversations(self, row: int) -> NDArray[np.int64]:
        """Numbers of the conversations in a row, in their order."""
        return self._order[self.layout.entries[self.layout.start[row] : self.layout.start[row + 1]]]

    def batch(self, step: int) -> Batch:
        """Tokens [row time] of update `step`, from 0; `weight` is 1 where the target is learnt, else 0. `document` is
        the number of the conversation in its row, `slice` the part that it is from; padding is a conversation of its
        own."""
        shape = (self.rows_per_batch, self.context_length + 1)
        tokens = np.full(shape, self._bos, dtype=np.int64)
        learnt = np.zeros(shape, dtype=np.float32)
        document = np.zeros(shape, dtype=np.int32)
        part = np.zeros(shape, dtype=np.int16)
        first = step * self.rows_per_batch
        for row in range(first, min(first + self.rows_per_batch, len(self.layout))):
            at, place = row - first, 0
            for count, number in enumerate(self.conversations(row)):
                ids, mask = self._data.conversation(number)
                span = slice(place, place + len(ids))
                tokens[at, span], learnt[at, span] = ids, mask
                document[at, span], part[at, span] = count, self._data.part[number]
                place += len(ids)
                document[at, place:] = count + 1
        return Batch(tokens[:, :-1], tokens[:, 1:], learnt[:, 1:].copy(), document[:, :-1].copy(), part[:, 1:].copy())
