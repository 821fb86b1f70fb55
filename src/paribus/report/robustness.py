"""Contrasts at other learning rates: one table, whatever the study reads. No verdict uses them."""

from collections.abc import Sequence
from dataclasses import replace

from paribus.report.evidence import Shown, is_due, may_span
from paribus.report.numbers import interval
from paribus.report.of_robustness import RateRow
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, decimals_for, fixed

TITLE = "The same contrasts at other learning rates"


def due_rates(found: Sequence[RateRow], rows: Sequence[Shown]) -> tuple[RateRow, ...]:
    """Those of contrasts that are due; beside a stop for futility without an interval."""
    return tuple(
        row if may_span(rows, row.scale) else replace(row, interval=None)
        for row in found
        if is_due(rows, row.contrast, row.scale)
    )


def robustness_table(found: Sequence[RateRow]) -> Table:
    """One row a contrast and rate, of rows that went through `due_rates`."""
    columns = (
        Column("contrast"),
        Column("scale"),
        Column("metric"),
        Column("learning rates", "times the arm's own", numeric=True),
        Column("difference", numeric=True),
        Column("pairs", numeric=True),
        Column("diverged", "cells", numeric=True),
    )
    body = tuple(
        (
            f"{row.contrast}\n{row.compared}",
            row.scale,
            f"{row.metric}\n{row.unit}",
            f"{row.factor:g}",
            _difference(row),
            str(row.pairs),
            str(row.diverged),
        )
        for row in found
    )
    note = (
        "Treatment minus baseline, paired t over seeds, 95 %, not adjusted. At a rate at which a cell diverged no mean "
        "is taken of the others. The verdict uses the cells at 1 times alone."
    )
    return Table(TITLE, columns, body, note)


def _difference(row: RateRow) -> str:
    if row.mean is None:
        return MISSING
    spread = None if row.interval is None else (row.interval[1] - row.interval[0]) / 4
    digits = min(max(decimals_for(spread, otherwise=3), 2), 5)
    return fixed(row.mean, digits, signed=True) + (
        "" if row.interval is None else f"\n{interval(row.interval, digits)}"
    )
