"""Results beside each other, and results of others."""

from pathlib import Path
from typing import Annotated

import typer

from paribus.cli.options import RUNS, AsJson, Runs
from paribus.cli.output import open_console, print_json

app = typer.Typer()


@app.command()
def compare(
    studies: Annotated[
        list[Path], typer.Argument(metavar="STUDY STUDY ...", help="names, run folders or experiment files")
    ],
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Put the reports of studies side by side: what was found, what is comparable, and what differs between them."""
    from paribus.comparing.showing import describe, describe_json
    from paribus.comparing.side_by_side import compare as put_side_by_side

    found = put_side_by_side(studies, runs)
    if as_json:
        print_json(describe_json(found))
    else:
        describe(found, open_console())


@app.command()
def adopt(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="folder of somebody's result files (JSON, CSV)")],
    mapping: Annotated[
        Path | None, typer.Option("--mapping", help="what their fields mean; default: DIR/mapping.toml")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="folder of the report; default: DIR/paribus-report")] = None,
    as_json: AsJson = False,
) -> None:
    """Read results of another harness and print what can, and what cannot, be concluded from them."""
    from paribus.adopting import page
    from paribus.adopting.conclude import adopt as read_results
    from paribus.adopting.showing import describe, describe_json

    found = read_results(directory, mapping)
    path = page.write(found, out or page.default_folder(directory))
    if as_json:
        print_json(describe_json(found))
        return
    console = open_console()
    describe(found, console)
    console.print(f"report: {path}", highlight=False, soft_wrap=True, markup=False)
