"""What of a study's records may leave before its verdicts are due: the door that all of the report is made behind.

Of what tells about a contrast (estimates, budgets, costs, tasks, published figures) only that stays which says nothing
about its outcome: the ratio of step times, one arm against itself. Of what tells about single models, two arms side by
side would be a difference that anyone can take. So while a contrast waits, losses are those of one arm a scale, the one
that the others are measured from, and what lies beyond a look is in nothing (rules of evidence, section 2).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Protocol, TypeVar

from paribus.report.answers_door import due_counterfactuals, due_of_models, due_of_pairs, due_tasks
from paribus.report.content import (
    CellRow,
    CostRow,
    DiagnosticValue,
    EstimateRow,
    NoiseRow,
    PublishedRow,
    ReportContent,
    TrialRow,
)
from paribus.report.evidence import Shown, is_due, may_compare, may_tell, reference_arm, shown_rows, uncounted_seeds
from paribus.report.of_conduct import best_score
from paribus.report.of_retrieval import ANSWER_MASS
from paribus.report.overlap import due_overlap
from paribus.report.retrieval import due_retrieval
from paribus.report.robustness import due_rates
from paribus.report.sensitivity import due_sensitivity
from paribus.report.task_section import due_task

_OTHER_SEED = "other seed"


def due(content: ReportContent) -> ReportContent:
    """The content without any number that hints at an outcome before it is due: all that leaves the report is made of.

    Verdicts and pairs are left as they are; `shown` is their door.
    """
    rows = shown_rows(content)
    told, inside = _teller(rows), _inside(rows)
    return replace(
        content,
        cells=tuple(cell if told(cell) else _without_losses(cell) for cell in content.cells),
        curves=tuple(filter(told, content.curves)),
        measurements=tuple(filter(told, content.measurements)),
        interventions=tuple(filter(told, content.interventions)),
        diagnostics=tuple(value for value in content.diagnostics if told(value) or inside(value)),
        route_changes=tuple(c for c in content.route_changes if uncounted_seeds(rows, c.scale).isdisjoint(c.seeds)),
        estimates=tuple(_estimate(row, is_due(rows, row.contrast, row.scale)) for row in content.estimates),
        overlap=due_overlap(content.overlap, rows),
        noise=tuple(_noise(row, rows) for row in content.noise),
        budget_gaps=_of_due(content.budget_gaps, rows),
        gap_forms=_of_due(content.gap_forms, rows),
        budget_summaries=_of_due(content.budget_summaries, rows),
        costs=tuple(_cost(row, is_due(rows, row.contrast, row.scale)) for row in content.costs),
        trials=tuple(_trial(row, content.trials, may_compare(rows, row.scale)) for row in content.trials),
        tuning=tuple(row if may_compare(rows, row.scale) else replace(row, sentence="") for row in content.tuning),
        published=tuple(_published(row, is_due(rows, row.contrast, row.scale)) for row in content.published),
        tasks=due_tasks(content.tasks, rows),
        task_pairs=due_of_pairs(content.task_pairs, rows),
        core=due_of_models(content.core, rows),
        core_differences=due_of_pairs(content.core_differences, rows),
        core_shares=due_of_pairs(content.core_shares, rows),
        letters=due_of_models(content.letters, rows),
        counterfactuals=due_counterfactuals(content.counterfactuals, rows),
        robustness=due_rates(content.robustness, rows),
        sensitivity=due_sensitivity(content.sensitivity, rows),
        task=None if content.task is None else due_task(content.task, rows),
        retrieval=due_retrieval(content.retrieval, rows),
        spikes=tuple(filter(told, content.spikes)),
        diverged=tuple(row if told(row) else replace(row, last_loss_nats_per_token=None) for row in content.diverged),
    )


class _OfCell(Protocol):
    @property
    def scale(self) -> str: ...
    @property
    def arm(self) -> str: ...
    @property
    def seed(self) -> int: ...


def _teller(rows: Sequence[Shown]) -> Callable[[_OfCell], bool]:
    """`may_tell` of a record; there may be a hundred thousand of a few hundred cells."""
    told = cache(lambda scale, arm, seed: may_tell(rows, scale, arm, seed))
    return lambda record: told(record.scale, record.arm, record.seed)


def _inside(rows: Sequence[Shown]) -> Callable[[DiagnosticValue], bool]:
    """Whether a reading tells what happens inside a model at a seed that counts, and not how well the model does."""
    quality = {"nats per token", "bits per byte", *(row.unit for row in rows)}
    beyond = cache(lambda scale: uncounted_seeds(rows, scale))
    return lambda value: (
        value.unit not in quality and value.diagnostic != ANSWER_MASS and value.seed not in beyond(value.scale)
    )


def _without_losses(cell: CellRow) -> CellRow:
    """What a training run was and what it cost, without how well it did."""
    losses = ("test_nats_per_token", "test_bits_per_byte", "validation_nats_per_token")
    return replace(cell, **dict.fromkeys((*losses, "final_training_loss_nats_per_token")))


class _OfContrast(Protocol):
    @property
    def contrast(self) -> str: ...
    @property
    def scale(self) -> str: ...


_Record = TypeVar("_Record", bound=_OfContrast)


def _of_due(records: Iterable[_Record], rows: Sequence[Shown]) -> tuple[_Record, ...]:
    return tuple(record for record in records if is_due(rows, record.contrast, record.scale))


def _estimate(row: EstimateRow, is_shown: bool) -> EstimateRow:
    if is_shown:
        return row
    return replace(row, mean=None, standard_error=None, degrees_of_freedom=None, interval=None, note="")


def _noise(row: NoiseRow, rows: Sequence[Shown]) -> NoiseRow:
    """Deviations of two arms at common seeds would give the spread of their difference, which is not due either."""
    if rows and may_compare(rows, row.scale) and all(of.settled for of in rows if of.primary):
        return row
    hidden = row.kind == _OTHER_SEED and row.arm != reference_arm(rows, row.scale)
    return replace(row, contrast_sd=None, differences=() if hidden else row.differences)


def _cost(row: CostRow, is_shown: bool) -> CostRow:
    if is_shown:
        return row
    gains = ("iso_step", "iso_flop", "iso_time", "break_even_ratio")
    hidden = [*gains, *(f"{gain.removesuffix('_ratio')}_interval" for gain in gains)]
    if all(getattr(row, name) is None for name in hidden):
        return row  # nothing was made of an outcome: its sentence is about the machine
    return replace(row, sentence="", **dict.fromkeys(hidden))


def _trial(row: TrialRow, trials: Sequence[TrialRow], is_shown: bool) -> TrialRow:
    """Before it is due a score is told above the best of its own arm: two tuned arms would be a comparison."""
    if is_shown:
        return row
    best = best_score(trials, row.scale, row.arm)
    scores = (None if score is None or best is None else score - best for score in row.scores)
    return replace(row, scores=tuple(scores))


def _published(row: PublishedRow, is_shown: bool) -> PublishedRow:
    return row if is_shown else replace(row, ours=None, ours_interval=None, word="", sentence="")
