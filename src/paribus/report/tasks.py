"""Downstream tasks as tables: each contrast over seeds, each pair of checkpoints, and each arm with swapped questions.

Descriptive, without words, and McNemar never pooled over seeds (rules of evidence, section 9). Bits per byte of the
right answer come first: at small scale accuracies sit at chance, and they still move.
"""

from collections.abc import Sequence

from paribus.report.numbers import count, interval
from paribus.report.of_answers import CounterfactualRow, TaskPairRow, TaskRow, named
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, decimals_for, declared, fixed, percent, probability

_DIFFERENCE = "difference"
_LEVELS = "baseline, treatment"


def tasks_table(tasks: Sequence[TaskRow], of: str = "") -> Table:
    """One row a contrast and task at the end of the schedule; what says nothing in a baseline is marked.

    `of` names what all rows are of, where the caption is to say it.
    """
    ends = [task for task in tasks if not task.mid_schedule]
    columns = (
        Column("task"),
        Column("contrast"),
        Column("bits per byte", _DIFFERENCE, numeric=True),
        Column("bits per byte", _LEVELS, numeric=True),
        Column("accuracy", _DIFFERENCE, numeric=True),
        Column("accuracy", _LEVELS, numeric=True),
        Column("centred", "difference", numeric=True),
        Column("margin", "difference, nats", numeric=True),
        Column("seeds", numeric=True),
        Column("admitted"),
        Column("note"),
    )
    body = tuple(
        (
            task_name(task, _asked(task), said=of),
            *_contrast(task, of),
            _difference(task.gold_bits_difference, task.gold_bits_interval),
            _levels(task.gold_bits_baseline, task.gold_bits_treatment),
            _difference(task.accuracy_difference, task.accuracy_interval),
            _levels(task.accuracy_baseline, task.accuracy_treatment),
            _difference(task.centred_difference, task.centred_interval).split("\n")[0],
            _difference(task.margin_difference, task.margin_interval).split("\n")[0],
            str(len(task.seeds)) if task.seeds else MISSING,
            _admitted(task),
            task.note,
        )
        for task in ends
    )
    return Table(_caption("Tasks: treatment minus baseline", of), columns, body, _note(ends))


def _note(tasks: Sequence[TaskRow]) -> str:
    levels = {percent(task.confidence) for task in tasks if task.gold_bits_interval or task.accuracy_interval}
    told = any(task.accuracy_difference is not None for task in tasks)
    parts = ["Bits per byte are those of the right answer" + (": lower is better." if told else ".")]
    parts.append("Margin: by how much the right answer leads the best other one.")
    if levels:
        parts.append(f"Below a difference its t interval over seeds, {' or '.join(sorted(levels))}.")
    parts.append("Admitted: the baseline clears chance by two standard errors and is below 0.98, so the task may join")
    return " ".join([*parts, "a family. Nothing here is a verdict."])


def milestones_table(tasks: Sequence[TaskRow], of: str = "") -> Table:
    """The same in the middle of the schedule, a row a moment."""
    columns = (
        Column("task"),
        Column("contrast"),
        Column("step", numeric=True),
        Column("bits per byte", _DIFFERENCE, numeric=True),
        Column("accuracy", _DIFFERENCE, numeric=True),
        Column("accuracy", _LEVELS, numeric=True),
        Column("seeds", numeric=True),
        Column("note"),
    )
    body = tuple(
        (
            task_name(task, said=of),
            *_contrast(task, of),
            count(task.step),
            _difference(task.gold_bits_difference, task.gold_bits_interval),
            _difference(task.accuracy_difference, task.accuracy_interval),
            _levels(task.accuracy_baseline, task.accuracy_treatment),
            str(len(task.seeds)) if task.seeds else MISSING,
            task.note,
        )
        for task in sorted(tasks, key=lambda task: (task.suite, task.task, task.variant, task.contrast, task.step))
        if task.mid_schedule
    )
    return Table(
        _caption("In the middle of the schedule", of), columns, body, "Mid-schedule values are never extrapolated."
    )


def pairs_table(pairs: Sequence[TaskPairRow], of: str = "") -> Table:
    """One row a pair of checkpoints and task, at the end of the schedule."""
    columns = (
        Column("task"),
        Column("contrast"),
        Column("seed", numeric=True),
        Column("bits per byte", _DIFFERENCE, numeric=True),
        Column("accuracy", _DIFFERENCE, numeric=True),
        Column("only treatment", "right, b", numeric=True),
        Column("only baseline", "right, c", numeric=True),
        Column("McNemar", "exact p", numeric=True),
        Column("margin", "nats, difference", numeric=True),
        Column("near ties", _LEVELS, numeric=True),
        Column("problems", _LEVELS, numeric=True),
        Column("cropped", "prompts", numeric=True),
    )
    body = tuple(
        (
            task_name(pair, f"{count(pair.items)} items", said=of),
            *_contrast(pair, of),
            str(pair.seed),
            _difference(pair.gold_bits_difference, pair.gold_bits_interval),
            fixed(pair.accuracy_difference, 4, signed=True),
            count(pair.only_treatment),
            count(pair.only_baseline),
            probability(pair.mcnemar_p),
            fixed(pair.margin_difference, 4, signed=True),
            _counts(pair.near_ties_baseline, pair.near_ties_treatment),
            _counts(pair.problems_baseline, pair.problems_treatment),
            count(pair.cropped) if pair.cropped else MISSING,
        )
        for pair in pairs
        if not pair.mid_schedule
    )
    note = (
        "Each row is about two checkpoints, not about the mechanism: its intervals (95 % t over items) and McNemar's "
        "exact p hold no seed noise, and are never pooled over seeds. Near ties: items of which rounding may decide. "
        "Problems: items that could not be asked or judged, and count as wrong."
    )
    return Table(_caption("Pairs of checkpoints: treatment minus baseline", of), columns, body, note)


def counterfactual_table(found: Sequence[CounterfactualRow]) -> Table:
    """One row an arm and task; accented where the score does not fall to chance."""
    columns = (
        Column("task"),
        Column("arm"),
        Column("own question", "accuracy", numeric=True),
        Column("question swapped", "accuracy", numeric=True),
        Column("standard error", numeric=True),
        Column("chance", numeric=True),
        Column("seeds", numeric=True),
        Column("swapped"),
    )
    body = tuple(
        (
            task_name(row, f"{count(row.items)} items"),
            f"{row.arm}\nscale\u00a0{row.scale}",
            fixed(row.plain, 4),
            fixed(row.swapped, 4),
            fixed(row.standard_error, 4),
            declared(row.chance),
            str(len(row.seeds)),
            "above chance" if row.above_chance else "at chance",
        )
        for row in found
    )
    note = (
        "Each item's question was replaced by another item's, its choices were kept: a score that stays above chance "
        "by two standard errors is had without the question, from the choices alone."
    )
    accents = tuple("bad" if row.above_chance else "" for row in found)
    return Table("With each question swapped for another item's", columns, body, note, accents)


def task_name(row: TaskRow | TaskPairRow | CounterfactualRow, below: str = "", said: str = "") -> str:
    """The task, and in small type what model was asked, unless that is `said`, and what else is to be known of it."""
    after = f"after {row.after}" if row.after and not said else ""
    return "\n".join([named(row.suite, row.task, row.variant), *filter(None, (after, below))])


def _caption(text: str, of: str) -> str:
    return f"{text}, {of}" if of else text


def _contrast(row: TaskRow | TaskPairRow, of: str) -> tuple[str]:
    """Nothing where the caption says it: the column then falls away."""
    return ("" if of else f"{row.contrast}\nscale\u00a0{row.scale}",)


def _asked(task: TaskRow) -> str:
    chance = "" if task.chance is None else f", chance\u00a0{declared(task.chance)}"
    return f"{count(task.items)} items{chance}" if task.items else ""


def _difference(value: float | None, bounds: tuple[float, float] | None) -> str:
    if value is None:
        return MISSING
    digits = decimals_for((bounds[1] - bounds[0]) / 4 if bounds else None)
    return fixed(value, digits, signed=True) + (f"\n{interval(bounds, digits)}" if bounds else "")


def _levels(baseline: float | None, treatment: float | None) -> str:
    if baseline is None and treatment is None:
        return MISSING
    return f"{fixed(baseline, 4)}\n{fixed(treatment, 4)}"


def _counts(baseline: int, treatment: int) -> str:
    return f"{count(baseline)}\n{count(treatment)}" if baseline or treatment else MISSING


def _admitted(task: TaskRow) -> str:
    word = MISSING if task.admitted is None else "yes" if task.admitted else "no"
    # Kept on one line: the column is narrow, and rows of three lines would make the table half as long again.
    return f"{word}\n{task.not_admitted}".replace(" ", "\u00a0") if task.not_admitted else word
