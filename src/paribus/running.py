"""`paribus run` up to the report: tuning, gates, cells, costs, questions. Each leaves what the next run continues."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from paribus.checking import run_gates
from paribus.costing import measure_missing_costs
from paribus.evaluating.command import ask_declared, declared_jobs
from paribus.experiment import loading
from paribus.experiment.gates import require_all
from paribus.experiment.plan import Cell, resolve_arms
from paribus.experiment.spec import Experiment
from paribus.launch.local import available_gpus, number_of_workers, run_workers
from paribus.study import Study, open_study, write_plan
from paribus.terminal import live_study, steps_of_preparation
from paribus.tuning.reading import read_tuning
from paribus.tuning.running import tune


def finish(declared: Experiment, file: Path, runs: Path, console: Console) -> bool:
    """Bring the study of `file`, as it declares it, to its last cell and measurement; False where Ctrl-C came first."""
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
    if missing := study.missing:
        if not _train(study, missing, file, runs, console):
            return False
    else:
        write_plan(study, None)
        console.print(f"nothing to train: all {len(study.cells)} cells are finished", highlight=False)
    measure_missing_costs(experiment, study.arms, study.folder, console)
    ask_declared(experiment, file.parent, runs, console)
    return True


def _train(study: Study, missing: Sequence[Cell], file: Path, runs: Path, console: Console) -> bool:
    """Gates, then every missing cell; False where Ctrl-C stopped them."""
    for arm, count in study.stale_folders().items():
        console.print(f"{count} stale cells of {arm}: kept on disk, not used; trained anew", highlight=False)
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
        return run_workers(workers, study.experiment, file.parent.resolve(), runs.resolve(), on_event)
