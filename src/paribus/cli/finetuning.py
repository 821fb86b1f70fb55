"""Fine-tuning of trained cells on conversations. Ctrl-C leaves each of them resumable."""

from pathlib import Path
from typing import Annotated

import typer

from paribus.cli.options import RUNS, AsJson, Runs, ScaleName, import_from_here
from paribus.cli.output import open_console, print_json
from paribus.errors import DivergenceError

app = typer.Typer()


@app.command()
def finetune(
    target: Annotated[
        Path,
        typer.Argument(metavar="CELL|FILE", help="folder of a finished cell, or an experiment file: all its cells"),
    ],
    mixture: Annotated[
        Path,
        typer.Option("--mixture", help="mixture file (TOML), or a preset: nanochat-2026-04, nanochat-2026-07"),
    ],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="folder of the data sets; default: the mixture file's", show_default=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="of the result, in place of the mixture's", show_default=False)
    ] = None,
    runs: Runs = RUNS,
    scale: ScaleName = None,
    as_json: AsJson = False,
) -> None:
    """Fine-tune finished cells on conversations: the same ones in the same order for every arm of a seed.

    Results lie in finetuned/NAME below each cell. Running it again continues what was stopped and skips what is done.
    """
    from paribus.downstream.chat.mixture import load_mixture
    from paribus.finetuning import showing
    from paribus.finetuning.running import finetune_cells
    from paribus.launch.local import CUBLAS_WORKSPACE, RESUMABLE, variable_set

    import_from_here()
    declared = load_mixture(mixture, name)
    console = open_console(as_json)
    cells = _cells_of(target, runs, scale) if target.is_file() else [target]
    with variable_set("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE):  # read when CUDA starts
        outcomes = finetune_cells(cells, declared, data or mixture.parent, console)
    if as_json:
        print_json(showing.as_json(outcomes))
    else:
        showing.show(outcomes, console)
    if any(outcome.state in ("stopped", "missing") for outcome in outcomes):
        console.print("stopped; the same command continues from the last checkpoints", highlight=False)
        raise typer.Exit(RESUMABLE)
    diverged = [outcome.base.name for outcome in outcomes if outcome.state == "diverged"]
    if diverged:
        raise DivergenceError(
            f"{len(diverged)} of {len(outcomes)} fine-tunings diverged: {', '.join(diverged)}",
            remedy="lower training.rate_factor, for every arm alike and under another name",
        )


def _cells_of(file: Path, runs: Path, scale: str | None) -> list[Path]:
    """The study's own cells that are complete; A/A copies and other variants are not fine-tuned."""
    from paribus.errors import StudyFolderError
    from paribus.experiment import loading
    from paribus.experiment.spec import STUDY
    from paribus.reading.study import read_study
    from paribus.tuning.reading import tuned

    declared = loading.load(file, scale)
    with loading.naming(file):
        study = read_study(tuned(declared, runs) or declared, runs)
    own = [cell for key, cell in study.cells.items() if key[3] == STUDY]
    complete = [cell.folder.path for cell in own if cell.state == "complete" and cell.folder is not None]
    if not complete:
        raise StudyFolderError(
            f"no cell of {file} is complete",
            expected="at least one finished cell",
            received=", ".join(sorted({cell.state for cell in own})) or "no cell",
            remedy="train them first: paribus run",
        )
    return complete
