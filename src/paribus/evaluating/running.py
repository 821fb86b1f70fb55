"""Jobs put to models, one after the other: what was answered before is kept, what is new is written at once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from paribus.data.progress import Advance, Progress
from paribus.errors import ParibusError, StudyFolderError
from paribus.evaluating.asking import ask
from paribus.evaluating.jobs import Job
from paribus.runs.answers import AnswersFolder, Asked
from paribus.runs.environment import code_version
from paribus.trained import Trained


@dataclass(frozen=True)
class Answered:
    """A job that a model has answered, now or earlier."""

    model: str
    folder: Path
    asked: Asked
    job: Job
    new: bool


Opening = Callable[[], Trained]


def evaluate(
    models: Iterable[Opening], jobs: Sequence[Job], progress: Progress, *, again: bool = False
) -> list[Answered]:
    """Every job of every model, in this order. `again` asks anew what is there.

    StudyFolderError where answers under the same name were given to another question, naming the field.
    """
    found = []
    for number, opening in enumerate(models, 1):
        trained = opening()
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = trained.model.to(device)
        folder = AnswersFolder(trained.folder)
        for job in jobs:
            asked = job.asked(trained.step)
            settings = settings_of(job, trained)
            new = again or not _is_kept(folder, asked, settings)
            if new:
                phase = f"ask {job.asked(trained.step).name} of model {number}, {trained.name}"
                rows = ask(model, trained.tokenizer, job, _counting(phase, job.total, progress))
                record = {
                    "kind": job.kind,
                    "chance": job.chance,
                    "settings": settings,
                    "counts": dict(rows.counts),
                    "code_version": code_version(),
                    **job.about,
                }
                folder.write(asked, rows.columns, record)
            found.append(Answered(trained.name, trained.folder, asked, job, new))
    return found


def settings_of(job: Job, trained: Trained) -> dict[str, Any]:
    """What decides the rows beside the model's own values."""
    config = trained.model.config
    return {
        **job.settings,
        "tokenizer": trained.tokenizer.digest,
        "context_length": config.context_length,
        "compute": config.compute,
    }


def _is_kept(folder: AnswersFolder, asked: Asked, settings: dict[str, Any]) -> bool:
    try:
        record = folder.record(asked)
        if record is not None:
            folder.rows(asked)
    except StudyFolderError:
        return False  # damaged answers are asked again
    if record is None:
        return False
    earlier = record["settings"]
    differing = [name for name in sorted(settings.keys() | earlier.keys()) if settings.get(name) != earlier.get(name)]
    if differing:
        name = differing[0]
        raise StudyFolderError(
            f"{folder.path} holds answers to {asked.name} that were asked in another way",
            expected=f"{name} = {settings.get(name)}",
            received=f"{name} = {earlier.get(name)}",
            remedy="ask in that way, or add --again to replace them",
        )
    return True


def _counting(phase: str, total: int, progress: Progress) -> Callable[[int], None]:
    done = 0

    def more(items: int) -> None:
        nonlocal done
        done += items
        progress(Advance(phase, done, total))

    progress(Advance(phase, 0, total))
    return more


def require_jobs(jobs: Sequence[Job], names: Sequence[str], valid: Sequence[str]) -> None:
    """ParibusError where nothing is left to ask."""
    if not jobs:
        raise ParibusError(
            "no task is left to ask",
            expected="one of " + ", ".join(valid),
            received=", ".join(names) or "none",
            remedy="name other tasks with --tasks, or complete the bundle",
        )
