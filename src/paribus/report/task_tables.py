"""Tables of a synthetic task: what each arm acquired, what differs, what a difference can say, what is known before."""

import math
from collections.abc import Sequence

from paribus.report.numbers import count, interval
from paribus.report.of_tasks import (
    MilestoneDifference,
    SliceDifference,
    TaskContent,
    TaskDefinition,
    asked,
    declared,
    legend,
    mark,
)
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, decimals_for, fixed, percent

MILESTONES = ("a third of the budget", "two thirds", "the end")
"""when the three milestones are"""


def acquisition_table(task: TaskContent) -> Table:
    """One row a slice and arm: area, updates to the threshold, final loss, plateau."""
    columns = (
        Column("slice"),
        Column("arm"),
        *_scale_column(task),
        Column("area above the floor", "nats per target", numeric=True),
        Column("acquired at", "median update", numeric=True),
        Column("final loss", "nats per target", numeric=True),
        Column("where it ends"),
    )
    order = [levels.slice for levels in task.definition.levels]
    ordered = sorted(task.acquisitions, key=lambda row: order.index(row.slice) if row.slice in order else len(order))
    body = tuple(
        (
            asked(row.slice),
            row.arm,
            *([row.scale] if _several_scales(task) else []),
            fixed(row.area_nats_per_target, 3),
            acquired(row.acquired_at_updates, task.definition.text.updates_at(row.scale)),
            fixed(row.final_nats_per_target, 3),
            row.plateau or MISSING,
        )
        for row in ordered
    )
    scales = dict.fromkeys(row.scale for row in ordered)
    budget = " or ".join(dict.fromkeys(count(task.definition.text.updates_at(scale)) for scale in scales))
    note = (
        f"The area is the mean over all {budget} updates and depends on them. Acquired: two windows in a row below the "
        "threshold, half-way from the floor to chance; seeds that never are count as later than the budget."
    )
    return Table("What each arm acquired", columns, body, note)


def acquired(updates: Sequence[int | None], budget: int) -> str:
    """Median over seeds of when a slice was acquired, and how many seeds did: "148\\n5 of 5 seeds"."""
    if not updates:
        return MISSING
    ordered = sorted(math.inf if update is None else float(update) for update in updates)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    told = f"> {count(budget)}" if math.isinf(middle) else count(middle)
    seeds = "seed" if len(ordered) == 1 else "seeds"
    return f"{told}\n{sum(map(math.isfinite, ordered))} of {len(ordered)} {seeds}"


def differences_table(task: TaskContent) -> Table:
    """One row a contrast and slice: area, three milestones, updates to the threshold, the declared sign."""
    columns = (
        Column("contrast"),
        Column("slice"),
        *_scale_column(task),
        Column("declared"),
        Column("area", "nats per target", numeric=True),
        *(Column(when, "nats per target", numeric=True) for when in MILESTONES),
        Column("updates to threshold", "log2", numeric=True),
        Column("not acquired", "seeds of each arm", numeric=True),
        Column("agreement"),
    )
    body = tuple(
        (
            f"{row.contrast}\n{row.compared}",
            asked(row.slice),
            *([row.scale] if _several_scales(task) else []),
            declared(row.expected),
            difference_cell(row.area_difference, row.interval),
            *milestone_cells(row.milestones),
            updates_cell(row, task.definition.text.updates_at(row.scale)),
            f"{row.censored[0]} / {row.censored[1]}" if told else MISSING,
            agreement_cell(row),
        )
        for row in task.differences
        for told in (row.log2_updates_difference is not None or any(row.censored),)
    )
    accents = tuple("primary" if row.slice == task.definition.text.primary else "" for row in task.differences)
    levels = list(dict.fromkeys(percent(row.interval_confidence) for row in task.differences))
    held = f"Intervals: paired t over seeds, {levels[0]}, not adjusted for their number. " if len(levels) == 1 else ""
    held += f"Bold: {asked(task.definition.text.primary)}, which the primary is about. " if any(accents) else ""
    marks = legend(row.agreement for row in task.differences)
    note = f"{held}The first two milestones are mid-schedule. Not acquired: treatment / baseline. {marks}".strip()
    return Table("Treatment minus baseline: descriptive, no verdict", columns, body, note, accents)


def agreement_cell(row: SliceDifference) -> str:
    """The mark and, where it is about another metric than the area, the difference that it was judged by."""
    if not row.agreement or not row.metric:
        return mark(row.agreement) or MISSING
    judged = difference_cell(row.metric_difference, row.metric_interval).replace("\n", " ")
    return f"{mark(row.agreement)}\non {row.metric}: {judged} {row.metric_unit}"


def updates_cell(row: SliceDifference, budget_updates: int) -> str:
    """Difference of log2 updates to the threshold, or a dash and why: restricted to the budget all are equal."""
    if row.log2_updates_difference is None and row.seeds and min(row.censored) == len(row.seeds):
        return f"{MISSING}\nno cell acquired it within {count(budget_updates)} updates"
    return difference_cell(row.log2_updates_difference, row.log2_updates_interval)


def difference_cell(mean: float | None, bounds: tuple[float, float] | None, *, coarser: int = 0) -> str:
    """A signed mean and, below it, its interval; `coarser` takes away as many decimals, four at most are shown."""
    spread = None if bounds is None else (bounds[1] - bounds[0]) / 4
    digits = min(max(decimals_for(spread, otherwise=3) - coarser, 2), 4)
    return fixed(mean, digits, signed=True) + ("" if bounds is None else f"\n{interval(bounds, digits)}")


def milestone_cells(milestones: Sequence[MilestoneDifference]) -> list[str]:
    """Three cells, whatever is there: mean, interval, update."""
    cells = [f"{difference_cell(one.mean, one.interval, coarser=1)}\nat {count(one.update)}" for one in milestones[:3]]
    return cells + [MISSING] * (3 - len(cells))


def readings_table(differences: Sequence[SliceDifference]) -> Table:
    """What can and cannot be read from each row, in sentences."""
    body = []
    for row in differences:
        said = " ".join(part for part in (row.informative_sentence, row.ratio_sentence, row.rate_sentence) if part)
        if said:
            body.append((f"{row.contrast}\n{row.compared}", asked(row.slice), said))
    columns = (Column("contrast"), Column("slice"), Column("reading"))
    return Table("What each difference can say", columns, tuple(body))


def levels_table(definition: TaskDefinition) -> Table:
    """One row a slice: chance, shortcuts, threshold and floor."""
    columns = (
        Column("slice"),
        Column("chance", numeric=True),
        Column("threshold", numeric=True),
        Column("floor", numeric=True),
        Column("shortcuts"),
    )
    body = tuple(
        (
            asked(levels.slice),
            fixed(levels.chance, 3),
            fixed(levels.threshold, 3),
            fixed(levels.floor, 3),
            "; ".join(f"{what}: {fixed(nats, 3)}" for what, nats in levels.shortcuts.items()) or MISSING,
        )
        for levels in definition.levels
    )
    return Table(f"{definition.text.name}: losses that need no training, nats per target", columns, body)


def _several_scales(task: TaskContent) -> bool:
    return len({row.scale for row in (*task.acquisitions, *task.differences)}) > 1


def _scale_column(task: TaskContent) -> tuple[Column, ...]:
    return (Column("scale"),) if _several_scales(task) else ()
