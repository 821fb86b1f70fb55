"""The section "What the task shows": curves, what each arm acquired, what differs, and what none of it predicts.

Differences here describe (rules of evidence, sections 2 and 8): intervals and milestones without a verdict word. The
verdict of the study's contrasts stands at the head of the page.
"""

from collections.abc import Sequence
from dataclasses import replace

from paribus.report.blocks import Absent, Block, PageFigure, PageTable, Section
from paribus.report.evidence import Shown, is_due, may_span, may_tell, reference_arm
from paribus.report.learning_curves import learning_curves
from paribus.report.numbers import count, significant
from paribus.report.of_tasks import (
    CAUTION,
    NOT_INFORMATIVE,
    AcquisitionRow,
    ChanceRow,
    LearntRow,
    SliceDifference,
    TaskContent,
    TaskDefinition,
    TaskText,
    asked,
    declared,
)
from paribus.report.robustness import due_rates, robustness_table
from paribus.report.tables import Column, Table, without_empty_columns
from paribus.report.task_arm_tables import acquired_by_seed_table, chance_table, leak_sentences, learnt_table
from paribus.report.task_tables import acquisition_table, differences_table, levels_table, readings_table
from paribus.stats.rounding import MINUS, percent

TITLE = "What the task shows"
_CAPTION = (
    "Thin lines: seeds; thick ones: their mean; each point is the mean over the targets of a window of updates. "
    "Dashed: losses that need no training to know. Rows never repeat, so the training loss is a test loss. A cross "
    "marks a run that ended before the others."
)


def due_task(task: TaskContent, rows: Sequence[Shown]) -> TaskContent:
    """The task without any number that hints at an outcome before it is due: its place in `door.due`."""
    return replace(
        task,
        curves=tuple(c for c in task.curves if may_tell(rows, c.scale, c.arm, c.seed)),
        acquisitions=tuple(row for row in task.acquisitions if _told(row, rows)),
        differences=tuple(
            row if may_span(rows, row.scale) else _without_intervals(row)
            for row in task.differences
            if is_due(rows, row.contrast, row.scale)
        ),
        rates=due_rates(task.rates, rows),
        at_chance=tuple(row for row in task.at_chance if _told(row, rows)),
        learnt=tuple(row for row in task.learnt if _told(row, rows)),
    )


def _told(row: AcquisitionRow | ChanceRow | LearntRow, rows: Sequence[Shown]) -> bool:
    """Whether what was made of an arm's seeds may be told: each of them may."""
    return bool(row.seeds) and all(may_tell(rows, row.scale, row.arm, seed) for seed in row.seeds)


def expectation_lines(task: TaskContent | None, rows: Sequence[Shown]) -> list[str]:
    """For a terminal, a line for each contrast with a declared sign that is due.

    Such as "deep: expected +, came out + (agrees)". The sign is that of the difference in the contrast's own metric,
    which is what the mark is about.
    """
    if task is None:
        return []
    return [_expectation(row) for row in due_task(task, rows).differences if row.expected and row.agreement]


def _expectation(row: SliceDifference) -> str:
    mean = row.metric_difference if row.metric else row.area_difference
    if row.agreement == NOT_INFORMATIVE:
        came = "the task could not tell"
    elif mean is None:
        came = "no mean difference"
    else:
        came = f"came out {'+' if mean > 0 else MINUS if mean < 0 else '0'}"
    return f"{row.contrast}: {declared(row.expected)}, {came} ({row.agreement})"


def task_section(task: TaskContent | None, rows: Sequence[Shown]) -> Section | Absent:
    """The section of a task that went through `due_task`; a line for a study whose corpus is text."""
    if task is None:
        return Absent(TITLE, "The corpus of this study is text; a synthetic task is declared as its corpus.")
    text = task.definition.text
    sentences = (
        *leak_sentences(task.at_chance),
        f"{_capital(text.sentence)} {budget_sentence(task.definition)}",
        calibration_sentence(task.definition),
    )
    if not task.curves and not task.acquisitions and not task.differences:
        return Absent(TITLE, "No cell has trained yet, or nothing of it is due before the planned seeds are complete.")
    scales = list(dict.fromkeys(curve.scale for curve in task.curves))
    found = [
        chance_table(task),
        learnt_table(task),
        acquisition_table(task),
        acquired_by_seed_table(task),
        differences_table(task),
        readings_table(task.differences),
        robustness_table(task.rates),
    ]
    held = [without_empty_columns(table, keep=2) for table in found if table.rows]
    if not held:
        sentences = (*sentences, CAUTION)
    else:
        held[-1] = replace(held[-1], note=f"{held[-1].note} {CAUTION}".strip())
    tables = tuple(PageTable(f"task-{number}", table) for number, table in enumerate(held, 1))
    return Section(
        "task",
        TITLE,
        sentences,
        figures=tuple(_figure(task, rows, scale, number) for number, scale in enumerate(scales)),
        tables=tables,
        folded=(definition_block(task.definition, "task"),),
    )


def _figure(task: TaskContent, rows: Sequence[Shown], scale: str, number: int) -> PageFigure:
    curves = [curve for curve in task.curves if curve.scale == scale]
    arms = list(dict.fromkeys(curve.arm for curve in curves))
    baseline = reference_arm(rows, scale) or (arms[0] if arms else "")
    name = f"figure-task-{number}"
    wide = learning_curves(curves, task.definition.levels, baseline, name)
    narrow = learning_curves(curves, task.definition.levels, baseline, f"{name}-narrow", narrow=True)
    stem = "task" if number == 0 else f"task-{number + 1}"
    return PageFigure(f"Scale {scale}", _CAPTION, wide.svg, narrow.svg, wide, stem)


def definition_block(definition: TaskDefinition, anchor: str) -> Block:
    """The task itself: knobs and the losses that need no training."""
    text = definition.text
    facts = {
        "knobs": ", ".join(f"{name} = {value}" for name, value in sorted(text.knobs.items())) or "none",
        "primary slice": asked(text.primary),
        "budget": f"{_updates(text)} updates of {count(text.targets_per_update)} targets",
        "row length": f"{count(text.row_length)} tokens",
        "calibration": calibration_sentence(definition),
    }
    about = Table(f"{text.name}: {text.title}", (Column("name"), Column("value")), tuple(facts.items()))
    levels = PageTable(f"{anchor}-levels", levels_table(definition))
    return Block(
        f"{text.name}: {text.title}",
        _capital(text.sentence),
        "",
        (),
        (PageTable(f"{anchor}-facts", about, "facts"), levels),
    )


def budget_sentence(definition: TaskDefinition) -> str:
    """What the areas depend on."""
    text = definition.text
    return (
        f"Training lasts {_updates(text)} updates of about {significant(text.targets_per_update)} targets; "
        f"the claim is about {asked(text.primary)}."
    )


def _updates(text: TaskText) -> str:
    """Of every scale where they differ: "300 at small, 600 at deep"."""
    if len(set(text.budget_updates_by_scale.values())) < 2:
        return count(text.budget_updates)
    return ", ".join(f"{count(updates)} at {scale}" for scale, updates in text.budget_updates_by_scale.items())


def calibration_sentence(definition: TaskDefinition) -> str:
    """How the difficulty was set, or that nobody set it."""
    found = definition.calibration
    if found is None:
        return "The difficulty of this task was not calibrated."
    if not found.seeds:
        return _capital(found.sentence)
    whose = "the baseline alone" if found.on_baseline else "more than the baseline"
    seeds = "1 calibration seed" if found.seeds == 1 else f"{found.seeds} calibration seeds"
    crossed = ", ".join("never" if at is None else percent(round(at, 3)) for at in found.crossed_at_shares)
    where = f"; shares of the budget at which they crossed the threshold: {crossed}" if crossed else ""
    where = "" if found.sentence else where  # the sentence names them by slice
    return f"Difficulty was set on {whose}, on {seeds}{where}. {_capital(found.sentence)}".strip()


def _without_intervals(row: SliceDifference) -> SliceDifference:
    """Beside a stop for futility no interval is shown, and nothing that was read off one."""
    return replace(
        row,
        interval=None,
        milestones=tuple(replace(one, interval=None) for one in row.milestones),
        log2_updates_interval=None,
        ratio_sentence="",
        agreement="",
        rate_sentence="",
        metric="",
        metric_difference=None,
        metric_interval=None,
    )


def _capital(sentence: str) -> str:
    clean = sentence.strip()
    return f"{clean[:1].upper()}{clean[1:]}" + ("" if clean.endswith((".", "!", "?")) or not clean else ".")
