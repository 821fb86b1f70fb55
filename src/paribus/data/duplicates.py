"""Near duplicates and their clusters, found outside memory: a banded index gives candidates, the exact similarity
decides.

The similarity of two documents is the Jaccard index of their sets of shingles (`shingles`). A pair at the threshold of
0.8 becomes a candidate with probability 0.998 (0.95 at 0.7), and candidates are decided by the exact index, so a
document is never dropped below the threshold. Four steps, of which workers do the first and the third, a piece each:

    write_band_keys -> find_candidates -> shingle_files.write_shingle_sets -> near_duplicates_of, clusters.clusters

What each needs of the others lies in files, so memory does not grow with the corpus: a partition of records at a time,
two shingle sets, and some 50 bytes a candidate.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paribus.data.partitions import (
    PARTITIONS_AT_MOST,
    among,
    blocks_of,
    mapped,
    partitions_for,
    positions_of,
    prefix,
    rows_of,
    runs,
    scattered,
    sorted_in_place,
    write_whole,
)
from paribus.data.shingle_files import ShingleSets
from paribus.data.shingles import BANDS

_KEYS = np.dtype([("position", "<i8"), ("keys", "<u8", BANDS)])
_KEY = np.dtype([("key", "<u8"), ("position", "<i8")])
_MEMBER = np.dtype([("position", "<i8"), ("group", "<i8")])


@dataclass(frozen=True)
class Candidates:
    """Documents that share a band with another one. A group is all documents with one key in one band."""

    positions: NDArray[np.int64]
    """`[document]`, sorted; the other arrays count documents in this order"""
    groups: NDArray[np.int64]
    """`[membership]`: the groups of each document, documents behind each other"""
    group_offsets: NDArray[np.int64]
    """`[document + 1]`: where its groups begin"""
    members: NDArray[np.int64]
    """`[membership]`: the positions of each group's documents, groups behind each other"""
    member_offsets: NDArray[np.int64]
    """`[group + 1]`: where its members begin"""

    def rows(self, piece: int) -> NDArray[np.int64]:
        """The rows of a piece whose texts have to be compared, sorted."""
        return rows_of(self.positions, piece)


def write_band_keys(path: Path, piece: int, keys: Iterable[NDArray[np.uint64]]) -> None:
    """Write the keys `[document band]` of a piece, given in blocks; rows count through them.

    The file appears when it is complete.
    """

    def records() -> Iterator[NDArray[np.void]]:
        row = 0
        for block in keys:
            written = np.empty(len(block), dtype=_KEYS)
            written["position"] = positions_of(piece, np.arange(row, row + len(block), dtype=np.int64))
            written["keys"] = block
            row += len(block)
            yield written

    write_whole(path, records())


def find_candidates(files: Sequence[Path], folder: Path, *, left_out: NDArray[np.int64]) -> Candidates:
    """Who shares a band with whom, from the files of `write_band_keys` in any order.

    `left_out`: sorted positions of documents that are not compared (exact repeats). `folder` is for working files; the
    result is mapped from them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partitions = partitions_for(sum(path.stat().st_size for path in files) // _KEYS.itemsize)
    members, sizes = folder / "members", folder / "sizes"
    with members.open("wb") as member_stream, sizes.open("wb") as size_stream:
        bands_at_once = max(1, PARTITIONS_AT_MOST // partitions)
        for first_band in range(0, BANDS, bands_at_once):
            bands = range(first_band, min(BANDS, first_band + bands_at_once))
            blocks = _keys_by_partition(files, bands, partitions, left_out)
            for part in scattered(blocks, folder / "keys", len(bands) * partitions):
                records = np.fromfile(part, dtype=_KEY)
                part.unlink()
                records = records[np.lexsort((records["position"], records["key"]))]
                found = runs(records["key"])
                size_stream.write(np.ascontiguousarray(np.diff(found, axis=1)[:, 0]).tobytes())
                member_stream.write(np.ascontiguousarray(records["position"][_covered(found, len(records))]).tobytes())
    return _by_document(folder, mapped(members), _offsets(folder / "member-offsets", mapped(sizes)))


def near_duplicates_of(
    candidates: Candidates,
    sets: Sequence[Path],
    similarity: float,
    folder: Path,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.int64]:
    """Sorted positions of documents that repeat an earlier kept one with at least this Jaccard index.

    `sets` are the files of `write_shingle_sets` in any order. Raises CorpusError where they lack a candidate.
    `progress` is called with (done, all) candidates.
    """
    shingles = ShingleSets.of(candidates.positions, sets)
    count = len(candidates.positions)
    kept = _scratch(folder / "kept", len(candidates.members))
    filled = np.zeros(len(candidates.member_offsets) - 1, dtype=np.int32)
    repeats = np.zeros(count, dtype=np.bool_)
    for document in range(count):
        groups = candidates.groups[slice(*candidates.group_offsets[document : document + 2])]
        starts = candidates.member_offsets[groups]
        ends = starts + filled[groups]
        earlier = {
            other
            for begin, end in zip(starts.tolist(), ends.tolist(), strict=True)
            for other in kept[begin:end].tolist()
        }
        repeats[document] = shingles.any_alike(document, sorted(earlier), similarity)
        if not repeats[document]:
            kept[ends] = document
            filled[groups] += 1
        if progress is not None and (document % 1000 == 999 or document == count - 1):
            progress(document + 1, count)
    return candidates.positions[repeats]


def _keys_by_partition(
    files: Sequence[Path], bands: range, partitions: int, left_out: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
    for path in files:
        for block in blocks_of(path, _KEYS):
            compared = block[~among(block["position"], left_out)]
            for number, band in enumerate(bands):
                records = np.empty(len(compared), dtype=_KEY)
                records["key"], records["position"] = compared["keys"][:, band], compared["position"]
                yield number * partitions + prefix(records["key"], partitions), records


def _by_document(folder: Path, members: NDArray[np.int64], member_offsets: NDArray[np.int64]) -> Candidates:
    """Turn the list of each group's documents into the list of each document's groups, on the disk."""
    positions = _distinct(folder / "positions", members)
    partitions = partitions_for(len(members))
    bounds = positions[np.linspace(0, len(positions), partitions, endpoint=False, dtype=np.int64)[1:]]

    def blocks() -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
        for begin in range(0, len(members), 2**17):
            records = np.empty(len(members[begin : begin + 2**17]), dtype=_MEMBER)
            records["position"] = members[begin : begin + 2**17]
            places = np.arange(begin, begin + len(records))
            records["group"] = np.searchsorted(member_offsets, places, side="right") - 1
            yield np.searchsorted(bounds, records["position"], side="right"), records

    groups, counts = folder / "groups", folder / "counts"
    with groups.open("wb") as group_stream, counts.open("wb") as count_stream:
        for part in scattered(blocks(), folder / "memberships", partitions):
            records = np.fromfile(part, dtype=_MEMBER)
            part.unlink()
            records = records[np.lexsort((records["group"], records["position"]))]
            group_stream.write(np.ascontiguousarray(records["group"]).tobytes())
            count_stream.write(
                np.ascontiguousarray(np.unique(records["position"], return_counts=True)[1].astype(np.int64)).tobytes()
            )
    offsets = _offsets(folder / "group-offsets", mapped(counts))
    return Candidates(positions, mapped(groups), offsets, members, member_offsets)


def _distinct(path: Path, values: NDArray[np.int64]) -> NDArray[np.int64]:
    everything = path.with_name(f"{path.name}-all")
    with everything.open("wb") as stream:
        stream.write(np.ascontiguousarray(values).tobytes())
    ordered = sorted_in_place(everything)
    with path.open("wb") as stream:
        for begin in range(0, len(ordered), 2**20):
            block = ordered[begin : begin + 2**20]
            before = ordered[begin - 1] if begin else np.int64(-1)
            stream.write(np.ascontiguousarray(block[np.diff(block, prepend=before) != 0]).tobytes())
    everything.unlink()
    return mapped(path)


def _offsets(path: Path, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """`[item + 1]`: where each begins."""
    with path.open("wb") as stream:
        stream.write(np.ascontiguousarray(np.zeros(1, dtype=np.int64)).tobytes())
        stream.write(np.ascontiguousarray(np.cumsum(sizes, dtype=np.int64)).tobytes())
    return mapped(path)


def _scratch(path: Path, count: int) -> NDArray[np.int64]:
    if count == 0:
        return np.empty(0, dtype=np.int64)
    return np.memmap(path, dtype=np.int64, mode="w+", shape=(count,)).view(np.ndarray)


def _covered(found: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    edges = np.zeros(count + 1, dtype=np.int8)
    edges[found[:, 0]] += 1
    edges[found[:, 1]] -= 1
    return np.cumsum(edges[:-1], dtype=np.int8) > 0
