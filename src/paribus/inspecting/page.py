"""The page of an inspected corpus: one self-contained file, as the reports are, without a script or a network."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paribus.data.frozen import MANIFEST
from paribus.errors import StorageError
from paribus.inspecting import figures, tables
from paribus.inspecting.findings import Findings, Sample
from paribus.report.blocks import PageFigure, PageTable, Section
from paribus.report.canvas import Picture
from paribus.report.files import replace_files
from paribus.report.numbers import count
from paribus.report.page import printable
from paribus.report.tables import Table, without_empty_columns
from paribus.stats.rounding import fixed


def write(found: Findings, path: Path) -> None:
    """Write the page to `path`. StorageError where the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the page could not be written to {path}", received=str(error), remedy="name another place for it"
        ) from error
    # The page stands alone: there is no list of files beside it, and so none to remove.
    replace_files(path.parent, {path.name: render(found)}, listed_in=f"{path.name}.files")


def render(found: Findings) -> str:
    """The page as HTML; the same corpus and context length give the same bytes."""
    environment = Environment(
        # The style, and how a figure and a table are set, are the reports'.
        loader=ChoiceLoader([PackageLoader("paribus.inspecting"), PackageLoader("paribus.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=printable,
    )
    environment.filters["svg"] = Markup  # made by `canvas.Picture`, which escapes every name in it
    return environment.get_template("inspect.html").render(
        name=found.frozen.name,
        sizes=f"{count(found.documents)} documents, {count(found.tokens)} tokens",
        sentence=_sentence(found),
        sections=_sections(found),
        samples=[_shown(sample) for sample in found.samples],
        manifest=MANIFEST,
    )


@dataclass(frozen=True)
class _Shown:
    """A sample as the page shows it."""

    heading: str
    held_out: bool
    facts: str
    text: str


def _shown(sample: Sample) -> _Shown:
    overlap = {
        True: "shares no 13-gram with the training texts",
        False: "shares a 13-gram with the training texts",
    }
    facts = [f"{count(sample.tokens)} tokens", f"{count(sample.bytes)} bytes", f"id {sample.document}"]
    facts += [] if sample.overlap_free is None else [overlap[sample.overlap_free]]
    return _Shown(
        f"{sample.split}: {sample.source}",
        sample.split != "train",
        ", ".join(facts),
        f"{sample.text} …" if sample.cut else sample.text,
    )


def _sentence(found: Findings) -> str:
    parts = [f"{facts.split} {count(facts.tokens)} tokens" for facts in found.splits]
    ratio = f"{fixed(found.bytes / found.tokens, 3)} bytes per token" if found.tokens else "no tokens"
    left_out = sum(found.left_out.values())
    said = f"{count(left_out)} were read and left out." if left_out else "Nothing that was read was left out."
    return (
        f"{count(found.documents)} documents, {count(found.bytes)} bytes of text, {ratio}: {', '.join(parts)}. "
        f"{said} Every file was compared with its digest."
    )


def _sections(found: Findings) -> list[Section]:
    several = len(found.sources) > 1
    alone = f"All documents come from one source, {found.frozen.sources[0]}." if found.sources else "No document."
    left_out = [tables.left_out_table(found)] if found.left_out else []
    evaluation = tables.evaluation_table(found)
    shares_none = "" if evaluation.rows else tables.evaluation_note(found)
    parts = [
        Section(
            "lengths",
            "Lengths of documents",
            figures=(_figure(figures.lengths_figure, found, "lengths", _LENGTHS),),
            tables=_tables("lengths", tables.splits_table(found)),
        ),
        Section(
            "kept",
            "What became of what was read",
            tuple(line for line in (tables.hostless_sentence(found), shares_none) if line),
            figures=(_figure(figures.kept_figure, found, "kept", _KEPT if left_out else _ALL_KEPT),),
            tables=_tables("kept", *left_out, tables.overlap_table(found), evaluation),
        ),
        Section(
            "sources",
            "Sources",
            () if several else (alone,),
            figures=(_figure(figures.sources_figure, found, "sources", _SOURCES),) if several else (),
            tables=_tables("sources", tables.sources_table(found)) if several else (),
        ),
        Section("waste", "What packing wastes", tables=_tables("waste", tables.waste_table(found))),
    ]
    about = [
        Section(
            "declaration", "Declaration", tables=_tables("declaration", tables.declaration_table(found), style="facts")
        ),
        Section(
            "digests", "Digests", tables=_tables("digests", tables.digests_table(found), tables.files_table(found))
        ),
    ]
    return [*parts, *about]


_LENGTHS = (
    "All splits. Filled: share of the documents; line: share of the tokens that lie in documents of this length. Each "
    "bin reaches 1.41 times as far as the one before. Dashed: the row length at which waste is measured."
)
_KEPT = "Blue: documents in a split. Orange: read and left out, by reason."
_ALL_KEPT = "Documents in each split. Nothing that was read was left out."
_SOURCES = "Over all splits."


def _figure(draw: Callable[..., Picture], found: Findings, stem: str, caption: str) -> PageFigure:
    picture, narrow = draw(found, f"figure-{stem}"), draw(found, f"figure-{stem}-narrow", narrow=True)
    return PageFigure("", caption, picture.svg, narrow.svg, picture, stem)


def _tables(anchor: str, *found: Table, style: str = "dense") -> tuple[PageTable, ...]:
    held = [without_empty_columns(table, keep=1) for table in found if table.rows]
    return tuple(PageTable(f"{anchor}-{number}", table, style) for number, table in enumerate(held, 1))
