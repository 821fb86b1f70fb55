"""Tables of a synthetic task: what each arm acquired, what differs, what a difference can say, what is known before."""

import math
from collections.abc import Sequence

from paribus.report.numbers import count, interval
from paribus.report.of_tasks import (
    AcquisitionRow,
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
            acquired(_with_diverged(row), task.definition.text.updates_at(row.scale)),
            fixed(row.final_nats_per_target, 3),
            row.plateau or MISSING,
        )
        for row in ordered
    )
    scales = dict.fromkeys(row.scale for row in ordered)
    budget = " or ".join(dict.fromkeys(count(task.definition.text.updates_at(scale)) for scale in scales))
    note = (
        f"The area is the mean over all {budget} updates and depends on them. Acquired: two windows in a row below the "
        "threshold, half-way from the floor to chance or, where a shortcut is as low, to that; seeds that never are, "
        "and those that diverged, count as later than the budget."
    )
    return Table("What each arm acquired", columns, body, note)


def _with_diverged(row: AcquisitionRow) -> tuple[int | None, ...]:
    """Where something can be acquired, a cell that diverged did not; dropping it would flatter its arm."""
    return (*row.acquired_at_updates, *(None for _ in row.diverged)) if row.acquired_at_updates else ()


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
    )
    body = tuple(
        (
            f"{row.contrast}\n{row.compared}",
            asked(row.slice),
            *([row.scale] if _several_scales(task) else []),
            declared_cell(row),
            difference_cell(row.area_difference, row.interval),
            *milestone_cells(row.milestones),
            updates_cell(row, task.definition.text.updates_at(row.scale)),
        )
        for row in task.differences
    )
    accents = tuple("primary" if row.slice == task.definition.text.primary else "" for row in task.differences)
    levels = list(dict.fromkeys(percent(row.interval_confidence) for row in task.differences))
    held = f"Intervals: paired t over seeds, {levels[0]}, not adjusted for their number. " if len(levels) == 1 else ""
    held += f"Bold: {asked(task.definition.text.primary)}, which the primary is about. " if any(accents) else ""
    marks = legend(row.agreement for row in task.differences)
    held += "The first two milestones are mid-schedule. Lacking: seeds of treatment / baseline that did not acquire it."
    note = f"{held} {marks}".strip()
    return Table("Treatment minus baseline: descriptive, no verdict", columns, body, note, accents)


def declared_cell(row: SliceDifference) -> str:
    """The declared sign, its mark below, and whether that is about another metric than the area."""
    lines = [declared(row.expected), mark(row.agreement), "by its own metric" if row.agreement and row.metric else ""]
    return "\n".join(filter(None, lines))


def judged_sentence(row: SliceDifference) -> str:
    """The difference that the mark was judged by, where it is about another metric than the area; empty otherwise."""
    if not row.agreement or not row.metric:
        return ""
    judged = difference_cell(row.metric_difference, row.metric_interval).replace("\n", " ")
    return f"The declared sign was judged on {row.metric}: {judged} {row.metric_unit}."


def updates_cell(row: SliceDifference, budget_updates: int) -> str:
    """Difference of log2 updates to the threshold and the seeds of either arm that lack it, or a dash and why:
    restricted to the budget all are equal where no cell acquired it."""
    if row.log2_updates_difference is None and row.seeds and min(row.censored) == len(row.seeds):
        return f"{MISSING}\nnone within {count(budget_updates)}"
    told = row.log2_updates_difference is not None or any(row.censored)
    lacking = f"\nlacking {row.censored[0]} / {row.censored[1]}" if told else ""
    return difference_cell(row.log2_updates_difference, row.log2_updates_interval) + lacking


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
        parts = (row.informative_sentence, row.ratio_sentence, judged_sentence(row), row.rate_sentence)
        said = " ".join(filter(None, parts))
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
            fixed(levels.threshold, 3) if levels.threshold > levels.floor else MISSING,
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
