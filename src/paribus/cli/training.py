"""What trains the cells of a study. Ctrl-C leaves each of them resumable."""

from typing import Annotated

import typer

from paribus.cli.options import RUNS, AsJson, File, Runs, ScaleName, import_from_here, study_arguments
from paribus.cli.output import open_console, print_json
from paribus.errors import DivergenceError, ParibusError

app = typer.Typer()
RetryParked = Annotated[
    bool, typer.Option("--retry-parked", help="try cells again that were parked after too many failures")
]


@app.command()
def run(
    file: File,
    runs: Runs = RUNS,
    scale: ScaleName = None,
    retry_parked: RetryParked = False,
) -> None:
    """Tune where the file says so, check the gates, train every missing cell, time the arms, and write the report.

    Ctrl-C or SIGTERM leaves a study that the same command resumes: exit code 75, within one update and one checkpoint.
    A second one ends at once. A cell that fails three times is parked, the others are finished, and the exit code is 1.
    """
    from paribus.calibrating.saying import before_training
    from paribus.experiment import loading
    from paribus.launch.local import RESUMABLE, interruptible
    from paribus.publishing import Asked, publish
    from paribus.running import finish
    from paribus.runs.failures import ParkedError

    import_from_here()
    declared = loading.load(file, scale)
    console = open_console()
    parked = None
    with interruptible():
        with loading.naming(file):
            for doubt in before_training(declared, runs):
                console.print(f"note: {doubt}", highlight=False, markup=False, soft_wrap=True)
        try:
            finished = finish(declared, file, runs, console, retry_parked)
        except ParkedError as error:
            parked, finished = error, True
        if not finished:
            console.print("stopped; the same command continues from the last checkpoints", highlight=False)
            raise typer.Exit(RESUMABLE)
        try:
            study = publish(Asked(file, declared, runs, study_arguments(file, declared, runs)), "run", console)
        except ParibusError:
            if parked is None:
                raise
            raise parked from None  # of a trial: then there is nothing to report yet
    if parked is not None:
        raise parked
    diverged = study.count("diverged")
    if diverged:
        raise DivergenceError(
            f"{diverged} of {len(study.cells)} cells diverged",
            remedy="the report names them and counts their pairs as losses; the other cells are complete",
        )


@app.command()
def work(file: File, runs: Runs = RUNS, scale: ScaleName = None, retry_parked: RetryParked = False) -> None:
    """Be one more worker of a study, on this or any machine that shares its folder; start as many as you like.

    For Slurm, Ray, ssh and the like: one process, which takes one cell after the other and over what dead workers have
    left. Exit code 0 when every cell has ended, whoever trained it, 75 after SIGTERM or Ctrl-C (within one update and
    one checkpoint; a second one ends at once), 1 where cells are parked. `paribus run` afterwards times the arms and
    writes the report. One GPU a worker: choose it with CUDA_VISIBLE_DEVICES.
    """
    from paribus.experiment import loading
    from paribus.launch.local import RESUMABLE, interruptible
    from paribus.running import work as train_cells

    import_from_here()
    declared = loading.load(file, scale)
    with interruptible():
        if not train_cells(declared, file, runs, open_console(), retry_parked):
            raise typer.Exit(RESUMABLE)


@app.command()
def calibrate(
    file: File,
    runs: Runs = RUNS,
    scale: ScaleName = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="calibration seeds; default: those of the file, or 3", min=1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a task's baseline alone, on seeds of its own, and say whether the budget suits the task.

    No treatment is trained. Exit code 0 where the task is calibrated, 1 where it is too easy, too hard or uneven.
    Ctrl-C or SIGTERM leaves a calibration that can be resumed: exit code 75.
    """
    from paribus.calibrating import showing
    from paribus.calibrating.running import calibrate as train_baseline
    from paribus.experiment import loading
    from paribus.experiment.calibration import DEFAULT_SEEDS, State, declared_calibration
    from paribus.launch.local import RESUMABLE, interruptible

    import_from_here()
    experiment = loading.load(file, scale)
    console = open_console(as_json)
    frozen = declared_calibration(experiment)
    known = frozen.seeds if frozen is not None else None
    with interruptible(), loading.naming(file):
        outcome = train_baseline(experiment, file.parent, runs, console, seeds or known or DEFAULT_SEEDS)
    found = outcome.read.found
    if found is None:
        console.print("stopped; the same command continues from the last checkpoints", highlight=False)
        raise typer.Exit(RESUMABLE)
    if as_json:
        print_json(showing.as_json(outcome.read))
    else:
        showing.show(outcome.read, console)
    if found.state is not State.CALIBRATED:
        raise typer.Exit(1)
