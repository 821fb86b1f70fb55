"""Records as tables: one set of rows for the page, the terminal and Markdown, so that the three cannot disagree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from textwrap import wrap

from paribus.report.content import ArmParameters, CellRow, HeldEqual, Look
from paribus.report.evidence import Shown
from paribus.report.numbers import count, duration, interval, significant
from paribus.stats.rounding import MINUS, MISSING, decimals_for, declared, fixed, percent, probability

_TEXT_WIDTH = 22
"""characters of a text column in a terminal"""


@dataclass(frozen=True)
class Column:
    """A heading, its unit (empty where the cells say it) and whether its cells are numbers, set flush right."""

    heading: str
    unit: str = ""
    numeric: bool = False


@dataclass(frozen=True)
class Table:
    """A caption, columns, rows of finished text (one string a column, the first is the row's name), and a note.

    A line break in a cell sets what follows in small type below; where there is one line only, it stands in brackets.

    `accents` names the rows that stand out and how: "primary", "bad" or "" for none; one a row, or no entries at all.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    accents: tuple[str, ...] = ()

    def accent(self, row: int) -> str:
        """How row number `row` stands out."""
        return self.accents[row] if self.accents else ""


def verdict_table(rows: Sequence[Shown], parameters: Sequence[ArmParameters]) -> Table:
    """One row a contrast. Nothing here is due before the planned seeds, and then a dash stands for it."""
    totals = {(entry.scale, entry.arm): entry.total for entry in parameters}
    units = {row.unit for row in rows}
    columns = (
        Column("contrast"),
        Column("verdict"),
        Column("difference", next(iter(units)) if len(units) == 1 else "", numeric=True),
        Column("sign-flip p", numeric=True),
        Column("wins", numeric=True),
        Column("smallest effect", numeric=True),
        Column("parameters", "treatment against baseline", numeric=True),
    )
    body = []
    for row in rows:
        digits = decimals_for(row.standard_error)
        bounds = f"\n{interval(row.interval, digits)} {percent(row.interval_confidence)}" if row.interval else ""
        unit = f" {row.unit}" if len(units) > 1 else ""
        body.append(
            (
                f"{row.name}\n{row.compared}, scale\u00a0{row.scale}",
                row.word.value,
                MISSING if row.mean is None else f"{fixed(row.mean, digits, signed=True)}{unit}{bounds}",
                probability(row.p_sign_flip),
                MISSING if row.wins is None else f"{row.wins} of {row.seeds}",
                f"±{declared(row.smallest_effect)}{unit}",
                _parameters(row, totals),
            )
        )
    accents = tuple("primary" if row.primary else "" for row in rows)
    return Table("Verdicts: treatment minus baseline", columns, tuple(body), _verdict_note(rows), accents)


def _verdict_note(rows: Sequence[Shown]) -> str:
    parts = []
    if any(row.primary for row in rows):
        parts.append("Bold: the primary contrast.")
    if any(row.interaction for row in rows):
        parts.append("An interaction subtracts two such differences seed by seed; beside it the sizes of its arms.")
    if any(row.p_holm is not None for row in rows):
        parts.append("The interval of a secondary is at the level at which Holm's procedure tested it.")
    return " ".join(parts)


def _parameters(row: Shown, totals: Mapping[tuple[str, str], int]) -> str:
    """Treatment against baseline; of an interaction the range over its four arms, since nothing is one against one."""
    if row.interaction:
        known = sorted({total for arm in row.arms if (total := totals.get((row.scale, arm))) is not None})
        return "\n".join([count(known[0]), *([f"to {count(known[-1])}"] if known[1:] else [])]) if known else MISSING
    return _against(totals.get((row.scale, row.treatment)), totals.get((row.scale, row.baseline)))


def _against(treatment: int | None, baseline: int | None) -> str:
    if treatment is None or baseline is None:
        return MISSING
    if treatment == baseline:
        return f"{count(treatment)}\nequal"
    more = f"{'+' if treatment > baseline else MINUS}{count(abs(treatment - baseline))}"
    share = f", {significant(100 * (treatment - baseline) / baseline, 2)} %" if baseline else ""
    return f"{count(treatment)}\n{more}{share}"


def seeds_table(cells: Sequence[CellRow], unit: str = "nats per token") -> Table:
    """Every training run, finished or not. Losses are in `unit`; rates and times belong to one host."""
    columns = (
        Column("scale"),
        Column("arm"),
        Column("seed", numeric=True),
        Column("state"),
        Column("test", unit, numeric=True),
        Column("test", "bits per byte", numeric=True),
        Column("validation", unit, numeric=True),
        Column("last training loss", unit, numeric=True),
        Column("wall time", numeric=True),
        Column("tokens per second", numeric=True),
        Column("digest"),
        Column("code"),
    )
    rows = tuple(
        (
            cell.scale,
            cell.arm,
            str(cell.seed),
            cell.state,
            fixed(cell.test_nats_per_token, 5),
            fixed(cell.test_bits_per_byte, 5),
            fixed(cell.validation_nats_per_token, 5),
            fixed(cell.final_training_loss_nats_per_token, 4),
            duration(cell.train_seconds),
            count(cell.tokens_per_second),
            cell.digest[:8] or MISSING,
            cell.code_version[:8] or MISSING,
        )
        for cell in cells
    )
    accents = tuple("bad" if cell.state in ("diverged", "failed", "stale") else "" for cell in cells)
    lost = sum(cell.state == "diverged" for cell in cells)
    note = f"{lost} of {len(cells)} cells diverged; none was dropped or replaced." if lost else ""
    return Table("Training runs", columns, rows, note, accents)


def parameters_table(parameters: Sequence[ArmParameters]) -> Table:
    """Trainable parameters by role, a column per role that any arm has, and floating-point operations per token."""
    roles = list(dict.fromkeys(role for entry in parameters for role in entry.by_role))
    columns = (
        Column("scale"),
        Column("arm"),
        *(Column(role, numeric=True) for role in roles),
        Column("all", numeric=True),
        Column("FLOPs", "per token", numeric=True),
    )
    rows = tuple(
        (
            entry.scale,
            entry.arm,
            *(count(entry.by_role.get(role, 0)) for role in roles),
            count(entry.total),
            significant(entry.flops_per_token),
        )
        for entry in parameters
    )
    return Table("Trainable parameters by role", columns, rows)


def held_equal_table(entries: Sequence[HeldEqual], caption: str = "Held equal") -> Table:
    """What the arms share and the proof of it; what does not hold stands out."""
    rows = tuple((entry.what, "holds" if entry.holds else "does not hold", entry.proof) for entry in entries)
    accents = tuple("" if entry.holds else "bad" for entry in entries)
    columns = (Column("what"), Column("checked"), Column("evidence"))
    return Table(caption, columns, rows, accents=accents)


def looks_table(looks: Sequence[Look]) -> Table:
    """The ledger of looks at the evidence, oldest first: each one is part of what the error rate is paid for."""
    rows = tuple(
        (
            look.time,
            look.command,
            ", ".join(f"{name}: {pairs}" for name, pairs in sorted(look.pairs.items())) or MISSING,
            ", ".join(f"{name}: {word}" for name, word in sorted(look.words.items()) if word) or "none shown",
            look.rule_digest[:10] or MISSING,
        )
        for look in looks
    )
    columns = (Column("time"), Column("command"), Column("complete pairs"), Column("words shown"), Column("rule"))
    changed = len({look.rule_digest for look in looks}) > 1
    return Table("Looks at the evidence", columns, rows, "The rule changed between looks." if changed else "")


def facts_table(caption: str, facts: Mapping[str, str]) -> Table:
    """Names and values, sorted by name: the environment, the corpus."""
    return Table(caption, (Column("name"), Column("value")), tuple(sorted(facts.items())))


def without_empty_columns(table: Table, keep: int) -> Table:
    """The table less the columns, after the first `keep`, in which every cell is a dash or empty."""
    held = [
        i
        for i in range(len(table.columns))
        if i < keep or any(row[i] not in (MISSING, "") for row in table.rows) or not table.rows
    ]
    return replace(
        table,
        columns=tuple(table.columns[i] for i in held),
        rows=tuple(tuple(row[i] for i in held) for row in table.rows),
    )


def captioned(table: Table, addition: str) -> Table:
    """The table with `addition` at the end of its caption."""
    return replace(table, caption=table.caption + addition)


def heading(column: Column) -> str:
    """The heading with its unit, on one line."""
    return f"{column.heading} ({column.unit})" if column.unit else column.heading


def to_markdown(table: Table) -> str:
    """The table in GitHub's Markdown; a pipe or a line break in a cell cannot break a row."""

    def cell(text: str) -> str:
        return " ".join(_one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").split())

    lines = ["| " + " | ".join(cell(heading(column)) for column in table.columns) + " |"]
    lines.append("|" + "|".join(" ---: " if column.numeric else " --- " for column in table.columns) + "|")
    lines += ["| " + " | ".join(cell(text) for text in row) + " |" for row in table.rows]
    return "\n".join(lines) + "\n"


def to_text(table: Table, width: int | None = None) -> str:
    """The table as aligned plain text, for a terminal or a log; what follows a line break in a cell goes below.

    Where `width` characters do not hold it, columns are left out from the right, and a last line says which.
    """
    grid = [tuple(_heading_lines(column) for column in table.columns)]
    grid += [
        tuple(_cell_lines(cell, column) for cell, column in zip(row, table.columns, strict=True)) for row in table.rows
    ]
    widths = [max(len(line) for row in grid for line in row[i]) for i in range(len(table.columns))]
    held = len(widths)
    while width is not None and held > 1 and sum(widths[:held]) + 2 * (held - 1) > width:
        held -= 1
    columns, widths = table.columns[:held], widths[:held]
    texts = [
        "  ".join(
            line.rjust(size) if column.numeric else line.ljust(size)
            for line, size, column in zip(lines, widths, columns, strict=True)
        ).rstrip()
        + "\n"
        for row in grid
        for lines in zip_longest(*row[:held], fillvalue="")
    ]
    head = max(len(cell) for cell in grid[0][:held])
    rule = "  ".join("─" * size for size in widths) + "\n"
    left_out = ", ".join(column.heading for column in table.columns[held:])
    return "".join([*texts[:head], rule, *texts[head:], f"(left out here: {left_out})\n" if left_out else ""])


def _heading_lines(column: Column) -> list[str]:
    return [column.heading, column.unit] if column.unit else [column.heading]


def _cell_lines(cell: str, column: Column) -> list[str]:
    """The cell's lines; words are broken into lines of a column's width, numbers never."""
    lines = [_printable(line) for line in cell.split("\n")]
    return lines if column.numeric else [part for line in lines for part in wrap(line, _TEXT_WIDTH) or [""]]


def _printable(line: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in line).split())


def _one_line(cell: str) -> str:
    first, _, rest = cell.partition("\n")
    return _printable(first) + (f" ({_printable(rest)})" if rest else "")
