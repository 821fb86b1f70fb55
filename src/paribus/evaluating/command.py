"""`paribus evaluate`: which models, which jobs, what is printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from paribus.downstream.core.settings import CoreSettings, ShotsFrom, TooLong
from paribus.errors import ParibusError
from paribus.evaluating import showing
from paribus.evaluating.chat import chat_jobs, chat_sentences
from paribus.evaluating.core import SUITE, core_jobs, core_sentences
from paribus.evaluating.jobs import Job
from paribus.evaluating.of_study import models_of
from paribus.evaluating.running import Opening, evaluate
from paribus.evaluating.scores import Scores, scores
from paribus.experiment import loading
from paribus.experiment.downstream import Downstream
from paribus.experiment.spec import Experiment
from paribus.terminal import steps_of_preparation
from paribus.trained import open_model
from paribus.tuning.reading import tuned


@dataclass(frozen=True)
class Asking:
    """The command line."""

    target: Path
    core: Path | None
    listed_in: str
    baselines_v2: Path | None
    shots_from: ShotsFrom
    too_long: TooLong
    chat: Path | None
    definition: str
    words: Path | None
    allow_code: bool
    tasks: tuple[str, ...]
    first: int | None
    counterfactual: bool
    finetuned: str | None
    step: int | None
    tokenizer: Path | None
    again: bool
    runs: Path
    scale: str | None


def run(asking: Asking, console: Console, *, show: bool) -> dict[str, Any]:
    """Ask, keep, and print where `show`; returns what --json prints. ParibusError for what cannot be asked."""
    experiment = _experiment(asking)
    if experiment is not None:
        asking = _completed(asking, experiment)
    jobs = _jobs(asking)
    models = _models(asking, experiment)
    with steps_of_preparation(console) as progress:
        found = scores(evaluate(models, jobs, progress, again=asking.again))
    said = _sentences(asking, found)
    if show:
        showing.show(found, said, console)
    return showing.as_json(found, said)


def _experiment(asking: Asking) -> Experiment | None:
    """The study that is meant, with the values that its tuning chose; None of a single model."""
    if asking.target.suffix != ".toml":
        if asking.finetuned is not None:
            raise ParibusError(
                "--finetuned belongs to an experiment file",
                received=f"{asking.target}",
                remedy=f"name the folder: {asking.target}/finetuned/{asking.finetuned}",
            )
        return None
    if asking.step is not None or asking.tokenizer is not None:
        raise ParibusError(
            "--step and --tokenizer belong to the folder of one model",
            received=f"{asking.target}",
            remedy="leave them out, or name one cell's folder",
        )
    declared = loading.load(asking.target, asking.scale)
    with loading.naming(asking.target):
        return tuned(declared, asking.runs) or declared


def _completed(asking: Asking, experiment: Experiment) -> Asking:
    """With what the file declares, where the command line names no set."""
    declared = experiment.downstream
    if asking.core is not None or asking.chat is not None or declared is None:
        return asking
    return Asking(
        **{
            **vars(asking),
            "core": asking.target.parent / declared.core,
            "listed_in": declared.tasks_listed_in,
            "tasks": asking.tasks or declared.tasks,
            "first": asking.first or declared.first_items,
            "counterfactual": asking.counterfactual or declared.counterfactual,
        }
    )


def _jobs(asking: Asking) -> list[Job]:
    if (asking.core is None) == (asking.chat is None):
        raise ParibusError(
            "one evaluation set is asked at a time",
            expected="--core FOLDER or --chat FOLDER, or a file that declares [downstream]",
            received="both" if asking.core is not None else "neither",
            remedy="paribus data fetch core fetches the CORE bundle",
        )
    if asking.core is not None:
        settings = CoreSettings(max_items=asking.first, shots_from=asking.shots_from, too_long=asking.too_long)
        return core_jobs(
            asking.core,
            settings,
            listed_in=asking.listed_in,
            baselines_v2=asking.baselines_v2,
            tasks=asking.tasks,
            counterfactual=asking.counterfactual,
        )
    assert asking.chat is not None
    return chat_jobs(
        asking.chat,
        asking.definition,
        words=asking.words,
        tasks=asking.tasks,
        first=asking.first,
        counterfactual=asking.counterfactual,
        allow_code=asking.allow_code,
    )


def _models(asking: Asking, experiment: Experiment | None) -> list[Opening]:
    if experiment is None:
        return [partial(open_model, asking.target, asking.tokenizer, asking.step)]
    declared = experiment.downstream
    milestones = declared is not None and declared.at == "milestones"
    return models_of(experiment, asking.runs, milestones=milestones, finetuned=asking.finetuned)


def _sentences(asking: Asking, found: Sequence[Scores]) -> dict[str, list[str]]:
    """What is said of each model's scores as a whole, by folder and step."""
    by_model: dict[str, list[Scores]] = {}
    for score in found:
        by_model.setdefault(f"{score.folder}@{score.step}", []).append(score)
    if asking.core is not None:
        return {
            key: core_sentences(asking.core, listed, listed_in=asking.listed_in, baselines_v2=asking.baselines_v2)
            for key, listed in by_model.items()
        }
    return {
        key: chat_sentences(asking.definition, listed, code_ran=asking.allow_code) for key, listed in by_model.items()
    }


def ask_declared(experiment: Experiment, folder: Path, runs: Path, console: Console) -> None:
    """What `paribus run` asks of the cells that are finished, where the file declares it; `folder` is the file's."""
    declared = experiment.downstream
    if declared is None:
        return
    models = models_of(experiment, runs, milestones=declared.at == "milestones")
    with steps_of_preparation(console) as progress:
        answered = evaluate(models, declared_jobs(declared, folder), progress)
    new = sum(one.new for one in answered)
    console.print(f"{SUITE}: {new} tasks asked, {len(answered) - new} answered before", highlight=False)


def declared_jobs(declared: Downstream, folder: Path) -> list[Job]:
    """The jobs of a file's [downstream]; `folder` is the file's. Errors as `core_jobs`."""
    return core_jobs(
        folder / declared.core,
        CoreSettings(max_items=declared.first_items),
        listed_in=declared.tasks_listed_in,
        tasks=declared.tasks,
        counterfactual=declared.counterfactual,
    )
