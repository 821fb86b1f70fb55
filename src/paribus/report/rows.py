"""Tables as CSV for programs: full precision, units in the headings, one observation a row, empty where nothing is due.

RFC 4180 with line feeds. A number that is not finite is written as nan, inf or -inf: it was read, and it is not a gap.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

from paribus.report.content import CellRow, CostRow, EstimateRow, ReportContent, UpdateRow
from paribus.report.evidence import Shown
from paribus.report.of_answers import (
    CoreDifferenceRow,
    CoreRow,
    CoreShareRow,
    CounterfactualRow,
    LettersRow,
    TaskPairRow,
    TaskRow,
)
from paribus.report.of_training import DivergedRow, SpikeRow
from paribus.stats.verdict import Verdict

_INTERVALS = ("interval",)
_OF_TASKS = (
    ("tasks", "tasks", TaskRow),
    ("task-pairs", "task_pairs", TaskPairRow),
    ("core", "core", CoreRow),
    ("core-differences", "core_differences", CoreDifferenceRow),
    ("core-shares", "core_shares", CoreShareRow),
    ("letters", "letters", LettersRow),
    ("counterfactuals", "counterfactuals", CounterfactualRow),
)
"""stem of the file, field of the content, kind of its records"""


def csv_files(content: ReportContent, rows: Sequence[Shown]) -> dict[str, str]:
    """File name and text of every table, also of those without a row, so that a program finds their headings."""
    return {
        "verdicts.csv": _of_records(Verdict, rows),
        "pairs.csv": _table(
            ("contrast", "scale", "seed", "difference", "unit", "diverged"),
            (
                (row.name, row.scale, seed, difference, row.unit, difference is None)
                for row in rows
                for seed, difference in zip(row.difference_seeds, row.differences, strict=True)
            ),
        ),
        "cells.csv": _of_records(CellRow, content.cells),
        "spikes.csv": _of_records(SpikeRow, content.spikes),
        "diverged.csv": _of_records(DivergedRow, content.diverged),
        "estimates.csv": _of_records(EstimateRow, content.estimates),
        "costs.csv": _of_records(CostRow, content.costs),
        "updates.csv": _of_records(UpdateRow, content.updates),
        "budgets.csv": _table(
            ("contrast", "scale", "budget_tokens", "seed", "difference_nats_per_token"),
            (
                (gap.contrast, gap.scale, gap.budget_tokens, seed, difference)
                for gap in content.budget_gaps
                for seed, difference in zip(gap.seeds, gap.differences, strict=True)
            ),
        ),
        **{f"{name}.csv": _of_records(kind, getattr(content, field)) for name, field, kind in _OF_TASKS},
        "trials.csv": _table(
            ("scale", "arm", "knob", "value", "trial_seed", "score_nats_per_token", "chosen"),
            (
                (trial.scale, trial.arm, trial.knob, trial.value, number, score, trial.chosen)
                for trial in content.trials
                for number, score in enumerate(trial.scores)
            ),
        ),
    }


def _of_records(kind: type[Any], records: Iterable[Any]) -> str:
    """A row a record, a column a field; an interval is two columns, a list one: see `_cell`."""
    names = [field.name for field in fields(kind)]
    heads: list[str] = []
    for name in names:
        heads += [f"{name}_low", f"{name}_high"] if name.endswith(_INTERVALS) else [name]
    body = []
    for record in records:
        row: list[Any] = []
        for name in names:
            value = getattr(record, name)
            if name.endswith(_INTERVALS):
                row += list(value) if value is not None else [None, None]
            else:
                row.append(value)
        body.append(row)
    return _table(heads, body)


def _table(heads: Sequence[str], body: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_cell(value) for value in row] for row in body)
    return buffer.getvalue()


def _cell(value: Any) -> str:
    """One value; of a list the numbers between spaces, and anything that may hold a space between semicolons."""
    if value is None:
        return ""
    if isinstance(value, tuple | list):
        numbers = all(isinstance(entry, int | float) for entry in value)
        return (" " if numbers else "; ").join(map(_cell, value))
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return "".join(c if c.isprintable() or c == "\n" else " " for c in str(value))
