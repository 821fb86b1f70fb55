"""Arguments and options that several commands share, and the way back: what a command line says to mean a study."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

File = Annotated[Path, typer.Argument(metavar="FILE", help="experiment file (TOML)", show_default=False)]
Runs = Annotated[Path, typer.Option("--runs", help="folder of all run folders")]
ScaleName = Annotated[
    str | None, typer.Option("--scale", help="the scale to run, where the file holds several", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON and nothing else")]
RUNS = Path("runs")


def study_arguments(file: Path, experiment: Any, runs: Path) -> str:
    """What follows a command's name to mean this study here; options only where they are needed."""
    return shlex.join([str(file), *experiment.option.split(), *runs_option(runs)])


def runs_option(runs: Path) -> list[str]:
    """The words that name this folder of run folders; none where it is the default."""
    return [] if runs == RUNS else ["--runs", str(runs)]


def import_from_here() -> None:
    """Let a module of one's own be found in the working folder, where it usually lies; workers get the same path."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
