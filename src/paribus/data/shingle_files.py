"""Sets of shingles of candidates for near duplicates, in files: written a piece at a time, read to compare two."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paribus.data.partitions import among, positions_of, write_whole
from paribus.data.shingles import jaccard_reaches, shingle_sets
from paribus.errors import CorpusError

_BYTES_PER_BATCH = 1_000_000


def write_shingle_sets(path: Path, piece: int, rows: Iterable[int], texts: Iterable[bytes]) -> None:
    """Write the id and the set of shingles of the texts of some rows of a piece (`Candidates.rows`), in their order.

    The file appears when it is complete. Memory: one text and its set, or a megabyte of texts.
    """

    def arrays() -> Iterator[NDArray[np.uint64]]:
        index: list[NDArray[np.uint64]] = []
        for batch in _batches(zip(rows, texts, strict=True)):
            for (row, text), hashes in zip(batch, shingle_sets([text for _, text in batch]), strict=True):
                identity = np.frombuffer(blake2b(text, digest_size=16).digest(), dtype="<u8")
                position = positions_of(piece, np.array([row], dtype=np.int64))
                index.append(np.concatenate([position.view(np.uint64), [np.uint64(len(hashes))], identity]))
                yield hashes
        yield np.array(index, dtype=np.uint64).reshape(-1, 4)
        yield np.array([len(index)], dtype=np.uint64)

    write_whole(path, arrays())


@dataclass(frozen=True)
class ShingleSets:
    """Where the set of each candidate lies. Read on demand: the system keeps in memory what there is room for."""

    files: tuple[Path, ...]
    file: NDArray[np.int32]
    begin: NDArray[np.int64]
    count: NDArray[np.int64]
    ids: NDArray[np.uint64]
    """`[document 2]`"""

    @classmethod
    def of(cls, positions: NDArray[np.int64], files: Sequence[Path]) -> "ShingleSets":
        """Raises CorpusError where the files of `write_shingle_sets` lack one of the sorted positions."""
        file = np.full(len(positions), -1, dtype=np.int32)
        begin, count = np.zeros((2, len(positions)), dtype=np.int64)
        ids = np.zeros((len(positions), 2), dtype=np.uint64)
        for number, path in enumerate(files):
            index = _index(path)
            lengths = index[:, 1].astype(np.int64)
            of_file = index[:, 0].astype(np.int64)
            wanted = np.flatnonzero(among(of_file, positions))
            document = np.searchsorted(positions, of_file[wanted])
            file[document], count[document], ids[document] = number, lengths[wanted], index[wanted, 2:]
            begin[document] = (np.cumsum(lengths) - lengths)[wanted]
        if np.any(file < 0):
            position = int(positions[np.flatnonzero(file < 0)[0]])
            raise CorpusError(
                "the shingles of a document are missing",
                expected=f"those of all {len(positions)} candidates for near duplicates",
                received=f"none of document {position & (2**32 - 1)} of piece {position >> 32}",
                remedy="delete the working folder of this corpus, and prepare it again",
            )
        return cls(tuple(files), file, begin, count, ids)

    def any_alike(self, document: int, others: Iterable[int], similarity: float) -> bool:
        """Whether one of the others has at least this Jaccard index with the document; all by their place."""
        own = None
        for other in others:
            sizes = sorted((int(self.count[document]), int(self.count[other])))
            if sizes[0] / sizes[1] < similarity:
                continue
            own = self._read(document) if own is None else own
            if jaccard_reaches(own, self._read(other), similarity):
                return True
        return False

    def _read(self, document: int) -> NDArray[np.uint64]:
        path = self.files[self.file[document]]
        return np.fromfile(path, dtype="<u8", count=self.count[document], offset=8 * self.begin[document])


def _batches(documents: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    batch: list[tuple[int, bytes]] = []
    size = 0
    for row, text in documents:
        if batch and size + len(text) > _BYTES_PER_BATCH:
            yield batch
            batch, size = [], 0
        batch.append((row, text))
        size += len(text)
    if batch:
        yield batch


def _index(path: Path) -> NDArray[np.uint64]:
    """`[document, (position, length, two words of the id)]`, from the end of a file of shingle sets."""
    with path.open("rb") as stream:
        stream.seek(-8, os.SEEK_END)
        count = int(np.fromfile(stream, dtype="<u8", count=1)[0])
        stream.seek(-8 * (4 * count + 1), os.SEEK_END)
        return np.fromfile(stream, dtype="<u8", count=4 * count).reshape(-1, 4)
