"""Where the arms of a task's study fetch the answer, from the diagnostics of their cells."""

from collections.abc import Sequence

from paribus.experiment.metrics import parse
from paribus.reading.study import ReadStudy
from paribus.report.content import DiagnosticValue
from paribus.report.of_retrieval import RetrievalRow, retrieval_rows


def retrieval(study: ReadStudy, diagnostics: Sequence[DiagnosticValue]) -> list[RetrievalRow]:
    """A row a scale, arm and slice that the study's claim is about; none for a text.

    The claim is the primary contrast's: where its metric names no slice, what the task itself is about.

    `diagnostics` are the study's, all cells together, as `paribus.reporting.mechanism` reads them.
    """
    task = study.plan["corpus"].get("task")
    if task is None:
        return []
    primary = study.experiment.contrasts[study.experiment.primary]
    return retrieval_rows(diagnostics, "-".join(parse(primary.metric).slices) or task["primary"])
