"""What a page is made of: figures, tables, and the sections that hold them. Templates and exports only walk these."""

from dataclasses import dataclass

from paribus.report.canvas import Picture
from paribus.report.tables import Table


@dataclass(frozen=True)
class PageFigure:
    """A figure with its heading (empty: none) and its caption."""

    heading: str
    caption: str
    svg: str
    """with its text alternative inside"""
    narrow: str = ""
    """the same figure for a screen too narrow for `svg`; empty where that one scrolls instead"""
    picture: Picture | None = None
    """the drawing, where the figure is also written to a file of its own"""
    file: str = ""
    """stem of that file's name"""


@dataclass(frozen=True)
class PageTable:
    """A table, the anchor that its caption has on the page, and how it is set: "", "dense" or "facts"."""

    anchor: str
    table: Table
    style: str = "dense"


@dataclass(frozen=True)
class Block:
    """One diagnostic or intervention on the page: figures and tables, or a note in their place."""

    title: str
    sentence: str
    note: str
    figures: tuple[PageFigure, ...] = ()
    tables: tuple[PageTable, ...] = ()


@dataclass(frozen=True)
class Section:
    """A part of the page under its own heading."""

    anchor: str
    title: str
    sentences: tuple[str, ...] = ()
    figures: tuple[PageFigure, ...] = ()
    tables: tuple[PageTable, ...] = ()
    folded: tuple[Block, ...] = ()
    """shown closed on a screen, open on paper"""
    points: tuple[str, ...] = ()
    """a list; a section of points is about what nobody should miss"""
    code: str = ""


@dataclass(frozen=True)
class Absent:
    """A part that this study has nothing for: what is missing, and how to get it."""

    title: str
    sentence: str


def picture_figure(heading: str, caption: str, picture: Picture, file: str) -> PageFigure:
    """A figure of the page that is written to files too."""
    return PageFigure(heading, caption, picture.svg, picture=picture, file=file)
