"""What a run folder holds so far: cells, and verdicts."""

from typing import Annotated

import typer

from paribus.cli.options import RUNS, AsJson, File, Runs, ScaleName, import_from_here, study_arguments
from paribus.cli.output import open_console, print_json

app = typer.Typer()


@app.command()
def status(file: File, runs: Runs = RUNS, scale: ScaleName = None, as_json: AsJson = False) -> None:
    """Print which cells are complete, running, missing or stale. Shows no outcome, so it is not a look."""
    from paribus.experiment import loading
    from paribus.publishing import stale_cells
    from paribus.reading.study import read_study
    from paribus.terminal import table
    from paribus.tuning.reading import read_tuning

    import_from_here()
    tuning = read_tuning(loading.load(file, scale), runs)
    if tuning.sentence and not as_json:
        open_console().print(tuning.sentence, highlight=False)
    if tuning.tuned is None:
        if as_json:
            print_json({"study": tuning.experiment.study, "tuning": tuning.sentence, "cells": [], "stale_folders": []})
        return
    study = read_study(tuning.tuned, runs)
    cells = [
        {
            "scale": c.key[0],
            "arm": c.key[1],
            "seed": c.key[2],
            "variant": c.key[3],
            "state": c.state,
            "digest": c.digest,
        }
        for c in study.cells.values()
    ]
    stale = study.stale_folders()
    if as_json:
        found = {"study": study.experiment.study, "tuning": tuning.sentence, "cells": cells}
        print_json({**found, "stale_folders": [str(path) for path in stale]})
        return
    console = open_console()
    rows = [(c["scale"], c["arm"], f"{c['seed']}", c["variant"], c["state"], c["digest"]) for c in cells]
    console.print(
        table(
            f"Study {study.experiment.study}", ("scale", "arm", "seed", "variant", "state", "digest"), rows, right=(2,)
        )
    )
    states = sorted({c["state"] for c in cells})
    console.print(", ".join(f"{study.count(state)} {state}" for state in states), highlight=False)
    for what in stale_cells(study):
        console.print(what, highlight=False, soft_wrap=True)
    for path in stale:
        console.print(f"stale, kept: {path}", highlight=False, soft_wrap=True)


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
