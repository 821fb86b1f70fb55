"""Contrasts at other learning rates: one table, whatever the study reads. No verdict uses them."""

from collections.abc import Sequence
from dataclasses import replace

from paribus.report.blocks import Absent, PageTable, Section
from paribus.report.evidence import Shown, is_due, may_span
from paribus.report.numbers import interval
from paribus.report.of_robustness import RateRow
from paribus.report.tables import Column, Table, without_empty_columns
from paribus.stats.learning import RateDifference, depends_on_rate
from paribus.stats.rounding import MISSING, decimals_for, fixed

TITLE = "The same contrasts at other learning rates"
_ANCHOR = "rates"


def due_rates(found: Sequence[RateRow], rows: Sequence[Shown]) -> tuple[RateRow, ...]:
    """Those of contrasts that are due; beside a stop for futility without an interval."""
    return tuple(
        row if may_span(rows, row.scale) else replace(row, interval=None)
        for row in found
        if is_due(rows, row.contrast, row.scale)
    )


def rate_sentence(found: Sequence[RateRow]) -> str:
    """Of one contrast's rows: that its sign depends on the learning rate, with the difference at each.

    Empty where nothing says so, as beside a stop for futility: without an interval no difference has a sign.
    """
    known = [row for row in found if row.mean is not None]
    differences = [RateDifference(row.factor, row.mean, row.interval) for row in known if row.mean is not None]
    word = depends_on_rate(differences) if len(differences) > 1 else ""
    if not word:
        return ""
    digits = max(3, *map(_digits, known))
    listed = ", ".join(f"{fixed(row.mean, digits, signed=True)} at {row.factor:g} times" for row in known)
    lost = ", ".join(f"{row.diverged} at {row.factor:g} times" for row in found if row.diverged)
    return f"The sign {word}: {listed}." + (f" Cells diverged: {lost}." if lost else "")


def robustness_section(found: Sequence[RateRow], withheld: str = "") -> Section | Absent:
    """Of a text, of rows that went through `due_rates`: every contrast at every rate, and the signs that turn.

    `withheld` says why there may be no row yet.
    """
    if not found:
        how = (
            "Nothing is shown at other learning rates; `rate_factors = [0.5, 2.0]` in [robustness] trains every arm at "
            "multiples of all its rates."
        )
        return Absent(TITLE, withheld or how)
    table = without_empty_columns(robustness_table(found), keep=2)
    return Section(_ANCHOR, TITLE, turned_sentences(found), tables=(PageTable(f"{_ANCHOR}-1", table),))


def turned_sentences(found: Sequence[RateRow]) -> tuple[str, ...]:
    """One for each contrast whose sign depends on the learning rate, or one that none was found to."""
    contrasts: dict[tuple[str, str], list[RateRow]] = {}
    for row in found:
        contrasts.setdefault((row.contrast, row.scale), []).append(row)
    several = len({scale for _, scale in contrasts}) > 1
    turned = tuple(
        f"{contrast}{f', scale {scale}' if several else ''}: {said}"
        for (contrast, scale), own in contrasts.items()
        if (said := rate_sentence(own))
    )
    if not turned and any(row.interval is not None for row in found):
        return ("No sign was found to turn between these rates. That is not proof that none does.",)
    return turned


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
    digits = _digits(row)
    return fixed(row.mean, digits, signed=True) + (
        "" if row.interval is None else f"\n{interval(row.interval, digits)}"
    )


def _digits(row: RateRow) -> int:
    spread = None if row.interval is None else (row.interval[1] - row.interval[0]) / 4
    return min(max(decimals_for(spread, otherwise=3), 2), 5)
