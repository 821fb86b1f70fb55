"""What a run folder holds so far: cells, and verdicts."""

from typing import Annotated

import typer

from paribus.cli.options import RUNS, AsJson, File, Runs, ScaleName, import_from_here, study_arguments
from paribus.cli.output import open_console, print_json

app = typer.Typer()


@app.command()
def status(
    file: File,
    runs: Runs = RUNS,
    scale: ScaleName = None,
    as_json: AsJson = False,
    cells: Annotated[bool, typer.Option("--cells", help="a line a cell, with its digest")] = False,
    watching: Annotated[bool, typer.Option("--watch", help="look again and again, until Ctrl-C")] = False,
    every: Annotated[float, typer.Option("--every", help="seconds between two looks", min=0.1)] = 5.0,
) -> None:
    """Print which cells have ended, who trains which on which machine, and how long it takes. Shows no outcome, so it
    is not a look.

    Parked, diverged and damaged cells are named, and cells that were gone on with under another environment.
    """
    from paribus.experiment import loading
    from paribus.experiment.spec import TUNING
    from paribus.keeping import status as showing
    from paribus.publishing import stale_cells
    from paribus.reading.study import read_study
    from paribus.tuning.reading import read_tuning

    if watching and as_json:
        raise typer.BadParameter("--watch looks again and again: there is no one JSON", param_hint="--json")
    import_from_here()

    def look() -> showing.Status:
        tuning = read_tuning(loading.load(file, scale), runs)
        if tuning.tuned is None:
            name = tuning.experiment.study
            return showing.status_of_tuning(name, tuning.sentence, runs / f"{name}{TUNING}")
        study = read_study(tuning.tuned, runs)
        return showing.status_of(study, tuning.sentence, stale_cells(study))

    console = open_console()
    if watching:
        showing.watch(look, every, console, every_cell=cells)
    elif as_json:
        print_json(showing.as_json(look()))
    else:
        showing.show(look(), console, every_cell=cells)


@app.command()
def report(
    file: File,
    runs: Runs = RUNS,
    scale: ScaleName = None,
    as_json: AsJson = False,
    watching: Annotated[bool, typer.Option("--watch", help="rewrite the page while the study runs")] = False,
    every: Annotated[int, typer.Option("--every", help="seconds between two looks at the folder", min=1)] = 30,
) -> None:
    """Write the page, Markdown, LaTeX, CSV and figures, and print the verdicts. Recorded as a look."""
    from paribus.experiment import loading
    from paribus.publishing import Asked, publish, watch

    if watching and as_json:
        raise typer.BadParameter("--watch rewrites the page again and again: there is no one JSON", param_hint="--json")
    import_from_here()
    experiment = loading.load(file, scale)
    asked = Asked(file, experiment, runs, study_arguments(file, experiment, runs))
    if watching:
        watch(asked, every, open_console())
    else:
        publish(asked, "report", open_console(), as_json=as_json)
