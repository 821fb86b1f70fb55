"""A task as a corpus: endless training batches, held-out rows, and a digest, without a file.

Training rows, validation rows and test rows are rows of one task under one key, at steps that never meet: each seed of
a study has its own, its arms share them, and no row is ever seen twice.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paribus.data.frozen import SplitCounts
from paribus.data.held_out import EvaluationBatch, HeldOut
from paribus.data.order import Batch
from paribus.data.split import SPLITS, Split
from paribus.data.tasks.contract import Rows, Task, sample
from paribus.data.tasks.steps import FIRST_STEP, MOST_STEPS
from paribus.errors import CorpusError
from paribus.seeds import stream_key

HELD_OUT_TOKENS = 16_384
"""inputs that are scored where the experiment does not say how many"""
HELD_OUT_ROWS_PER_STEP = 64
"""a number of its own: what is scored depends on no arm's batch"""
_STEPS_AT_ONCE = 32
"""steps whose rows are drawn together: calls cost more than numbers at this size"""
_PROBE_ROWS = 8


@dataclass(frozen=True)
class TaskBatch(Batch):
    """Rows of a task as one step reads them; `slice` is the task's, of each target."""

    floor_nats: NDArray[np.float64]
    """`[row time]`: -ln p of the target under the best predictor"""


@dataclass(frozen=True)
class TaskCorpus:
    """A task at one row length, in the place of a frozen corpus."""

    task: Task
    row_length: int
    """tokens; the experiment's context_length"""

    @property
    def config(self) -> dict[str, Any]:
        """What was declared, as JSON types."""
        return {"kind": "task", "task": self.task.name, "knobs": self.task.model_dump(mode="json")}

    @property
    def vocabulary_size(self) -> int:
        return self.task.vocabulary_size

    @cached_property
    def digest(self) -> str:
        """Of the declaration and of the first rows that it yields: another generator is another corpus."""
        digest = hashlib.blake2b(digest_size=32)
        digest.update(json.dumps([self.config, self.row_length], sort_keys=True).encode())
        rows = sample(self.task, 0, 0, _PROBE_ROWS, self.row_length)
        for array in (rows.tokens, rows.targets, rows.asked, rows.slice, rows.document):
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        """What a report needs of the task, as JSON types."""
        return {**self.task.describe(self.row_length), "row_length": self.row_length}

    @property
    def counts(self) -> dict[Split, SplitCounts]:
        """A task has no documents that could be counted: its rows are drawn as they are needed."""
        return {split: SplitCounts(0, 0, 0) for split in SPLITS}


class TaskOrder:
    """The training batches of one (study, scale, seed), shared by its arms; as `paribus.data.order.Order`."""

    def __init__(self, corpus: TaskCorpus, rows_per_batch: int, *, study: str, scale: str, seed: int) -> None:
        self.context_length = corpus.row_length
        self.rows_per_batch = rows_per_batch
        self.slices = corpus.task.slices
        self._task = corpus.task
        self._key = _key(study, scale, seed)
        self._drawn: tuple[int, Rows] | None = None

    @property
    def batches(self) -> int:
        return MOST_STEPS

    def require(self, steps: int) -> None:
        """Raise CorpusError where a run of that many steps would run into the held-out rows."""
        if steps > MOST_STEPS:
            raise CorpusError("too many steps", expected=f"at most {MOST_STEPS:,}", received=f"{steps:,}")

    def batch(self, step: int) -> TaskBatch:
        """The batch of the step, counted from 0."""
        if not 0 <= step < MOST_STEPS:
            raise CorpusError("no such step", expected=f"0 to {MOST_STEPS - 1:,}", received=str(step))
        block = step // _STEPS_AT_ONCE
        if self._drawn is None or self._drawn[0] != block:
            first = block * _STEPS_AT_ONCE
            steps = np.repeat(np.arange(first, first + _STEPS_AT_ONCE), self.rows_per_batch)
            number = np.tile(np.arange(self.rows_per_batch), _STEPS_AT_ONCE)
            self._drawn = (block, self._task.rows(self._key, steps, number, self.context_length))
        begin = (step - block * _STEPS_AT_ONCE) * self.rows_per_batch
        return _as_batch(self._drawn[1], slice(begin, begin + self.rows_per_batch))


def held_out_rows(
    corpus: TaskCorpus, split: Split, tokens: int | None, *, study: str, scale: str, seed: int
) -> HeldOut:
    """Rows of the seed that no training step reads: whole ones, until they hold `tokens` inputs, or 16,384.

    Inputs are what scoring costs, so a limit that suits a text suits a task.
    What is scored is a row's targets of one slice: the unit is called "row:slice", its source is the slice.
    """
    count = -(-(HELD_OUT_TOKENS if tokens is None else tokens) // corpus.row_length)
    number = np.arange(count)
    step, row = FIRST_STEP[split] + number // HELD_OUT_ROWS_PER_STEP, number % HELD_OUT_ROWS_PER_STEP
    rows = corpus.task.rows(_key(study, scale, seed), step, row, corpus.row_length)
    if not rows.asked.any():
        raise CorpusError(
            f"the task '{corpus.task.name}' asks nothing in {count} rows of {corpus.row_length} tokens",
            expected="at least one target",
            remedy="score more rows (base.evaluation), or make base.context_length longer",
        )
    return _units(corpus.task, rows, f"{_key(study, scale, seed):016x}-{split}")


def _units(task: Task, rows: Rows, prefix: str) -> HeldOut:
    of_slice = len(task.slices)
    number = np.arange(len(rows.tokens))[:, None] * of_slice + rows.slice  # [row time], of (row, slice)
    targets = np.bincount(number[rows.asked], minlength=len(rows.tokens) * of_slice)
    floor = np.zeros(len(targets))
    np.add.at(floor, number[rows.asked], rows.floor_nats[rows.asked])
    present = np.flatnonzero(targets)
    unit_of = np.zeros(len(targets), dtype=np.int64)
    unit_of[present] = np.arange(len(present))
    names = [f"{prefix}-{unit // of_slice}:{task.slices[unit % of_slice]}" for unit in present.tolist()]
    unit = np.where(rows.asked, unit_of[number], 0)

    def batches(max_tokens: int) -> Iterator[EvaluationBatch]:
        per_batch = max(max_tokens // rows.tokens.shape[1], 1)
        for begin in range(0, len(rows.tokens), per_batch):
            here = slice(begin, begin + per_batch)
            batch = _as_batch(rows, here)
            yield EvaluationBatch(
                tokens=batch.tokens,
                targets=batch.targets,
                weight=batch.weight,
                document=batch.document,
                slice=batch.slice,
                document_row=np.arange(len(rows.tokens))[here],
                unit=unit[here],
                answer=rows.answer[here],
            )

    return HeldOut(
        unit=names,
        source=[task.slices[unit % of_slice] for unit in present.tolist()],
        tokens=targets[present].astype(np.int64),
        bytes=None,
        floor_nats=floor[present],
        documents=len(rows.tokens),
        batches=batches,
        slices=task.slices,
    )


def _key(study: str, scale: str, seed: int) -> int:
    return stream_key(study, scale, seed, "order", "task")


def _as_batch(rows: Rows, here: slice) -> TaskBatch:
    return TaskBatch(
        tokens=rows.tokens[here],
        targets=rows.targets[here],
        weight=rows.asked[here].astype(np.float32),
        document=rows.document[here],
        slice=rows.slice[here],
        floor_nats=rows.floor_nats[here],
    )
