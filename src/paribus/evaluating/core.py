"""The jobs of a CORE bundle, and whether what was answered makes a CORE score."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from paribus.data.tokenizer import Tokenizer
from paribus.downstream.core.baselines import RESTATED
from paribus.downstream.core.bundle import Bundle, CoreTask, read_bundle
from paribus.downstream.core.counterfactual import swapped_part
from paribus.downstream.core.items import core_items, count_items
from paribus.downstream.core.official import LIST_FILE
from paribus.downstream.core.scoring import CoreScore, core_score
from paribus.downstream.core.settings import CoreSettings
from paribus.downstream.items import Item
from paribus.errors import ParibusError, nearest
from paribus.evaluating.jobs import Job
from paribus.evaluating.scores import Scores

SUITE = "core"
_KINDS = {"multiple_choice": "choices", "schema": "choices", "language_modeling": "exact"}


def core_jobs(
    folder: Path,
    settings: CoreSettings,
    *,
    listed_in: str = LIST_FILE,
    baselines_v2: Path | None = None,
    tasks: Sequence[str] = (),
    counterfactual: bool = False,
) -> list[Job]:
    """A job for every task that can be asked, in the order of the list; with `counterfactual` each control behind its
    task. CoreBundleError for a bundle that cannot be read, ParibusError for a task that it does not list.
    """
    corrected: Path | Literal["restated"] | None = baselines_v2
    if baselines_v2 is not None and str(baselines_v2) == RESTATED:
        corrected = RESTATED
    bundle = read_bundle(folder, listed_in, baselines_v2=corrected)
    labels = [task.label for task in bundle.tasks]
    for name in tasks:
        if name not in labels:
            raise ParibusError(
                f"{listed_in} lists no task {name}",
                expected=", ".join(labels),
                received=name,
                remedy=nearest(name, labels),
            )
    asked = [task for task in bundle.tasks if not tasks or task.label in tasks]
    ways = [settings, replace(settings, counterfactual=True)] if counterfactual else [settings]
    return [_job(bundle, task, way) for task in asked if not task.unusable for way in ways]


def _job(bundle: Bundle, task: CoreTask, settings: CoreSettings) -> Job:
    def items(tokenizer: Tokenizer, context_length: int) -> Iterator[Item]:
        return core_items(task, tokenizer, context_length=context_length, settings=settings)

    whole = settings.max_items is None and not settings.counterfactual
    return Job(
        suite=SUITE,
        task=task.label,
        variant=settings.variant,
        kind=_KINDS[task.kind],
        chance=task.chance_v1,
        total=count_items(task, settings),
        settings={
            **settings.as_json(),
            "file": task.digest,
            "shots": task.shots,
            "delimiter": task.delimiter,
            "type": task.kind,
        },
        about={
            "complete": whole and not task.missing,
            "missing": task.missing or ("" if whole else "not every item was asked as it stands"),
            "altered": task.altered,
            "chance_v2": task.chance_v2,
            "baselines_v1_digest": bundle.baselines_v1.digest,
            "baselines_v2_digest": None if bundle.baselines_v2 is None else bundle.baselines_v2.digest,
            "core_tasks": [listed.label for listed in bundle.tasks],
            "list_digest": bundle.list_digest,
            **({"swapped": _swapped(task)} if settings.counterfactual else {}),
        },
        items=items,
    )


def _swapped(task: CoreTask) -> str:
    """Which part of a question is another item's in the control; empty where no line can be read."""
    readable = (line.question for line in task.lines() if line.question is not None)
    question = next(readable, None)
    return "" if question is None else swapped_part(question)


def core_sentences(folder: Path, scores: Sequence[Scores], *, listed_in: str, baselines_v2: Path | None) -> list[str]:
    """CORE of one model under both tables, or what keeps its scores from being CORE."""
    corrected: Path | Literal["restated"] | None = baselines_v2
    if baselines_v2 is not None and str(baselines_v2) == RESTATED:
        corrected = RESTATED
    bundle = read_bundle(folder, listed_in, baselines_v2=corrected)
    plain = {score.task: score for score in scores if score.suite == SUITE and score.variant in ("", "nanochat")}
    score_under = partial(
        core_score,
        {label: score.accuracy for label, score in plain.items()},
        items={label: score.items for label, score in plain.items()},
        missing=bundle.missing(),
    )
    found = score_under(bundle.baselines_v1.chance)
    beside = [f"{task.label} cannot be asked: {task.unusable}" for task in bundle.tasks if task.unusable]
    if altered := [label for label in bundle.altered() if label in plain]:
        beside.append(f"not byte for byte the files that CORE's bundle ships: {', '.join(altered)}")
    if not isinstance(found, CoreScore):
        return [_not_printed(found.reasons), *beside]
    said = [
        *beside,
        f"CORE {found.core:.4f} (random baselines v1, of the bundle, digest {bundle.baselines_v1.digest[:8]})",
    ]
    if bundle.baselines_v2 is None:
        return [*said, "CORE under the corrected baselines (v2): unavailable, no copy of that table was given"]
    corrected_score = score_under(bundle.baselines_v2.chance)
    assert isinstance(corrected_score, CoreScore)
    source = f"{bundle.baselines_v2.source}, digest {bundle.baselines_v2.digest[:8]}"
    return [*said, f"CORE {corrected_score.core:.4f} (corrected random baselines, v2: {source})"]


def _not_printed(reasons: Mapping[str, str]) -> str:
    listed = [f"{label} {reason}" for label, reason in reasons.items()]
    more = f", and {len(listed) - 3} more" if len(listed) > 3 else ""
    return f"CORE is not printed, for it is the mean of 22 whole tasks: {', '.join(listed[:3])}{more}"
