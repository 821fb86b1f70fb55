"""Cells fine-tuned seed by seed, all arms of a seed before the next, so that pairs complete early; and the check that
the arms of a seed learnt from the same batches."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from paribus.downstream.chat.mixture import Mixture
from paribus.errors import PairCheckError, ParibusError
from paribus.finetuning.base import RECORD, BaseCell, recipe_of
from paribus.finetuning.cell import Job, finetune
from paribus.finetuning.prepared import Prepared, prepare_chat
from paribus.runs.records import read_json
from paribus.terminal import live_study, steps_of_preparation
from paribus.trained import open_model


@dataclass(frozen=True)
class Outcome:
    """What became of one cell."""

    base: BaseCell
    state: str
    """complete, diverged, stopped, claimed or missing"""
    folder: Path
    was_done: bool
    """it had ended before"""
    summary: dict[str, Any]
    """DONE or DIVERGED; empty where it has not ended"""


def finetune_cells(folders: Sequence[Path], mixture: Mixture, data: Path, console: Console) -> list[Outcome]:
    """Fine-tune each cell that is not yet, one after the other in this process; Ctrl-C leaves a checkpoint.

    Two processes that are started on the same cells share them. Raises what is wrong with cells, data and settings
    before anything is trained, and PairCheckError where the arms of a seed read different batches.
    """
    bases = sorted((BaseCell.read(folder) for folder in folders), key=lambda b: (b.scale, b.seed, b.arm, b.variant))
    if not bases:
        raise ParibusError("there is no finished cell to fine-tune", expected="at least one", received="none")
    was_done = {base.folder.path for base in bases if base.finetuned(mixture.name).finished}
    with steps_of_preparation(console) as progress:
        jobs = _jobs(bases, mixture, data, progress)
    pending = [job for job in jobs if job.base.folder.path not in was_done]
    states: dict[Path, str] = {}
    for job in jobs:
        if job not in pending:  # whether its settings are still these, and nothing else
            states[job.base.folder.path] = finetune(job, lambda _: None, lambda: False)
    steps = sum(job.steps for job in pending)
    with _interruptible() as stopped, live_study(console, len(pending), steps) as on_event:
        for job in pending:
            if stopped():
                break
            states[job.base.folder.path] = finetune(job, on_event, stopped)
    outcomes = [_outcome(job, states.get(job.base.folder.path, "missing"), was_done) for job in jobs]
    require_pairs(outcomes)
    return outcomes


def require_pairs(outcomes: Sequence[Outcome]) -> None:
    """PairCheckError where complete arms of one seed with rows and batches of one size read different batches."""
    first: dict[tuple[Any, ...], Outcome] = {}
    for outcome in outcomes:
        if outcome.state != "complete":
            continue
        base = outcome.base
        recipe = read_json(outcome.folder / RECORD)["settings"]["recipe"]
        key = (base.study, base.scale, base.seed, recipe["context_length"], recipe["batch_tokens"], recipe["steps"])
        other = first.setdefault(key, outcome)
        if other.summary["batch_digest"] != outcome.summary["batch_digest"]:
            raise PairCheckError(
                f"{other.base.name} and {base.name} were fine-tuned on different batches",
                expected=f"batch digest {other.summary['batch_digest']}",
                received=outcome.summary["batch_digest"],
                remedy=f"delete {outcome.folder} to fine-tune it again",
            )


def _jobs(bases: Sequence[BaseCell], mixture: Mixture, data: Path, progress: Callable[..., None]) -> list[Job]:
    """Data is read once for each study and context; cells of one study share a tokenizer."""
    prepared: dict[tuple[str, int], Prepared] = {}
    jobs = []
    for base in bases:
        recipe = recipe_of(base, mixture.training)
        key = (str(base.folder.path.resolve().parents[2]), recipe.context_length)
        if key not in prepared:
            tokenizer = open_model(base.folder.path).tokenizer
            prepared[key] = prepare_chat(mixture, data, tokenizer, recipe.context_length, progress)
        job = Job(base, recipe, prepared[key], prepared[key].batches(base, recipe))
        assert job.steps > 0
        jobs.append(job)
    return jobs


def _outcome(job: Job, state: str, was_done: set[Path]) -> Outcome:
    path = job.base.folder.path
    summary = job.folder.summary() if state in ("complete", "diverged") else {}
    return Outcome(job.base, state, job.folder.path, path in was_done, summary)


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Inside the block the first Ctrl-C only says so; a second one ends the process as usual."""
    signals = 0
    previous: dict[int, Any] = {}

    def on_signal(number: int, frame: object) -> None:
        nonlocal signals
        del frame
        signals += 1
        signal.signal(number, previous[number])

    previous.update({number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)})
    try:
        yield lambda: signals > 0
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
