"""The command line: parses, calls, prints.

A family of commands is a file of this folder with an `app` of its own, and its line in FAMILIES. Commands import what
they need inside themselves, so that help and status load no torch.
"""

import sys
from importlib import import_module
from typing import Annotated

import typer

from paribus import __version__
from paribus.errors import ParibusError

FAMILIES = (
    "planning",
    "catalogue",
    "trying",
    "training",
    "benching",
    "reading",
    "replaying",
    "keeping",
    "comparing",
    "tunnel",
    "data",
    "importing",
    "evaluating",
    "finetuning",
    "generating",
)
"""in the order of the help"""
app = typer.Typer(
    name="paribus",
    help="All else equal: paired pretraining experiments for changes to Transformer architectures.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for family in FAMILIES:
    app.add_typer(import_module(f"{__name__}.{family}").app)


def main() -> None:
    """Entry point: a ParibusError is one message on stderr and an exit code, never a traceback."""
    try:
        app()
    except ParibusError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"paribus {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    del version
