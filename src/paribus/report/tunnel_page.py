"""One page for a set of synthetic tasks: a row a task and contrast, and what none of the rows predicts.

A smoke set is a direction check: it carries no verdict word and no adjusted p, and a record that does is refused
(rules of evidence, section 8). Beside the page lie its figure, its table as Markdown, and its numbers as JSON.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paribus.report.blocks import PageFigure
from paribus.report.files import replace_files
from paribus.report.machine import finite
from paribus.report.markdown import fenced, one_line
from paribus.report.of_tasks import CAUTION, TunnelContent, TunnelRow
from paribus.report.page import printable
from paribus.report.tables import Column, Table, facts_table, to_markdown
from paribus.report.task_section import calibration_sentence, definition_block
from paribus.report.task_tables import levels_table
from paribus.report.tunnel_door import WORDS, due_tunnel
from paribus.report.tunnel_figure import caption, scale_of, tunnel_figure
from paribus.report.tunnel_table import MILESTONE_CONFIDENCE, head_of, readings_table, tally_of, tunnel_table
from paribus.stats.words import Word

PAGE, FIGURE, TEXT, DATA = "tunnel.html", "tunnel.svg", "tunnel.md", "tunnel.json"
ARMS, DIFFICULTY = "What each arm changes", "How the difficulty of each task was set"
FORMAT = 1
"""version of the layout of `tunnel.json`"""


def render_tunnel(content: TunnelContent, folder: Path) -> Path:
    """Write page, figure, Markdown and JSON into `folder`; return the page's path.

    ParibusError where a record says more than its set may, StorageError where the disk refuses.
    """
    content = due_tunnel(content)
    picture = tunnel_figure(content.rows, "figure-tunnel")
    narrow = tunnel_figure(content.rows, "figure-tunnel-narrow", narrow=True)
    figure = PageFigure("", caption(content.rows), picture.svg, narrow.svg, picture, "tunnel")
    files: dict[str, str | bytes] = {
        DATA: tunnel_json(content),
        TEXT: tunnel_markdown(content),
        FIGURE: picture.standalone,
        PAGE: _html(content, figure),
    }
    replace_files(folder, files, listed_in=DATA)
    return folder / PAGE


def tunnel_markdown(content: TunnelContent) -> str:
    """The set for a pull request, of a content that went through `due_tunnel`."""
    table = tunnel_table(content)
    parts = [f"# {one_line(content.question)}\n", f"Wind tunnel, {head_of(content)}. {tally_of(content)}\n"]
    parts += [to_markdown(table), f"{one_line(table.note)}\n"] if table.rows else ["No task is in this set.\n"]
    parts += [f"**{one_line(CAUTION)}**\n"]
    readings = readings_table(content)
    parts += ["## Where the arms end, and what each row can say\n", to_markdown(readings)] if readings.rows else []
    for title, facts in ((ARMS, _arms(content)), (DIFFICULTY, _difficulty(content))):
        parts += [f"## {title}\n", to_markdown(facts)] if facts.rows else []
    doubts = "".join(f"- {one_line(caveat)}\n" for caveat in content.caveats)
    parts += ["## What could still be wrong\n", doubts] if doubts else []
    parts += ["## The tasks\n"] if content.definitions else []
    for definition in content.definitions:
        block = definition_block(definition, "")
        parts += [f"### {one_line(block.title)}\n"]
        parts += [f"{one_line(f'{block.sentence} {calibration_sentence(definition)}')}\n"]
        parts += [to_markdown(levels_table(definition))] if definition.levels else []
    parts += ["## How to repeat it\n", fenced(content.repeat_command)] if content.repeat_command else []
    return "\n".join(parts)


def tunnel_json(content: TunnelContent) -> str:
    """All numbers in full, of a content that went through `due_tunnel`; what is not finite is null."""
    levels = {"milestone_confidence": MILESTONE_CONFIDENCE}  # that of an area is its row's
    data = {"format": FORMAT, "caution": CAUTION, "files": [], **levels, **asdict(content)}
    return json.dumps(finite(data), indent=2, sort_keys=True, allow_nan=False) + "\n"


def _arms(content: TunnelContent) -> Table:
    return Table("Settings as declared", (Column("arm"), Column("settings")), tuple(content.arms.items()))


def _difficulty(content: TunnelContent) -> Table:
    return Table(
        "Calibration of the baseline", (Column("task"), Column("calibration")), tuple(content.difficulty.items())
    )


@dataclass(frozen=True)
class _Line:
    """A row of the page's table: its cells, the link of its task, the style of its word, its small figure."""

    cells: tuple[str, ...]
    href: str
    kind: str
    strip: str


def _lines(rows: Sequence[TunnelRow], table: Table) -> list[_Line]:
    return [
        _Line(cells, quote(row.report, safe="/."), _kind(row.word), _strip(row))
        for row, cells in zip(rows, table.rows, strict=True)
    ]


def _kind(word: str) -> str:
    if not word:
        return ""
    found = WORDS[word]
    if found.better or found.worse:
        return "better" if found.better else "worse"
    return "equal" if found in (Word.EQUIVALENT, Word.EQUIVALENT_NOT_ZERO) else "open"


def _strip(row: TunnelRow) -> str:
    """The interval beside zero, on the row's own scale; the number stands beside it, so it is silent."""
    of = row.difference
    if row.waiting or of.area_difference is None:
        return ""
    scale, bounds = scale_of(row) / 50, of.interval or (of.area_difference, of.area_difference)
    low, high, mean = (round(value / scale, 1) for value in (*bounds, of.area_difference))
    return (
        '<svg class="strip" viewBox="-52 -7 104 14" aria-hidden="true" focusable="false">'
        f'<path class="zero" d="M0-7V7"/><path class="bar" d="M{low} 0H{high}"/>'
        f'<path class="mean" d="M{mean} -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z"/></svg>'
    )


def _html(content: TunnelContent, figure: PageFigure) -> str:
    environment = Environment(
        loader=PackageLoader("paribus.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=printable,
    )
    environment.filters["svg"] = Markup  # numbers, and `canvas.Picture`, which escapes every name in it
    table = tunnel_table(content)
    return environment.get_template("tunnel.html").render(
        content=content,
        head=head_of(content),
        tally=tally_of(content),
        figure=figure,
        table=table,
        lines=_lines(content.rows, table),
        caution=CAUTION,
        readings=readings_table(content),
        titles=(ARMS, DIFFICULTY),
        arms=_arms(content),
        difficulty=_difficulty(content),
        blocks=[definition_block(one, f"task-{number}") for number, one in enumerate(content.definitions, 1)],
        facts=facts_table("Where and with what the set ran", content.environment),
    )
