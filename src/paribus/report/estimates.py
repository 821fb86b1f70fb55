"""Every number behind the verdicts: each way to estimate a contrast, and what the words were made from.

The headline is about *these* held-out documents with random seeds. Other estimands stand below it in the same table,
with their own standard error and degrees of freedom; none of them carries a word (rules of evidence, section 3).
"""

from collections.abc import Sequence

from paribus.report.content import EstimateRow
from paribus.report.evidence import Shown
from paribus.report.numbers import interval, significant
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, decimals_for, declared, fixed, percent, probability

HEADLINE = "these documents, random seeds"
HEADLINE_OF_TASK = "new rows, random seeds"
"""every seed of a task has rows of its own"""


def estimates_table(rows: Sequence[Shown], estimates: Sequence[EstimateRow], *, of_task: bool = False) -> Table | None:
    """One row a contrast and estimand, the headline first; None where nothing is due.

    `of_task` says that the study reads a synthetic task, whose headline is about other rows.
    """
    headline_is = HEADLINE_OF_TASK if of_task else HEADLINE
    columns = (
        Column("contrast"),
        Column("estimand"),
        Column("mean difference", numeric=True),
        Column("standard error", numeric=True),
        Column("degrees of freedom", numeric=True),
        Column("interval", numeric=True),
        Column("unit"),
        Column("note"),
    )
    body = []
    for row in rows:
        own = [of for of in estimates if (of.contrast, of.scale) == (row.name, row.scale) and _says(of)]
        if row.mean is not None:
            headline = (row.mean, row.standard_error, row.seeds - 1, row.interval, row.interval_confidence)
            body.append((f"{row.name}\nscale\u00a0{row.scale}", headline_is, *_numbers(*headline), row.unit, ""))
        for of in own:
            numbers = _numbers(of.mean, of.standard_error, of.degrees_of_freedom, of.interval, of.confidence)
            body.append((f"{row.name}\nscale\u00a0{row.scale}", of.estimand, *numbers, of.unit, of.note))
    named = {(row.name, row.scale) for row in rows}
    for of in estimates:
        if (of.contrast, of.scale) not in named and _says(of):
            numbers = _numbers(of.mean, of.standard_error, of.degrees_of_freedom, of.interval, of.confidence)
            body.append((f"{of.contrast}\nscale\u00a0{of.scale}", of.estimand, *numbers, of.unit, of.note))
    note = "Only the headline decides a word; the other estimands say how far it reaches."
    return Table("Estimates: treatment minus baseline", columns, tuple(body), note) if body else None


def _says(row: EstimateRow) -> bool:
    return row.mean is not None or bool(row.note)


def _numbers(
    mean: float | None,
    error: float | None,
    degrees: float | None,
    bounds: tuple[float, float] | None,
    confidence: float | None,
) -> tuple[str, str, str, str]:
    digits = decimals_for(error)
    level = f"\n{percent(confidence)}" if bounds is not None else ""
    return (
        fixed(mean, digits, signed=True),
        significant(error, 2),
        declared(round(degrees, 1)) if degrees is not None else MISSING,
        interval(bounds, digits) + level,
    )


def spread_table(rows: Sequence[Shown], *, pairing_proven: bool = True) -> Table | None:
    """What lies behind each headline: both standard errors, the spread, centre and worst seed, and the tests."""
    told = [row for row in rows if not row.waiting and row.differences]
    if not told:
        return None
    columns = (
        Column("contrast"),
        Column("standard error", "paired", numeric=True),
        Column("standard error", "unpaired", numeric=True),
        Column("pair correlation", numeric=True),
        Column("sd of a difference", numeric=True),
        Column("median", numeric=True),
        Column("worst seed", numeric=True),
        Column("t test", "p, Holm below", numeric=True),
        Column("equivalence", "p, Holm below", numeric=True),
        Column("equivalence interval", numeric=True),
        Column("diverged", "treatment, baseline", numeric=True),
        Column("design effect", numeric=True),
    )
    body = []
    for row in told:
        digits = decimals_for(row.standard_error)
        worst = MISSING if row.worst_seed is None else f"{_difference(row, digits)}\nseed {row.worst_seed}"
        level = f"\n{percent(row.equivalence_confidence)}" if row.equivalence_interval else ""
        lost = f"{row.treatment_diverged or 0}, {row.baseline_diverged or 0}"
        divergence = "" if row.p_divergence is None else f"\nMcNemar p {probability(row.p_divergence)}"
        body.append(
            (
                f"{row.name}\n{row.unit}",
                significant(row.standard_error, 2),
                significant(row.unpaired_standard_error, 2),
                fixed(row.pair_correlation, 2),
                significant(row.sd, 2),
                fixed(row.median, digits, signed=True),
                worst,
                _both(row.p_t, row.p_holm),
                _both(row.p_equivalence, row.p_equivalence_holm),
                interval(row.equivalence_interval, digits) + level,
                lost + divergence,
                declared(row.design_effect),
            )
        )
    note = (
        "The paired error is what sharing initial weights and batches leaves; the unpaired one is what the same seeds "
        "would give without it."
        if pairing_proven
        else "The paired error joins runs by their recorded seed; where it is no smaller than the unpaired one, that "
        "seed made them share nothing that matters."
    )
    note += " A dash: not defined here, or not tested under the rule."
    return Table("Spread and tests behind the headline", columns, tuple(body), note)


def _difference(row: Shown, digits: int) -> str:
    return "diverged" if row.worst_difference is None else fixed(row.worst_difference, digits, signed=True)


def _both(p: float | None, holm: float | None) -> str:
    return probability(p) + ("" if holm is None else f"\n{probability(holm)}")
