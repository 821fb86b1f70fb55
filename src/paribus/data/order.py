"""Which tokens the model sees at which step: a pure function of (study, scale, seed, step).

The training stream lays the documents of the train split end to end, in an order drawn for the seed, each after a
token that marks its beginning. It is cut into rows; the rows are permuted again, so that the rows of one long
document do not meet in one batch. Neither order is stored and no state passes between calls, so restarts, world
size, micro-batches and arms cannot change a batch.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from paribus.data.frozen import FrozenCorpus
from paribus.data.tokenizer import BOS_ID
from paribus.errors import CorpusError
from paribus.seeds import generator


@dataclass(frozen=True)
class Batch:
    """What one step reads; every array is `[row time]`."""

    tokens: NDArray[np.int64]
    targets: NDArray[np.int64]
    """The next token of the stream."""
    weight: NDArray[np.float32]
    """0 where the target only marks the beginning of another document (or is padding), else 1."""
    document: NDArray[np.int32]
    """Index of the document within the row, from 0."""
    slice: NDArray[np.int16]
    """Index of the document's source in the corpus' sorted sources; of a task, of the target's slice."""


@runtime_checkable
class Batches(Protocol):
    """Which tokens the model sees at which step: a pure function of (study, scale, seed, step)."""

    context_length: int
    rows_per_batch: int
    slices: tuple[str, ...]
    """parts of the targets whose training loss is kept apart; empty for text"""

    def require(self, steps: int) -> None: ...

    def batch(self, step: int) -> Batch: ...


class Order:
    """The training batches of one (study, scale, seed), shared by its arms.

    Arguments: the frozen corpus; `context_length` in tokens; `rows_per_batch`; the names that key the order.
    Memory: 18 bytes a document and 8 bytes a row; the tokens themselves stay on the disk.
    """

    def __init__(
        self, frozen: FrozenCorpus, context_length: int, rows_per_batch: int, *, study: str, scale: str, seed: int
    ) -> None:
        if context_length < 1 or rows_per_batch < 1:
            raise CorpusError(
                "a batch needs at least one row of one token",
                expected="context_length >= 1, rows_per_batch >= 1",
                received=f"context_length {context_length}, rows_per_batch {rows_per_batch}",
            )
        self.context_length = context_length
        self.rows_per_batch = rows_per_batch
        self.slices: tuple[str, ...] = ()
        train = frozen.split("train")
        documents = train.documents
        permuted = generator(study, scale, seed, "order", "documents").permutation(len(documents))
        ends = np.cumsum(documents.tokens[permuted] + 1)
        self._tokens = train.tokens
        self._stream_start = ends - documents.tokens[permuted] - 1
        self._token_start = documents.offset[permuted]
        self._source = documents.source[permuted]
        # The last target of a row is the first input of the next one, hence the one token less.
        stream_tokens = int(ends[-1]) if len(ends) else 0
        rows = max(stream_tokens - 1, 0) // context_length
        self._row = generator(study, scale, seed, "order", "rows").permutation(rows)

    @property
    def batches(self) -> int:
        """How many steps the corpus lasts without repeating data; a rest of less than a batch is not used."""
        return len(self._row) // self.rows_per_batch

    def require(self, steps: int) -> None:
        """Raise CorpusError where a run of that many steps would need more data than the corpus holds."""
        if steps > self.batches:
            tokens_per_step = self.rows_per_batch * self.context_length
            raise CorpusError(
                "corpus smaller than the budget",
                expected=f"{steps * tokens_per_step:,} tokens ({steps} steps of {tokens_per_step:,})",
                received=f"{self.batches * tokens_per_step:,} tokens without repeating data ({self.batches} steps)",
                remedy="lower the token budget, or name a larger corpus",
            )

    def batch(self, step: int) -> Batch:
        """The batch of the step, counted from 0. Raises CorpusError for a step the corpus does not reach."""
        if step < 0:
            raise CorpusError("steps count from 0", expected="a step >= 0", received=str(step))
        self.require(step + 1)
        row = self._row[step * self.rows_per_batch : (step + 1) * self.rows_per_batch]
        position = row[:, None] * self.context_length + np.arange(self.context_length + 1)
        document = np.searchsorted(self._stream_start, position, side="right") - 1
        place = position - self._stream_start[document]
        begins = place == 0
        # At a beginning there is no token to look up; position 0 of the file stands in and is overwritten.
        stored = self._tokens[np.where(begins, 0, self._token_start[document] + place - 1)]
        stream = np.where(begins, BOS_ID, stored.astype(np.int64))
        return Batch(
            tokens=stream[:, :-1],
            targets=stream[:, 1:],
            weight=np.where(begins[:, 1:], np.float32(0), np.float32(1)),
            document=(document[:, :-1] - document[:, :1]).astype(np.int32),
            slice=self._source[document[:, :-1]],
        )
