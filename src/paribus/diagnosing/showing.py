"""What `paribus diagnose` prints: likelihood, then a table for each diagnostic, a row a layer."""

import math
from typing import Any

from rich.console import Console

from paribus.diagnosing.running import Estimate, Findings
from paribus.measure.probes import ALL, Reading
from paribus.mechanisms.contract import Diagnostic
from paribus.terminal import table

GROUPS_SHOWN = 3
"""columns of a diagnostic's table; --json has all of them, and ranges of positions"""


def show(found: Findings, console: Console) -> None:
    """Tables with standard errors over documents."""
    console.print(
        f"{found.model}: {found.documents:,} documents of {found.text}, {found.tokens:,} tokens, "
        f"{found.bytes:,} bytes, read in windows of {found.context_length:,}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    rows = [("nats per token", *_both(found.nats_per_token)), ("bits per byte", *_both(found.bits_per_byte))]
    console.print(table("Likelihood", ("measure", "value", "standard error"), rows, right=(1, 2)))
    by_name: dict[str, list[Reading]] = {}
    for reading in found.readings:
        if reading.bucket == ALL:
            by_name.setdefault(reading.diagnostic, []).append(reading)
    for diagnostic in found.diagnostics:
        if diagnostic.name in by_name:
            console.print()
            _show_one(diagnostic, by_name[diagnostic.name], console)
    console.print("\nStandard errors are over documents, of this one model: they say nothing about other seeds.")


def as_json(found: Findings) -> dict[str, Any]:
    """Everything, NaN as null."""
    known = {d.name: d for d in found.diagnostics}
    return {
        "model": found.model,
        "text": found.text,
        "documents": found.documents,
        "tokens": found.tokens,
        "bytes": found.bytes,
        "context_length": found.context_length,
        "nats_per_token": _estimate(found.nats_per_token),
        "bits_per_byte": _estimate(found.bits_per_byte),
        "diagnostics": {
            name: {"title": known[name].title, "sentence": known[name].sentence, "unit": known[name].unit}
            for name in sorted({reading.diagnostic for reading in found.readings})
        },
        "readings": [
            {
                "diagnostic": r.diagnostic,
                "layer": r.layer,
                "group": r.group,
                "bucket": r.bucket,
                "value": _finite(r.value),
                "standard_error": _finite(r.standard_error),
                "documents": r.documents,
            }
            for r in found.readings
        ],
    }


def _show_one(diagnostic: Diagnostic, readings: list[Reading], console: Console) -> None:
    groups = list(dict.fromkeys(reading.group for reading in readings))
    shown = groups[:GROUPS_SHOWN]
    at = {(reading.layer, reading.group): reading for reading in readings}
    rows = [
        (f"{layer}", *(_cell(at.get((layer, group))) for group in shown))
        for layer in sorted({reading.layer for reading in readings})
    ]
    check = ", a check" if diagnostic.correctness_only else ""
    more = f"; {len(groups) - len(shown)} more groups with --json" if len(groups) > len(shown) else ""
    title = f"{diagnostic.title} ({diagnostic.unit}{check}{more})"
    console.print(table(title, ("layer", *shown), rows, right=range(1, len(shown) + 1)))


def _cell(reading: Reading | None) -> str:
    if reading is None:
        return ""
    error = "" if math.isnan(reading.standard_error) else f" ± {reading.standard_error:.2g}"
    return f"{reading.value:.4g}{error}"


def _both(estimate: Estimate) -> tuple[str, str]:
    error = estimate.standard_error
    return f"{estimate.value:.4f}", "one document" if math.isnan(error) else f"{error:.4f}"


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {"value": _finite(estimate.value), "standard_error": _finite(estimate.standard_error)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
