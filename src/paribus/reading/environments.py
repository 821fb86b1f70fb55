"""On what the cells of a study were trained: which packages, and whether they changed between cells or within one.

Bits are the same only under the same versions (PyTorch's notes on reproducibility promise no more), so an upgrade in
mid-study is told wherever cells are: which cells, from which update on, from what to what.
"""

from collections.abc import Iterator, Mapping
from typing import Any

VERSIONS = ("python", "torch", "numpy")
"""what decides numbers, of which all cells should have the same"""
_NAMED = 3
"""cells that a sentence names"""


def environment_sentences(records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each cell that went on under another environment than it stopped under, and for each package of
    which the cells do not all have the same version. `records`: cell.json by the cell's name."""
    return [text for name, record in records.items() for text in _resumed(name, record)] + [*_mixed(records)]


def _resumed(name: str, record: Mapping[str, Any]) -> Iterator[str]:
    before = _table(record.get("environment"))
    for line in _lines(record):
        now = _table(line.get("environment"))
        changed = sorted(what for what in before.keys() | now.keys() if before.get(what) != now.get(what))
        # Versions first: they are what a person looks for.
        changed.sort(key=lambda what: what not in VERSIONS)
        if "earlier_record" in line:
            yield f"Cell {name} went on at update {line.get('step')}; its earlier record: {line['earlier_record']}."
        elif changed:
            what = "; ".join(
                f"{each} {before.get(each, 'unknown')} before, {now.get(each, 'unknown')} after" for each in changed
            )
            yield (
                f"Cell {name} went on under another environment at update {line.get('step')} (on {line.get('host')}): "
                f"{what}. Bit for bit, its updates need not be those of either."
            )
        before = now


def _mixed(records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for what in VERSIONS:
        cells: dict[str, list[str]] = {}
        for name, record in records.items():
            used = {_table(each.get("environment")).get(what) for each in (record, *_lines(record))}
            for version in sorted(filter(None, used)):
                cells.setdefault(version, []).append(name)
        if len(cells) > 1:
            by = "; ".join(f"{version}: {_some(names)}" for version, names in sorted(cells.items()))
            yield f"The cells were not all trained with one version of {what} ({by})."


def _lines(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = record.get("resumed")
    return [line for line in found if isinstance(line, dict)] if isinstance(found, list) else []


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
