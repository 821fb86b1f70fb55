"""A set of tasks from its files to its last cell: study after study, and whatever fails keeps the rest.

First every study is tuned where its file says so, its gates are run and its folder is opened; then the missing cells
are trained task by task, each behind a bar of its own. A study that cannot run (a mechanism that fails a gate, a
geometry it does not fit) is left out with its reason, and the others go on. Every step leaves what the same command
continues from.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

from rich.console import Console

from paribus.checking import require_gates, run_gates
from paribus.costing.running import measure_missing_costs
from paribus.errors import ParibusError
from paribus.experiment import loading
from paribus.experiment.plan import Cell, resolve_arms
from paribus.experiment.spec import Experiment
from paribus.launch.local import available_gpus, number_of_workers, run_workers
from paribus.stats.power import count_of
from paribus.study import Study, open_study, write_plan
from paribus.terminal import live_study, steps_of_preparation
from paribus.tuning.reading import read_tuning
from paribus.tuning.running import tune
from paribus.tunnel.pace import Trained, left_in_words
from paribus.tunnel.session import Session, timed
from paribus.tunnel.suites import Suite, TaskStudy


@dataclass(frozen=True)
class Outcome:
    """How far a suite came."""

    finished: bool
    """False where Ctrl-C came first"""
    experiments: Mapping[str, Experiment]
    """of the tasks that are trained, at their tuned values, by task"""
    failures: Mapping[str, ParibusError]
    """why a task has no result, by task"""


def run_suite(suite: Suite, runs: Path, console: Console) -> Outcome:
    """Train what is missing of every study of the suite below `runs`, its own folder of run folders.

    Raises nothing that belongs to one task: that is in the outcome.
    """
    started = time.monotonic()
    runs.mkdir(parents=True, exist_ok=True)
    with timed(runs, started) as session:
        session.trains = False
        return _run(suite, runs, console, session)


def _run(suite: Suite, runs: Path, console: Console, session: Session) -> Outcome:
    studies: dict[str, Study] = {}
    failures: dict[str, ParibusError] = {}
    _say(console, _announced(suite))
    for study in suite.studies:
        try:
            session.trains |= not read_tuning(study.experiment, runs).finished
            opened = _prepared(study, runs, console)
        except ParibusError as error:
            failures[study.task] = error
            _say(console, f"{study.task}: {error.what}")
            continue
        if opened is None:
            return Outcome(False, {}, failures)
        studies[study.task] = opened
        session.trains |= bool(opened.missing)
    missing = {task: study.missing for task, study in studies.items() if study.missing}
    if missing:
        if not _train(studies, missing, runs, console, failures):
            return Outcome(False, {}, failures)
    else:
        _say(console, f"nothing to train: all {sum(len(s.cells) for s in studies.values())} cells are finished")
    for study in studies.values():
        measure_missing_costs(study.experiment, study.arms, study.folder, console)
    trained = {task: study.experiment for task, study in studies.items() if task not in failures}
    return Outcome(True, trained, failures)


def _announced(suite: Suite) -> str:
    """What the set consists of, before anything of it is looked at."""
    cells = {study.task: len(study.experiment.cell_keys()) for study in suite.studies}
    told = ", ".join(f"{task} {count}" for task, count in cells.items())
    return f"{len(cells)} task{'s' if len(cells) > 1 else ''}, {sum(cells.values())} cells: {told}"


def _prepared(study: TaskStudy, runs: Path, console: Console) -> Study | None:
    """The study, tuned, its gates passed and its plan on record; None where Ctrl-C stopped its tuning."""
    declared, folder = study.experiment, study.file.parent
    with loading.naming(study.file):
        if not read_tuning(declared, runs).finished:
            require_gates(run_gates(declared, resolve_arms(declared), console), study.task)
        experiment = tune(declared, folder, runs, console).tuning.tuned
        if experiment is None:
            return None
        with steps_of_preparation(console) as progress:
            opened = open_study(experiment, folder, runs, progress)
    if not opened.missing:
        write_plan(opened, None)
        return opened
    found = run_gates(experiment, opened.arms, console)
    require_gates(found, study.task)
    write_plan(opened, found)
    _say(console, f"{study.task}: all {len(found)} gates passed")
    return opened


def _train(
    studies: Mapping[str, Study],
    missing: Mapping[str, list[Cell]],
    runs: Path,
    console: Console,
    failures: dict[str, ParibusError],
) -> bool:
    """Every missing cell, a bar a task; False where Ctrl-C stopped them. Adds to `failures` what ended workers."""
    flops = {task: _flops(studies[task], cells) for task, cells in missing.items()}
    trained: list[Trained] = []
    _say(console, f"training {sum(map(len, missing.values()))} cells of {count_of(len(missing), 'task')}")
    for place, (task, cells) in enumerate(missing.items(), 1):
        experiment = studies[task].experiment
        workers = number_of_workers(experiment.execution, len(cells), available_gpus(experiment.execution))
        which = f"{task}, task {place} of {len(missing)}"
        _say(console, f"{which}: {count_of(len(cells), 'cell')}; below, the time left is that of this task")
        started = time.monotonic()
        updates = sum(cell.length.steps - cell.length.leaves_after for cell in cells)
        try:
            with live_study(console, len(cells), updates) as on_event:
                # A task has no path: nothing of it is relative to the file's folder.
                if not run_workers(workers, experiment, runs.resolve(), runs.resolve(), on_event):
                    return False
        except ParibusError as error:
            failures[task] = error
            continue
        trained.append(Trained(flops[task], time.monotonic() - started))
        to_go = list(flops.values())[place:]
        if to_go:
            _say(console, f"{which}, took {trained[-1].seconds / 60:.1f} min; {left_in_words(trained, to_go)}")
    return True


def _flops(study: Study, cells: Sequence[Cell]) -> float:
    """Floating-point operations of all updates of the cells; of one that goes on in the middle those are too many."""
    return fsum(
        study.arms[cell.scale, cell.arm].training_flops_per_token
        * (cell.length.steps - cell.length.leaves_after)
        * cell.length.batch_tokens
        for cell in cells
    )


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
