"""Scores of what was answered, recomputed from rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paribus.evaluating.running import Answered
from paribus.runs.answers import AnswersFolder

LN2 = math.log(2.0)


@dataclass(frozen=True)
class Scores:
    """One task of one model, recomputed from its rows."""

    model: str
    folder: str
    suite: str
    task: str
    variant: str
    step: int
    items: int
    accuracy: float
    chance: float
    centred: float
    gold_bits_per_byte: float | None
    """mean over items of the right answer's bits per byte; None where no likelihood was taken"""
    counts: Mapping[str, int]
    new: bool
    """asked just now"""
    complete: bool
    """whether the suite's score may use it"""


def scores(found: Sequence[Answered]) -> list[Scores]:
    """In the order in which they were answered."""
    return [_scores(answered) for answered in found]


def _scores(answered: Answered) -> Scores:
    folder = AnswersFolder(answered.folder)
    rows, record = folder.rows(answered.asked), folder.record(answered.asked)
    assert record is not None
    accuracy, chance = float(np.mean(rows["correct"].to_numpy())), float(record["chance"])
    return Scores(
        model=answered.model,
        folder=str(answered.folder),
        suite=answered.asked.suite,
        task=answered.asked.task,
        variant=answered.asked.variant,
        step=answered.asked.step,
        items=len(rows),
        accuracy=accuracy,
        chance=chance,
        centred=(accuracy - chance) / (1 - chance),
        gold_bits_per_byte=_gold_bits(rows),
        counts=record["counts"],
        new=answered.new,
        complete=bool(record.get("complete", False)),
    )


def _gold_bits(rows: pa.Table) -> float | None:
    nats, size = (rows[name].to_numpy().astype(float) for name in ("gold_nats", "gold_bytes"))  # a null becomes NaN
    scored = size > 0
    return float(np.mean(nats[scored] / (LN2 * size[scored]))) if scored.any() else None
