"""The report as Markdown for a pull request: the question, its answer, every table that bears on it, what could be
wrong, and how to repeat it. Tables of pairs by seed, of readings and of facts stay on the page."""

import re
from collections.abc import Sequence

from paribus.report.answers_section import TITLE as TASKS
from paribus.report.budgets import multipliers_table
from paribus.report.content import ReportContent
from paribus.report.core_shares import core_differences_table, core_table
from paribus.report.costs import gains_table
from paribus.report.envelopes import envelopes_table
from paribus.report.estimates import estimates_table
from paribus.report.evidence import Shown
from paribus.report.noise import noise_table
from paribus.report.of_tasks import CAUTION
from paribus.report.overlap import TITLE as OVERLAP
from paribus.report.overlap import overlap_table
from paribus.report.published import published_table
from paribus.report.robustness import TITLE, robustness_table, turned_sentences
from paribus.report.sensitivity import TITLE as SENSITIVITY
from paribus.report.sensitivity import schedule_sentences, sensitivity_table
from paribus.report.tables import Table, to_markdown, verdict_table, without_empty_columns
from paribus.report.task_arm_tables import acquired_by_seed_table, chance_table, learnt_table
from paribus.report.task_tables import acquisition_table, differences_table
from paribus.report.tasks import counterfactual_table, tasks_table
from paribus.report.tuning import summaries_table


def report(content: ReportContent, rows: Sequence[Shown]) -> str:
    """The whole of `report.md`, of a content that went through `door.due`."""
    parts = [f"# {one_line(content.question)}", *_answers(rows), _section("Verdicts", verdicts(content, rows))]
    if content.task is not None:
        task = content.task
        found = (
            chance_table(task),
            learnt_table(task),
            acquisition_table(task),
            acquired_by_seed_table(task),
            differences_table(task),
        )
        parts += [_table("What the task shows", *found), one_line(CAUTION) + "\n"]
    parts += [_table(OVERLAP, overlap_table(content.overlap, rows))]
    moved = content.sensitivity
    parts += [_table(SENSITIVITY, sensitivity_table(moved), sentences=schedule_sentences(moved))]
    rates = content.robustness if content.task is None else content.task.rates
    parts += [_table(TITLE, robustness_table(rates), sentences=turned_sentences(rates))]
    parts += [_table("Estimates", estimates_table(rows, content.estimates))]
    parts += [_table("A/A: how much is noise", noise_table(content.noise))]
    envelopes = envelopes_table(content.budget_gaps, content.gap_forms, content.budget_summaries, content.loss_unit)
    parts += [_table("Beyond the budget", multipliers_table(content.budget_summaries), envelopes)]
    parts += [_table("Cost", gains_table(content.costs, content.loss_unit))]
    answered = (
        tasks_table(content.tasks),
        core_table(content.core),
        core_differences_table(content.core_differences),
        counterfactual_table(content.counterfactuals),
    )
    parts += [_table(TASKS, *answered)]
    parts += [
        _table("Tuning", summaries_table(content.tuning)),
        _table("Published figures", published_table(content.published)),
    ]
    doubts = "".join(f"- {one_line(caveat)}\n" for caveat in content.caveats)
    parts += [_section("What could still be wrong", doubts or "No check raised a doubt. That is not proof of none.\n")]
    parts += [_section("How to repeat it", fenced(content.repeat_command))]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def verdicts(content: ReportContent, rows: Sequence[Shown]) -> str:
    """The verdict table and its notes: `verdict.md`, and the heart of `report.md`."""
    notes = "".join(f"\n- {one_line(of)}: {one_line(text)}" for of, text in noted(rows))
    return to_markdown(verdict_table(rows, content.parameters)) + notes


def noted(rows: Sequence[Shown]) -> list[tuple[str, str]]:
    """Each note once, with the contrasts it holds for."""
    texts = dict.fromkeys(note for row in rows for note in row.notes)
    holders = {text: [f"{row.name}, scale {row.scale}" for row in rows if text in row.notes] for text in texts}
    every = len(rows) > 1
    return [
        ("all contrasts" if every and len(of) == len(rows) else "; ".join(of), text) for text, of in holders.items()
    ]


def _answers(rows: Sequence[Shown]) -> list[str]:
    primary = [f"**{row.word.value}.** {one_line(row.sentence)}" for row in rows if row.primary]
    return primary or ["**No primary contrast.** Nothing in this report is a verdict."]


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}"


def _table(title: str, *tables: Table | None, sentences: Sequence[str] = ()) -> str:
    """A section of the tables that have rows, each with its note, several with captions; nothing where none has.

    `sentences` stand before the tables, each a paragraph.
    """
    held = [table for table in tables if table is not None and table.rows]
    told = []
    for table in held:
        caption = f"{one_line(table.caption)}:\n\n" if len(held) > 1 else ""
        note = f"\n{one_line(table.note)}\n" if table.note else ""
        told.append(caption + to_markdown(without_empty_columns(table, keep=1)) + note)
    said = "".join(f"{one_line(sentence)}\n\n" for sentence in sentences)
    return _section(title, said + "\n".join(told)) if told else ""


def one_line(text: str) -> str:
    """One line of prose: no name can start a tag, a heading, a list or a link of its own."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    clean = re.sub(r"([\\`*\[\]|])", r"\\\1", clean).replace("<", "&lt;")
    return re.sub(r"^([#>+\-=~_])", r"\\\1", clean)


def fenced(code: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    clean = "".join(c if c.isprintable() or c == "\n" else " " for c in code)
    return f"{fence}sh\n{clean}\n{fence}\n"
