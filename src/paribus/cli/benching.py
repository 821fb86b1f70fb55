"""What an update costs."""

from typing import Annotated

import typer

from paribus.cli.options import RUNS, AsJson, File, Runs, ScaleName, import_from_here
from paribus.cli.output import open_console, print_json

app = typer.Typer()


@app.command()
def bench(
    file: File,
    runs: Runs = RUNS,
    scale: ScaleName = None,
    resolution: Annotated[
        float,
        typer.Option(
            "--resolution",
            help="smallest relative difference to be resolved: rounds go on until every interval is within it; 0 takes "
            "all rounds",
            min=0.0,
        ),
    ] = 0.01,
    rounds: Annotated[int, typer.Option("--rounds", help="the most turns of every arm; two make a block", min=2)] = 400,
    arm: Annotated[
        list[str] | None,
        typer.Option("--arm", help="only these arms, once for each; nothing goes on record", show_default=False),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            help="compare every arm with this one instead of as the contrasts do; nothing goes on record",
            show_default=False,
        ),
    ] = None,
    way: Annotated[
        list[str] | None,
        typer.Option(
            "--way",
            help='time every arm in this way too, beside that of the file\'s mode: "eager", "compiled" as one graph, '
            '"operators" without compiled kernels',
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target", help="largest ratio of wall time allowed; exit code 1 where one does not meet it", min=0.0
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time an update of every arm against the others, in mirrored blocks on this machine, and put it on record.

    The baseline takes part twice: what it shows against itself is printed first, and nothing within it is claimed.
    """
    from paribus.costing.running import Choice, Effort
    from paribus.costing.running import bench as measure
    from paribus.costing.showing import as_json as told
    from paribus.costing.showing import misses, show
    from paribus.experiment import loading
    from paribus.experiment.plan import resolve_arms
    from paribus.runs.study_folder import StudyFolder
    from paribus.tuning.reading import tuned

    import_from_here()
    declared = loading.load(file, scale)
    console = open_console(as_json)
    with loading.naming(file):
        experiment = tuned(declared, runs) or declared
        arms = resolve_arms(experiment)
    folder = StudyFolder(runs / experiment.study)
    folder.claim_for(experiment.study)
    choice = Choice(tuple(dict.fromkeys(arm or ())), baseline, tuple(way or ()))
    found = measure(experiment, arms, folder, console, Effort(rounds, resolution or None), choice)
    if as_json:
        print_json({name: told(record, target) for name, record in found.items()})
    else:
        for name, record in found.items():
            show(record, name, console, target)
        where = (
            "nothing went on record: the report needs every arm" if choice.is_part else f"on record in {folder.path}"
        )
        console.print(where, highlight=False, markup=False, soft_wrap=True)
    if target is not None and any(misses(record, target) for record in found.values()):
        raise typer.Exit(1)
