"""Contrasts on the test documents that share no 13-gram with training text (rules of evidence, section 11).

The same paired difference as the headline's, taken from the rows of the free documents alone: per cell

    sum of -ln p over the free documents / their tokens      (or / (ln 2 * their UTF-8 bytes))

then the difference by seed, its mean and its t interval. It stands beside the verdict and decides nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from paribus.data.marks import NOT_CHECKED, OVERLAP_FREE
from paribus.experiment.metrics import BITS_PER_BYTE, NLL, parse
from paribus.experiment.spec import Contrast, Key
from paribus.reading.cell import ReadCell
from paribus.reading.evidence import unequal_documents
from paribus.reading.study import ReadStudy
from paribus.report.of_overlap import OverlapRow
from paribus.reporting.due import DIVERGED, confidence_of, due, groups
from paribus.stats.paired import (
    PairedDifferences,
    constant,
    interaction_differences,
    paired_differences,
    paired_t,
    t_interval,
)
from paribus.stats.rule import Verdict, Word

SPLIT = "test"
"""the split whose documents a prepared corpus marks"""
NOTHING_FREE = "no scored document is known to be free of overlap"
UNMARKED = "rows of these cells carry no marks"
UNEQUAL = "the cells did not score the same documents with the same marks"
IDENTICAL = "all differences are identical: no information about their spread"


def overlap(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[OverlapRow]:
    """Every contrast of the test split that is due; nothing where no document of any is marked."""
    rows = list(_rows_of(study, verdicts))
    return iter(rows if any(row.documents for row in rows) else ())


def _rows_of(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[OverlapRow]:
    read: dict[Key, _Scored] = {}
    for contrast, verdict in due(study, verdicts):
        metric = parse(contrast.metric)
        if metric.of_training or metric.split != SPLIT or metric.slices:
            continue
        apart = {*unequal_documents(study, contrast)}
        cells = {
            seed: group
            for seed, group in groups(study, contrast, verdict).items()
            if seed not in apart and all(cell.final(contrast.metric) is not None for cell in group)
        }
        for cell in (cell for group in cells.values() for cell in group):
            if cell.key not in read:
                read[cell.key] = _Scored.of(cell)
        found = {seed: [read[cell.key] for cell in group] for seed, group in cells.items()}
        if found:
            yield _row(contrast, verdict, found)


def overlap_caveats(rows: Sequence[OverlapRow]) -> list[str]:
    """Of rows that went through their door: a sign that is another without overlap, and too little that is free."""
    found = []
    for row in rows:
        if row.mean is not None and row.mean_of_all is not None and row.mean * row.mean_of_all < 0:
            found.append(
                f"Contrast {row.contrast}, scale {row.scale}: on the test documents that share no 13-gram with "
                f"training text the difference has the other sign ({row.mean:+.3g} against {row.mean_of_all:+.3g} "
                f"{row.unit})."
            )
    for row in rows:
        if 2 * row.free_tokens < row.tokens:
            found.append(
                f"Only {row.free_tokens:,} of {row.tokens:,} scored test tokens stand in documents known to share no "
                f"13-gram with training text ({row.shared_tokens:,} in documents that do, {row.unchecked_tokens:,} in "
                "documents that were not checked); how a contrast reads without overlap is known of a minor part."
            )
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class _Scored:
    """One cell's test documents, as far as a contrast without overlap needs them."""

    documents: str
    """digest of which documents they are"""
    marks: NDArray[np.int8] | None
    """`[document]`: 1 free, 0 not, `NOT_CHECKED`; None where the rows carry no marks"""
    tokens: NDArray[np.int64]
    """`[document]`"""
    free: Mapping[str, float]
    """by quantity of a metric, over the free documents; none where there is no such document"""

    @classmethod
    def of(cls, cell: ReadCell) -> "_Scored":
        rows = _rows(cell)
        marks = _marks(rows)
        free: dict[str, float] = {}
        if marks is not None and (marks == 1).any():
            here = marks == 1
            nats, tokens = (math.fsum(rows[column].to_numpy()[here]) for column in ("nats", "tokens"))
            free[NLL] = nats / tokens
            if not rows["bytes"].null_count:
                free[BITS_PER_BYTE] = nats / (math.log(2.0) * math.fsum(rows["bytes"].to_numpy()[here]))
        return cls(cell.documents_digest(SPLIT), marks, rows["tokens"].to_numpy(), free)

    def alike(self, other: "_Scored") -> bool:
        """Whether both scored the same documents with the same marks."""
        return self.documents == other.documents and np.array_equal(_known(self), _known(other))


def _known(scored: _Scored) -> NDArray[np.int8]:
    return np.zeros(0, np.int8) if scored.marks is None else scored.marks


def _rows(cell: ReadCell) -> pa.Table:
    """Rows of the test documents at the end of the schedule, with marks where they have any."""
    folder = cell.folder
    assert folder is not None
    # Every column is read: an earlier version wrote no marks, and that is no fault.
    names = (name for name in folder.row_files("likelihood") if name.startswith(f"likelihood/{SPLIT}-"))
    return next(rows for name in names if not (rows := folder.rows(name))["mid_schedule"][0].as_py())


def _marks(rows: pa.Table) -> NDArray[np.int8] | None:
    """None too where the column holds something else than marks."""
    if OVERLAP_FREE not in rows.column_names or not pa.types.is_boolean(rows.schema.field(OVERLAP_FREE).type):
        return None
    return rows[OVERLAP_FREE].cast(pa.int8()).fill_null(NOT_CHECKED).to_numpy()


def _row(contrast: Contrast, verdict: Verdict, found: Mapping[int, list[_Scored]]) -> OverlapRow:
    quantity = parse(contrast.metric).quantity
    every = [scored for group in found.values() for scored in group]
    unmarked = sum(scored.marks is None for scored in every)
    first = next((scored for scored in every if scored.marks is not None), every[0])
    note, pairs = "", PairedDifferences((), ())
    if verdict.word is Word.DIVERGENCE:
        note = DIVERGED
    elif unmarked:
        note = f"{UNMARKED}: {unmarked} of {len(every)}"
    elif not all(scored.alike(first) for scored in every):
        note = UNEQUAL
    elif quantity not in first.free:
        note = NOTHING_FREE
    else:
        arms = [
            {seed: group[place].free[quantity] for seed, group in found.items()} for place in range(len(contrast.arms))
        ]
        pairs = interaction_differences(*arms) if len(arms) > 2 else paired_differences(*arms)
        values = [abs(value) for arm in arms for value in arm.values()]
        if len(pairs.differences) > 1 and constant(pairs.differences, max(values) * len(arms) / 2):
            note = IDENTICAL
    confidence = confidence_of(verdict)
    spread = len(pairs.differences) > 1 and not note
    test = paired_t(pairs.differences) if spread else None
    documents, tokens = (_by_mark(_known(first), weight) for weight in (np.ones_like(first.tokens), first.tokens))
    return OverlapRow(
        contrast=verdict.name,
        scale=verdict.scale,
        metric=contrast.metric,
        unit=verdict.unit,
        mean=float(np.mean(pairs.differences)) if pairs.differences else None,
        standard_error=None if test is None else test.standard_error,
        degrees_of_freedom=None if test is None else test.degrees_of_freedom,
        interval=None if test is None else t_interval(pairs.differences, confidence),
        confidence=confidence,
        mean_of_all=verdict.mean,
        pairs=len(pairs.differences),
        free_documents=documents[0],
        shared_documents=documents[1],
        unchecked_documents=documents[2],
        free_tokens=tokens[0],
        shared_tokens=tokens[1],
        unchecked_tokens=tokens[2],
        note=note,
    )


def _by_mark(marks: NDArray[np.int8], weight: NDArray[np.int64]) -> list[int]:
    """Sum of the weights of documents that are free, that share, that were not checked."""
    weight = weight[: len(marks)]  # nothing is counted where nothing is marked
    return [int(weight[marks == mark].sum()) for mark in (1, 0, NOT_CHECKED)]
