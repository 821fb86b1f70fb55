"""The table of a set of tasks, and the set in a sentence: one source for the page, Markdown and a terminal."""

from paribus.report.numbers import duration
from paribus.report.of_tasks import (
    AGAINST,
    AGREES,
    FULL,
    NOT_INFORMATIVE,
    OPEN,
    TunnelContent,
    TunnelRow,
    asked,
    declared,
    legend,
    mark,
)
from paribus.report.tables import Column, Table, without_empty_columns
from paribus.report.task_tables import MILESTONES, acquired, difference_cell, milestone_cells
from paribus.stats.rounding import MISSING, percent, probability

MILESTONE_CONFIDENCE = 0.95
"""of the intervals of milestones, and of ratios of updates, in every set: they describe, and no word rests on them"""


def tunnel_table(content: TunnelContent) -> Table:
    """One row a task and contrast, of a content that went through `due_tunnel`; for the page, Markdown, a terminal."""
    full = content.set == FULL
    columns = (
        Column("task"),
        Column("what is asked", "contrast below"),
        Column("declared"),
        Column("agreement"),
        Column("area difference", "nats per target", numeric=True),
        *(Column(when, "nats per target", numeric=True) for when in MILESTONES),
        Column("acquired", "median update, baseline / treatment", numeric=True),
        *((Column("verdict"), Column("adjusted p", "Holm", numeric=True)) if full else ()),
    )
    body = tuple(_cells(row, full) for row in content.rows)
    rule = _levels_of_a_family(content) if full else _one_level(content)
    marks = legend(one for row in content.rows for one in row.marks)
    note = f"{rule}The first two milestones are mid-schedule. {marks}".strip()
    table = Table("Treatment minus baseline on each task's primary slice", columns, body, note)
    return without_empty_columns(table, keep=4)


def _one_level(content: TunnelContent) -> str:
    levels = list(dict.fromkeys(percent(row.difference.interval_confidence) for row in content.rows))
    about = f"Intervals, those of milestones too: paired t over seeds, {', '.join(levels)}. " if levels else ""
    return f"{about}{direction_check(content)} Nothing is adjusted for the number of rows. "


def _levels_of_a_family(content: TunnelContent) -> str:
    """Which interval is at which level, and what each is for (rules of evidence, section 2)."""
    shown = [row for row in content.rows if not row.waiting]
    if not shown:
        return ""
    said = (
        f"Intervals of areas: paired t over seeds, at the level written beside each, at which Holm's procedure tested "
        f"the row; verdicts and adjusted p are of that test, over all {len(content.rows)} rows at 5 % together. "
        "Equivalence is tested likewise in a family of its own, by two one-sided tests. "
    )
    if any(row.p_holm is None for row in shown):
        said += f"A row without an adjusted p was not tested: its interval, {percent(0.95)}, describes. "
    mid = sum(one.interval is not None for row in shown for one in row.difference.milestones[:3])
    if mid:
        by_chance = f"{(1 - MILESTONE_CONFIDENCE) * mid:.2g}"
        said += (
            f"Milestones: {percent(MILESTONE_CONFIDENCE)} each, not adjusted, and no word rests on them: of {mid} such "
            f"intervals {by_chance} would miss 0 on average if nothing differed. "
        )
    return said


def _cells(row: TunnelRow, full: bool) -> tuple[str, ...]:
    of = row.difference
    area = difference_cell(of.area_difference, of.interval)
    if full and of.area_difference is not None and of.interval is not None:
        area += f" {percent(of.interval_confidence)}"
    if row.waiting:
        area = f"{MISSING}\n{len(of.seeds)} of {row.planned_seeds} pairs"
    elif of.area_difference is None and (lost := sum(d is None for d in of.differences)):
        area = f"{MISSING}\n{lost} of {len(of.differences)} pairs diverged"
    return (
        f"{row.title}\n{row.task}",
        f"{asked(of.slice)}\n{of.compared}",
        declared(of.expected),
        (mark(of.agreement) or MISSING) + ("" if row.waiting or of.informative else _uninformative(of.agreement)),
        area,
        *milestone_cells(of.milestones),
        _both_acquired(row),
        *((row.word or MISSING, probability(row.p_holm)) if full else ()),
    )


def _uninformative(agreement: str) -> str:
    return "" if agreement == NOT_INFORMATIVE else f"\n{mark(NOT_INFORMATIVE)}"


def _both_acquired(row: TunnelRow) -> str:
    arms = (row.acquired_baseline, row.acquired_treatment)
    if not any(arms):
        return MISSING
    medians = " / ".join(acquired(updates, row.budget_updates).partition("\n")[0] for updates in arms)
    solved = ", ".join(f"{sum(u is not None for u in updates)}/{len(updates)}" for updates in arms)
    return f"{medians}\n{solved} seeds"


def direction_check(content: TunnelContent) -> str:
    """What a smoke set is."""
    seeds = f"{content.planned_seeds} seed{'' if content.planned_seeds == 1 else 's'}"
    return f"Direction check: {seeds}, no words."


def head_of(content: TunnelContent) -> str:
    """Which set, how many seeds, how long."""
    parts = [f"{content.set} set", f"{content.planned_seeds} seeds a task"]
    parts += [duration(content.seconds)] if content.seconds is not None else []
    return ", ".join(parts)


def tally_of(content: TunnelContent) -> str:
    """The rows counted by their marks: what a reader should know first."""
    shown = [row for row in content.rows if not row.waiting]
    words = {AGREES: "as declared", AGAINST: "against it", OPEN: "open", NOT_INFORMATIVE: "not informative"}
    counts = [
        f"{sum(row.difference.agreement == key for row in shown)} {what}"
        for key, what in words.items()
        if any(row.difference.agreement == key for row in shown)
    ]
    undeclared = sum(not row.difference.agreement for row in shown)
    alone = undeclared == len(content.rows)
    counts += ["no sign was declared" if alone else f"{undeclared} without a declared sign"] if undeclared else []
    waiting = len(content.rows) - len(shown)
    counts += [f"{waiting} waiting for planned seeds"] if waiting else []
    tasks = len({row.task for row in content.rows})
    numbers = ((tasks, "task"), (len(content.rows), "row"))
    head = ", ".join(f"{number} {what}{'' if number == 1 else 's'}" for number, what in numbers)
    told = f"{head}: {', '.join(counts)}." if counts else f"{head}."
    return told if content.set == FULL else f"{told} {direction_check(content)}"


def readings_table(content: TunnelContent) -> Table:
    """Where the arms of each row end and what follows, of a content that went through `due_tunnel`."""
    body = []
    for row in content.rows:
        of = row.difference
        # Whether a row is informative is judged by where its arms end, so that sentence says it.
        ends = f"{row.plateau.rstrip('.')}." if row.plateau else ""
        parts = (of.informative_sentence or ends, of.ratio_sentence, of.rate_sentence)
        if said := " ".join(part for part in parts if part):
            body.append((f"{row.task}\n{of.compared}", asked(of.slice), said))
    columns = (Column("task"), Column("slice"), Column("where the arms end, and what that can say"))
    return Table("Plateaus and readings", columns, tuple(body))
