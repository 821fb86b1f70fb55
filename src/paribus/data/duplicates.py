"""Near duplicates and their clusters, found outside memory: a banded index gives candidates, the exact similarity
decides.

The similarity of two documents is the Jaccard index of their sets of shingles (`shingles`). A pair at the threshold of
0.8 becomes a candidate with probability 0.998 (0.95 at 0.7), and candidates are decided by the exact index, so a
document is never dropped below the threshold. Four steps, of which workers do the first and the third, a piece each:

    write_band_keys -> find_candidates -> write_shingle_sets -> near_duplicates_of, clusters

What each needs of the others lies in files, so memory does not grow with the corpus: a partition of records at a time,
two shingle sets, and some 50 bytes a candidate.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from paribus.data.partitions import (
    PARTITIONS_AT_MOST,
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
from paribus.data.shingles import BANDS, band_keys, jaccard_reaches, shingle_sets
from paribus.errors import CorpusError

_KEYS = np.dtype([("position", "<i8"), ("keys", "<u8", BANDS)])
_KEY = np.dtype([("key", "<u8"), ("position", "<i8")])
_MEMBER = np.dtype([("position", "<i8"), ("group", "<i8")])
_REFUSED_AT_MOST = 2**20
_BYTES_PER_BATCH = 1_000_000


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


@dataclass(frozen=True)
class Clusters:
    """Documents that are joined by a chain of near duplicates. A document that is not here is alone."""

    positions: NDArray[np.int64]
    """`[document]`, sorted: members of clusters of two or more"""
    smallest: NDArray[np.void]
    """`[document]`: the smallest id (16 bytes) in its cluster"""

    def smallest_of(self, piece: int) -> dict[int, bytes]:
        """Row to smallest id, for the rows of a piece that are not alone."""
        begin, end = np.searchsorted(self.positions, [piece << 32, (piece + 1) << 32])
        rows = rows_of(self.positions, piece).tolist()
        return {row: key.tobytes() for row, key in zip(rows, self.smallest[begin:end], strict=True)}


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
    shingles = _ShingleSets.of(candidates, sets)
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


def clusters(candidates: Candidates, sets: Sequence[Path], similarity: float) -> Clusters:
    """The connected components of the pairs of candidates with at least this Jaccard index.

    They depend on the texts alone, not on order or layout: every pair of a group is compared, or is in one component
    already. Raises CorpusError where `sets` lack a candidate.
    """
    shingles = _ShingleSets.of(candidates, sets)
    parent = np.arange(len(candidates.positions), dtype=np.int64)
    refused: set[tuple[int, int]] = set()

    def alike(one: int, other: int) -> bool:
        pair = (min(one, other), max(one, other))
        if pair in refused:
            return False
        if shingles.any_alike(one, [other], similarity):
            return True
        # A pair may meet in 16 groups. Forgetting costs time only.
        if len(refused) >= _REFUSED_AT_MOST:
            refused.clear()
        refused.add(pair)
        return False

    for number in range(len(candidates.member_offsets) - 1):
        begin, end = candidates.member_offsets[number : number + 2].tolist()
        group = np.searchsorted(candidates.positions, candidates.members[begin:end])
        _join(group.tolist(), parent, alike)
    roots = np.array([_root(parent, document) for document in range(len(parent))], dtype=np.int64)
    return _named(candidates.positions, roots, shingles.ids)


def near_duplicates(
    texts: Sequence[str], similarity: float, progress: Callable[[str, int, int], None] | None = None
) -> NDArray[np.bool_]:
    """`[document]`: true where a text repeats an earlier kept text; for texts that are in memory."""
    encoded = [text.encode() for text in texts]
    repeats = np.zeros(len(texts), dtype=np.bool_)
    with TemporaryDirectory(prefix="paribus-") as name:
        folder = Path(name)
        write_band_keys(folder / "bands", 0, [band_keys(encoded)])
        candidates = find_candidates([folder / "bands"], folder, left_out=np.empty(0, dtype=np.int64))
        rows = candidates.rows(0).tolist()
        write_shingle_sets(folder / "sets", 0, rows, (encoded[row] for row in rows))
        repeats[near_duplicates_of(candidates, [folder / "sets"], similarity, folder)] = True
    if progress is not None:
        progress("find near duplicates", len(texts), len(texts))
    return repeats


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


def _keys_by_partition(
    files: Sequence[Path], bands: range, partitions: int, left_out: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
    for path in files:
        for block in blocks_of(path, _KEYS):
            compared = block[~_among(block["position"], left_out)]
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


def _among(values: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    if len(ordered) == 0:
        return np.zeros(len(values), dtype=np.bool_)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values


def _covered(found: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    edges = np.zeros(count + 1, dtype=np.int8)
    edges[found[:, 0]] += 1
    edges[found[:, 1]] -= 1
    return np.cumsum(edges[:-1], dtype=np.int8) > 0


def _join(group: list[int], parent: NDArray[np.int64], alike: Callable[[int, int], bool]) -> None:
    """Unite the components of a group's members that some pair of them joins."""
    components: list[list[int]] = []
    for document in group:
        joined, apart = [document], []
        for component in components:
            together = _root(parent, component[0]) == _root(parent, document)
            if together or any(alike(document, other) for other in component):
                _unite(parent, document, component[0])
                # The longer list stays, so a growing component is not copied for every member.
                longer, shorter = (joined, component) if len(joined) > len(component) else (component, joined)
                longer.extend(shorter)
                joined = longer
            else:
                apart.append(component)
        components = [*apart, joined]


def _unite(parent: NDArray[np.int64], one: int, other: int) -> None:
    first, second = sorted((_root(parent, one), _root(parent, other)))
    parent[second] = first


def _root(parent: NDArray[np.int64], document: int) -> int:
    while parent[document] != document:
        parent[document] = parent[parent[document]]
        document = int(parent[document])
    return document


def _named(positions: NDArray[np.int64], roots: NDArray[np.int64], ids: NDArray[np.uint64]) -> Clusters:
    sizes = np.bincount(roots, minlength=len(roots))
    chosen = np.flatnonzero(sizes[roots] > 1)
    # Bytes compare as big-endian numbers do.
    words = ids[chosen].view(np.dtype("<u8")).byteswap()
    order = np.lexsort((words[:, 1], words[:, 0], roots[chosen]))
    of_root, begins = np.unique(roots[chosen][order], return_index=True)
    leaders = chosen[order[begins]][np.searchsorted(of_root, roots[chosen])]
    return Clusters(np.asarray(positions[chosen]), np.ascontiguousarray(ids[leaders]).view("V16")[:, 0])


@dataclass(frozen=True)
class _ShingleSets:
    """Where the set of each candidate lies. Read on demand: the system keeps in memory what there is room for."""

    files: tuple[Path, ...]
    file: NDArray[np.int32]
    begin: NDArray[np.int64]
    count: NDArray[np.int64]
    ids: NDArray[np.uint64]
    """`[document 2]`"""

    @classmethod
    def of(cls, candidates: Candidates, files: Sequence[Path]) -> "_ShingleSets":
        positions = candidates.positions
        file = np.full(len(positions), -1, dtype=np.int32)
        begin, count = np.zeros((2, len(positions)), dtype=np.int64)
        ids = np.zeros((len(positions), 2), dtype=np.uint64)
        for number, path in enumerate(files):
            index = _index(path)
            lengths = index[:, 1].astype(np.int64)
            of_file = index[:, 0].astype(np.int64)
            wanted = np.flatnonzero(_among(of_file, positions))
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


def _index(path: Path) -> NDArray[np.uint64]:
    """`[document, (position, length, two words of the id)]`, from the end of a file of shingle sets."""
    with path.open("rb") as stream:
        stream.seek(-8, os.SEEK_END)
        count = int(np.fromfile(stream, dtype="<u8", count=1)[0])
        stream.seek(-8 * (4 * count + 1), os.SEEK_END)
        return np.fromfile(stream, dtype="<u8", count=4 * count).reshape(-1, 4)
