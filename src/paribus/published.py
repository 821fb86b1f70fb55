"""Published figures: a file of what others have said, and which of its numbers stands beside a contrast.

The file is TOML that anyone can write for a paper of their own. Tables nest; every figure inherits the `source` of the
innermost table that names one, and the `caveats` of all tables on the way:

    [smith_2031]
    source = "arXiv 2031.01234"
    caveats = ["one run per arm"]
    [smith_2031.large]
    loss = { baseline = 2.310, gated = 2.285 }

A contrast points at it with `PublishedFigure`: entry = "smith_2031.large", treatment = "loss.gated",
baseline = "loss.baseline". A number in a list is named by its place, from 0: "losses.1".
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from paribus.errors import ExperimentFileError, nearest
from paribus.refusal import read_toml

_DOTTED = r"[^.]+(\.[^.]+)*"
Key = Annotated[str, Field(pattern=rf"^{_DOTTED}$", max_length=200)]
"""a path of keys joined by dots"""


def _key_or_number(value: Any) -> Any:
    # A union of types would report its findings once for each member; one sentence says what is expected.
    if value is None or (isinstance(value, str) and re.fullmatch(_DOTTED, value)):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return float(value)
    raise ValueError(f"standard_error is a key of the published entry, or a number above 0; received {value!r}")


KeyOrNumber = Annotated[str | float | None, BeforeValidator(_key_or_number)]


class PublishedFigure(BaseModel):
    """Where the figure stands that a contrast is put beside, as treatment minus baseline in the contrast's unit."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    file: Annotated[Path, Field(strict=False)]
    """the file of published figures; relative to the experiment file"""
    entry: Key
    """its table, such as "paper.scale"; source and caveats are read from it and the tables above"""
    difference: Key | None = None
    """key, within the entry, of the published difference of treatment and baseline; or treatment and baseline"""
    reduction: bool = False
    """whether the published difference is baseline minus treatment"""
    treatment: Key | None = None
    """key, within the entry, of the treatment's value"""
    baseline: Key | None = None
    """key, within the entry, of the baseline's value"""
    standard_error: KeyOrNumber = None
    """of the difference: a key within the entry, or the number itself; None where none is public"""
    seeds: Annotated[int, Field(ge=1)] | None = None
    """how many seeds each published arm has; None where that is not public"""
    same_recipe: bool = False
    """whether scale, tokens, corpus and schedule all equal ours; otherwise it is related evidence only"""

    @model_validator(mode="after")
    def _one_difference(self) -> Self:
        if (self.treatment is None) != (self.baseline is None) or (self.difference is None) == (self.treatment is None):
            raise ValueError("give either difference, or treatment and baseline")
        if self.reduction and self.difference is None:
            raise ValueError("reduction turns a difference around; treatment and baseline say their order themselves")
        return self


@dataclass(frozen=True)
class Published:
    """A published difference with what is known about it."""

    difference: float
    """treatment minus baseline, in the unit of the file"""
    standard_error: float | None
    """of `difference`; None where none is public"""
    seeds: int | None
    """None where their number is not public"""
    source: str
    caveats: tuple[str, ...]
    """those of the outermost table first"""
    entry: str


def read(figure: PublishedFigure, folder: Path) -> Published:
    """The figure from its file, which is relative to `folder`, the experiment file's.

    ExperimentFileError for a file that is missing or unreadable, an entry or key that is not there (the nearest one is
    named), a value that is no finite number, a standard error not above 0, and an entry without a source.
    """
    path = folder / figure.file
    tables = _tables(path, _content(path), figure.entry)
    entry = tables[-1]
    where = f"{path}: {figure.entry}"
    if figure.difference is not None:
        value = _number(where, entry, figure.difference)
        difference = -value if figure.reduction else value
    else:
        assert figure.treatment is not None
        assert figure.baseline is not None
        difference = _number(where, entry, figure.treatment) - _number(where, entry, figure.baseline)
    error = figure.standard_error
    if isinstance(error, str):
        key, error = error, _number(where, entry, error)
        if error <= 0:
            raise ExperimentFileError(
                f"{where}.{key}: a standard error must be above 0",
                expected="a positive number",
                received=str(error),
                remedy="leave standard_error out where none is public",
            )
    return Published(difference, error, figure.seeds, _source(where, tables), _caveats(where, tables), figure.entry)


def _content(path: Path) -> dict[str, Any]:
    return read_toml(
        path,
        "a file of published figures (TOML)",
        "file is relative to the experiment file; see experiments/published/papers.toml for an example",
    )


def _tables(path: Path, content: dict[str, Any], entry: str) -> list[dict[str, Any]]:
    """The tables on the way to the entry, outermost first, the entry last."""
    tables, current = [content], content
    keys = entry.split(".")
    for depth, key in enumerate(keys):
        found = current.get(key)
        if not isinstance(found, dict):
            above = ".".join(keys[:depth])
            names = [name for name, value in current.items() if isinstance(value, dict)]
            raise ExperimentFileError(
                f"{path}: no table '{key}'" + (f" in '{above}'" if above else ""),
                expected="a table of the file",
                received=f"entry = '{entry}'",
                remedy=nearest(key, names),
            )
        current = found
        tables.append(current)
    return tables


def _number(where: str, entry: dict[str, Any], path: str) -> float:
    """The number at a dotted path below the entry."""
    current: Any = entry
    keys = path.split(".")
    for depth, key in enumerate(keys):
        children = _children(current)
        if key not in children:
            raise ExperimentFileError(
                f"{'.'.join([where, *keys[:depth]])}: no key '{key}'",
                expected="a key of the published entry",
                received=f"'{path}'",
                remedy=nearest(key, children),
            )
        current = children[key]
    if isinstance(current, bool) or not isinstance(current, (int, float)) or not math.isfinite(current):
        raise ExperimentFileError(
            f"{where}.{path}: not a number",
            expected="a finite number",
            received="a table with " + ", ".join(_children(current)) if isinstance(current, dict) else repr(current),
            remedy="name one of its keys" if _children(current) else "point at the key of the published number",
        )
    return float(current)


def _children(value: Any) -> dict[str, Any]:
    """What a table or a list holds, by key or by place."""
    if isinstance(value, list):
        return {str(place): item for place, item in enumerate(value)}
    return value if isinstance(value, dict) else {}


def _source(where: str, tables: list[dict[str, Any]]) -> str:
    sources = [table["source"] for table in tables if "source" in table]
    if not sources or not isinstance(sources[-1], str) or not sources[-1].strip():
        raise ExperimentFileError(
            f"{where}: a published figure needs its source",
            expected='source = "..." in this table or one above',
            received=repr(sources[-1]) if sources else "none",
            remedy="name the paper, page or file that the figure was read from",
        )
    return sources[-1]


def _caveats(where: str, tables: list[dict[str, Any]]) -> tuple[str, ...]:
    found: list[str] = []
    for caveats in (table.get("caveats", []) for table in tables):
        if not isinstance(caveats, list) or not all(isinstance(caveat, str) for caveat in caveats):
            raise ExperimentFileError(
                f"{where}: caveats must be a list of sentences",
                expected='caveats = ["...", "..."]',
                received=repr(caveats),
            )
        found += caveats
    return tuple(found)
