"""A mechanism in the making, tried without a study."""

from pathlib import Path
from typing import Annotated

import typer

from paribus.cli.options import RUNS, AsJson, Runs, ScaleName, import_from_here
from paribus.cli.output import open_console, print_json

app = typer.Typer()


@app.command("try")
def try_(
    arm: Annotated[
        str,
        typer.Argument(
            metavar="ARM",
            help="an arm of --file; without it, a mechanism's name, a module such as mypackage.idea, or a table such "
            "as 'mask = { name = \"document\" }'",
            show_default=False,
        ),
    ],
    file: Annotated[Path | None, typer.Option("--file", help="experiment file (TOML)", show_default=False)] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="the arm beside it; default: the one that changes no mechanism")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help="updates of each arm")] = 50,
    scale: ScaleName = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="default: the first seed that the study does not plan")
    ] = None,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Gates, a few steps beside the baseline, speed, and what the taps show. Writes nothing into a study."""
    from paribus import trying
    from paribus.experiment.trial import trial

    import_from_here()
    console = open_console(as_json)
    chosen = trial(arm, file, against=against, scale=scale, seed=seed, steps=steps)
    found, outcome = trying.try_arm(chosen, runs, console)
    if as_json:
        print_json(trying.outcome_as_json(outcome, found))
    else:
        trying.show_outcome(outcome, chosen, console)
    if outcome.ended:
        raise typer.Exit(130 if outcome.ended == trying.INTERRUPTED else 1)
