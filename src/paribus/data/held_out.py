"""What a measurement scores: units with their sizes, and the batches in which a model reads them.

A unit of a text is a document; a unit of a task is the targets of one slice in one row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.data.order import Batch


@dataclass(frozen=True)
class EvaluationBatch(Batch):
    """Rows of similar length; those of a text end in padding of weight 0, which counts as one more document."""

    document_row: NDArray[np.int64]
    """`[row]`: number of the row's document in what is held out"""
    unit: NDArray[np.int64] | None = None
    """`[row time]`: number of the unit that a target belongs to; None where a row belongs to its document's"""
    answer: NDArray[np.int64] | None = None
    """`[row time]`: place of the token from which the target can be read, -1 where there is no single one; None of a
    text"""


@dataclass(frozen=True)
class HeldOut:
    """Everything that is scored of one split. Arrays and lists are `[unit]`."""

    unit: Sequence[str]
    """names, equal for equal content"""
    source: Sequence[str]
    """the collection that a document comes from, or the slice of a task"""
    tokens: NDArray[np.int64]
    """targets"""
    bytes: NDArray[np.int64] | None
    """UTF-8 bytes of the text; None where there is no text"""
    floor_nats: NDArray[np.float64] | None
    """summed over the unit's targets, under the best predictor; None where it is not known"""
    documents: int
    """that the batches' rows belong to"""
    batches: Callable[[int], Iterator[EvaluationBatch]]
    """padded batches of at most so many inputs, but of at least one row"""
    slices: tuple[str, ...] = ()
    """names of `slice` in the batches, of a task; empty for a text"""
    overlap_free: Sequence[bool | None] | None = None
    """whether the document shares no 13-gram with any training text, None where that was not checked; None as a whole
    where nothing is marked: of a task, and of a split other than test"""
