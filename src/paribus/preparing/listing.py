"""`paribus data list` and `gc`: what lies in the store, and what may go."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from paribus.data.store import Cleaning, Stored, store_of
from paribus.preparing.sizes import in_words
from paribus.terminal import table

_KINDS = {
    "corpus": "prepared",
    "partial": "stopped",
    "files": "fetched",
    "rest": "half deleted",
}


def show(found: Sequence[Stored], runs: Path, console: Console) -> None:
    """A row a folder, and the sum."""
    if not found:
        _say(console, f"nothing is prepared in {store_of(runs)}")
        return
    columns = ("corpus", "state", "size", "documents", "tokens", "when", "used by")
    console.print(table(f"Corpora in {store_of(runs)}", columns, [_row(each) for each in found], right=(2, 3, 4)))
    for each in found:
        if each.note:
            _say(console, f"{each.name}: {each.note}")
    _say(console, f"{in_words(sum(each.bytes for each in found))} in all")


def show_cleaning(found: Cleaning, console: Console, *, deleted: bool) -> None:
    """What goes or went, and what stays and why."""
    for each in found.going:
        _say(
            console,
            f"{'deleted' if deleted else 'would delete'} {each.name} ({_KINDS[each.kind]}, {in_words(each.bytes)})",
        )
    for kept in found.kept:
        _say(console, f"kept {kept.stored.name} ({in_words(kept.stored.bytes)}): {kept.why}")
    if not found.going:
        _say(console, "nothing to delete")
    elif deleted:
        _say(console, f"{in_words(found.bytes)} freed")
    else:
        _say(console, f"{in_words(found.bytes)} would come free; --delete deletes them")


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
    return (
        each.name,
        "being written" if each.held else _KINDS[each.kind],
        in_words(each.bytes),
        f"{each.documents:,}" if counted else "-",
        f"{each.tokens:,}" if counted else "-",
        datetime.fromtimestamp(each.changed).strftime("%Y-%m-%d"),
        ", ".join(each.studies) or "-",
    )


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
