"""One update of a cell, made again."""

from pathlib import Path
from typing import Annotated

import typer

from paribus.cli.options import AsJson, import_from_here
from paribus.cli.output import open_console, print_json

app = typer.Typer()


@app.command()
def replay(
    folder: Annotated[
        Path, typer.Argument(metavar="CELL", help="folder of a cell: runs/<study>/<scale>/<arm>/<seed>-<digest>")
    ],
    step: Annotated[
        int | None,
        typer.Option(
            "--step", help="the update, from 1; of a cell that diverged by default the one at fault", show_default=False
        ),
    ] = None,
    inspect: Annotated[
        bool, typer.Option("--inspect", help="print how large activations and gradients of each module are")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make one update of a cell again from the nearest checkpoint, and compare it with what is on record."""
    from paribus.replaying import showing
    from paribus.replaying.replay import as_json as in_json
    from paribus.replaying.replay import replay as made_again

    import_from_here()
    with showing.progress(open_console(elsewhere=True)) as on_step:
        found = made_again(folder, step, on_step, inspect=inspect)
    if as_json:
        print_json(in_json(found))
    else:
        showing.show(found, open_console())
