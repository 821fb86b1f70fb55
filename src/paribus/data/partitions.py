"""Sorting what does not fit into memory: records in files, scattered by range, each part sorted alone.

A document is named by its position, `piece << 32 | row`, which sorts as the corpus is ordered.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paribus.disk import whole

_RECORDS_PER_PARTITION = 2_000_000
"""of 16 to 24 bytes, and about three times as much while they are sorted"""
# The usual limit on open files is 1,024, and the caller has some.
PARTITIONS_AT_MOST = 512
_RECORDS_PER_BLOCK = 2**17


def positions_of(piece: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """`[row]`: the position in the corpus of each row of a piece."""
    return np.int64(piece) << np.int64(32) | rows


def rows_of(positions: NDArray[np.int64], piece: int) -> NDArray[np.int64]:
    """The rows of one piece among sorted positions, sorted."""
    begin, end = np.searchsorted(positions, [piece << 32, (piece + 1) << 32])
    return np.asarray(positions[begin:end]) & np.int64(2**32 - 1)


def blocks_of(path: Path, kind: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """The records of a file in order, a hundred thousand at a time."""
    with path.open("rb") as stream:
        while len(block := np.fromfile(stream, dtype=kind, count=_RECORDS_PER_BLOCK)):
            yield block


def partitions_for(records: int) -> int:
    """A power of two: how many partitions keep each near `_RECORDS_PER_PARTITION` records."""
    wanted = -(-records // _RECORDS_PER_PARTITION)
    return min(PARTITIONS_AT_MOST, 1 << max(0, wanted - 1).bit_length())


def prefix(hashes: NDArray[np.uint64], partitions: int) -> NDArray[np.int64]:
    """`[hash]`: the leading bits of each, as the number of its partition."""
    bits = partitions.bit_length() - 1
    # A shift by all 64 bits is undefined.
    return (hashes >> np.uint64(1) >> np.uint64(63 - bits)).astype(np.int64)


def scattered(blocks: Iterable[tuple[NDArray[np.int64], NDArray[Any]]], folder: Path, partitions: int) -> list[Path]:
    """Append records to the files of their partitions: blocks are (partition of each record, records).

    Records keep their order within a partition. Returns all files, in the partitions' order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:03d}" for number in range(partitions)]
    streams = [path.open("wb") for path in paths]
    try:
        for part, records in blocks:
            order = np.argsort(part, kind="stable")
            bounds = np.searchsorted(part[order], np.arange(partitions + 1))
            for number in np.flatnonzero(np.diff(bounds)).tolist():
                streams[number].write(
                    np.ascontiguousarray(records[order[bounds[number] : bounds[number + 1]]]).tobytes()
                )
    finally:
        for stream in streams:
            stream.close()
    return paths


def sorted_in_place(path: Path) -> NDArray[np.int64]:
    """Sort a file of int64 and map it for reading."""
    if path.stat().st_size:
        values = np.memmap(path, dtype=np.int64, mode="r+")
        values.sort()
        values.flush()
    return mapped(path)


def write_whole(path: Path, arrays: Iterable[NDArray[Any]]) -> None:
    """Write arrays behind each other: there is a whole file or none."""
    with whole(path) as stream:
        for array in arrays:
            # Not array.tofile, which says nothing where a full disk takes less than all.
            stream.write(np.ascontiguousarray(array).tobytes())


def runs(values: NDArray[Any]) -> NDArray[np.int64]:
    """`[run, begin and end]` of every run of two or more equal values."""
    bounds = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1], [True]]))
    long = np.flatnonzero(np.diff(bounds) > 1)
    return np.stack([bounds[long], bounds[long + 1]], axis=1)


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The values in order, each once. Sorts, where numpy.unique hashes: ten times faster on 64-bit hashes."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def mapped(path: Path, kind: type[np.generic] = np.int64) -> NDArray[Any]:
    """A file as an array for reading; the system may drop its pages from memory at any time."""
    if path.stat().st_size == 0:
        return np.empty(0, dtype=kind)
    # Slices of the subclass cost several times as much.
    return np.memmap(path, dtype=kind, mode="r").view(np.ndarray)


def among(values: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """`[value]`: whether it is one of the sorted ones."""
    if len(ordered) == 0:
        return np.zeros(len(values), dtype=np.bool_)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
