"""One self-contained page per study: it opens from a disk, without a network, a script or a font of its own.

The same content gives the same bytes. Beside the page lie `report.json` (verdicts and cells for programs), and
the verdict alone as `verdict.svg` and `verdict.md`, to be shown where the page cannot be.
"""

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paribus.errors import StorageError
from paribus.report import figures, tables
from paribus.report.content import DiagnosticValue, InterventionValue, ReportContent, RouteChange
from paribus.report.evidence import Shown, shown_rows
from paribus.report.readings import fine_table, glance_table
from paribus.stats.verdict import Word

PAGE = "report.html"
DATA = "report.json"
FIGURE = "verdict.svg"
MARKDOWN = "verdict.md"
_FORMAT = 1
"""version of the layout of `report.json`"""


def render(content: ReportContent) -> str:
    """The page of a study as HTML: the question and its answer first, what could be wrong with it before the end."""
    rows = shown_rows(content)
    primary = [row for row in rows if row.primary]
    environment = Environment(
        loader=PackageLoader("paribus.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_printable,
    )
    environment.filters["svg"] = Markup  # made by `canvas.to_svg`, which escapes every name in it
    environment.filters["kind"] = kind
    verdicts = tables.without_empty_columns(tables.verdict_table(rows, content.parameters), keep=2)
    return environment.get_template("page.html").render(
        content=content,
        primary=primary,
        notes=noted(rows),
        progress=_progress(content),
        verdicts=verdicts,
        differences=figures.differences_figure(rows),
        losses=figures.loss_figures(content, rows),
        milestones=figures.milestone_figures(content, rows),
        diagnostics=[*figures.diagnostic_blocks(content, rows), *_present(figures.divergence_block(content))],
        glances=_glances(content),
        fine=fine_table(content.diagnostics, content.diagnostic_texts),
        interventions=figures.intervention_blocks(content, rows),
        several_scales=len(figures.scales_of(content)) > 1,
        held_equal=tables.held_equal_table([entry for entry in content.held_equal if not entry.gate]),
        gates=tables.held_equal_table([entry for entry in content.held_equal if entry.gate], "Gates before training"),
        parameters=tables.parameters_table(content.parameters),
        stale=sum(cell.state == "stale" for cell in content.cells),
        seeds=tables.without_empty_columns(tables.seeds_table(content.cells), keep=4),
        looks=tables.looks_table(content.looks),
        corpus=tables.facts_table("The text the study was trained and tested on", content.corpus),
        environment=tables.facts_table("Where and with what the study ran", content.environment),
    )


def to_json(content: ReportContent) -> str:
    """Verdicts (only what is due), cells and readings, with full precision; a number that is not finite is null.

    Readings are rows under their column names, a row a line: there may be a hundred thousand.
    """
    data = {
        "format": _FORMAT,
        "study": content.study,
        "question": content.question,
        "verdicts": [row.to_dict() for row in shown_rows(content)],
        "cells": [asdict(cell) for cell in content.cells],
    }
    whole = json.dumps(_finite(data), indent=2, sort_keys=True, allow_nan=False)
    records = {
        "diagnostics": (DiagnosticValue, content.diagnostics),
        "interventions": (InterventionValue, content.interventions),
        "route_changes": (RouteChange, content.route_changes),
    }
    parts = [f'  "{name}": {_rows(kind, found)}' for name, (kind, found) in records.items()]
    return whole.removesuffix("\n}") + ",\n" + ",\n".join(parts) + "\n}\n"


def _rows(kind: type[Any], records: Sequence[Any]) -> str:
    """{"columns": names of the fields, "rows": one list a record}, a row a line."""
    columns = [field.name for field in fields(kind)]
    lines = (json.dumps(_finite([getattr(record, name) for name in columns]), allow_nan=False) for record in records)
    rows = ",\n    ".join(lines)
    return f'{{"columns": {json.dumps(columns)}, "rows": [' + (f"\n    {rows}\n  " if rows else "") + "]}"


def _glances(content: ReportContent) -> list[tuple[str, tables.Table]]:
    """One table a scale."""
    found = []
    for scale in figures.scales_of(content):
        values = [v for v in content.diagnostics if v.scale == scale]
        found.append((scale, glance_table(values, content.diagnostic_texts, figures.arms_of(content, scale))))
    return [(scale, table) for scale, table in found if table is not None]


def _present(block: figures.Block | None) -> list[figures.Block]:
    return [] if block is None else [block]


def write(content: ReportContent, folder: Path) -> Path:
    """Write the page, its data, and the verdict alone as a figure and as Markdown; return the page's path.

    Each file is written aside and renamed.
    """
    page = folder / PAGE
    rows = shown_rows(content)
    _replace(folder / DATA, to_json(content))
    _replace(folder / FIGURE, figures.readme_figure(rows))
    notes = "".join(f"\n- {of}: {text}" for of, text in noted(rows))
    _replace(folder / MARKDOWN, tables.to_markdown(tables.verdict_table(rows, content.parameters)) + notes)
    _replace(page, render(content))
    return page


def kind(row: Shown) -> str:
    """The style of a verdict: better, worse, equal, or "open" for every word that settles nothing."""
    if row.word.better or row.word.worse:
        return "better" if row.word.better else "worse"
    return "equal" if row.word in (Word.EQUIVALENT, Word.EQUIVALENT_NOT_ZERO) else "open"


def _printable(value: Any) -> Any:
    """HTML has no way to write most control characters; markup made here has none."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\N{REPLACEMENT CHARACTER}", value)


def noted(rows: Sequence[Shown]) -> list[tuple[str, str]]:
    """Each note once, with the contrasts it holds for."""
    texts = dict.fromkeys(note for row in rows for note in row.notes)
    holders = {text: [f"{row.name}, scale {row.scale}" for row in rows if text in row.notes] for text in texts}
    every = len(rows) > 1
    return [
        ("all contrasts" if every and len(of) == len(rows) else "; ".join(of), text) for text, of in holders.items()
    ]


def _progress(content: ReportContent) -> str:
    if not content.cells:
        return "No training run is planned yet."
    complete = sum(cell.state == "complete" for cell in content.cells)
    states = [cell.state for cell in content.cells if cell.state != "complete"]
    rest = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
    return f"{complete} of {len(content.cells)} training runs complete" + (f" ({rest})." if rest else ".")


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise StorageError(
            f"the report could not be written to {path}",
            received=str(error),
            remedy="free space or make the folder writable, then ask for the report again; no run is touched by it",
        ) from error


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(entry) for entry in value]
    return value
