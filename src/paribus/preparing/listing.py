"""`paribus data list` and `gc`: what lies in the store, and what may go."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.console import Console

from paribus.data.store import Cleaning, Stored, store_of
from paribus.terminal import bytes_in_words

_KINDS = {
    "corpus": "prepared",
    "partial": "stopped",
    "files": "fetched",
    "rest": "half deleted",
}
_INDENT = " " * 8


def show(found: Sequence[Stored], runs: Path, console: Console) -> None:
    """A line a folder, its name last, where it may be as long as it is; who uses it below; and the sum."""
    if not found:
        _say(console, f"nothing is prepared in {store_of(runs)}")
        return
    rows = [("size", "documents", "tokens", "when", "corpus"), *map(_row, found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for *numbers, name in rows:
        lines.append("  ".join([*(cell.rjust(width) for cell, width in zip(numbers, widths, strict=True)), name]))
    _say(console, f"Corpora in {store_of(runs)}\n\n{lines[0]}")
    for line, each in zip(lines[1:], found, strict=True):
        users = f"used by {', '.join(each.studies)}" if each.studies else ""
        below = [f"{_INDENT}{part}" for text in (users, each.note) for part in _lines(text, console.width)]
        _say(console, "\n".join([line, *below]))
    _say(console, f"\n{bytes_in_words(sum(each.bytes for each in found))} in all")


def show_cleaning(found: Cleaning, console: Console, *, deleted: bool) -> None:
    """What goes or went, and what stays and why."""
    for each in found.going:
        done = "deleted" if deleted else "would delete"
        _say(console, f"{done} {each.name} ({_KINDS[each.kind]}, {bytes_in_words(each.bytes)})")
    for kept in found.kept:
        _say(console, f"kept {kept.stored.name} ({bytes_in_words(kept.stored.bytes)}): {kept.why}")
    if not found.going:
        _say(console, "nothing to delete")
    elif deleted:
        _say(console, f"{bytes_in_words(found.bytes)} freed")
    else:
        _say(console, f"{bytes_in_words(found.bytes)} would come free; --delete deletes them")


def as_json(stored: Stored) -> dict[str, Any]:
    """One folder as JSON types."""
    return {
        "name": stored.name,
        "kind": stored.kind,
        "path": str(stored.path),
        "bytes": stored.bytes,
        "changed": datetime.fromtimestamp(stored.changed).astimezone().isoformat(timespec="seconds"),
        "documents": stored.documents if stored.kind == "corpus" else None,
        "tokens": stored.tokens if stored.kind == "corpus" else None,
        "digest": stored.digest or None,
        "made_of": stored.made_of or None,
        "studies": list(stored.studies),
        "being_written": stored.held,
        "note": stored.note or None,
    }


def cleaning_as_json(found: Cleaning, *, deleted: bool) -> dict[str, Any]:
    """What goes or went, and what stays, as JSON types."""
    return {
        "deleted": deleted,
        "bytes": found.bytes,
        "going": [as_json(each) for each in found.going],
        "kept": [{**as_json(kept.stored), "why": kept.why} for kept in found.kept],
    }


def _row(each: Stored) -> tuple[str, ...]:
    counted = each.kind == "corpus" and not each.note
    state = "being written" if each.held else _KINDS[each.kind]
    return (
        bytes_in_words(each.bytes),
        f"{each.documents:,}" if counted else "-",
        f"{each.tokens:,}" if counted else "-",
        datetime.fromtimestamp(each.changed).strftime("%Y-%m-%d"),
        each.name if state == "prepared" else f"{each.name} ({state})",
    )


def _lines(text: str, width: int) -> list[str]:
    """The text in lines of a terminal of this width, no name broken."""
    return wrap(text, max(width - len(_INDENT), 1), break_long_words=False, break_on_hyphens=False)


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
