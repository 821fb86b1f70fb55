"""A table of percentages with what each was meant to be."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Target:
    """What a percentage must be; both ends included."""

    low: float = 0.0
    high: float = 100.0
    text: str = ""

    def __str__(self) -> str:
        if self.text:
            return self.text
        if self.low > 0 and self.high < 100:
            return f"{self.low:g} to {self.high:g}"
        return f">= {self.low:g}" if self.low > 0 else f"<= {self.high:g}"


ERROR = Target(high=5.5)
"""An error rate of 5 %, accepted up to 5.5 %: 10,000 pages have a standard error of 0.22 points there."""


@dataclass(frozen=True)
class Entry:
    """One percentage of the table."""

    row: str
    column: str
    percent: float
    target: Target | None = None

    @property
    def reached(self) -> bool | None:
        """None where nothing was asked for."""
        return None if self.target is None else self.target.low <= self.percent <= self.target.high


def percent(flags: ArrayLike) -> float:
    """The share of true flags, in percent."""
    return 100 * float(np.asarray(flags, dtype=np.bool_).mean())


def standard_error(of_percent: float, pages: int) -> float:
    """The binomial standard error of a percentage, in percentage points."""
    return math.sqrt(of_percent * (100 - of_percent) / pages)


def rendered(title: str, entries: Sequence[Entry]) -> str:
    """Rows by columns, then the targets and whether they are reached, naming each column that is not."""
    rows, columns = (list(dict.fromkeys(getattr(entry, of) for entry in entries)) for of in ("row", "column"))
    cells = {(entry.row, entry.column): entry for entry in entries}
    width = max(map(len, rows))
    spaces = [max(len(column), 6) + 2 for column in columns]
    head = "".join(column.rjust(space) for column, space in zip(columns, spaces, strict=True))
    lines = [title, " " * width + head + "   target"]
    for row in rows:
        shown = [cells.get((row, column)) for column in columns]
        numbers = "".join(
            ("" if entry is None else f"{entry.percent:.1f}").rjust(space)
            for entry, space in zip(shown, spaces, strict=True)
        )
        found = [entry for entry in shown if entry is not None]
        targets = ", ".join(dict.fromkeys(str(entry.target) for entry in found if entry.target is not None))
        missed = [entry.column for entry in found if entry.reached is False]
        verdict = f"MISSED by {', '.join(missed)}" if missed else "PASS" if targets else ""
        lines.append(f"{row.ljust(width)}{numbers}   {targets.ljust(14)} {verdict}".rstrip())
    return "\n".join(lines)
