"""What `paribus evaluate` prints: a row a task for each model, and the score of a suite only where it is one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.console import Console

from paribus.evaluating.scores import Scores
from paribus.terminal import table


def show(found: Sequence[Scores], sentences: Mapping[str, Sequence[str]], console: Console) -> None:
    """A table a model, and below it what `sentences` says of the model by its folder."""
    columns = (
        *("task", "items", "accuracy", "chance", "centred", "gold bits/byte"),
        *("near ties", "cropped", "problems"),
    )
    for folder, of_model in groupby(found, key=lambda score: (score.folder, score.step)):
        listed = list(of_model)
        rows = [_row(score) for score in listed]
        console.print(table(listed[0].model, columns, rows, right=range(1, len(columns))))
        for sentence in sentences.get(f"{folder[0]}@{folder[1]}", ()):
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
        console.print()
    kept = sum(not score.new for score in found)
    if kept:
        console.print(f"{kept} of {len(found)} were answered before and not asked again (--again asks anew)")


def _row(score: Scores) -> tuple[str, ...]:
    name = f"{score.task} ({score.variant})" if score.variant else score.task
    counts = score.counts
    cropped = counts.get("cropped by shots", 0) or counts.get("cropped by tokens", 0)
    return (
        name,
        f"{score.items:,}",
        f"{score.accuracy:.4f}",
        f"{score.chance:.3f}",
        f"{score.centred:+.4f}",
        "" if score.gold_bits_per_byte is None else f"{score.gold_bits_per_byte:.4f}",
        _count(counts.get("near ties", 0)),
        _count(cropped),
        _count(counts.get("problems", 0)),
    )


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def as_json(found: Sequence[Scores], sentences: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "scores": [asdict(score) for score in found],
        "said": {key: list(value) for key, value in sentences.items()},
    }
