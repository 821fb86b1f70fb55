"""The models of a study that are asked: finished cells in the plan's order, so that pairs are complete early."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from paribus.errors import ParibusError
from paribus.evaluating.running import Opening
from paribus.experiment.spec import STUDY, Experiment
from paribus.reading.study import read_study
from paribus.runs.folder import CellFolder
from paribus.trained import open_model

FINETUNED = "finetuned"


def models_of(
    experiment: Experiment, runs: Path, *, milestones: bool = False, finetuned: str | None = None
) -> list[Opening]:
    """One opening a finished cell at its last update, and where `milestones` at every kept checkpoint.

    `finetuned` names what the cells were fine-tuned as; those models then are meant instead. ParibusError where no
    cell is finished.
    """
    found = [partial(open_model, *which) for which in _chosen(experiment, runs, milestones, finetuned)]
    if not found:
        what = "cell" if finetuned is None else f"cell that was fine-tuned as {finetuned}"
        raise ParibusError(
            f"the study {experiment.study} has no finished {what} to ask",
            expected="at least one",
            received=f"none in {runs / experiment.study}",
            remedy="paribus run trains the cells" if finetuned is None else "paribus finetune makes them",
        )
    return found


def _chosen(
    experiment: Experiment, runs: Path, milestones: bool, finetuned: str | None
) -> Iterator[tuple[Path, None, int]]:
    """(folder, no tokenizer of another origin, step)"""
    study = read_study(experiment, runs)
    for (_, _, _, variant), cell in study.cells.items():
        if variant != STUDY or cell.state != "complete" or cell.folder is None:
            continue
        folder = cell.folder if finetuned is None else CellFolder(cell.folder.path / FINETUNED / finetuned)
        steps = folder.checkpoint_steps() if folder.state == "complete" else []
        if milestones and finetuned is None:
            asked = {line["step"] for line in cell.metrics if _is_milestone(folder, line["step"])}
            yield from ((folder.path, None, step) for step in steps[:-1] if step in asked)
        yield from ((folder.path, None, step) for step in steps[-1:])


def _is_milestone(folder: CellFolder, step: int) -> bool:
    return (folder.path / "likelihood" / f"test-{step:08d}.parquet").exists()
