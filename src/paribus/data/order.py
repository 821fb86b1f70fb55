"""Which tokens the model sees at which step: a pure function of (study, scale, seed, step).

The documents of the train split are put in an order drawn for the seed and laid out in rows (`paribus.data.packing`);
the rows are permuted again, so that the rows of one long document, or rows that a packing made alike, do not meet in
one batch. A corpus is read once, or as many times as the experiment declares, each time in other orders. No state
passes between calls, so restarts, world size, micro-batches and arms cannot change a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from paribus.data.frozen import FrozenCorpus
from paribus.data.packing import Packing, Pieces, Rows, Waste, lay_out, shuffled
from paribus.errors import CorpusError
from paribus.seeds import generator


@dataclass(frozen=True)
class Batch:
    """What one step reads; every array is `[row time]`."""

    tokens: NDArray[np.int64]
    targets: NDArray[np.int64]
    """The token that follows."""
    weight: NDArray[np.float32]
    """0 where the target only marks the beginning of another document (or is padding), else 1."""
    document: NDArray[np.int32]
    """Index of the document within the row, from 0."""
    slice: NDArray[np.int16]
    """Index of the document's source in the corpus' sorted sources; of a task, of the target's slice."""

    def rows(self, start: int, stop: int) -> Self:
        """Rows `start` to `stop` (excluded) as a batch of the same kind; nothing is copied."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: None if array is None else array[start:stop] for name, array in arrays.items()})


@runtime_checkable
class Batches(Protocol):
    """Which tokens the model sees at which step: a pure function of (study, scale, seed, step)."""

    context_length: int
    rows_per_batch: int
    slices: tuple[str, ...]
    """parts of the targets whose training loss is kept apart; empty for text"""

    def require(self, steps: int) -> None: ...

    def batch(self, step: int) -> Batch: ...


def micro_batches(batch: Batch, rows: int) -> Iterator[Batch]:
    """The batch in parts of `rows` rows, in order; the last may have fewer. Raises CorpusError for rows < 1."""
    if rows < 1:
        raise CorpusError("a micro-batch needs at least one row", expected="rows >= 1", received=str(rows))
    for start in range(0, len(batch.tokens), rows):
        yield batch.rows(start, start + rows)


def share_of(rows: int, rank: int, world_size: int) -> range:
    """The rows of a batch that one of `world_size` processes reads: consecutive, and at most one more than another.

    Raises CorpusError for a rank outside 0 to world_size - 1, and where a process would be left without a row.
    """
    if not 0 <= rank < world_size:
        raise CorpusError(
            "no such process", expected="0 <= rank < world size", received=f"rank {rank} of world size {world_size}"
        )
    if world_size > rows:
        raise CorpusError(
            "more processes than rows in a batch",
            expected=f"at most {rows} processes",
            received=str(world_size),
            remedy="use fewer devices, or declare larger batches for every arm alike",
        )
    return range(rank * rows // world_size, (rank + 1) * rows // world_size)


@dataclass(frozen=True)
class _Epoch:
    rows: Rows
    permuted: NDArray[np.integer]
    """`[row]`"""


class Order:
    """The training batches of one (study, scale, seed), shared by its arms.

    Arguments: the frozen corpus; `context_length` in tokens; `rows_per_batch`; the names that key the order; the
    packing; `epochs`, how many times the corpus may be read.

    Memory: 18 bytes a document for its place, length and source, and for an epoch 12 bytes a document and 4 a row
    with `stream`, 4 bytes a document and 8 a row with `best-fit`. Up to two epochs are kept, so that a batch at the
    border of two costs no more than another. The tokens themselves stay on the disk.

    Time: an epoch is laid out when a batch first needs it, `best-fit` in about a microsecond a document. How many rows
    it has with `best-fit` is known only then, so a late step of several epochs lays the earlier ones out as well.
    """

    def __init__(
        self,
        frozen: FrozenCorpus,
        context_length: int,
        rows_per_batch: int,
        *,
        study: str,
        scale: str,
        seed: int,
        packing: Packing = "stream",
        epochs: int = 1,
    ) -> None:
        if context_length < 1 or rows_per_batch < 1:
            raise CorpusError(
                "a batch needs at least one row of one token",
                expected="context_length >= 1, rows_per_batch >= 1",
                received=f"context_length {context_length}, rows_per_batch {rows_per_batch}",
            )
        if epochs < 1:
            raise CorpusError("a corpus is read at least once", expected="epochs >= 1", received=str(epochs))
        self.context_length = context_length
        self.rows_per_batch = rows_per_batch
        self.slices: tuple[str, ...] = ()
        self.packing: Packing = packing
        self.epochs = epochs
        """how many times the corpus may be read; see `passes` for how many times a run reads it"""
        train = frozen.split("train")
        # A view without the memory map's class: every look-up in that class costs more than the look-up.
        self._tokens = np.asarray(train.tokens)
        self._offset, self._lengths = train.documents.offset, train.documents.tokens
        self._source = train.documents.source
        self._bos_id = frozen.bos_id
        self._key = (study, scale, seed, "order")
        self._kept: dict[int, _Epoch] = {}
        self._counted: dict[int, int] = {}
        self._rows_in(0)

    @property
    def batches(self) -> int:
        """How many steps the declared epochs last; a rest of less than a batch is not used."""
        return sum(self._rows_in(epoch) for epoch in range(self.epochs)) // self.rows_per_batch

    def passes(self, steps: int) -> float:
        """How many times a run of that many steps reads the corpus; more than 1 where data repeats."""
        read, begun = steps * self.rows_per_batch, 0
        for epoch in range(self.epochs):
            count = self._rows_in(epoch)
            if read <= begun + count:
                return epoch + (read - begun) / count if count else 0.0
            begun += count
        raise self._too_small(steps)

    def waste(self, epoch: int = 0) -> Waste:
        """What the packing wastes in one epoch of this order."""
        return self._epoch(epoch).rows.waste()

    def require(self, steps: int) -> None:
        """Raise CorpusError where a run of that many steps would need more data than the declared epochs hold."""
        missing = steps * self.rows_per_batch
        for epoch in range(self.epochs):
            missing -= self._rows_in(epoch)
            if missing <= 0:
                return
        raise self._too_small(steps)

    def batch(self, step: int) -> Batch:
        """The batch of the step, counted from 0. Raises CorpusError for a step the declared epochs do not reach."""
        return self._rows(step, range(self.rows_per_batch))

    def rows_of(self, step: int, rank: int, world_size: int) -> Batch:
        """What one of `world_size` processes reads of the step's batch: its rows in order, and no other's.

        The processes' parts, one after the other by rank, are `batch(step)`. Raises CorpusError as `batch` does, for a
        rank that is none, and for more processes than rows.
        """
        return self._rows(step, share_of(self.rows_per_batch, rank, world_size))

    def _rows(self, step: int, within: range) -> Batch:
        if step < 0:
            raise CorpusError("steps count from 0", expected="a step >= 0", received=str(step))
        self.require(step + 1)
        begin, end = (step * self.rows_per_batch + row for row in (within.start, within.stop))
        found: list[Pieces] = []
        for epoch in range(self.epochs):
            count = self._rows_in(epoch)
            if begin < count:
                chosen = self._epoch(epoch)
                found.append(chosen.rows.pieces(chosen.permuted[max(begin, 0) : end]))
            begin, end = begin - count, end - count
            if end <= 0:
                break
        return self._read(found)

    def _read(self, found: list[Pieces]) -> Batch:
        document, first, slots, per_row = (
            np.concatenate([getattr(pieces, name) for pieces in found])
            for name in ("document", "first", "slots", "per_row")
        )
        shape = (len(per_row), self.context_length + 1)
        # Slot s of the rows, read one after the other, is slot s + shift of its document, and its token stands one
        # before: slot 0 of a document is the mark of its beginning.
        shift = first - (np.cumsum(slots) - slots)
        slot = np.arange(shape[0] * shape[1])
        begins = slot == np.repeat(-shift, slots)
        place = slot + np.repeat(self._offset[document] + shift - 1, slots)
        place[begins] = 0
        stream = self._tokens[place].astype(np.int64)
        stream[begins] = self._bos_id
        stream, begins = stream.reshape(shape), begins.reshape(shape)
        within = np.arange(len(document)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
        return Batch(
            tokens=stream[:, :-1],
            targets=stream[:, 1:],
            weight=np.where(begins[:, 1:], np.float32(0), np.float32(1)),
            document=np.repeat(within.astype(np.int32), slots).reshape(shape)[:, :-1],
            slice=np.repeat(self._source[document], slots).reshape(shape)[:, :-1],
        )

    def _rows_in(self, epoch: int) -> int:
        # The stream's length does not depend on its order.
        epoch = 0 if self.packing == "stream" else epoch
        if epoch not in self._counted:
            self._counted[epoch] = self._epoch(epoch).rows.count
        return self._counted[epoch]

    def _epoch(self, epoch: int) -> _Epoch:
        if epoch not in self._kept:
            if len(self._kept) == 2:
                del self._kept[next(iter(self._kept))]
            # The first epoch's key has no number: what was trained before there were others stays valid.
            number = (epoch,) if epoch else ()
            documents = shuffled(len(self._lengths), generator(*self._key, "documents", *number))
            rows = lay_out(self.packing, self._lengths, documents, self.context_length)
            self._kept[epoch] = _Epoch(rows, shuffled(rows.count, generator(*self._key, "rows", *number)))
        return self._kept[epoch]

    def _too_small(self, steps: int) -> CorpusError:
        tokens_per_step = self.rows_per_batch * self.context_length
        held = "without repeating data" if self.epochs == 1 else f"in {self.epochs} epochs"
        remedy = "lower the token budget, or name a larger corpus"
        # Epochs of best fit differ by a few rows; the shortest is enough to go by.
        if rows := min(self._rows_in(epoch) for epoch in range(self.epochs)):
            needed = max(-(-steps * self.rows_per_batch // rows), self.epochs + 1)
            remedy += f"; or let data repeat, where that is meant: epochs = {needed} in [base.corpus]"
        return CorpusError(
            "corpus smaller than the budget",
            expected=f"{steps * tokens_per_step:,} tokens ({steps} steps of {tokens_per_step:,})",
            received=f"{self.batches * tokens_per_step:,} tokens {held} ({self.batches} steps)",
            remedy=remedy,
        )
