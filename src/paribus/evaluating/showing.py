"""What `paribus evaluate` prints: a row a task for each model, and the score of a suite only where it is one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.console import Console

from paribus.downstream.core.settings import COUNTERFACTUAL
from paribus.evaluating.scores import Scores
from paribus.terminal import table


def show(found: Sequence[Scores], sentences: Mapping[str, Sequence[str]], console: Console) -> None:
    """A table a model, and below it what `sentences` says of the model by its folder."""
    columns = ("task", "asked", "items", "accuracy", "centred", "gold bits/byte", "happened to")
    for folder, of_model in groupby(found, key=lambda score: (score.folder, score.step)):
        listed = list(of_model)
        rows = [_row(score) for score in listed]
        console.print(table(listed[0].model, columns, rows, right=(2, 3, 4, 5)))
        for sentence in sentences.get(f"{folder[0]}@{folder[1]}", ()):
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
        console.print()
    kept = sum(not score.new for score in found)
    if kept:
        console.print(f"{kept} of {len(found)} were answered before and not asked again (--again asks anew)")


def _row(score: Scores) -> tuple[str, ...]:
    return (
        score.task,
        score.variant.replace("+", ", ").replace(COUNTERFACTUAL, "question swapped") or "whole",
        f"{score.items:,}",
        f"{score.accuracy:.4f}",
        f"{score.centred:+.4f}",
        "" if score.gold_bits_per_byte is None else f"{score.gold_bits_per_byte:.4f}",
        ", ".join(f"{number:,} {what}" for what, number in score.counts.items() if number),
    )


def as_json(found: Sequence[Scores], sentences: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "scores": [asdict(score) for score in found],
        "said": {key: list(value) for key, value in sentences.items()},
    }
