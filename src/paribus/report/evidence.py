"""What of a verdict may be shown: the one door between the statistics and everything a reader sees.

Before the planned seeds (or a declared look) nothing that hints at an outcome leaves here: no word but "waiting", no
p value, no interval, no mean and no per-seed difference, whatever the record behind it holds (rules of
evidence, section 2). Figures, tables, the page and its JSON take `Shown`, never the verdict itself.

`due` does the same for every other record about a contrast: estimates, budgets, costs, tasks, published figures. What
says nothing about the outcome stays: the ratio of step times, the baseline's own task scores, one arm against itself.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from paribus.report.content import (
    CostRow,
    EstimateRow,
    NoiseRow,
    PairRow,
    PublishedRow,
    ReportContent,
    TaskRow,
    TrialRow,
)
from paribus.stats.rounding import MINUS
from paribus.stats.verdict import Verdict, Word


@dataclass(frozen=True)
class Shown(Verdict):
    """A verdict, what is not due set to None, with its per-seed differences beside it."""

    difference_seeds: tuple[int, ...] = ()
    differences: tuple[float | None, ...] = ()
    """Treatment minus baseline in the unit of the metric, one a seed; None where a cell of the pair diverged."""

    @property
    def waiting(self) -> bool:
        """Nothing about the difference may be shown."""
        return self.word is Word.WAITING

    @property
    def settled(self) -> bool:
        """Whether all pairs that are there may be shown: it waits for none, and none lies beyond the look it is at."""
        return not self.waiting and not self.uncounted_seeds

    @property
    def compared(self) -> str:
        """What is subtracted from what: two arms, or the two differences of an interaction."""
        return f"{self.treatment} {MINUS} {self.baseline}"

    @property
    def reference_arm(self) -> str:
        """The arm that the others of the contrast are measured from: the last of its formula."""
        return self.arms[-1] if self.interaction else self.baseline

    @property
    def finite_differences(self) -> list[float]:
        """The differences of the pairs whose two cells ended finite."""
        return [difference for difference in self.differences if difference is not None]

    @property
    def lost_pairs(self) -> int:
        """Pairs without a difference: a cell of theirs diverged."""
        return len(self.differences) - len(self.finite_differences)


def shown(verdict: Verdict, pairs: Iterable[PairRow] = ()) -> Shown:
    """`verdict` as a reader may see it, joined with its rows among `pairs`."""
    held = {field.name: getattr(verdict, field.name) for field in dataclasses.fields(Verdict)}
    if verdict.word is Word.WAITING:
        # What was declared before the run has no default; every number about the outcome has one.
        held = {
            field.name: held[field.name] if field.default is dataclasses.MISSING else field.default
            for field in dataclasses.fields(Verdict)
        }
        counts = f"{verdict.seeds} of {verdict.planned_seeds} planned pairs are complete"
        held |= {"arms": verdict.arms, "looks": verdict.looks, "extension": verdict.extension}
        if verdict.looks:
            counts += f", stops are declared at {' and '.join(map(str, verdict.looks))}"
        held["sentence"] = f"{counts}; nothing about the difference is shown before, so that nobody can stop on it."
        return Shown(**held)
    there = (pair for pair in pairs if (pair.contrast, pair.scale) == (verdict.name, verdict.scale))
    own = sorted((pair for pair in there if pair.seed not in verdict.uncounted_seeds), key=_seed)
    differences = (p.difference if p.difference is not None and math.isfinite(p.difference) else None for p in own)
    return Shown(**held, difference_seeds=tuple(p.seed for p in own), differences=tuple(differences))


def shown_rows(content: ReportContent) -> list[Shown]:
    """Every contrast of the study, the primary first."""
    rows = [shown(verdict, content.pairs) for verdict in content.verdicts]
    return sorted(rows, key=lambda row: not row.primary)


def _seed(pair: PairRow) -> int:
    return pair.seed


def may_compare(rows: Sequence[Shown], scale: str) -> bool:
    """Whether differences at a scale may be drawn: its contrasts (or the study's, if it has none) are settled."""
    here = [row for row in rows if row.scale == scale] or list(rows)
    return all(row.settled for row in here)


def is_due(rows: Sequence[Shown], contrast: str, scale: str) -> bool:
    """Whether a number about a contrast at a scale may be shown.

    A record that no verdict answers for is not due before everything at its scale is, and never on a page without
    verdicts: nobody knows then what was planned.
    """
    own = [row for row in rows if (row.name, row.scale) == (contrast, scale)]
    return bool(rows) and all(row.settled for row in own) and (bool(own) or may_compare(rows, scale))


def due(content: ReportContent) -> ReportContent:
    """The content without any number that hints at an outcome before it is due: all that leaves the report is made of.

    Verdicts and pairs are left as they are; `shown` is their door.
    """
    rows = shown_rows(content)
    primary_due = all(row.settled for row in rows if row.primary) and bool(rows)
    return replace(
        content,
        estimates=tuple(_estimate(row, is_due(rows, row.contrast, row.scale)) for row in content.estimates),
        noise=tuple(_noise(row, primary_due and may_compare(rows, row.scale)) for row in content.noise),
        budget_gaps=_of_due(content.budget_gaps, rows),
        gap_forms=_of_due(content.gap_forms, rows),
        budget_summaries=_of_due(content.budget_summaries, rows),
        costs=tuple(_cost(row, is_due(rows, row.contrast, row.scale)) for row in content.costs),
        trials=tuple(_trial(row, content.trials, may_compare(rows, row.scale)) for row in content.trials),
        tuning=tuple(row if may_compare(rows, row.scale) else replace(row, sentence="") for row in content.tuning),
        published=tuple(_published(row, is_due(rows, row.contrast, row.scale)) for row in content.published),
        tasks=tuple(_task(row, is_due(rows, row.contrast, row.scale)) for row in content.tasks),
    )


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


def _noise(row: NoiseRow, is_shown: bool) -> NoiseRow:
    return row if is_shown else replace(row, contrast_sd=None)


def _cost(row: CostRow, is_shown: bool) -> CostRow:
    if is_shown:
        return row
    gains = ("iso_step", "iso_flop", "iso_time", "break_even_ratio")
    hidden = [*gains, *(f"{gain.removesuffix('_ratio')}_interval" for gain in gains)]
    return replace(row, sentence="", **dict.fromkeys(hidden))


def _trial(row: TrialRow, trials: Sequence[TrialRow], is_shown: bool) -> TrialRow:
    """Before it is due a score is told above the best of its own arm: two tuned arms would be a comparison."""
    if is_shown:
        return row
    best = best_score(trials, row.scale, row.arm)
    scores = (None if score is None or best is None else score - best for score in row.scores)
    return replace(row, scores=tuple(scores))


def best_score(trials: Sequence[TrialRow], scale: str, arm: str) -> float | None:
    """The lowest mean score of an arm, nats per token; None where no trial of it has all of its scores."""
    means = (mean_score(trial) for trial in trials if (trial.scale, trial.arm) == (scale, arm))
    return min((mean for mean in means if mean is not None), default=None)


def mean_score(trial: TrialRow) -> float | None:
    """The mean over tuning seeds, nats per token; None where a seed of it is missing or diverged."""
    finite = [score for score in trial.scores if score is not None and math.isfinite(score)]
    return sum(finite) / len(finite) if finite and len(finite) == len(trial.scores) else None


def _published(row: PublishedRow, is_shown: bool) -> PublishedRow:
    return row if is_shown else replace(row, ours=None, ours_interval=None, word="", sentence="")


def _task(row: TaskRow, is_shown: bool) -> TaskRow:
    if is_shown:
        return row
    return replace(row, treatment_mean=None, difference=None, interval=None, mcnemar_p=(), note="")
