"""CORE and ChatCORE from the rows: a score only where every task of its definition is complete, else what is missing.

CORE is the mean over 22 tasks of centred accuracies (Li et al., 2406.11794); ChatCORE the same over five tasks or over
six, two definitions that are never mixed. Of a difference each task's share is told under both tables of random
baselines, since their weights 1/(1 - r) do not cancel.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paribus.reading.answer_pairs import Matched, Moment
from paribus.reading.answers import CHATS, CORE, COUNTERFACTUAL, Answers, ReadAnswers
from paribus.reading.cell import ReadCell
from paribus.report.of_answers import CoreDifferenceRow, CoreRow, CoreShareRow
from paribus.reporting.due import confidence_of
from paribus.reporting.tasks import Compared
from paribus.stats.items import core_mean, core_shares
from paribus.stats.paired import constant, t_interval

SUITES = (CORE, *CHATS)
_Sides = tuple[Mapping[str, Answers], Mapping[str, Answers]]
"""what treatment and baseline answered at a seed, by task"""
_NAMED = 3
"""tasks that a sentence names"""
_TABLE_V1, _TABLE_V2 = "baselines_v1_digest", "baselines_v2_digest"
"""fields of a record: which tables of random baselines it was scored by"""
_NO_LIST = "no record says which tasks the score is made of"


@dataclass(frozen=True)
class Scored:
    """One score, or why there is none."""

    tasks: int
    """that are complete"""
    of_tasks: int | None
    v1: float | None = None
    v2: float | None = None
    reason: str = ""


def scored(answers: Mapping[str, Answers]) -> Scored:
    """The score of one model from what it answered, by task; only where every task of the definition is complete."""
    definition, wrong = _definition(answers)
    held = [task for task in definition if task in answers and not answers[task].incomplete]
    if wrong:
        return Scored(len(held), len(definition) or None, reason=wrong)
    absent = [task for task in definition if task not in answers]
    parts = [f"not asked: {_listed(absent)}"] * bool(absent)
    short = [f"{task} ({answers[task].incomplete})" for task in definition if task in answers and task not in held]
    parts += [f"not complete: {_listed(short)}"] * bool(short)
    if parts:
        return Scored(len(held), len(definition), reason="; ".join(parts))
    accuracies = {task: answers[task].accuracy for task in definition}
    second = _second(answers, definition)
    return Scored(
        len(held),
        len(definition),
        v1=core_mean(accuracies, {task: answers[task].chance for task in definition}),
        v2=None if second is None else core_mean(accuracies, second),
    )


def _definition(answers: Mapping[str, Answers]) -> tuple[tuple[str, ...], str]:
    """Every task of the score, and why the records do not agree on one; no tasks where no record says."""
    lists = dict.fromkeys(of.core_tasks for of in answers.values())
    definition = next((tasks for tasks in lists if tasks), ())
    if not definition or () in lists:
        return definition, _NO_LIST
    if len(lists) > 1:
        return definition, "its tasks were asked from different lists of tasks"
    if len({str(of.record.get(_TABLE_V1)) for of in answers.values()}) > 1:
        return definition, "its tasks were scored by different tables of random baselines"
    return definition, ""


def _second(answers: Mapping[str, Answers], definition: Sequence[str]) -> dict[str, float] | None:
    """Chance by the corrected table; None unless one table gives it for every task."""
    found = {task: value for task in definition if (value := answers[task].chance_v2) is not None}
    tables = {str(answers[task].record.get(_TABLE_V2)) for task in definition}
    return found if len(found) == len(definition) and len(tables) == 1 else None


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def core_rows(cells: Sequence[ReadCell]) -> Iterator[CoreRow]:
    """CORE and ChatCORE of every model that was asked a task of them, at every moment."""
    for cell in cells:
        scale, arm, seed, _ = cell.key
        for model in cell.answers:
            for (suite, variant, step), answers in _by_score(model).items():
                found = scored(answers)
                yield CoreRow(
                    scale=scale,
                    arm=arm,
                    seed=seed,
                    suite=suite,
                    variant=variant,
                    after=model.after,
                    step=step,
                    mid_schedule=step != model.steps,
                    tasks=found.tasks,
                    of_tasks=found.of_tasks,
                    v1=found.v1,
                    v2=found.v2,
                    reason=found.reason,
                )


def _by_score(model: ReadAnswers) -> dict[tuple[str, str, int], dict[str, Answers]]:
    """Answers by task, of each suite, variant and step; the end of the schedule last."""
    found: dict[tuple[str, str, int], dict[str, Answers]] = {}
    for asked, answers in sorted(model.held.items(), key=lambda entry: (entry[0].suite, entry[0].step)):
        if asked.suite in SUITES and COUNTERFACTUAL not in asked.variant.split("+"):
            found.setdefault((asked.suite, asked.variant, asked.step), {})[asked.task] = answers
    return found


def core_differences(contrasts: Sequence[Compared]) -> Iterator[tuple[CoreDifferenceRow, tuple[CoreShareRow, ...]]]:
    """Of every contrast at the end of the schedule: the difference of CORE, and each task's share of it.

    A seed counts where both arms have the score and no task of it was refused. Nothing where no seed does.
    """
    for contrast in contrasts:
        for (suite, variant, moment), by_task in _by_matched_score(contrast.matched).items():
            pairs = {seed: pair for seed in contrast.seeds if (pair := _at_seed(by_task, seed)) is not None}
            if pairs:
                who = {"contrast": contrast.verdict.name, "scale": contrast.verdict.scale, "suite": suite}
                who |= {"variant": variant, "after": moment.after}
                who |= {"step": next(iter(by_task.values())).asked.step}
                yield _difference(contrast, who, pairs), _shares(who, [*pairs.values()])


def _by_matched_score(found: Sequence[Matched]) -> dict[tuple[str, str, Moment], dict[str, Matched]]:
    scores: dict[tuple[str, str, Moment], dict[str, Matched]] = {}
    for task in found:
        asked = task.asked
        if asked.suite in SUITES and task.moment.step is None and COUNTERFACTUAL not in asked.variant.split("+"):
            scores.setdefault((asked.suite, asked.variant, task.moment), {})[asked.task] = task
    return scores


def _at_seed(by_task: Mapping[str, Matched], seed: int) -> _Sides | None:
    """What both arms answered to the tasks of a score; None where one was refused, or an arm has no score."""
    there = {name: task.pairs[seed] for name, task in by_task.items() if seed in task.pairs}
    sides = tuple({name: pair[side] for name, pair in there.items()} for side in (0, 1))
    if any(scored(side).v1 is None for side in sides):
        return None
    definition, _ = _definition(sides[1])
    treatment, baseline = ({name: side[name] for name in definition} for side in sides)
    return treatment, baseline


def _difference(contrast: Compared, who: dict[str, Any], pairs: Mapping[int, _Sides]) -> CoreDifferenceRow:
    confidence = confidence_of(contrast.verdict)
    scores = [(scored(t), scored(b)) for t, b in pairs.values()]
    v1 = [t.v1 - b.v1 for t, b in scores if t.v1 is not None and b.v1 is not None]
    v2 = [t.v2 - b.v2 for t, b in scores if t.v2 is not None and b.v2 is not None]
    fields: dict[str, Any] = {}
    for version, values in (("v1", v1), ("v2", v2 if _corrected([*pairs.values()]) else [])):
        spread = len(values) > 2 and not constant(values)
        fields[f"{version}_difference"] = float(np.mean(values)) if values else None
        fields[f"{version}_interval"] = t_interval(values, confidence) if spread else None
    without = [str(seed) for seed in contrast.seeds if seed not in pairs]
    note = f"no score of both arms at {'seeds' if len(without) > 1 else 'seed'} {', '.join(without)}" if without else ""
    return CoreDifferenceRow(**who, seeds=tuple(pairs), confidence=confidence, note=note, **fields)


def _corrected(pairs: Sequence[_Sides]) -> dict[str, float] | None:
    """Chance by the one corrected table that every side of every pair was scored by; None where there is none."""
    tables = [_second(side, [*side]) for pair in pairs for side in pair]
    return tables[0] if all(table == tables[0] for table in tables) else None


def _shares(who: dict[str, Any], pairs: Sequence[_Sides]) -> tuple[CoreShareRow, ...]:
    """Differences are linear in accuracies, so shares of the mean over seeds come from each task's mean difference."""
    first = pairs[0][1]
    moved = {task: float(np.mean([t[task].accuracy - b[task].accuracy for t, b in pairs])) for task in first}
    found = core_shares(moved, {task: of.chance for task, of in first.items()}, _corrected(pairs))
    return tuple(
        CoreShareRow(
            **who,
            task=share.task,
            accuracy_difference=share.accuracy_difference,
            v1_contribution=share.contribution_v1,
            v2_contribution=share.contribution_v2,
            v1_share=share.share_v1,
            v2_share=share.share_v2,
        )
        for share in found.tasks
    )
