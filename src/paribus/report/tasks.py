"""Downstream tasks under each contrast: descriptive, without words, and McNemar never pooled over seeds (section 9)."""

from collections.abc import Sequence

from paribus.report.content import TaskRow
from paribus.report.numbers import interval
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, decimals_for, fixed, probability


def tasks_table(tasks: Sequence[TaskRow]) -> Table:
    """One row a contrast and task; what the baseline cannot do, or does perfectly, says nothing and is marked."""
    columns = (
        Column("task"),
        Column("contrast"),
        Column("metric"),
        Column("chance", numeric=True),
        Column("baseline", "mean over seeds", numeric=True),
        Column("treatment", "mean over seeds", numeric=True),
        Column("difference", "interval below", numeric=True),
        Column("seeds", numeric=True),
        Column("McNemar p", "a checkpoint pair each", numeric=True),
        Column("admitted"),
        Column("note"),
    )
    rows = []
    for task in tasks:
        width = (task.interval[1] - task.interval[0]) / 4 if task.interval else None
        digits = decimals_for(width)
        bounds = f"\n{interval(task.interval, digits)}" if task.interval else ""
        rows.append(
            (
                task.task,
                f"{task.contrast}\nscale\u00a0{task.scale}",
                task.metric,
                fixed(task.chance, 3),
                fixed(task.baseline_mean, 4),
                fixed(task.treatment_mean, 4),
                fixed(task.difference, digits, signed=True) + bounds,
                str(task.seeds),
                "\n".join(map(probability, task.mcnemar_p)) or MISSING,
                "yes" if task.admitted else "no",
                task.note or MISSING,
            )
        )
    note = (
        "Admitted: the baseline clears chance by two standard errors and is below 0.98. Descriptive only; intervals "
        "are at the level of the contrast's verdict."
    )
    return Table("Downstream tasks: treatment minus baseline", columns, tuple(rows), note)
