"""`report.json`: what a program reads of a study, with full precision and only what is due."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from paribus.disk import sealed_text
from paribus.report.content import DiagnosticValue, InterventionValue, Measurement, ReportContent, RouteChange
from paribus.report.door import due
from paribus.report.evidence import shown_rows

FORMAT = 8
"""version of the layout

2 added estimates, noise, budgets, costs, tuning, published figures, tasks and file names; 3 what could still be wrong,
looks, what was held equal, parameters, corpus, environment, the command that repeats it, and measurements; 4
synthetic tasks, contrasts at other learning rates, and on test documents without overlap; 5 other schedules and other
values of a field; 6 tasks as one record each, their pairs of checkpoints, CORE, predicted letters, swapped questions; 7
loss spikes (`spikes`) and runs that diverged, with the first tensor that was not finite (`diverged`); 8 what an update
of each arm takes (`updates`), and of `costs` the way of computing, processor time, peaks and A/A intervals.
"""

FACTS = ("caveats", "repeat_command", "pairing_proven", "environment", "corpus")
"""fields of the content that are written as they are"""

RECORDS = (
    "cells",
    "looks",
    "held_equal",
    "parameters",
    "estimates",
    "overlap",
    "noise",
    "budget_gaps",
    "gap_forms",
    "budget_summaries",
    "costs",
    "updates",
    "trials",
    "tuning",
    "published",
    "tasks",
    "task_pairs",
    "core",
    "core_differences",
    "core_shares",
    "letters",
    "counterfactuals",
    "robustness",
    "sensitivity",
    "retrieval",
    "spikes",
    "diverged",
)
"""fields of the content that are written as objects, one a record; `door.due` is their door"""


def to_json(content: ReportContent, files: Sequence[str] = (), digests: Mapping[str, str] | None = None) -> str:
    """Verdicts, records (only what is due), facts about the study and readings; what is not finite is null.

    Readings are rows under their column names, a row a line: there may be a hundred thousand. `files` are the exports
    that lie beside it, `digests` (blake2b-64) those of all of the report's other files by name. Last comes a checksum.
    """
    content = due(content)
    data = {
        "format": FORMAT,
        "study": content.study,
        "question": content.question,
        "files": list(files),
        "digests": dict(digests or {}),
        "verdicts": [row.to_dict() for row in shown_rows(content)],
        **{name: getattr(content, name) for name in FACTS},
        **{name: [asdict(record) for record in getattr(content, name)] for name in RECORDS},
        "task": None if content.task is None else asdict(content.task),
    }
    whole = json.dumps(finite(data), indent=2, sort_keys=True, allow_nan=False)
    readings = {
        "measurements": (Measurement, content.measurements),
        "diagnostics": (DiagnosticValue, content.diagnostics),
        "interventions": (InterventionValue, content.interventions),
        "route_changes": (RouteChange, content.route_changes),
    }
    parts = [f'  "{name}": {_rows(kind, found)}' for name, (kind, found) in readings.items()]
    return sealed_text(whole.removesuffix("\n}") + ",\n" + ",\n".join(parts) + "\n}\n")


def _rows(kind: type[Any], records: Sequence[Any]) -> str:
    """{"columns": names of the fields, "rows": one list a record}, a row a line."""
    columns = [field.name for field in fields(kind)]
    lines = (json.dumps(finite([getattr(record, name) for name in columns]), allow_nan=False) for record in records)
    rows = ",\n    ".join(lines)
    return f'{{"columns": {json.dumps(columns)}, "rows": [' + (f"\n    {rows}\n  " if rows else "") + "]}"


def finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(entry) for entry in value]
    return value
