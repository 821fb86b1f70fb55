"""The trials of a tuned study, trained round after round by the same workers as the study's own cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from paribus.errors import ExperimentFileError, StudyFolderError, nearest
from paribus.experiment import tuning as search
from paribus.experiment.plan import ArmAtScale, resolve_arms
from paribus.experiment.spec import Experiment
from paribus.launch.local import available_gpus, number_of_workers, run_workers
from paribus.optim.groups import used_fields
from paribus.study import open_study, write_plan
from paribus.terminal import live_study, steps_of_preparation
from paribus.tuning.reading import ReadTuning, read_tuning


@dataclass(frozen=True)
class TuningOutcome:
    """What `tune` leaves."""

    tuning: ReadTuning
    trained: int
    """cells that this call finished"""

    @property
    def finished(self) -> bool:
        """False where Ctrl-C stopped it; the same call continues."""
        return self.tuning.finished


def tune(experiment: Experiment, experiment_folder: Path, runs: Path, console: Console) -> TuningOutcome:
    """Train what the search asks for until it is over, or until Ctrl-C, after which the same call continues.

    `experiment` is the file's, with relative paths from `experiment_folder`. Raises what training raises, and
    ExperimentFileError where an arm does not use its knob.
    """
    state, trained = read_tuning(experiment, runs), 0
    if state.pending:
        require_knobs_used(experiment, resolve_arms(experiment))
    while state.pending:
        finished, completed = _train_round(state, experiment_folder, runs, console)
        before, state = state, read_tuning(experiment, runs)
        trained += finished
        if not completed:
            break
        if state.pending == before.pending:
            raise StudyFolderError(
                f"the tuning of '{experiment.study}' does not get on",
                expected="trials that are trained and then read back as complete",
                received=", ".join(f"{'/'.join(map(str, key[:3]))} is {of}" for key, of in state.unfinished.items()),
                remedy="delete the folders of altered cells to train them again; leave the code as it is while a study "
                "runs",
            )
    return TuningOutcome(state, trained)


def _train_round(state: ReadTuning, experiment_folder: Path, runs: Path, console: Console) -> tuple[int, bool]:
    """Cells that were finished, and False where Ctrl-C stopped them."""
    steps = {arm: (*state.trials[arm], *more) for arm, more in state.pending.items()}
    trials = search.trial_experiment(state.experiment, steps)
    with steps_of_preparation(console) as progress:
        study = open_study(trials, experiment_folder, runs, progress)
    write_plan(study, None)
    missing = study.missing
    if not missing:  # trained earlier, and only the plan did not list them
        return 0, True
    updates = sum(study.arms[cell.scale, cell.arm].length.steps for cell in missing)
    workers = number_of_workers(trials.execution, len(missing), available_gpus(trials.execution))
    console.print(f"{state.sentence}; {len(missing)} cells with {workers} workers", highlight=False)
    with live_study(console, len(missing), updates) as on_event:
        completed = run_workers(workers, trials, experiment_folder.resolve(), runs.resolve(), on_event)
    return len(missing) - len(study.missing), completed


def require_knobs_used(experiment: Experiment, arms: Mapping[tuple[str, str], ArmAtScale]) -> None:
    """Refuse a knob that changes nothing about its arm, whose trials would be the same cell again and again.

    `arms` by (scale, arm), as the file declares them.
    """
    knobs = {} if experiment.tuning is None else experiment.tuning.knobs
    for (scale, arm), resolved in arms.items():
        roles = {declaration.role for declaration in resolved.declarations.values()}
        used = [f"{search.RECIPE}.{field}" for field in used_fields(resolved.base.optimiser, roles)]
        if arm in knobs and knobs[arm] not in used:
            raise ExperimentFileError(
                f"tuning.knobs.{arm}: no parameter of arm '{arm}' at scale '{scale}' uses this field",
                expected="a field that changes how the arm is trained: " + ", ".join(used),
                received=f"'{knobs[arm]}'",
                remedy=nearest(knobs[arm], used),
            )
