"""The wind tunnel: a set of small task studies, and their one page."""

import shlex
from typing import Annotated

import typer

from paribus.cli.options import RUNS, Runs, import_from_here, runs_option
from paribus.cli.output import open_console

app = typer.Typer()


@app.command()
def tunnel(
    full: Annotated[
        bool, typer.Option("--full/--smoke", help="8 tasks and verdicts, or 4 tasks and a direction check")
    ] = False,
    mechanism: Annotated[
        str | None,
        typer.Option(
            "--mechanism",
            help="your own instead of the shipped arms: a mechanism's name, a table such as "
            "'mask = { name = \"document\" }', or a module such as mypackage.idea",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", help="only this task of the set; may be repeated", show_default=False),
    ] = None,
    runs: Runs = RUNS,
) -> None:
    """Train on synthetic tasks that show what a mechanism changes, and write one page. Minutes, or hours for --full.

    Ctrl-C leaves a set that the same command continues.
    """
    from paribus.launch.local import RESUMABLE
    from paribus.tunnel.command import run_tunnel
    from paribus.tunnel.suites import load_suite, only, with_mechanism

    import_from_here()
    chosen = task or []
    suite = only(load_suite("full" if full else "smoke"), chosen)
    if mechanism is not None:
        suite = with_mechanism(suite, mechanism)
    console = open_console()
    own = [] if mechanism is None else ["--mechanism", mechanism]
    part = [word for name in chosen for word in ("--task", name)]
    command = shlex.join(["paribus", "tunnel", f"--{suite.name}", *part, *own, *runs_option(runs)])
    if not run_tunnel(suite, runs, console, command):
        console.print("stopped; the same command continues from the last checkpoints", highlight=False)
        raise typer.Exit(RESUMABLE)
