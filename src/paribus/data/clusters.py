"""Clusters of near duplicates: what a split by cluster keeps together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paribus.data.duplicates import Candidates
from paribus.data.partitions import rows_of
from paribus.data.shingle_files import ShingleSets

_REFUSED_AT_MOST = 2**20


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


def clusters(candidates: Candidates, sets: Sequence[Path], similarity: float) -> Clusters:
    """The connected components of the pairs of candidates with at least this Jaccard index.

    They depend on the texts alone, not on order or layout: every pair of a group is compared, or is in one component
    already. Raises CorpusError where `sets` lack a candidate.
    """
    shingles = ShingleSets.of(candidates.positions, sets)
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
