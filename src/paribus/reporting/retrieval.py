"""Where the arms of a task's study fetch the answer, from the diagnostics of their cells."""

from collections.abc import Sequence

from paribus.reading.study import ReadStudy
from paribus.report.content import DiagnosticValue
from paribus.report.of_retrieval import RetrievalRow, retrieval_rows


def retrieval(study: ReadStudy, diagnostics: Sequence[DiagnosticValue]) -> list[RetrievalRow]:
    """A row a scale, arm and slice that the task's claim is about; none for a text.

    `diagnostics` are the study's, all cells together, as `paribus.reporting.mechanism` reads them.
    """
    task = study.plan["corpus"].get("task")
    return [] if task is None else retrieval_rows(diagnostics, task["primary"])
