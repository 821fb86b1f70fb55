"""Studies side by side in the terminal and as JSON."""

import dataclasses
from typing import Any

from rich.console import Console

from paribus.comparing.reported import Reported
from paribus.comparing.side_by_side import Group, SideBySide
from paribus.report.numbers import count, interval
from paribus.stats.rounding import MISSING, decimals_for, declared, fixed, percent
from paribus.terminal import table

SHOWN_FIELDS = 30
"""differing fields of a contrast that the terminal lists; all are in the JSON"""


def describe(found: SideBySide, console: Console) -> None:
    """A table a contrast that several studies have, what differs between them, and what may be read from it."""
    for number, study in enumerate(found.studies, start=1):
        _print(console, f"{number}  {study.name}: {study.question}", style="bold")
        look = f", last look {study.last_look}" if study.last_look else ""
        _print(console, f"   {study.folder}{look}")
    for group in found.groups:
        console.print()
        console.print(_table(group))
        _print(console, f"  {group.why}")
        _describe_differing(group.differing, "arms", console)
    if found.alone:
        console.print()
        _print(console, "In one study only", style="bold")
        for row in found.alone:
            _print(console, f"  {row.place + 1}  {row.name}: {row.compared}, {row.metric}: {row.word}")
    console.print()
    _print(console, "What differs between the studies", style="bold")
    if not found.differing:
        _print(console, "  corpus, environment and code: nothing")
    for path, values in found.differing.items():
        _print(console, f"  {path}: {' | '.join(values)}")
    console.print()
    for sentence in found.sentences:
        _print(console, sentence)


def describe_json(found: SideBySide) -> dict[str, Any]:
    """The same as JSON types."""
    return {
        "studies": [
            {
                "study": study.name,
                "folder": str(study.folder),
                "question": study.question,
                "code_versions": list(study.code),
                "last_look": study.last_look or None,
            }
            for study in found.studies
        ],
        "contrasts": [
            {
                "title": group.title,
                "comparable": group.comparable,
                "why": group.why,
                "rows": [_row_json(row) for row in group.rows],
                "differing": {path: list(values) for path, values in group.differing.items()},
            }
            for group in found.groups
        ],
        "in_one_study_only": [_row_json(row) for row in found.alone],
        "differing": {path: list(values) for path, values in found.differing.items()},
        "independent_seeds": found.independent,
        "sentences": list(found.sentences),
    }


def _table(group: Group) -> Any:
    rows = []
    for row in group.rows:
        decimals = decimals_for(row.standard_error)
        bounds = f" {interval(row.interval, decimals)} {percent(row.interval_confidence)}" if row.interval else ""
        rows.append(
            (
                f"{row.place + 1}  {row.study}",
                row.word + (" (primary)" if row.primary else ""),
                MISSING if row.mean is None else f"{fixed(row.mean, decimals, signed=True)}{bounds}",
                f"{row.seeds} of {row.planned_seeds}",
                count(row.budget_tokens),
                f"±{declared(row.smallest_effect)}",
                row.scale,
                row.compared,
            )
        )
    unit = " and ".join(dict.fromkeys(row.unit for row in group.rows))
    columns = ("study", "verdict", f"difference ({unit})", "pairs", "tokens", "smallest effect", "scale", "arms")
    return table(group.title, columns, rows, right=(2, 3, 4, 5))


def _describe_differing(differing: Any, what: str, console: Console) -> None:
    if not differing:
        _print(console, f"  The {what} are resolved alike.")
        return
    _print(console, f"  Fields of the {what} that differ:")
    for path, values in list(differing.items())[:SHOWN_FIELDS]:
        _print(console, f"    {path}: {' | '.join(values)}")
    if len(differing) > SHOWN_FIELDS:
        _print(console, f"    and {len(differing) - SHOWN_FIELDS} more, all in --json")


def _row_json(row: Reported) -> dict[str, Any]:
    found = dataclasses.asdict(row)
    return {**found, "arms": list(row.arms), "interval": None if row.interval is None else list(row.interval)}


def _print(console: Console, text: str, style: str | None = None) -> None:
    # Names and questions come from files: what looks like markup in them is text.
    console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)
