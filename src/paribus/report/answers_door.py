"""The door of downstream tasks: what compares arms waits for its verdict, what tells of single models as losses do."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from paribus.report.evidence import Shown, is_due, may_span, may_tell, reference_arm
from paribus.report.of_answers import (
    CoreDifferenceRow,
    CoreRow,
    CoreShareRow,
    CounterfactualRow,
    LettersRow,
    TaskPairRow,
    TaskRow,
)

_BASELINE = ("gold_bits_baseline", "accuracy_baseline", "centred_baseline", "margin_baseline")
_OUTCOME = tuple(
    f"{measure}_{field}"
    for measure in ("gold_bits", "accuracy", "centred", "margin")
    for field in ("treatment", "difference", "interval")
)


def due_tasks(found: Sequence[TaskRow], rows: Sequence[Shown]) -> tuple[TaskRow, ...]:
    """Before a contrast is due the baseline's scores stay where it is the scale's one arm: two would compare."""
    return tuple(_task(row, rows) for row in found)


def _task(row: TaskRow, rows: Sequence[Shown]) -> TaskRow:
    if is_due(rows, row.contrast, row.scale):
        intervals = [field for field in _OUTCOME if field.endswith("interval")]
        return row if may_span(rows, row.scale) else replace(row, **dict.fromkeys(intervals))
    baselines = {of.reference_arm for of in rows if (of.name, of.scale) == (row.contrast, row.scale)}
    hidden = _OUTCOME if baselines == {reference_arm(rows, row.scale)} else (*_OUTCOME, *_BASELINE)
    return replace(row, admission="", note="", **dict.fromkeys(hidden))


_Paired = TypeVar("_Paired", TaskPairRow, CoreDifferenceRow, CoreShareRow)


def due_of_pairs(found: Sequence[_Paired], rows: Sequence[Shown]) -> tuple[_Paired, ...]:
    """Differences and tests of contrasts that are due; none beside a stop for futility, which shows no interval."""
    return tuple(row for row in found if is_due(rows, row.contrast, row.scale) and may_span(rows, row.scale))


_OfModel = TypeVar("_OfModel", CoreRow, LettersRow)


def due_of_models(found: Sequence[_OfModel], rows: Sequence[Shown]) -> tuple[_OfModel, ...]:
    """What tells of one trained model, where its losses may be told too."""
    return tuple(row for row in found if may_tell(rows, row.scale, row.arm, row.seed))


def due_counterfactuals(found: Sequence[CounterfactualRow], rows: Sequence[Shown]) -> tuple[CounterfactualRow, ...]:
    """What tells of one arm over seeds, where the losses of all of these may be told."""
    return tuple(row for row in found if all(may_tell(rows, row.scale, row.arm, seed) for seed in row.seeds))
