"""Everything that the report shows of downstream tasks, and what could be wrong with it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paribus.reading.answers import Answers
from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy
from paribus.report.of_answers import (
    CoreDifferenceRow,
    CoreRow,
    CoreShareRow,
    CounterfactualRow,
    LettersRow,
    TaskPairRow,
    TaskRow,
    named,
)
from paribus.reporting.answers_controls import counterfactuals, letters
from paribus.reporting.answers_core import core_differences, core_rows
from paribus.reporting.tasks import compared, task_pairs, tasks
from paribus.stats.rule import Verdict

_NAMED = 6
"""faults that are named one by one"""


@dataclass(frozen=True)
class AnswersContent:
    """Records of downstream tasks, by the names that they have in the report's content."""

    tasks: tuple[TaskRow, ...]
    task_pairs: tuple[TaskPairRow, ...]
    core: tuple[CoreRow, ...]
    core_differences: tuple[CoreDifferenceRow, ...]
    core_shares: tuple[CoreShareRow, ...]
    letters: tuple[LettersRow, ...]
    counterfactuals: tuple[CounterfactualRow, ...]
    caveats: tuple[str, ...]


def answers_content(study: ReadStudy, verdicts: tuple[Verdict, ...], cells: Sequence[ReadCell]) -> AnswersContent:
    """Of the contrasts that are due, and of the single complete `cells` that count."""
    contrasts = compared(study, verdicts)
    differences = tuple(core_differences(contrasts))
    return AnswersContent(
        tasks=tuple(tasks(contrasts)),
        task_pairs=tuple(task_pairs(contrasts)),
        core=tuple(core_rows(cells)),
        core_differences=tuple(row for row, _ in differences),
        core_shares=tuple(share for _, shares in differences for share in shares),
        letters=tuple(letters(cells)),
        counterfactuals=tuple(counterfactuals(cells)),
        caveats=tuple(answers_caveats(cells)),
    )


def answers_caveats(cells: Sequence[ReadCell]) -> Iterator[str]:
    """What of the answers is not used, and what happened to items. Nothing of it tells how well a model does."""
    models = [model for cell in cells for model in cell.answers]
    faults = [fault for model in models for fault in model.faults]
    yield from faults[:_NAMED]
    if len(faults) > _NAMED:
        yield f"{len(faults) - _NAMED} more answers to downstream tasks are not used, for reasons of the same kind."
    by_task: dict[str, list[Answers]] = {}
    for model in models:
        for asked, found in model.held.items():
            name = named(asked.suite, asked.task, asked.variant) + (f" after {model.after}" if model.after else "")
            by_task.setdefault(name, []).append(found)
    yield from _altered(by_task)
    yield from _problems(by_task)
    yield from _cropped(by_task)


def _altered(by_task: Mapping[str, Sequence[Answers]]) -> Iterator[str]:
    told = [name for name, found in by_task.items() if any(answers.record.get("altered") for answers in found)]
    if told:
        yield f"Tasks whose files are not those that were published: {_listed(told, ', ')}."


def _problems(by_task: Mapping[str, Sequence[Answers]]) -> Iterator[str]:
    """Of each task the model with most of them."""
    told = []
    for name, found in by_task.items():
        worst = max(found, key=lambda answers: answers.problems.total())
        if worst.problems:
            why, times = worst.problems.most_common(1)[0]
            often = f" in {times} of them" if times < worst.problems.total() else ""
            told.append(f"{name} {worst.problems.total()} of {len(worst.item)} ({why.rstrip('.')}{often})")
    if told:
        yield f"Items that could not be asked or judged count as wrong: {_listed(told, '; ')}."


def _cropped(by_task: Mapping[str, Sequence[Answers]]) -> Iterator[str]:
    for what, field in (("whole examples", "cropped_shots"), ("tokens at their beginning", "cropped_tokens")):
        told = []
        for name, found in by_task.items():
            most = max(int((getattr(answers, field) > 0).sum()) for answers in found)
            told += [f"{name} {most} of {len(found[0].item)}"] * bool(most)
        if told:
            yield f"Prompts longer than the context lost {what}, the same in every arm: {_listed(told, ', ')}."


def _listed(parts: Sequence[str], between: str) -> str:
    more = len(parts) - _NAMED
    return between.join(parts[:_NAMED]) + (f"{between}and {more} more tasks" if more > 0 else "")
