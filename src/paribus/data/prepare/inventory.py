"""What is to be read, in portions: lots of consecutive pieces, the unit of work that is finished or done again.

A lot is large enough that its few working files weigh nothing (2 MB of the files, or a 4,096th of a corpus of more
than 8 GB) and small enough that a kill costs seconds. Lots depend on the pieces alone, never on the number of
workers, so that work goes on with another number.

Within a lot, documents come in blocks of at most 50,000. A block is the `piece` of the positions by which duplicates
are found, so that no array is longer than a block however many documents a file holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paribus.data.config import CorpusConfig
from paribus.data.partitions import positions_of
from paribus.data.sources.contract import Piece, Source
from paribus.errors import CorpusError

LOT_BYTES = 2_000_000
LOTS_AT_MOST = 4096
DOCUMENTS_PER_BLOCK = 50_000
_BLOCKS_PER_LOT = 2**16


@dataclass(frozen=True)
class Lot:
    number: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        """That the pieces occupy in the files."""
        return sum(piece.bytes for piece in self.pieces)

    @property
    def stem(self) -> str:
        """What the names of its working files begin with."""
        return f"{self.number:05d}"


@dataclass(frozen=True)
class Work:
    """What every task needs to know. Small: it travels to the worker processes."""

    corpus: CorpusConfig
    source: Source
    folder: Path
    """of the working files"""
    last_file: str
    """name of the file with the last piece"""
    keeps_texts: bool = False
    """whether the first reading stores the texts, for a source that is slow to read"""
    in_turns: bool = False
    """whether several processes work on it at a time, so that they take turns with large documents"""

    def path(self, stage: str, name: str) -> Path:
        """A working file of a stage."""
        return self.folder / stage / name


def lots_of(pieces: Sequence[Piece], *, last_file_apart: bool) -> tuple[Lot, ...]:
    """All pieces in order. `last_file_apart`: no lot holds pieces of the last file and of another one."""
    most = max(LOT_BYTES, sum(piece.bytes for piece in pieces) // LOTS_AT_MOST)
    groups: list[list[Piece]] = []
    full, size = True, 0
    for piece in pieces:
        last = last_file_apart and piece.file == pieces[-1].file
        if full or (last and groups[-1][-1].file != piece.file):
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece.bytes
        full = size >= most
    return tuple(Lot(number, tuple(group)) for number, group in enumerate(groups))


def first_of_last_file(lots: Sequence[Lot]) -> int:
    """The position at which the last file begins."""
    last = lots[-1].pieces[-1].file
    begin = next(lot.number for lot in lots if lot.pieces[0].file == last)
    return int(positions_of(block_number(begin, 0), np.zeros(1, dtype=np.int64))[0])


def block_number(lot: int, block: int) -> int:
    """The `piece` of the positions of a block's documents. Raises CorpusError for more than 3 billion in a lot."""
    if block >= _BLOCKS_PER_LOT:
        raise CorpusError(
            "a file holds too many documents",
            expected=f"at most {_BLOCKS_PER_LOT * DOCUMENTS_PER_BLOCK:,}",
            received="more",
            remedy="write it as several files",
        )
    return lot * _BLOCKS_PER_LOT + block


def blocks_of(documents: int) -> Iterator[tuple[int, int, int]]:
    """(block, begin, end) of a lot with so many documents."""
    for block, begin in enumerate(range(0, documents, DOCUMENTS_PER_BLOCK)):
        yield block, begin, min(begin + DOCUMENTS_PER_BLOCK, documents)
