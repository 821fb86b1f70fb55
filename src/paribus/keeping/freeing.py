"""What of a study nothing needs any more, and how it goes.

* Checkpoints of a complete cell but its last. The last is what evaluating, generating, fine-tuning and cells that start
  from it read. A checkpoint at which held-out documents were scored stays, since it can be asked; and every one stays
  while a cell of the plan at the same scale, arm and seed has not ended: it may leave the run there.
* What writers that were killed left half written.
* Cells that the plan does not name, and states before updates that went wrong: they are evidence, so on request only.

The state of the optimiser in the last checkpoint stays: fine-tuning goes on from it. Checkpoints of diverged cells stay
too. Rows, metrics and records are never touched, nor a cell that somebody holds.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paribus.disk import flush
from paribus.errors import StudyFolderError
from paribus.keeping.doctor import may_cure
from paribus.keeping.leases import alone, lease_of, watch
from paribus.keeping.places import size_of
from paribus.keeping.repairing import delete
from paribus.runs.checkpoints import GROUP as CHECKPOINTS
from paribus.runs.checkpoints import MARKER, NAME, Checkpoint, present
from paribus.runs.faults import Cure, Fault, Kind
from paribus.runs.folder import FINETUNED, CellFolder
from paribus.runs.records import explaining_storage, name_aside
from paribus.runs.study_folder import StudyFolder
from paribus.runs.verifying import TROUBLE, owner_of

OTHER = "other checkpoints"
STALE = "cells that are not in the plan"
PARTIALS = "half written"
STATES = "states before trouble"
Names = frozenset[tuple[str, ...]]
"""(scale, arm, name of the folder) of every cell of a plan"""
_STEP = re.compile(r"-(\d+)\.parquet$")


@dataclass(frozen=True)
class Asked:
    """What may go beside what always may."""

    stale: bool = False
    """cells that the plan does not name"""
    trouble: bool = False
    """states that were saved before updates that went wrong; the records of them stay"""


@dataclass(frozen=True)
class Item:
    """Something on the disk that may go."""

    path: Path
    kind: str
    bytes: int


def free(
    study: Path, going: Sequence[Item], asked: Asked, say: Callable[[str], None] = lambda _: None
) -> tuple[Item, ...]:
    """Delete what may go of a study (`going`), each in its own cell's claim and only where that is still so; what went.

    StorageError where the disk refuses.
    """
    went: list[Item] = []
    owners = {item.path: owner_of(study, item.path) or _cell_itself(item) for item in going}
    watch({owner for owner in owners.values() if owner is not None}, say)
    for item in going:
        if owners[item.path] is None and item.path.exists():
            delete(item.path, "")
            went.append(item)
    for owner in sorted({owner for owner in owners.values() if owner is not None}):
        with alone(owner) as held:
            if held is None:
                continue
            still, _ = _of_held(study, owner, planned_names(study), asked)
            others = any(item.kind == OTHER for item in still)
            lost = others and present(owner)[-1].damage() != ""  # then the older ones are what is left
            for item in still:
                held.require()
                if item.kind == OTHER and lost:
                    continue
                _go(item)
                went.append(item)
    return tuple(went)


def _cell_itself(item: Item) -> Path | None:
    return item.path if item.kind == STALE else None


def _go(item: Item) -> None:
    if item.kind != STALE:
        delete(item.path, "")
        return
    # Under another name first: no moment shows half of a cell.
    aside = item.path.with_name(name_aside(item.path.name))
    with explaining_storage(item.path):
        item.path.rename(aside)
        flush(item.path.parent)
    delete(aside, "")


def candidates(
    study: Path, folder: Path, planned: Names | None, asked: Asked
) -> tuple[list[Item], list[tuple[Path, str]]]:
    """(what of a cell, or of what it was fine-tuned to, may go; what stays that might have gone, and why)"""
    lease = lease_of(folder)
    if lease is not None and lease.state == "held":
        return [], [(folder, f"process {lease.holder.pid} of {lease.holder.host} holds it")]
    return _of_held(study, folder, planned, asked)


def _of_held(
    study: Path, folder: Path, planned: Names | None, asked: Asked
) -> tuple[list[Item], list[tuple[Path, str]]]:
    """The same, for who knows that nobody else holds the folder."""
    tuned = folder.parent.name == FINETUNED
    going = [item_of(path, PARTIALS) for path in _partials(folder) if is_abandoned(study, path)]
    if planned is not None and _name(study, folder) not in planned:
        if tuned or not asked.stale:
            return going, []
        if any(_held(below) for below in _tuned_below(folder)):
            return [], [(folder, "somebody is fine-tuning it")]
        return [item_of(folder, STALE)], []
    if asked.trouble and not tuned:
        states = [path for path in (folder / TROUBLE).glob("step-*") if NAME.fullmatch(path.name)]
        going += [item_of(path, STATES) for path in states]
    others, why = _other_checkpoints(study, folder, planned)
    return [*going, *others], why


def _other_checkpoints(study: Path, folder: Path, planned: Names | None) -> tuple[list[Item], list[tuple[Path, str]]]:
    """Checkpoints of a complete cell that are not its last one's, and those of them that stay."""
    found = present(folder)
    if not is_complete(folder) or len(found) < 2:
        return [], []
    cell = CellFolder(folder)
    with suppress(StudyFolderError, KeyError):
        if found[-1].step != cell.summary()["steps"]:
            return [], [(folder, "the state at its last update is not there, so that every other one stays")]
        if why := _needed(study, folder, planned):
            return [], [(folder, why)]
        scored = {int(match[1]) for file in folder.glob("likelihood/*.parquet") if (match := _STEP.search(file.name))}
        stays = [(each.path, "a milestone, which can be asked") for each in found[:-1] if each.step in scored]
        return [item_of(each.path, OTHER) for each in found[:-1] if each.step not in scored], stays
    return [], [(folder, "its record of the end cannot be read: see `paribus doctor`")]


def _needed(study: Path, folder: Path, planned: Names | None) -> str:
    """Why a cell of the plan may still start from any update of this one; empty where none does."""
    if folder.parent.name == FINETUNED:
        return ""
    if planned is None:
        return "the plan cannot be read, so nobody knows which cells start from it"
    scale, arm, name = _name(study, folder)
    seed = name.partition("-")[0]
    waiting = [each for each in planned if each[:2] == (scale, arm) and each[2].partition("-")[0] == seed]
    left = [each for each in waiting if not CellFolder(study.joinpath(*each)).finished]
    return f"{'/'.join(left[0])} has not ended and may start from it" if left else ""


def planned_names(study: Path) -> Names | None:
    """None where the plan is missing or cannot be read: then nothing can be told to be stale."""
    try:
        plan = StudyFolder(study).plan()
        cells = [] if plan is None else plan["cells"]
        names = {(c["scale"], c["arm"], f"{c['seed']}-{c['digest']}" + _behind(c.get("variant", ""))) for c in cells}
    except (StudyFolderError, KeyError, TypeError, AttributeError):
        return None
    return frozenset(names) if names else None


def _behind(variant: str) -> str:
    return f"-{variant}" if variant else ""


def _name(study: Path, folder: Path) -> tuple[str, str, str]:
    scale, arm, cell = folder.relative_to(study).parts[:3]
    return scale, arm, cell


def is_complete(folder: Path) -> bool:
    return (folder / "DONE").exists() and not (folder / "DIVERGED").exists()


def _held(folder: Path) -> bool:
    lease = lease_of(folder)
    return lease is not None and lease.state != "stale"


def _tuned_below(folder: Path) -> list[Path]:
    return [path for path in (folder / FINETUNED).glob("*") if path.is_dir()]


def _partials(folder: Path) -> Iterator[Path]:
    """What is aside in a claimed folder's own place; not that of fine-tunings below it."""
    yield from folder.glob(".*.partial")
    for path in folder.glob("*/.*.partial"):
        if path.parent.name != FINETUNED:
            yield path
    for path in (folder / CHECKPOINTS).glob("step-*"):
        if NAME.fullmatch(path.name) and not (path / MARKER).exists():
            newest = max((each.step for each in present(folder)), default=-1)
            if not CellFolder(folder).finished or Checkpoint(path).step < newest:
                yield path


def is_abandoned(study: Path, path: Path) -> bool:
    return may_cure(study, Fault(path, Kind.ORPHAN, cure=Cure.PARTIAL))


def item_of(path: Path, kind: str) -> Item:
    return Item(path, kind, size_of(path))
