"""The report as Markdown for a pull request: the question, its answer, what could be wrong, and how to repeat it."""

import re
from collections.abc import Sequence

from paribus.report.content import ReportContent
from paribus.report.costs import gains_table
from paribus.report.estimates import estimates_table
from paribus.report.evidence import Shown
from paribus.report.tables import Table, to_markdown, verdict_table, without_empty_columns


def report(content: ReportContent, rows: Sequence[Shown]) -> str:
    """The whole of `report.md`, of a content that went through `evidence.due`."""
    parts = [f"# {_line(content.question)}", *_answers(rows), _section("Verdicts", verdicts(content, rows))]
    parts += [_table("Estimates", estimates_table(rows, content.estimates))]
    parts += [_table("Cost", gains_table(content.costs) if content.costs else None)]
    doubts = "".join(f"- {_line(caveat)}\n" for caveat in content.caveats)
    parts += [_section("What could still be wrong", doubts or "No check raised a doubt. That is not proof of none.\n")]
    parts += [_section("How to repeat it", _fenced(content.repeat_command))]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def verdicts(content: ReportContent, rows: Sequence[Shown]) -> str:
    """The verdict table and its notes: `verdict.md`, and the heart of `report.md`."""
    notes = "".join(f"\n- {_line(of)}: {_line(text)}" for of, text in noted(rows))
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
    primary = [f"**{row.word.value}.** {_line(row.sentence)}" for row in rows if row.primary]
    return primary or ["**No primary contrast.** Nothing in this report is a verdict."]


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}"


def _table(title: str, table: Table | None) -> str:
    if table is None:
        return ""
    note = f"\n{_line(table.note)}\n" if table.note else ""
    return _section(title, to_markdown(without_empty_columns(table, keep=1)) + note)


def _line(text: str) -> str:
    """One line of prose: no name can start a tag, a heading, a list or a link of its own."""
    clean = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    clean = re.sub(r"([\\`*\[\]|])", r"\\\1", clean).replace("<", "&lt;")
    return re.sub(r"^([#>+\-=~_])", r"\\\1", clean)


def _fenced(code: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    clean = "".join(c if c.isprintable() or c == "\n" else " " for c in code)
    return f"{fence}sh\n{clean}\n{fence}\n"
