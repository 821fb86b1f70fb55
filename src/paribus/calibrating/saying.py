"""What `plan` and `run` say of a task's difficulty before any compute is spent on it. Warns, never blocks.

A calibration that found a task too hard leaves no table to paste into the file, so the file alone would only say that
nothing is known. What was found is still in the run folder of the calibration study, and is said again. Loads no torch.
"""

from pathlib import Path

from paribus.calibrating.reading import read_calibration
from paribus.errors import ParibusError
from paribus.experiment.calibration import DEFAULT_SEEDS, State, calibration_experiment, calibration_of
from paribus.experiment.spec import CALIBRATION, Experiment
from paribus.reading.study import read_study

_SETTLED = (State.CALIBRATED, State.NOT_APPLICABLE)


def before_training(experiment: Experiment, runs: Path) -> tuple[str, ...]:
    """Sentences without a full stop about the difficulty of the task of `experiment`, as its file declares it; none
    where the file says that it suits the budget, or that there is nothing to calibrate."""
    known = calibration_of(experiment)
    if known.state in _SETTLED:
        return ()
    said = [known.sentence]
    if known.state in (State.MISSING, State.STALE):
        said += _found_before(experiment, runs)
    return tuple(said)


def _found_before(experiment: Experiment, runs: Path) -> list[str]:
    """What the calibration study in the run folder says."""
    folder = runs / f"{experiment.study}{CALIBRATION}"
    if not (folder / "study.json").exists():
        return []
    try:
        read = read_calibration(experiment, runs, _seeds(experiment, runs))
    except ParibusError as error:
        return [f"{folder} holds a calibration that cannot be used: {error.what}"]
    if read.found is None:
        states = ", ".join(sorted(set(read.unfinished.values())))
        return [f"{folder} holds a calibration that is not finished for the present file and code ({states})"]
    found = f"`paribus calibrate` found it {read.found.sentence}"
    if read.found.state is State.CALIBRATED:
        return [f"{found}; run it again for the table to paste into the file"]
    return [found]


def _seeds(experiment: Experiment, runs: Path) -> int:
    """How many calibration seeds the folder's plan has; the usual number where it has none yet."""
    plan = read_study(calibration_experiment(experiment, 1), runs).plan
    return len({cell["seed"] for cell in plan["cells"]}) or DEFAULT_SEEDS
