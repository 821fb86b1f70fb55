"""The disk that a study will need: checkpoints exactly, rows roughly, its corpus, and what is free where it goes.

What fine-tuning adds, answers to evaluation sets and the report are not counted.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console

from paribus.data.frozen import FrozenCorpus, token_type
from paribus.data.updates import updates_of
from paribus.errors import CorpusError, StudyFolderError
from paribus.experiment.plan import Cell, cells, device_of
from paribus.experiment.space import CellSpace, cell_space, scored_units
from paribus.experiment.spec import STUDY, Execution, Experiment
from paribus.planning.facts import Arms
from paribus.runs.checkpoints import KEPT
from paribus.runs.study_folder import StudyFolder
from paribus.stats.power import count_of
from paribus.terminal import bytes_in_words, table
from paribus.texts import recorded

ROWS_TOLERANCE = 2.0
"""factor within which rows are estimated"""


@dataclass(frozen=True)
class StudySpace:
    """Bytes of one study on the disk."""

    cells: int
    checkpoints_at_end: int
    """of all cells, once each has ended"""
    checkpoints_at_once: int
    """the most that lie there: all cells but the last have ended, and these, as many as there are workers, are each
    writing one more"""
    rows: int
    """metrics, likelihoods, readings and records of all cells, roughly"""
    trials: int
    """checkpoints and rows of all trials of the tuning, if every arm gets as many as it may"""
    corpus: int
    """of the prepared corpus; before it is prepared, the tokens of the longest run, which it has at least"""
    corpus_state: Literal["prepared", "not prepared", "no text"]
    there: int
    """of all this, what finished cells and a prepared corpus occupy already"""
    free: int
    """where the runs go, for this user"""

    @property
    def total(self) -> int:
        """The most that is occupied at any time."""
        return self.checkpoints_at_once + self.rows + self.trials + self.corpus

    @property
    def lacking(self) -> int:
        """By how much what is free falls short; 0 where it does not."""
        return max(self.total - self.there - self.free, 0)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "total": self.total, "lacking": self.lacking}


def study_space(experiment: Experiment, runs: Path, arms: Arms, states: Sequence[Mapping[str, Any]]) -> StudySpace:
    """What the cells of a study need. `states`: which of them are complete, as `planning.facts.cell_states` has it."""
    corpus = _prepared(experiment, runs)
    counts = None if corpus is None else corpus.counts
    laid_out = cells(experiment, arms, "")  # of their digests, which the corpus is part of, nothing is asked

    def of(cell: Cell) -> CellSpace:
        arm = arms[cell.scale, cell.arm]
        return cell_space(experiment, cell, arm, KEPT, scored_units(arm.base, counts))

    spaces = {cell.key: of(cell) for cell in laid_out}
    at_end = sum(space.checkpoint * space.at_end for space in spaces.values())
    growing = sorted((space.checkpoint * (space.at_once - space.at_end) for space in spaces.values()), reverse=True)
    complete = [(s["scale"], s["arm"], s["seed"], s["variant"]) for s in states if s["state"] == "complete"]
    own = 0 if corpus is None else _bytes_below(corpus.folder)
    return StudySpace(
        cells=len(spaces),
        checkpoints_at_end=at_end,
        checkpoints_at_once=at_end + sum(growing[: _workers(experiment.execution)]),
        rows=sum(space.rows for space in spaces.values()),
        trials=_trials(experiment, laid_out, spaces),
        corpus=own or _least_tokens_bytes(experiment, arms),
        corpus_state="no text" if experiment.base.task is not None else "prepared" if corpus else "not prepared",
        there=sum(spaces[key].end_bytes for key in complete if key in spaces) + own,
        free=_free_at(runs),
    )


def _workers(execution: Execution) -> int:
    """As `paribus run` starts them on this machine."""
    gpus = torch.cuda.device_count() if device_of(execution) == "cuda" else 0
    return execution.workers or gpus or max(1, (os.cpu_count() or 1) // execution.threads)


def _trials(experiment: Experiment, laid_out: Sequence[Cell], spaces: Mapping[Any, CellSpace]) -> int:
    """A trial is a cell like the arm's own."""
    tuning = experiment.tuning
    if tuning is None:
        return 0
    own = {(c.scale, c.arm): spaces[c.key].end_bytes for c in laid_out if c.variant == STUDY and c.arm in tuning.knobs}
    return tuning.max_trials * tuning.seeds * sum(own.values())


def _prepared(experiment: Experiment, runs: Path) -> FrozenCorpus | None:
    """The corpus that the study was planned with; None before, and where it is damaged, which `run` says."""
    if experiment.base.task is not None:
        return None
    try:
        return recorded(runs, StudyFolder(runs / experiment.study))
    except (CorpusError, StudyFolderError):
        return None


def _least_tokens_bytes(experiment: Experiment, arms: Arms) -> int:
    if experiment.base.task is not None:
        return 0
    tokens = [
        updates_of(arm.length.budget_tokens, arm.length.batch_tokens)
        * arm.length.batch_tokens
        // arm.base.corpus.epochs
        * token_type(arm.base.vocabulary_size).itemsize
        for arm in arms.values()
    ]
    return max(tokens)


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _free_at(runs: Path) -> int:
    place = runs.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def describe_disk(space: StudySpace, console: Console) -> None:
    """The table, and whether there is room."""
    corpus = {
        "prepared": "the corpus, prepared",
        "not prepared": "the corpus, not prepared yet: at least",
        "no text": "",
    }[space.corpus_state]
    rows = [
        (f"checkpoints of {count_of(space.cells, 'cell')} when all have ended", space.checkpoints_at_end),
        ("checkpoints while the last are being trained", space.checkpoints_at_once),
        ("rows and records, roughly", space.rows),
        *([("trials of the tuning, at most", space.trials)] if space.trials else []),
        *([(corpus, space.corpus)] if corpus else []),
        ("most at once", space.total),
        *([("of it there already", space.there)] if space.there else []),
        ("free there", space.free),
    ]
    shown = [(what, bytes_in_words(size)) for what, size in rows]
    console.print(table("Disk", ("what", "size"), shown, right=(1,)))
    if space.lacking:
        console.print(f"  there is not enough room: {bytes_in_words(space.lacking)} more are needed", highlight=False)
    console.print()
