"""Ours beside what others published, by the replication rule (rules of evidence, section 10)."""

from collections.abc import Sequence

from paribus.report.canvas import Picture
from paribus.report.content import PublishedRow
from paribus.report.forest import Estimate, forest
from paribus.report.numbers import interval, significant
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, decimals_for, declared, fixed

_Z = 1.96
"""normal quantile of the rule: published errors come without degrees of freedom"""


def published_table(rows: Sequence[PublishedRow]) -> Table:
    """One row a contrast and source."""
    columns = (
        Column("contrast"),
        Column("published", numeric=True),
        Column("their standard error", numeric=True),
        Column("ours", numeric=True),
        Column("unit"),
        Column("replication"),
        Column("what follows"),
        Column("source"),
    )
    body = []
    for row in rows:
        digits = _digits(row)
        seeds = "" if row.published_seeds is None else f"\n{row.published_seeds} seeds"
        bounds = f"\n{interval(row.ours_interval, digits)}" if row.ours_interval else ""
        said = "; ".join(part for part in (row.sentence, *row.caveats) if part)
        body.append(
            (
                f"{row.contrast}\nscale\u00a0{row.scale}",
                declared(row.published) + seeds,
                significant(row.published_standard_error, 2),
                fixed(row.ours, digits, signed=True) + bounds,
                row.unit,
                row.word or MISSING,
                said or MISSING,
                row.source,
            )
        )
    note = "Treatment minus baseline. Replication compares a published figure with ours; it is no verdict of this page."
    return Table("Ours beside published figures", columns, tuple(body), note)


def published_picture(rows: Sequence[PublishedRow], name: str) -> Picture | None:
    """Theirs and ours as pairs of lines, one unit; None where nothing of ours is due."""
    told = [row for row in rows if row.ours is not None]
    if not told or len({row.unit for row in told}) > 1:
        return None
    estimates, words = [], []
    for row in told:
        digits, error = _digits(row), row.published_standard_error
        theirs = (None, None) if error is None else (row.published - _Z * error, row.published + _Z * error)
        estimates += [
            Estimate(f"{row.contrast}, published", row.published, *theirs, look=1),
            Estimate(f"{row.contrast}, ours", row.ours, *(row.ours_interval or (None, None)), look=0),
        ]
        ours = f"{fixed(row.ours, digits, signed=True)} {interval(row.ours_interval, digits)}"
        words.append(f"{row.contrast}: published {declared(row.published)}, ours {ours}")
    axis = f"treatment minus baseline, {told[0].unit}"
    return forest(estimates, axis, name, "Ours beside published figures", f"{'; '.join(words)}.")


def _digits(row: PublishedRow) -> int:
    width = (row.ours_interval[1] - row.ours_interval[0]) / 4 if row.ours_interval else None
    return decimals_for(width)
