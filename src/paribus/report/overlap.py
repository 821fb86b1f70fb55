"""Contrasts on the test documents without overlap: one table beside the verdicts, which it never changes."""

from collections.abc import Sequence
from dataclasses import replace

from paribus.report.blocks import Absent, PageTable, Section
from paribus.report.evidence import Shown, is_due, may_span
from paribus.report.numbers import count, interval
from paribus.report.of_overlap import OverlapRow
from paribus.report.tables import Column, Table, without_empty_columns
from paribus.stats.rounding import MISSING, decimals_for, fixed, percent, whole_percent

TITLE = "Without overlap with training text"
_ANCHOR = "overlap"
_ABSENT = (
    "No test document of these cells is marked as sharing 13-grams with training text or not: a synthetic task has no "
    "texts, only the test split is marked, and rows of earlier versions carry no marks."
)


def due_overlap(found: Sequence[OverlapRow], rows: Sequence[Shown]) -> tuple[OverlapRow, ...]:
    """Those of contrasts that are due; beside a stop for futility without an interval."""
    return tuple(
        row if may_span(rows, row.scale) else replace(row, standard_error=None, degrees_of_freedom=None, interval=None)
        for row in found
        if is_due(rows, row.contrast, row.scale)
    )


def overlap_section(found: Sequence[OverlapRow], rows: Sequence[Shown], withheld: str = "") -> Section | Absent:
    """Of rows that went through `due_overlap`. `withheld` says why there may be no row yet."""
    if not found:
        return Absent(TITLE, withheld or _ABSENT)
    table = without_empty_columns(overlap_table(found, rows), keep=3)
    return Section(_ANCHOR, TITLE, tables=(PageTable(f"{_ANCHOR}-1", table),))


def overlap_table(found: Sequence[OverlapRow], rows: Sequence[Shown]) -> Table:
    """One row a contrast: on all test documents, as its verdict has it, and on the free ones."""
    verdicts = {(row.name, row.scale): row for row in rows}
    columns = (
        Column("contrast"),
        Column("all test documents", "difference", numeric=True),
        Column("free of overlap", "difference", numeric=True),
        Column("pairs", numeric=True),
        Column("free", "documents, tokens", numeric=True),
        Column("shared", "documents, tokens", numeric=True),
        Column("not checked", "documents, tokens", numeric=True),
        Column("note"),
    )
    body = []
    for row in found:
        verdict = verdicts.get((row.contrast, row.scale))
        digits = decimals_for(row.standard_error if verdict is None else verdict.standard_error)
        bounds, level = (None, None) if verdict is None else (verdict.interval, verdict.interval_confidence)
        body.append(
            (
                f"{row.contrast}\n{row.unit}, scale\u00a0{row.scale}",
                _difference(row.mean_of_all, bounds, level, digits),
                _difference(row.mean, row.interval, row.confidence, digits),
                str(row.pairs),
                _part(row.free_documents, row.free_tokens, row.tokens),
                _part(row.shared_documents, row.shared_tokens, row.tokens),
                _part(row.unchecked_documents, row.unchecked_tokens, row.tokens),
                row.note,
            )
        )
    note = (
        "Free: the document shares no 13-gram of words with any training text; shared: it does. Below the documents "
        "their tokens. The second difference is taken from the free documents alone, paired t over seeds at the level "
        "of the verdict's interval. It decides nothing."
    )
    return Table("Test documents without 13-gram overlap: treatment minus baseline", columns, tuple(body), note)


def _difference(mean: float | None, bounds: tuple[float, float] | None, confidence: float | None, digits: int) -> str:
    if mean is None:
        return MISSING
    told = "" if bounds is None else f"\n{interval(bounds, digits)} {percent(confidence)}"
    return fixed(mean, digits, signed=True) + told


def _part(documents: int, tokens: int, of_tokens: int) -> str:
    share = f", {whole_percent(tokens / of_tokens)}" if of_tokens else ""
    return f"{count(documents)}\n{count(tokens)}{share}"
