"""A task's baseline, trained alone by the same workers as the study's own cells. No treatment is ever built."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from paribus.calibrating.reading import ReadCalibration, read_calibration
from paribus.checking import run_gates
from paribus.errors import StudyFolderError
from paribus.experiment.calibration import calibration_experiment
from paribus.experiment.gates import require_all
from paribus.experiment.spec import Experiment
from paribus.launch.local import available_gpus, number_of_workers, run_workers
from paribus.study import open_study, write_plan
from paribus.terminal import live_study, steps_of_preparation


@dataclass(frozen=True)
class CalibrationOutcome:
    """What `calibrate` leaves."""

    read: ReadCalibration
    trained: int
    """cells that this call finished"""

    @property
    def finished(self) -> bool:
        """False where Ctrl-C stopped it; the same call continues."""
        return self.read.finished


def calibrate(
    experiment: Experiment, experiment_folder: Path, runs: Path, console: Console, seeds: int
) -> CalibrationOutcome:
    """Train the primary's baseline at `seeds` calibration seeds, or go on after Ctrl-C; nothing that is there is
    trained twice.

    `experiment` is the file's, with relative paths from `experiment_folder`. Raises what training raises, and
    ExperimentFileError where there is nothing to calibrate.
    """
    read = read_calibration(experiment, runs, seeds)
    if read.finished:
        return CalibrationOutcome(read, 0)
    trained, completed = _train(calibration_experiment(experiment, seeds), experiment_folder, runs, console)
    read = read_calibration(experiment, runs, seeds)
    if completed and not read.finished:
        raise StudyFolderError(
            f"the calibration of '{experiment.study}' does not get on",
            expected="cells that are trained and then read back as complete",
            received=", ".join(f"{'/'.join(map(str, key[:3]))} is {state}" for key, state in read.unfinished.items()),
            remedy="delete the folders of altered cells to train them again; leave the code as it is meanwhile",
        )
    return CalibrationOutcome(read, trained)


def _train(alone: Experiment, experiment_folder: Path, runs: Path, console: Console) -> tuple[int, bool]:
    """Cells that were finished, and False where Ctrl-C stopped them."""
    with steps_of_preparation(console) as progress:
        study = open_study(alone, experiment_folder, runs, progress)
    missing = study.missing
    if not missing:  # trained earlier, and only the plan did not list them
        write_plan(study, None)
        return 0, True
    gates = run_gates(alone, study.arms, console)
    require_all(gates)
    write_plan(study, gates)
    updates = sum(study.arms[cell.scale, cell.arm].length.steps for cell in missing)
    workers = number_of_workers(alone.execution, len(missing), available_gpus(alone.execution))
    console.print(
        f"calibrating on {', '.join(alone.arms)}: {len(missing)} cells with {workers} workers", highlight=False
    )
    with live_study(console, len(missing), updates) as on_event:
        completed = run_workers(workers, alone, experiment_folder.resolve(), runs.resolve(), on_event)
    return len(missing) - len(study.missing), completed
