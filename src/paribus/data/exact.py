"""Equal texts, found outside memory: 16-byte digests in files, partitioned by prefix, each partition sorted alone.

Two texts are taken as equal where their blake2b-128 digests are: among n different texts some pair collides with
probability below n^2 / 2^129 (2e-25 at ten million).
"""

from collections.abc import Iterable, Sequence
from itertools import count, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paribus.data.partitions import (
    blocks_of,
    partitions_for,
    positions_of,
    prefix,
    scattered,
    sorted_in_place,
    write_whole,
)

_RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("position", "<i8")])
"""a digest as two words, and where its document stands"""
_DIGESTS_PER_BLOCK = 2**17


def write_digests(path: Path, piece: int, digests: Iterable[bytes]) -> None:
    """Write the record of every document of a piece; the row is the index. The file appears when it is complete."""
    write_whole(path, _records(piece, digests))


def exact_repeats(files: Sequence[Path], folder: Path, *, first: int = 0) -> NDArray[np.int64]:
    """Sorted positions of documents that repeat the text of another one, which is kept.

    Of equal texts the earliest is kept; those from position `first` on come before all that precede it (where the
    last file is held out, its copy of a text is the one that stays). The order of `files` does not matter. `folder` is
    for working files; the result is mapped from one of them. Memory: one partition, under 0.2 GB, and the mapping,
    unless a single text makes up a large part of a large corpus.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partitions = partitions_for(sum(path.stat().st_size for path in files) // _RECORD.itemsize)
    blocks = (block for path in files for block in blocks_of(path, _RECORD))
    parts = scattered(((prefix(block["high"], partitions), block) for block in blocks), folder / "digests", partitions)
    result = folder / "exact-repeats"
    with result.open("wb") as stream:
        for part in parts:
            records = np.fromfile(part, dtype=_RECORD)
            part.unlink()
            stream.write(np.ascontiguousarray(_repeats(records, first)).tobytes())
    return sorted_in_place(result)


def _records(piece: int, digests: Iterable[bytes]) -> Iterable[NDArray[np.void]]:
    remaining = iter(digests)
    for begin in count(0, _DIGESTS_PER_BLOCK):
        words = np.frombuffer(b"".join(islice(remaining, _DIGESTS_PER_BLOCK)), dtype="<u8").reshape(-1, 2)
        if not len(words):
            return
        records = np.empty(len(words), dtype=_RECORD)
        records["high"], records["low"] = words[:, 0], words[:, 1]
        records["position"] = positions_of(piece, np.arange(begin, begin + len(words), dtype=np.int64))
        yield records


def _repeats(records: NDArray[np.void], first: int) -> NDArray[np.int64]:
    order = np.argsort(records["high"])
    high = records["high"][order]
    beside = np.zeros(len(records) + 1, dtype=np.bool_)
    beside[1:-1] = high[1:] == high[:-1]
    # Only what shares 64 bits with another record is sorted by all of its fields.
    tied = records[order[beside[1:] | beside[:-1]]]
    later = tied["position"] < first
    tied = tied[np.lexsort((tied["position"], later, tied["low"], tied["high"]))]
    same = (tied["high"][1:] == tied["high"][:-1]) & (tied["low"][1:] == tied["low"][:-1])
    return tied["position"][1:][same]
