"""What single models say at the end of the schedule: which letters, and what is left with each question swapped.

A model that always says one letter scores the share of that letter; a task that is answered as well with another
item's question is answered from its choices. Neither compares two arms.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from paribus.reading.answer_pairs import differing
from paribus.reading.answers import COUNTERFACTUAL, Answers, ReadAnswers
from paribus.reading.cell import ReadCell
from paribus.report.of_answers import CounterfactualRow, LettersRow
from paribus.stats.items import above_chance

LETTERED = ("choices", "letters")
"""kinds of tasks whose predictions are one of a few labels"""


def letters(cells: Sequence[ReadCell]) -> Iterator[LettersRow]:
    """Of every model, choice task and way of asking: what was said, beside what is right."""
    for cell in cells:
        scale, arm, seed, _ = cell.key
        for model in cell.answers:
            for found in _at_end(model):
                if found.record["kind"] not in LETTERED:
                    continue
                asked = found.asked
                names = tuple(sorted((found.golds | found.predictions).keys() - {""}))
                yield LettersRow(
                    scale=scale,
                    arm=arm,
                    seed=seed,
                    suite=asked.suite,
                    task=asked.task,
                    variant=asked.variant,
                    after=model.after,
                    step=asked.step,
                    letters=names,
                    gold=tuple(found.golds[name] for name in names),
                    predicted=tuple(found.predictions[name] for name in names),
                    unanswered=found.predictions[""],
                )


def counterfactuals(cells: Sequence[ReadCell]) -> Iterator[CounterfactualRow]:
    """Of every arm and task that was asked with swapped questions: both accuracies over seeds, and chance."""
    swapped: dict[tuple[str, ...], dict[int, tuple[Answers, Answers | None]]] = defaultdict(dict)
    for cell in cells:
        scale, arm, seed, _ = cell.key
        for model in cell.answers:
            ends = {found.asked: found for found in _at_end(model)}
            for asked, found in ends.items():
                parts = asked.variant.split("+")
                if COUNTERFACTUAL in parts:
                    rest = "+".join(part for part in parts if part != COUNTERFACTUAL)
                    plain = ends.get(replace(asked, variant=rest))
                    swapped[scale, arm, asked.suite, asked.task, rest, model.after][seed] = (found, plain)
    for (scale, arm, suite, task, variant, after), by_seed in swapped.items():
        first = next(iter(by_seed.values()))[0]
        # Seeds that were asked otherwise would make the mean one of two things.
        alike = {
            s: pair
            for s, pair in by_seed.items()
            if not differing(first.record["settings"], pair[0].record["settings"])
        }
        control = above_chance([of.accuracy for of, _ in alike.values()], first.chance, items=len(first.item))
        plain = [of.accuracy for _, of in alike.values() if of is not None]
        yield CounterfactualRow(
            scale=scale,
            arm=arm,
            suite=suite,
            task=task,
            variant=variant,
            after=after,
            step=first.asked.step,
            seeds=tuple(alike),
            items=len(first.item),
            chance=first.chance,
            plain=float(np.mean(plain)) if len(plain) == len(alike) else None,
            swapped=control.mean,
            standard_error=control.standard_error,
            above_chance=control.clears,
        )


def _at_end(model: ReadAnswers) -> list[Answers]:
    return [found for asked, found in model.held.items() if asked.step == model.steps]
