"""The disk that a cell needs: its checkpoints, exactly, and roughly what it puts on record beside them.

Checkpoints are nearly all of it. At the end a cell keeps its latest ones and those that others start from or are asked
at; while it trains, one more is being written before the oldest goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paribus.data.frozen import SplitCounts
from paribus.data.split import Split
from paribus.data.tasks.stream import HELD_OUT_TOKENS
from paribus.experiment.plan import ArmAtScale, Cell
from paribus.experiment.spec import REPEAT, STUDY, Base, Experiment
from paribus.model.accounting.checkpoints import checkpoint_bytes

NAMES_BYTES_PER_TENSOR = 105
"""of the list of names in a safetensors file: 97 to 106 were measured, by the length of parameters' names"""
CHECKPOINT_RECORDS_BYTES = 380
"""the record of the step and the marker with sizes and digests: 373 to 380 were measured"""
METRICS_LINE_BYTES = 200
"""of an update: 198 to 200 were measured without the slices of a task"""
SLICE_BYTES = 80
"""of a task's slice in a line of metrics, beside its name: 59 to 89 were measured"""
RECORD_BYTES, RECORD_BYTES_PER_TENSOR = 5_000, 50
"""of cell.json with DONE, 2.6 to 8.7 kB, and of the digest of an initial tensor, 47 to 49 bytes"""
ROW_FILE_BYTES = 2_500
"""of a Parquet file with next to no rows: 2.4 to 2.8 kB were measured"""
UNIT_BYTES = 19
"""of a document, or of a slice of a row, in a likelihood file: 11 to 19 were measured"""
ROUTE_BYTES, ROUTE_TOKENS = 6, 512
"""of one weight of a token's route through depth, 5.6 to 6.0, and how many tokens' routes are kept"""
READINGS_BYTES_PER_LAYER = 4_000
"""of diagnostics and interventions: with their two files 1.1 to 8.1 kB a layer were measured"""


@dataclass(frozen=True)
class CellSpace:
    """Bytes of one cell on the disk."""

    checkpoint: int
    """one of them: tensors exactly, their names and records roughly"""
    at_once: int
    """checkpoints that lie there while another one is being written, that one among them"""
    at_end: int
    """checkpoints that stay"""
    rows: int
    """everything else, roughly"""

    @property
    def peak_bytes(self) -> int:
        return self.checkpoint * self.at_once + self.rows

    @property
    def end_bytes(self) -> int:
        return self.checkpoint * self.at_end + self.rows


def kept_steps(experiment: Experiment, cell: Cell) -> frozenset[int]:
    """Updates after which the state is kept to the end: shorter runs leave there, or evaluation sets will be asked."""
    downstream = experiment.downstream
    if downstream is None or downstream.at == "end" or cell.variant != STUDY:
        return frozenset(cell.branches_at)
    return frozenset({*cell.branches_at, *cell.length.milestones()})


def checkpoint_file_bytes(arm: ArmAtScale) -> int:
    """One checkpoint's folder: tensors to the byte once every parameter was updated, names and records roughly."""
    tensors = checkpoint_bytes(arm.model, arm.seam_configs, arm.base.optimiser.matrix_update)
    # AdamW keeps two moments and a count of each tensor; Muon a momentum, and nanochat's a variance.
    stored = sum(1 + {"none": 0, "AdamW": 3, "Muon": 1}.get(group.optimiser, 2) for group in arm.groups.values())
    return tensors + NAMES_BYTES_PER_TENSOR * stored + CHECKPOINT_RECORDS_BYTES


def scored_units(base: Base, counts: Mapping[Split, SplitCounts] | None) -> int:
    """Documents of a text, or slices of a task's rows, that are scored at one milestone, test and validation together;
    0 for a text that nobody has counted."""
    asked: dict[Split, int | None] = {
        "test": base.evaluation.test_tokens,
        "validation": base.evaluation.validation_tokens,
    }
    if base.task is not None:
        rows = sum(-(-(tokens or HELD_OUT_TOKENS) // base.context_length) for tokens in asked.values())
        return rows * len(base.task.slices)
    if counts is None:
        return 0
    found = 0
    for split, tokens in asked.items():
        there = counts[split]
        share = 1.0 if tokens is None or not there.tokens else min(1.0, tokens / there.tokens)
        found += min(there.documents, int(share * there.documents) + 1)
    return found


def cell_space(experiment: Experiment, cell: Cell, arm: ArmAtScale, latest: int, units: int = 0) -> CellSpace:
    """What a cell needs. `latest`: checkpoints that are kept whatever their step; `units`: documents, or slices of
    rows, that are scored at one milestone in both splits together (0 where that is not known)."""
    length, kept = cell.length, kept_steps(experiment, cell)
    begin, last, every = length.leaves_after, length.steps, experiment.execution.checkpoint_steps
    staying = sum(begin < step <= last for step in kept)
    regular = last // every - begin // every + (last % every != 0)
    regular -= sum(begin < step <= last and (step % every == 0 or step == last) for step in kept)
    # A wish to stop writes one at any update, so that there may be one more than the regular ones.
    at_once = min(staying + latest + 1, last - begin)
    return CellSpace(
        checkpoint=checkpoint_file_bytes(arm),
        at_once=at_once,
        at_end=staying + min(latest, regular),
        rows=_rows_bytes(cell, arm, units),
    )


def _rows_bytes(cell: Cell, arm: ArmAtScale, units: int) -> int:
    task = arm.base.task
    line = METRICS_LINE_BYTES + sum(SLICE_BYTES + len(name) for name in (() if task is None else task.slices))
    found = RECORD_BYTES + RECORD_BYTES_PER_TENSOR * len(arm.shapes) + line * cell.length.steps
    found += len(cell.length.milestones()) * (2 * ROW_FILE_BYTES + UNIT_BYTES * units)
    if cell.variant in (STUDY, REPEAT):
        found += 2 * ROW_FILE_BYTES + READINGS_BYTES_PER_LAYER * arm.model.layers
        mixed = sum(len(read["sources"]) for read in arm.source_lists if len(read["sources"]) > 1)
        found += (ROW_FILE_BYTES + ROUTE_BYTES * ROUTE_TOKENS * mixed) if mixed else 0
    return found
