"""How documents become rows: which piece of which document lies where, and what of the corpus that wastes.

A row has context_length + 1 slots, each a token or the mark of a document's beginning (BOS): all but the last are
inputs, all but the first are targets, and nothing is padding. A document of n tokens has n + 1 slots, its BOS first.

stream    documents lie end to end and are cut every context_length slots, so a row's last slot is also the next
          one's first. No token is lost; most rows begin in the middle of a document.
best-fit  every row begins with a BOS. From a buffer of documents the longest that fits is taken again and again;
          where none fits, the shortest is, and what of it lies beyond the row is thrown away (as in the loader of
          nanochat, at commits of 2026, whose buffer refills in batches and holds at least as many).

Best fit is sequential: what is taken depends on what was. Its plan is made once from the documents' lengths, so that
any row can be read afterwards without the ones before it.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from paribus.errors import CorpusError, nearest
from paribus.seeds import generator

Packing = Literal["stream", "best-fit"]
PACKINGS: tuple[Packing, ...] = get_args(Packing)
BUFFER_DOCUMENTS = 1024
"""how many documents best fit chooses from"""

_CHUNK = 65_536
_LOW = 2**32 - 1


@dataclass(frozen=True)
class Pieces:
    """What some rows are made of, one row after the other. Arrays are `[piece]`, `per_row` is `[row]`."""

    document: NDArray[np.int64]
    """Index in the document table."""
    first: NDArray[np.int64]
    """The slot of the document that the piece begins with: 0 is its BOS, n its n-th token."""
    slots: NDArray[np.int64]
    per_row: NDArray[np.int64]
    """How many pieces the row has; their slots add up to context_length + 1."""


@dataclass(frozen=True)
class Waste:
    """What a packing does to a corpus that is read once. All but `rows` are shares, from 0 to 1."""

    packing: Packing
    context_length: int
    rows: int
    cropped_tokens: float
    """Of the tokens: thrown away because a document went beyond its row."""
    cropped_documents: float
    """Of the documents: those that lost their end (or everything but the BOS)."""
    rest_tokens: float
    """Of the tokens: in no row, because they no longer fill one."""
    rows_mid_document: float
    """Of the rows: those that begin with another token than a BOS, and so without what it depends on."""
    bos: float
    """Of the inputs: the marks of beginnings."""


class Rows(Protocol):
    """All rows of one pass over the documents."""

    count: int

    def pieces(self, rows: NDArray[np.integer]) -> Pieces:
        """What the rows of these numbers are made of, in the order asked for."""
        ...

    def waste(self) -> Waste: ...


def lay_out(
    packing: Packing,
    lengths: NDArray[np.int64],
    permuted: NDArray[np.integer],
    context_length: int,
    *,
    buffer_documents: int = BUFFER_DOCUMENTS,
) -> Rows:
    """Lay documents out in rows of `context_length` inputs.

    Arguments: `lengths` in tokens, `[document]`; `permuted`, the order they come in, as indices of `lengths`; the
    number of documents that best fit chooses from. Raises CorpusError for an unknown packing.
    """
    if packing == "stream":
        return StreamRows(lengths, permuted, context_length)
    if packing == "best-fit":
        return BestFitRows(lengths, permuted, context_length, buffer_documents)
    raise CorpusError(
        "unknown packing",
        expected=", ".join(PACKINGS),
        received=repr(packing),
        remedy=nearest(str(packing), PACKINGS),
    )


def waste(lengths: NDArray[np.int64], context_length: int, packing: Packing) -> Waste:
    """What the packing wastes of documents of these lengths (tokens, `[document]`) at this context length.

    Measured on one order of the documents, which belongs to no study: `Order.waste` measures that of a run.
    """
    permuted = shuffled(len(lengths), generator("waste", "documents"))
    return lay_out(packing, lengths, permuted, context_length).waste()


def shuffled(count: int, draw: np.random.Generator) -> NDArray[np.integer]:
    """`draw.permutation(count)`, in half the memory where the numbers fit 32 bits."""
    numbers = np.arange(count, dtype=np.uint32 if count <= _LOW else np.int64)
    draw.shuffle(numbers)
    return numbers


class StreamRows:
    """Documents end to end, cut into rows. Memory: 12 bytes a document beside the lengths, none a row."""

    def __init__(self, lengths: NDArray[np.int64], permuted: NDArray[np.integer], context_length: int) -> None:
        self._document = permuted
        # One more than there are documents: the end of the stream.
        self._start = np.zeros(len(permuted) + 1, dtype=np.int64)
        np.cumsum(lengths[permuted] + 1, out=self._start[1:])
        self._context_length = context_length
        # A row's last target is the first input of the next one, hence the one slot less.
        self.count = max(int(self._start[-1]) - 1, 0) // context_length

    def pieces(self, rows: NDArray[np.integer]) -> Pieces:
        begin = rows.astype(np.int64) * self._context_length
        end = begin + self._context_length + 1
        first = np.searchsorted(self._start, begin, side="right") - 1
        per_row = np.searchsorted(self._start, end, side="left") - first
        place = _spread(first, per_row)
        start = self._start[place]
        from_slot = np.maximum(start, np.repeat(begin, per_row))
        to_slot = np.minimum(self._start[place + 1], np.repeat(end, per_row))
        return Pieces(self._document[place].astype(np.int64), from_slot - start, to_slot - from_slot, per_row)

    def waste(self) -> Waste:
        start, inputs = self._start[:-1], self.count * self._context_length
        begins_row = (start % self._context_length == 0) & (start < inputs)
        # Every slot but the first is a target, up to the last row's last.
        rest = self._start[-1] - 1 - inputs if self.count else self._start[-1]
        rest_bos = int((start > inputs).sum()) if self.count else len(start)
        tokens = int(self._start[-1]) - len(start)
        return Waste(
            packing="stream",
            context_length=self._context_length,
            rows=self.count,
            cropped_tokens=0.0,
            cropped_documents=0.0,
            rest_tokens=_share(int(rest) - rest_bos, tokens),
            rows_mid_document=_share(self.count - int(begins_row.sum()), self.count),
            bos=_share(int((start < inputs).sum()), inputs),
        )


class BestFitRows:
    """Rows of whole documents, the last of each cropped to fill it.

    Memory: 4 bytes a document and 4 a row beside the lengths; while it is made, 4 more a document and the buffer.
    """

    def __init__(
        self, lengths: NDArray[np.int64], permuted: NDArray[np.integer], context_length: int, buffer_documents: int
    ) -> None:
        self._lengths = lengths
        self._context_length = context_length
        taken, self._bounds = best_fit(_slots(lengths, permuted), context_length + 1, buffer_documents)
        self._document = permuted[taken]
        self.count = len(self._bounds) - 1

    def pieces(self, rows: NDArray[np.integer]) -> Pieces:
        begin = self._bounds[rows].astype(np.int64)
        per_row = self._bounds[rows + 1] - begin
        document = self._document[_spread(begin, per_row)].astype(np.int64)
        slots = self._lengths[document].astype(np.int64) + 1
        last = np.cumsum(per_row) - 1
        slots[last] -= np.add.reduceat(slots, last - per_row + 1) - (self._context_length + 1)
        return Pieces(document, np.zeros_like(slots), slots, per_row)

    def waste(self) -> Waste:
        kept, cropped_documents, cropped_tokens, bos = 0, 0, 0, 0
        for begin in range(0, self.count, _CHUNK):
            pieces = self.pieces(np.arange(begin, min(begin + _CHUNK, self.count)))
            cropped = self._lengths[pieces.document] + 1 - pieces.slots
            kept += int(pieces.slots.sum()) - len(pieces.slots)
            cropped_documents += int((cropped > 0).sum())
            cropped_tokens += int(cropped.sum())
            last = np.cumsum(pieces.per_row) - 1
            # A BOS in a row's last slot is no input.
            bos += len(pieces.slots) - int((pieces.slots[last] == 1).sum())
        tokens = int(self._lengths.sum())
        return Waste(
            packing="best-fit",
            context_length=self._context_length,
            rows=self.count,
            cropped_tokens=_share(cropped_tokens, tokens),
            cropped_documents=_share(cropped_documents, len(self._lengths)),
            rest_tokens=_share(tokens - kept - cropped_tokens, tokens),
            rows_mid_document=0.0,
            bos=_share(bos, self.count * self._context_length),
        )


def best_fit(
    slots: Iterator[NDArray[np.int64]], row_slots: int, buffer_documents: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Fill rows of `row_slots` from documents that come in order, given by their slots in arrays of any length.

    The longest that fits is taken; where none fits, the shortest, which then ends the row; among equal ones the one
    that came first. What is left when the documents run out and no longer fills a row is in none.

    Returns the documents' numbers (the first that came is 0) in the order they are taken, `[piece]`, and where in it
    rows begin, with the end of the last, `[row + 1]`. Time: O(log buffer) comparisons a document, plus moving 8 bytes
    for each in the buffer. Raises CorpusError for 2**32 documents or more.
    """
    # One sorted list answers both questions. Its keys are slots, then lateness: of equals the first to come is last.
    documents = chain.from_iterable(_keys(slots))
    buffer = sorted(islice(documents, buffer_documents))
    taken, bounds = array("I"), array("I", [0])
    room = row_slots
    while buffer:
        place = bisect_left(buffer, (room + 1) << 32) - 1
        if place >= 0:
            key = buffer.pop(place)
            room -= key >> 32
        else:
            shortest = buffer[0] >> 32
            key = buffer.pop(bisect_left(buffer, (shortest + 1) << 32) - 1)
            room = 0
        taken.append(_LOW - (key & _LOW))
        if room == 0:
            bounds.append(len(taken))
            room = row_slots
        following = next(documents, None)
        if following is not None:
            insort(buffer, following)
    return np.array(taken[: bounds[-1]], dtype=np.uint32), np.array(bounds, dtype=np.uint32)


def _keys(slots: Iterator[NDArray[np.int64]]) -> Iterator[list[int]]:
    """Slots and lateness of each document as one number."""
    came = 0
    for chunk in slots:
        if came + len(chunk) > _LOW:
            raise CorpusError(
                "too many documents for best-fit packing",
                expected=f"fewer than {_LOW + 1:,}",
                received=f"at least {came + len(chunk):,}",
                remedy='use packing = "stream"',
            )
        late = _LOW - np.arange(came, came + len(chunk), dtype=np.int64)
        yield (np.minimum(chunk, 2**31 - 1) << 32 | late).tolist()
        came += len(chunk)


def _slots(lengths: NDArray[np.int64], permuted: NDArray[np.integer]) -> Iterator[NDArray[np.int64]]:
    for begin in range(0, len(permuted), _CHUNK):
        yield lengths[permuted[begin : begin + _CHUNK]].astype(np.int64) + 1


def _spread(first: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """first, first + 1 ... for each, `count` of them, one after the other."""
    end = np.cumsum(count)
    return np.arange(end[-1] if len(end) else 0) + np.repeat(first - (end - count), count)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
