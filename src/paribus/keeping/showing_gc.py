"""What `paribus gc` says, in words and as JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from paribus.data.store import plan_cleaning
from paribus.keeping.freeing import STALE, STATES, Item
from paribus.keeping.occupying import Occupied, total
from paribus.terminal import bytes_in_words, table

_SHOWN = 5
"""of what goes, and of what stays; --json has all"""


def show(found: Sequence[Occupied], runs: Path, console: Console, went: Mapping[Path, Sequence[Item]] | None) -> None:
    """What occupies the disk by kind, what of it may go, and what `went`, by study; None where only that was asked."""
    for each in found:
        _study(each, console, None if went is None else went[each.study])
    freed = sum(total(items) for items in (went or {}).values())
    possible = sum(total(each.going) for each in found)
    if went is not None:
        _say(console, f"{bytes_in_words(freed)} freed")
    elif possible:
        _say(console, f"{bytes_in_words(possible)} would come free; --delete deletes them")
    else:
        _say(console, "nothing to delete")
    if (size := unused_store(runs)) is not None:
        _say(console, f"{bytes_in_words(size)} of corpora no study needs: `paribus data gc --runs {runs} --delete`")


def as_json(found: Sequence[Occupied], runs: Path, went: Mapping[Path, Sequence[Item]] | None) -> dict[str, Any]:
    """Everything, as JSON types."""
    return {
        "deleted": went is not None,
        "bytes": sum(total(each.going if went is None else went[each.study]) for each in found),
        "store_bytes_unused": unused_store(runs),
        "studies": [
            {
                "path": str(each.study),
                "kinds": {kind: {"files": files, "bytes": size} for kind, (files, size) in each.kinds.items()},
                "going": [
                    {"path": str(item.path), "kind": item.kind, "bytes": item.bytes}
                    for item in (each.going if went is None else went[each.study])
                ],
                "kept": [{"path": str(path), "why": why} for path, why in each.kept],
                "optimiser_bytes": each.optimiser_bytes,
            }
            for each in found
        ],
    }


def unused_store(runs: Path) -> int | None:
    """Bytes of prepared corpora and fetched files that no study reads; None where there are none."""
    return plan_cleaning(runs).bytes or None


def _study(found: Occupied, console: Console, went: Sequence[Item] | None) -> None:
    going: dict[str, int] = {}
    for item in found.going:
        going[item.kind] = going.get(item.kind, 0) + item.bytes
    rows = [
        (kind, f"{files:,}", bytes_in_words(size), bytes_in_words(going[kind]) if kind in going else "")
        for kind, (files, size) in sorted(found.kinds.items(), key=lambda of: -of[1][1])
    ]
    sums = [sum(of[place] for of in found.kinds.values()) for place in (0, 1)]
    rows.append(("all", f"{sums[0]:,}", bytes_in_words(sums[1]), bytes_in_words(total(found.going)) if going else ""))
    console.print(table(str(found.study), ("what", "files", "size", "can go"), rows, right=(1, 2, 3)))
    if found.optimiser_bytes:
        size = bytes_in_words(found.optimiser_bytes)
        _say(console, f"of the last checkpoints {size} are states of optimisers, from which fine-tuning goes on: kept")
    for kind, option in ((STALE, "--stale"), (STATES, "--trouble")):
        if kind in found.kinds and kind not in going:
            _say(console, f"{kind}: evidence, so they go with {option} only")
    items = found.going if went is None else went
    word = "would delete" if went is None else "deleted"
    for item in items[:_SHOWN]:
        _say(console, f"{word} {item.path.relative_to(found.study)} ({item.kind}, {bytes_in_words(item.bytes)})")
    for path, why in found.kept[:_SHOWN]:
        _say(console, f"kept {path.relative_to(found.study)}: {why}")
    for count in (len(items), len(found.kept)):
        if count > _SHOWN:
            _say(console, f"and {count - _SHOWN} more; --json names them")
    if went is not None and len(went) < len(found.going):
        _say(console, f"{len(found.going) - len(went)} stayed: they came into use, or are needed after all")
    _say(console, "")


def _say(console: Console, line: str) -> None:
    # Names and paths come from the disk: what looks like markup in them is text.
    console.print(line, highlight=False, markup=False, soft_wrap=True)
