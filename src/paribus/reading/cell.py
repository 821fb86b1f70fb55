"""A cell as the disk has it: its state, its rows, and whether they can be evidence. Needs no tensors."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.errors import StudyFolderError
from paribus.experiment.metrics import BITS_PER_BYTE, NLL, parse
from paribus.experiment.spec import Key
from paribus.reading.answers import ReadAnswers, read_answers
from paribus.reading.learning import curve_metric, slice_nll
from paribus.report.content import Measurement
from paribus.runs import layout
from paribus.runs.folder import CellFolder
from paribus.runs.rows import LIKELIHOOD, READINGS, rows_fault, without_bytes

ENDED = ("complete", "diverged")
QUANTITIES = {NLL: "nats_per_token", BITS_PER_BYTE: "bits_per_byte"}
"""field of a measurement by the metric's quantity"""
UNUSED = ("altered", "unusable")
"""states of finished cells that cannot be evidence: changed since they ended, or holding what no training leaves"""


@dataclass(frozen=True)
class ReadCell:
    """A cell of the study as the disk has it. Rows are read once, and only where the cell is complete."""

    key: Key
    state: str
    """complete, diverged, running, started, missing, stale, altered or unusable"""
    digest: str
    folder: CellFolder | None
    alterations: tuple[str, ...] = ()
    """what of its rows is not as it was written; such a cell is not used"""
    faults: tuple[str, ...] = ()
    """what it holds that cannot be evidence, though nothing says that it was changed; such a cell is not used"""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """of a task: excess loss below which a slice counts as acquired, nats per target, by slice"""

    @cached_property
    def measurements(self) -> list[Measurement]:
        """One for each split and budget, recomputed from the documents' rows."""
        return list(self._measured.values())

    @cached_property
    def _measured(self) -> dict[str, Measurement]:
        """By name of the row file. StudyFolderError where rows are no likelihoods."""
        if self.folder is None or self.state != "complete":
            return {}
        return {name: self._measurement(self.folder, name) for name in self.folder.row_files("likelihood")}

    def _measurement(self, folder: CellFolder, name: str) -> Measurement:
        rows = folder.rows(name, LIKELIHOOD)
        if wrong := rows_fault(rows):
            raise StudyFolderError(
                f"{name}.parquet {wrong}",
                expected="a finite number of nats for each document",
                remedy="delete the cell's folder and run again; other cells are kept",
            )
        self._documents[name] = len(rows)
        scale, arm, seed, _ = self.key
        nats, tokens = (math.fsum(rows[column].to_numpy()) for column in ("nats", "tokens"))
        size = None if without_bytes(rows) else math.fsum(rows["bytes"].to_numpy())
        return Measurement(
            scale=scale,
            arm=arm,
            seed=seed,
            tokens_seen=rows["tokens_seen"][0].as_py(),
            split=_split_of(name),
            nats_per_token=nats / tokens,
            bits_per_byte=None if size is None else nats / (math.log(2.0) * size),
            mid_schedule=rows["mid_schedule"][0].as_py(),
        )

    def document_rows(self, split: str, columns: Sequence[str]) -> pa.Table | None:
        """Rows of the split's documents at the end of the schedule; None where the cell has none."""
        names = [name for name, m in self._measured.items() if m.split == split and not m.mid_schedule]
        return self.folder.rows(names[-1], columns) if names and self.folder is not None else None

    def number_of_documents(self, split: str) -> int | None:
        """Documents of the split that were scored at the end of the schedule; None where there are none."""
        names = [name for name, m in self._measured.items() if m.split == split and not m.mid_schedule]
        return self._documents[names[-1]] if names else None

    @cached_property
    def _documents(self) -> dict[str, int]:
        """Number of documents by name of the row file, once it was measured."""
        return {}

    def documents_digest(self, split: str) -> str:
        """Of which documents of the split were scored at the end, with their lengths; empty where none were."""
        if split not in self._documents_digests:
            rows = self.document_rows(split, ("document", "tokens", "bytes"))
            digest = hashlib.blake2b(digest_size=8)
            for column in ("tokens", "bytes"):
                if rows is not None and not (column == "bytes" and without_bytes(rows)):
                    digest.update(np.asarray(rows[column].to_numpy(), np.int64).tobytes())
            digest.update(b"" if rows is None else "\n".join(map(str, rows["document"].to_pylist())).encode())
            self._documents_digests[split] = "" if rows is None else digest.hexdigest()
        return self._documents_digests[split]

    @cached_property
    def _documents_digests(self) -> dict[str, str]:
        return {}

    def final(self, metric: str) -> float | None:
        """The metric ("test.nll", ...) at the end of the schedule; None where the cell is not complete."""
        asked = parse(metric)
        split = asked.split
        if asked.of_training:
            return curve_metric(self.metrics, asked, self.thresholds)
        if asked.slices:
            rows = self.document_rows(split, ("source", "tokens", "nats"))
            return None if rows is None else slice_nll(rows, asked.slices)
        field = QUANTITIES[asked.quantity]
        values = [getattr(m, field) for m in self.measurements if m.split == split and not m.mid_schedule]
        return values[0] if values else None

    @cached_property
    def answers(self) -> tuple[ReadAnswers, ...]:
        """To downstream tasks: the cell's own, then those after each fine-tuning. Empty where it is not complete."""
        if self.folder is None or self.state != "complete":
            return ()
        return read_answers(self.folder, "/".join(map(str, self.key[:3])), self.summary)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return self.folder.metrics() if self.folder is not None and self.state == "complete" else []

    @cached_property
    def record(self) -> dict[str, Any]:
        return self.folder.record() if self.folder is not None and self.state in ENDED else {}

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self.folder.summary() if self.folder is not None and self.state in ENDED else {}


def _split_of(name: str) -> str:
    """ "likelihood/test-00000112" is of the split "test"."""
    return name.partition("/")[2].partition("-")[0]


def _faults(cell: ReadCell) -> list[str]:
    """What a finished cell holds that cannot be evidence, whatever its digests say."""
    folder = cell.folder
    assert folder is not None
    found = folder.faults(*cell.key)
    if found or cell.state != "complete":
        return found
    try:
        wrong = layout.metrics_fault(cell.metrics, cell.summary["steps"])
        if wrong:
            return [f"metrics.jsonl: {wrong}"]
        ends = [m.split for m in cell.measurements if not m.mid_schedule]
        for group, columns in READINGS.items():
            for name in folder.row_files(group):
                folder.rows(name, columns)
    except (OSError, StudyFolderError) as error:
        what = error.what if isinstance(error, StudyFolderError) else str(error)
        return [what.replace(f"{folder.path}/", "")]
    twice = sorted({split for split in ends if ends.count(split) > 1})
    return [f"the {split} split has several ends of the schedule" for split in twice]


def checked(cell: ReadCell) -> ReadCell:
    """The cell as it is, or as one that is not used, with why."""
    if cell.folder is None or cell.state not in ENDED:
        return cell
    key, digest, folder = cell.key, cell.digest, cell.folder
    if altered := folder.alterations():
        return ReadCell(key, "altered", digest, folder, alterations=tuple(altered))
    if faults := _faults(cell):
        return ReadCell(key, "unusable", digest, folder, faults=tuple(faults))
    return cell


def same_documents(cells: Sequence[ReadCell], split: str) -> bool:
    """Whether every cell that scored the split scored the same documents of it."""
    return len({cell.documents_digest(split) for cell in cells} - {""}) <= 1
