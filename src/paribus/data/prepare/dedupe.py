"""What becomes of each document: dropped for one of three reasons, or kept in a split. One byte a document.

Of equal texts the first is kept (or the one in the last file, where that is held out), of near duplicates the first
that no earlier one drops. Then training documents that share a 13-gram with an evaluation set go.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paribus.data.clusters import Clusters, clusters
from paribus.data.duplicates import Candidates, find_candidates, near_duplicates_of
from paribus.data.exact import exact_repeats
from paribus.data.partitions import rows_of
from paribus.data.prepare.finished import record, recorded
from paribus.data.prepare.inventory import Lot, Work, block_number, blocks_of, first_of_last_file
from paribus.data.prepare.reading import batches
from paribus.data.prepare.scan import BY_CLUSTER, band_path, digest_path, needs_band_keys, scanned, split_number
from paribus.data.prepare.workers import Workers
from paribus.data.shingle_files import write_shingle_sets
from paribus.data.split import SPLITS
from paribus.disk import whole
from paribus.errors import CorpusError

STAGE = "dedupe"
EXACT_DUPLICATE, NEAR_DUPLICATE, CONTAMINATED = 101, 102, 103
"""decisions; a document that is kept has the place of its split in SPLITS"""
_NAMES = {
    EXACT_DUPLICATE: "exact_duplicates",
    NEAR_DUPLICATE: "near_duplicates",
    CONTAMINATED: "contaminated",
} | dict(enumerate(SPLITS))
_FEW_DOCUMENTS = 100
_CLUSTER_SIMILARITY = 0.8
"""where near duplicates are kept, but a cluster of them in one split"""


def decide(
    work: Work,
    workers: Workers,
    lots: Sequence[Lot],
    documents: Sequence[int],
    progress: Callable[[int, int], None],
) -> dict[str, int]:
    """Decide on every document, unless that is done. `documents`: how many each lot has.

    Returns how many were dropped for each reason and kept in each split, by name. Raises CorpusError where a split is
    empty that should not be. `progress` is called with (done, all) of the documents that have to be compared.
    """
    mark = work.path(STAGE, "decisions.json")
    if (done := recorded(mark)) is not None:
        return done
    folder = work.folder / STAGE
    of_block = [(lot, block) for lot, count in zip(lots, documents, strict=True) for block, _, _ in blocks_of(count)]
    first = first_of_last_file(lots) if work.corpus.held_out == "last-file" else 0
    exact = exact_repeats([digest_path(work, lot, block) for lot, block in of_block], folder / "exact", first=first)
    near = np.zeros(0, dtype=np.int64)
    cluster: Clusters | None = None
    if needs_band_keys(work.corpus):
        files = [band_path(work, lot, block) for lot, block in of_block]
        candidates = find_candidates(files, folder / "candidates", left_out=exact)
        sets = _shingle_sets(work, workers, lots, documents, candidates)
        similarity = work.corpus.near_duplicate_similarity
        if similarity is not None:
            near = near_duplicates_of(candidates, sets, similarity, folder, progress=progress)
        if work.corpus.split_by == "minhash-cluster":
            cluster = clusters(candidates, sets, similarity or _CLUSTER_SIMILARITY)
    counts: Counter[int] = Counter()
    with whole(work.path(STAGE, "decisions")) as stream:
        for decision in _decisions(work, lots, exact, near, cluster):
            stream.write(decision.tobytes())
            values, found = np.unique(decision, return_counts=True)
            counts.update(dict(zip(values.tolist(), found.tolist(), strict=True)))
    summary = {name: counts[value] for value, name in _NAMES.items()}
    _check_splits(work, summary)
    record(mark, [work.path(STAGE, "decisions")], summary)
    return summary


def decisions_of(work: Work, first: int, documents: int) -> NDArray[np.uint8]:
    """`[document]`: the decisions on a lot; `first` is how many documents precede it."""
    if documents == 0:
        return np.zeros(0, dtype=np.uint8)
    return np.fromfile(work.path(STAGE, "decisions"), dtype=np.uint8, count=documents, offset=first)


def _decisions(
    work: Work, lots: Sequence[Lot], exact: NDArray[np.int64], near: NDArray[np.int64], cluster: Clusters | None
) -> Iterator[NDArray[np.uint8]]:
    train = SPLITS.index("train")
    for lot in lots:
        in_last_file = lot.pieces[0].file == work.last_file
        for block, table in enumerate(scanned(work, lot)):
            number = block_number(lot.number, block)
            splits = table["split"].to_numpy().copy()
            if cluster is not None:
                smallest = cluster.smallest_of(number)
                ids: list[bytes] = table["id"].to_pylist()
                keys = (smallest.get(row, own) for row, own in enumerate(ids))
                splits[:] = [split_number(work.corpus, key, in_last_file) for key in keys]
            assert (splits != BY_CLUSTER).all()
            decision = splits.astype(np.uint8)
            contaminated = table["contaminated"].to_numpy(zero_copy_only=False)
            decision[contaminated & (splits == train)] = CONTAMINATED
            decision[rows_of(near, number)] = NEAR_DUPLICATE
            decision[rows_of(exact, number)] = EXACT_DUPLICATE
            yield decision


def _shingle_sets(
    work: Work, workers: Workers, lots: Sequence[Lot], documents: Sequence[int], candidates: Candidates
) -> list[Path]:
    tasks = []
    for lot, count in zip(lots, documents, strict=True):
        rows = {block: candidates.rows(block_number(lot.number, block)) for block, _, _ in blocks_of(count)}
        rows = {block: np.asarray(found) for block, found in rows.items() if len(found)}
        if rows:
            tasks.append((lot, rows))
    for _ in workers.run(_write_sets, tasks):
        pass
    return [_set_path(work, lot, block) for lot, rows in tasks for block in rows]


def _write_sets(work: Work, task: tuple[Lot, dict[int, NDArray[np.int64]]]) -> None:
    lot, rows = task
    mark = work.path(STAGE, f"{lot.stem}.json")
    if recorded(mark) is not None:
        return
    texts = _texts_of(work, lot, rows)
    for block, found in rows.items():
        write_shingle_sets(
            _set_path(work, lot, block), block_number(lot.number, block), found.tolist(), _next(texts, len(found))
        )
    record(mark, [_set_path(work, lot, block) for block in rows], {})


def _texts_of(work: Work, lot: Lot, rows: dict[int, NDArray[np.int64]]) -> Iterator[bytes]:
    """The texts of the rows, block by block, in order."""
    for batch in batches(work, lot):
        wanted = rows.get(batch.block)
        if wanted is not None:
            begin, end = np.searchsorted(wanted, [batch.row, batch.row + len(batch.documents)])
            for row in wanted[begin:end].tolist():
                yield batch.documents[row - batch.row].utf8


def _next(texts: Iterator[bytes], count: int) -> Iterator[bytes]:
    # Not islice: it would look for one more than it gives.
    for _ in range(count):
        yield next(texts)


def _set_path(work: Work, lot: Lot, block: int) -> Path:
    return work.path(STAGE, f"{lot.stem}-{block:05d}.shingles")


def _check_splits(work: Work, summary: dict[str, int]) -> None:
    config = work.corpus
    validation = 1.0 if config.held_out == "last-file" else config.validation_fraction
    fractions = {"train": 1.0, "validation": validation, "test": config.test_fraction}
    for name, fraction in fractions.items():
        if summary[name] == 0 and fraction > 0:
            raise CorpusError(
                f"the {name} split is empty",
                expected="at least one document",
                received=", ".join(f"{reason} {count}" for reason, count in summary.items()),
                remedy=_more(name, sum(summary.values()), by_hash=config.held_out == "hash"),
            )


def _more(split: str, documents: int, *, by_hash: bool) -> str:
    """What fills an empty split. A document's split is fixed by its text, so with few of them chance decides."""
    if split == "validation" and not by_hash:
        return "hold out another last file, one whose documents are texts, or split by the hash (held_out)"
    if split == "train":
        return "use more documents, or smaller fractions (test_fraction, validation_fraction)"
    remedy = f"use more documents, or a larger {split}_fraction (--{split}-fraction on the command line)"
    if documents >= _FEW_DOCUMENTS:
        return remedy
    return f"{remedy}; of as few as these, 0.3 for test and 0.3 for validation put a third or so into each split"
