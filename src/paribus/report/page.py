"""One self-contained page per study: it opens from a disk, without a network, a script or a font of its own.

The same content gives the same bytes. Beside the page lie `report.json` for programs, `report.md` for a pull request,
tables and figures for a paper, and the verdict alone as `verdict.svg` and `verdict.md`, to be shown where the page
cannot be. Everything is made of what `door.due` lets through.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paribus.report import figures, latex, markdown, rows
from paribus.report.content import ReportContent
from paribus.report.door import due
from paribus.report.evidence import Shown, shown_rows
from paribus.report.files import digest_of, replace_files
from paribus.report.machine import to_json
from paribus.report.markdown import noted
from paribus.report.sections import Page, assemble
from paribus.stats.verdict import Word

__all__ = ["DATA", "FIGURE", "MARKDOWN", "PAGE", "TEXT", "kind", "noted", "render", "to_json", "write"]

PAGE = "report.html"
DATA = "report.json"
TEXT = "report.md"
FIGURE = "verdict.svg"
MARKDOWN = "verdict.md"


def render(content: ReportContent, refresh_seconds: int | None = None) -> str:
    """The page of a study as HTML: the question and its answer first, then what could be wrong with it.

    With `refresh_seconds` a browser loads the page again after as many seconds, as long as a study runs.
    """
    content = due(content)
    shown = shown_rows(content)
    return _html(content, shown, assemble(content, shown), refresh_seconds)


def write(content: ReportContent, folder: Path, refresh_seconds: int | None = None) -> Path:
    """Write the page and everything beside it; return the page's path. StorageError where the disk refuses.

    Each file is written aside and renamed, and what an earlier report left that this one has not is removed. A page
    that is still watched (`refresh_seconds`) comes without the tables and figures for a paper.
    """
    data, content = content, due(content)
    shown = shown_rows(content)
    page = assemble(content, shown)
    first = page.first.picture
    assert first is not None
    exports: dict[str, str | bytes] = {} if refresh_seconds else _exports(content, shown, page)
    files: dict[str, str | bytes] = {
        TEXT: markdown.report(content, shown),
        FIGURE: first.standalone,
        MARKDOWN: markdown.verdicts(content, shown),
        **exports,
        PAGE: _html(content, shown, page, refresh_seconds),
    }
    digests = {name: digest_of(text) for name, text in files.items()}
    replace_files(folder, {DATA: to_json(data, sorted(exports), digests), **files}, listed_in=DATA)
    return folder / PAGE


def _exports(content: ReportContent, shown: Sequence[Shown], page: Page) -> dict[str, str | bytes]:
    """Tables and figures for a paper, by their names below the report's folder."""
    found: dict[str, str | bytes] = {}
    for name, text in {**rows.csv_files(content, shown), **latex.tex_files(content, shown)}.items():
        found[f"tables/{name}"] = text
    for figure in page.pictures:
        assert figure.picture is not None
        found[f"figures/{figure.file}.svg"] = figure.picture.standalone
        found[f"figures/{figure.file}.pdf"] = figure.picture.pdf
    return found


def _html(content: ReportContent, shown: Sequence[Shown], page: Page, refresh_seconds: int | None) -> str:
    environment = Environment(
        loader=PackageLoader("paribus.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=printable,
    )
    environment.filters["svg"] = Markup  # made by `canvas.Picture`, which escapes every name in it
    environment.filters["kind"] = kind
    return environment.get_template("page.html").render(
        content=content,
        page=page,
        primary=[row for row in shown if row.primary],
        notes=noted(shown),
        progress=_progress(content),
        several_scales=len(figures.scales_of(content)) > 1,
        refresh_seconds=refresh_seconds,
    )


def kind(row: Shown) -> str:
    """The style of a verdict: better, worse, equal, or "open" for every word that settles nothing."""
    if row.word.better or row.word.worse:
        return "better" if row.word.better else "worse"
    return "equal" if row.word in (Word.EQUIVALENT, Word.EQUIVALENT_NOT_ZERO) else "open"


def printable(value: Any) -> Any:
    """HTML has no way to write most control characters; markup made here has none."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\N{REPLACEMENT CHARACTER}", value)


@dataclass(frozen=True)
class _Progress:
    complete: int
    planned: int
    sentence: str


def _progress(content: ReportContent) -> _Progress:
    if not content.cells:
        return _Progress(0, 0, "No training run is planned yet.")
    complete = sum(cell.state == "complete" for cell in content.cells)
    states = [cell.state for cell in content.cells if cell.state != "complete"]
    rest = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
    told = f"{complete} of {len(content.cells)} training runs complete" + (f" ({rest})." if rest else ".")
    return _Progress(complete, len(content.cells), told)
