"""`paribus gc`: what occupies the disk, by kind, and what of it may go (`paribus.keeping.freeing`)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.keeping.freeing import (
    OTHER,
    PARTIALS,
    STALE,
    STATES,
    Asked,
    Item,
    Names,
    candidates,
    is_abandoned,
    is_complete,
    item_of,
    planned_names,
)
from paribus.keeping.places import files_below, find
from paribus.runs.checkpoints import GROUP as CHECKPOINTS
from paribus.runs.checkpoints import present
from paribus.runs.verifying import REPORT, REPORT_FOLDERS, TROUBLE, owner_of, trained_folders

STATE = "state.safetensors"
_LAST, _UNFINISHED = "last checkpoints", "checkpoints of cells that have not ended"
_GROUPS = {"tasks": "answers to tasks", TROUBLE: "trouble", ".claims": "claims"}


@dataclass(frozen=True)
class Occupied:
    """What lies on the disk of one study."""

    study: Path
    kinds: Mapping[str, tuple[int, int]]
    """(files, bytes) by kind"""
    going: tuple[Item, ...]
    kept: tuple[tuple[Path, str], ...]
    """of what might have gone: what stays, and why"""
    optimiser_bytes: int
    """of the last checkpoints"""


def occupied(folder: Path, asked: Asked) -> list[Occupied]:
    """Of each study in a folder of them, or of the one that `folder` is. StudyFolderError where there is none."""
    return [_occupied(study, asked) for study in find(folder).studies]


def _occupied(study: Path, asked: Asked) -> Occupied:
    planned = planned_names(study)
    going: list[Item] = []
    kept: list[tuple[Path, str]] = []
    folders = trained_folders(study)
    for folder in folders:
        items, why = candidates(study, folder, planned, asked)
        going += items
        kept += why
    gone = {item.path for item in going}
    going = [item for item in going if not any(above in gone for above in item.path.parents)]
    beside = [path for pattern in ("", "*/", "*/*/") for path in study.glob(f"{pattern}.*.partial")]
    going += [item_of(path, PARTIALS) for path in beside if is_abandoned(study, path)]
    kinds: dict[str, tuple[int, int]] = {}
    for path, size in files_below(study):
        kind = _kind(study, path, planned)
        files, size_so_far = kinds.get(kind, (0, 0))
        kinds[kind] = files + 1, size_so_far + size
    last = [folder for folder in folders if is_complete(folder) and present(folder)]
    optimiser = sum(_optimiser_bytes(present(folder)[-1].path / STATE) for folder in last)
    return Occupied(study, kinds, tuple(going), tuple(kept), optimiser)


def _kind(study: Path, path: Path, planned: Names | None) -> str:
    """Which kind a file of a study is of, in words."""
    parts = path.relative_to(study).parts
    owner = owner_of(study, path)
    if any(part.endswith(".partial") and part.startswith(".") for part in parts):
        return PARTIALS
    if owner is None:
        return "report" if parts[0] in REPORT or parts[0] in REPORT_FOLDERS else "records of the study"
    if planned is not None and parts[:3] not in planned:
        return STALE
    return _kind_in_cell(owner, path)


def _kind_in_cell(owner: Path, path: Path) -> str:
    group, *rest = path.relative_to(owner).parts
    if group == CHECKPOINTS and rest:
        steps = present(owner) if is_complete(owner) else None
        if steps is None:
            return _UNFINISHED
        return _LAST if steps and rest[0] == steps[-1].path.name else OTHER
    if group in _GROUPS:
        return STATES if group == TROUBLE and len(rest) > 1 else _GROUPS[group]
    return "rows" if path.suffix == ".parquet" else "metrics" if path.suffix == ".jsonl" else "records of cells"


def _optimiser_bytes(file: Path) -> int:
    """Of tensors of the optimisers in a checkpoint, from the file's header alone; 0 where it cannot be read.

    safetensors: eight bytes with the header's length, little endian, then names, types and places as JSON.
    """
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > min(file.stat().st_size, 100_000_000):
                return 0
            header: Mapping[str, Any] = json.loads(stream.read(length))
            places = [of["data_offsets"] for name, of in header.items() if name.startswith("optimiser/")]
            return sum(end - begin for begin, end in places)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0


def total(items: Sequence[Item]) -> int:
    """Bytes of all of them."""
    return sum(item.bytes for item in items)
