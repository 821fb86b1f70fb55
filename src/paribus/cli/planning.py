"""Before anything is trained: what a study would cost, what it could conclude, and whether its gates pass."""

from typing import Annotated

import typer

from paribus.cli.options import RUNS, AsJson, File, Runs, ScaleName, import_from_here
from paribus.cli.output import open_console, print_json

app = typer.Typer()


@app.command()
def plan(file: File, runs: Runs = RUNS, scale: ScaleName = None, as_json: AsJson = False) -> None:
    """Print what a study would train and what it could conclude; train and write nothing."""
    from paribus.calibrating.saying import before_training
    from paribus.experiment import loading
    from paribus.planning.machine import describe_json
    from paribus.planning.showing import describe

    import_from_here()
    experiment = loading.load(file, scale)
    with loading.naming(file):
        doubts = before_training(experiment, runs)
        if as_json:
            print_json(describe_json(experiment, file.parent, runs) | {"calibration": list(doubts)})
        else:
            describe(experiment, file.parent, runs, open_console(), doubts)


@app.command()
def power(
    file: File,
    runs: Runs = RUNS,
    scale: ScaleName = None,
    sd: Annotated[
        float | None,
        typer.Option("--sd", help="assumed sd of the paired difference, in the primary's unit", show_default=False),
    ] = None,
    cell_sd: Annotated[
        float | None, typer.Option("--cell-sd", help="assumed sd of one cell over seeds", show_default=False)
    ] = None,
    correlation: Annotated[
        float | None, typer.Option("--correlation", help="assumed, of a pair over seeds", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what the design can see and what it cannot conclude, from measured or assumed noise; train nothing."""
    from dataclasses import replace

    from paribus.experiment import loading
    from paribus.powering.page import describe, describe_json
    from paribus.reading.evidence import verdicts_of
    from paribus.reading.study import read_study
    from paribus.reporting.noise import known_noise
    from paribus.runs.study_folder import StudyFolder
    from paribus.stats.noise import Noise
    from paribus.tuning.reading import tuned

    import_from_here()
    declared = loading.load(file, scale)
    experiment = tuned(declared, runs) or declared
    noise = Noise()
    if (StudyFolder(runs / experiment.study).path / "study.json").exists():
        study = read_study(experiment, runs)
        noise = known_noise(study, verdicts_of(study))
    noise = replace(noise, assumed_sd=sd, cell_sd=cell_sd, correlation=correlation)
    if as_json:
        print_json(describe_json(experiment, noise))
    else:
        describe(experiment, noise, open_console())


@app.command()
def check(file: File, scale: ScaleName = None, as_json: AsJson = False) -> None:
    """Run the gates that must pass before training: laws, pairs, equivalences, gradients, wiring, resuming."""
    from paribus.checking import gate_table, gates_as_json, require_gates, run_gates
    from paribus.experiment import loading
    from paribus.experiment.plan import resolve_arms
    from paribus.tuning.running import require_knobs_used

    import_from_here()
    experiment = loading.load(file, scale)
    with loading.naming(file):
        arms = resolve_arms(experiment)
        require_knobs_used(experiment, arms)
    console = open_console(as_json)
    found = run_gates(experiment, arms, console)
    if as_json:
        print_json(gates_as_json(found))
    else:
        console.print(gate_table(found))
    require_gates(found, str(file))
    if not as_json:
        console.print(f"all {len(found)} gates passed", highlight=False)
