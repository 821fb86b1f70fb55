"""`paribus run` up to the report: tuning, gates, cells, costs, questions. Each leaves what the next run continues.

And `paribus work`: one more worker for the same study, on any machine that shares its folder.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from paribus.checking import run_gates
from paribus.costing.running import measure_missing_costs
from paribus.errors import StudyFolderError
from paribus.evaluating.command import ask_declared, declared_jobs
from paribus.experiment import loading
from paribus.experiment.gates import require_all
from paribus.experiment.plan import Cell, resolve_arms
from paribus.experiment.spec import TUNING, Experiment
from paribus.experiment.tuning import trial_experiment
from paribus.launch.local import CUBLAS_WORKSPACE, available_gpus, number_of_workers, run_workers, train_here
from paribus.runs.failures import ParkedError, retry
from paribus.study import Study, gates_hold_here, open_study, planned_alike, write_plan
from paribus.terminal import live_study, steps_of_preparation
from paribus.tuning.reading import read_tuning
from paribus.tuning.running import require_knobs_used, tune

CHANGES_SHOWN = 3
"""fields that are named of stale cells"""


def finish(declared: Experiment, file: Path, runs: Path, console: Console, retry_parked: bool = False) -> bool:
    """Bring the study of `file`, as it declares it, to its last cell and measurement; False where a signal came first.

    ParkedError where cells failed too often, after everything else is done. `retry_parked`: tries such cells again.
    """
    if retry_parked:
        _retry(declared, runs, console)
    with loading.naming(file):
        if declared.downstream is not None:
            declared_jobs(declared.downstream, file.parent)  # what cannot be asked is said before anything is trained
        if not read_tuning(declared, runs).finished:
            require_all(run_gates(declared, resolve_arms(declared), console))
        experiment = tune(declared, file.parent, runs, console).tuning.tuned
    if experiment is None:
        return False
    with loading.naming(file), steps_of_preparation(console) as progress:
        study = open_study(experiment, file.parent, runs, progress)
    parked = None
    if missing := study.missing:
        try:
            if not _train(study, missing, file, runs, console):
                return False
        except ParkedError as error:
            parked = error
    else:
        write_plan(study, None)
        console.print(f"nothing to train: all {len(study.cells)} cells are finished", highlight=False)
    measure_missing_costs(experiment, study.arms, study.folder, console)
    ask_declared(experiment, file.parent, runs, console)
    if parked is not None:
        raise parked
    return True


def _retry(declared: Experiment, runs: Path, console: Console) -> None:
    for study in (declared.study, declared.study + TUNING):
        for folder in retry(runs / study):
            _say(console, f"no longer parked: {folder.relative_to(runs)}")


def work(declared: Experiment, file: Path, runs: Path, console: Console, retry_parked: bool = False) -> bool:
    """Be one more worker of the study until nothing is left to train; False where a signal came first.

    Costs are not timed and no report is written: that is `paribus run`'s. What is checked anew here: the file, the
    pairs, the corpus, that the cells are those that the study is planned with, and the gates, where nobody has
    checked them on a machine and with packages like these.
    """
    if retry_parked:
        _retry(declared, runs, console)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE)  # read when CUDA starts, which it has not yet
    with loading.naming(file):
        experiment = _work_on_trials(declared, file, runs, console)
        return experiment is not None and _work_on_study(experiment, file, runs, console)


def _work_on_trials(declared: Experiment, file: Path, runs: Path, console: Console) -> Experiment | None:
    """The experiment as it is tuned, once that is so; None where a signal came first."""
    tuning = read_tuning(declared, runs)
    if tuning.pending:
        arms = resolve_arms(declared)
        require_knobs_used(declared, arms)
        require_all(run_gates(declared, arms, console))
    while tuning.pending:
        steps = {arm: (*tuning.trials[arm], *more) for arm, more in tuning.pending.items()}
        study = _opened(trial_experiment(tuning.experiment, steps), file, runs, console)
        write_plan(study, None)
        if not _join(study, console):
            return None
        before, tuning = tuning, read_tuning(declared, runs)
        if tuning.pending == before.pending:
            raise StudyFolderError(
                f"the tuning of '{declared.study}' does not get on",
                received=", ".join(f"{'/'.join(map(str, key[:3]))} is {of}" for key, of in tuning.unfinished.items()),
                remedy="delete the folders of altered cells to train them again; leave the code as it is meanwhile",
            )
    return tuning.tuned


def _work_on_study(experiment: Experiment, file: Path, runs: Path, console: Console) -> bool:
    study = _opened(experiment, file, runs, console)
    if not study.missing:
        _say(console, f"nothing to train: all {len(study.cells)} cells are finished")
        return True
    planned = planned_alike(study)
    if not planned or not gates_hold_here(study):
        found = run_gates(experiment, study.arms, console)
        require_all(found)
        if not planned:
            write_plan(study, found)
    return _join(study, console)


def _opened(experiment: Experiment, file: Path, runs: Path, console: Console) -> Study:
    with steps_of_preparation(console) as progress:
        return open_study(experiment, file.parent, runs, progress)


def _join(study: Study, console: Console) -> bool:
    missing = study.missing
    _say(console, f"one more worker for {len(missing)} of {len(study.cells)} cells that are not finished")
    steps = sum(cell.length.steps - cell.length.leaves_after for cell in missing)
    with live_study(console, len(missing), steps) as on_event:
        return train_here(study, on_event, _saying(console))


def _train(study: Study, missing: Sequence[Cell], file: Path, runs: Path, console: Console) -> bool:
    """Gates, then every missing cell; False where a signal stopped them."""
    for arm, (count, changed) in study.stale_folders().items():
        said = (
            f" ({'; '.join(changed[:CHANGES_SHOWN])}{', and more' * (len(changed) > CHANGES_SHOWN)})" if changed else ""
        )
        what = "1 stale cell" if count == 1 else f"{count} stale cells"
        console.print(f"{what} of {arm}{said}: kept on disk, not used; trained anew", highlight=False, markup=False)
    found = run_gates(study.experiment, study.arms, console)
    require_all(found)
    write_plan(study, found)
    execution = study.experiment.execution
    workers = number_of_workers(execution, len(missing), available_gpus(execution))
    threads = f"{execution.threads} thread{'s' if execution.threads > 1 else ''}"
    console.print(
        f"training {len(missing)} of {len(study.cells)} cells with {workers} workers of {threads}", highlight=False
    )
    steps = sum(cell.length.steps - cell.length.leaves_after for cell in missing)
    with live_study(console, len(missing), steps) as on_event:
        return run_workers(workers, study.experiment, file.parent.resolve(), runs.resolve(), on_event, _saying(console))


def _saying(console: Console) -> Callable[[str], None]:
    return lambda line: _say(console, line)


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
