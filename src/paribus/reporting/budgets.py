"""Beyond the budget: the gap over budgets that each finished their own schedule, and the compute multiplier."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.experiment import spec
from paribus.reading.study import ReadStudy
from paribus.report.content import BudgetGap, BudgetSummary, GapForm
from paribus.reporting.due import DIVERGED, confidence_of, due, losses_by_budget, once, signs
from paribus.stats.budgets import BudgetEstimate, GapOverBudget, gap_over_budget
from paribus.stats.curves import EXTRAPOLATION
from paribus.stats.multiplier import compute_multiplier
from paribus.stats.multiplier_interaction import multiplier_interaction
from paribus.stats.rule import Verdict, Word

POINTS = 25
"""budgets at which a fitted gap is drawn"""


@dataclass(frozen=True)
class Budgets:
    """What the report shows of a study's budgets."""

    gaps: tuple[BudgetGap, ...]
    forms: tuple[GapForm, ...]
    summaries: tuple[BudgetSummary, ...]


def budgets(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Budgets:
    """Every contrast that is due, at scales with budgets of their own."""
    gaps: list[BudgetGap] = []
    forms: list[GapForm] = []
    summaries: list[BudgetSummary] = []
    for contrast, verdict in once(study, due(study, verdicts)):
        size = study.experiment.scales[study.experiment.contrast_scale(contrast)]
        if not size.budgets_tokens:
            continue
        if verdict.word is Word.DIVERGENCE:
            summaries.append(_without(verdict, size.budget_tokens, size.budget_cells == "branches"))
            continue
        tokens, seeds, tables = losses_by_budget(study, contrast, verdict)
        dependent = size.budget_cells == "branches"
        gap = np.sum([sign * tables[arm] for sign, arm in zip(signs(contrast), contrast.arms, strict=True)], axis=0)
        zero = np.zeros_like(gap)
        grid = np.geomspace(tokens[0], EXTRAPOLATION * tokens[-1], POINTS)
        found = gap_over_budget(
            tokens, zero, gap, grid.tolist(), seeds=seeds, dependent=dependent, confidence=confidence_of(verdict)
        )
        for column, measured in enumerate(found.measured):
            there = np.isfinite(gap[:, column])
            gaps.append(
                BudgetGap(
                    verdict.name,
                    verdict.scale,
                    tokens[column],
                    tuple(seed for seed, finite in zip(seeds, there, strict=True) if finite),
                    tuple(gap[there, column].tolist()),
                    measured.mean,
                    measured.interval,
                )
            )
        forms += _forms(verdict, found.estimates)
        summaries.append(_summary(contrast, verdict, tokens, seeds, tables, dependent, found))
    return Budgets(tuple(gaps), tuple(forms), tuple(summaries))


def _forms(verdict: Verdict, estimates: tuple[BudgetEstimate, ...]) -> Iterator[GapForm]:
    """Each form's mean and interval along the grid; a form that the seeds refute is not among them."""
    names = dict.fromkeys(form.form for estimate in estimates for form in estimate.by_form)
    for name in names:
        points = [(e.budget_tokens, f) for e in estimates for f in e.by_form if f.form == name and f.interval]
        tokens = tuple(budget for budget, _ in points)
        low, high = ([f.interval[side] if f.interval else np.nan for _, f in points] for side in (0, 1))
        yield GapForm(
            verdict.name, verdict.scale, name, tokens, tuple(f.mean for _, f in points), tuple(low), tuple(high)
        )


def _summary(
    contrast: spec.Contrast,
    verdict: Verdict,
    tokens: tuple[int, ...],
    seeds: tuple[int, ...],
    tables: dict[str, NDArray[np.float64]],
    dependent: bool,
    gap: GapOverBudget,
) -> BudgetSummary:
    furthest = EXTRAPOLATION * tokens[-1]
    values = [tables[arm] for arm in contrast.arms]
    if len(values) == 4:
        joint = multiplier_interaction(
            tokens, *values, seeds=seeds, dependent=dependent, confidence=confidence_of(verdict)
        )
        said, notes = joint.sentence, joint.notes
        shown, bounds, method = None, None, "difference of two log multipliers"
    else:
        treatment, baseline = values
        found = compute_multiplier(
            tokens, baseline, treatment, seeds=seeds, dependent=dependent, confidence=confidence_of(verdict)
        )
        said, notes = found.sentence or f"{found.refusal}.", found.notes
        shown, bounds = found.multiplier, None if found.refusal else found.interval
        method = "Fieller over the fitted curve of the baseline"
    # A form that the seeds refute is named in the notes; the two analyses share some of theirs.
    more = [note for note in dict.fromkeys([gap.refusal, *notes, *gap.notes]) if note and note not in said]
    said = " ".join([said, *(f"{note[0].upper()}{note[1:]}." for note in more)])
    return BudgetSummary(verdict.name, verdict.scale, dependent, tokens[-1], furthest, shown, bounds, method, said)


def _without(verdict: Verdict, largest: int, dependent: bool) -> BudgetSummary:
    furthest = EXTRAPOLATION * largest
    said = f"Not estimated: {DIVERGED}."
    return BudgetSummary(verdict.name, verdict.scale, dependent, largest, furthest, None, None, "", said)
