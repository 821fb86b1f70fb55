"""`paribus doctor --repair`: what is safe to do about what the doctor found, and nothing else.

Safe means that no result can change by it: half written files that nobody goes on writing, a torn line that no reader
takes for one, a checkpoint before whose place training goes on from an older one, rows of a task that was not answered
to the end, and claims long ended. Rows of a finished cell, the ledger of looks and records are never touched.

Each folder is held while it is repaired, and examined again by its holder: only what is found then is seen to.
"""

import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paribus.disk import flush
from paribus.errors import StudyFolderError
from paribus.keeping.doctor import Examined, may_cure
from paribus.keeping.leases import alone, lease_of, old_claims, watch
from paribus.runs import layout
from paribus.runs.checkpoints import MARKER
from paribus.runs.claims import Claim
from paribus.runs.faults import Cure, Fault, Kind
from paribus.runs.folder import CellFolder
from paribus.runs.records import explaining_storage, write_durably
from paribus.runs.verifying import examine_cell, owner_of


@dataclass(frozen=True)
class Done:
    """One thing that was done, or left."""

    path: Path
    what: str


@dataclass(frozen=True)
class Repaired:
    """What was done, and what could not be done now."""

    done: tuple[Done, ...]
    left: tuple[Done, ...]


def repair(found: Examined, say: Callable[[str], None] = lambda _: None) -> Repaired:
    """See to what of a study can be repaired without a person. `say` receives what takes long.

    StorageError where the disk refuses.
    """
    cures = [fault for fault in found.faults if may_cure(found.study, fault)]
    owners = {owner_of(found.study, fault.path) for fault in cures}
    watch([folder for folder in owners if folder is not None], say)
    done: list[Done] = []
    left: list[Done] = []
    for fault in cures:
        if owner_of(found.study, fault.path) is None and fault.path.exists():
            done.append(delete(fault.path, fault.what))
    for folder in sorted({file.parents[1] for file in found.old_claims}):
        if lease_of(folder) is None:
            done += _clear(folder)
    for folder in sorted(owner for owner in owners if owner is not None):
        with alone(folder) as held:
            if held is None:
                left.append(Done(folder, "is held by somebody: nothing of it was touched"))
            else:
                done += _repair_cell(found.study, folder, held)
    return Repaired(tuple(done), tuple(left))


def _repair_cell(study: Path, folder: Path, held: Claim) -> Iterable[Done]:
    faults = [fault for fault in examine_cell(folder) if owner_of(study, fault.path) == folder]
    for fault in faults:
        if fault.cure is Cure.CLAIM and fault.path.stem == f"{held.token:08d}":
            continue
        if may_cure(study, fault):
            held.require()
            yield _cure(folder, fault, held)
    yield from _clear(folder)


def _cure(folder: Path, fault: Fault, held: Claim) -> Done:
    if fault.cure is Cure.TORN:
        whole, _, _ = fault.path.read_bytes().rpartition(b"\n")
        write_durably(fault.path, whole + b"\n" if whole else b"", held.require)
        return Done(fault.path, "dropped its last line, which was half written")
    if fault.cure is Cure.CHECKPOINT:
        if fault.kind is Kind.DAMAGED:
            _put_on_record(folder, fault, held)
        return delete(fault.path, f"a checkpoint that cannot be used ({fault.what})")
    return delete(fault.path, fault.what)


def _put_on_record(folder: Path, fault: Fault, held: Claim) -> None:
    """As training does that meets a damaged checkpoint, see `paribus.training`."""
    cell = CellFolder(folder, fence=held.require)
    try:
        record = cell.record()
    except StudyFolderError:  # no cell of a study, or its record is damaged: told already
        return
    if layout.fault(layout.CellRecord, record):
        return
    step = int(re.sub(r"\D", "", fault.path.name))
    line = {"step": step, "reason": fault.what, "token": held.token}
    cell.write_record({**record, "damaged_checkpoints": [*record.get("damaged_checkpoints", []), line]})


def delete(path: Path, what: str) -> Done:
    """A file, or a folder with all in it, durably. StorageError where the disk refuses."""
    with explaining_storage(path):
        if path.is_dir() and not path.is_symlink():
            (path / MARKER).unlink(missing_ok=True)  # first: no moment shows a checkpoint that looks whole and is not
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        flush(path.parent)
    return Done(path, f"deleted: {what}")


def _clear(folder: Path) -> Iterable[Done]:
    """Records of claims long ended."""
    files = old_claims(folder)
    with suppress(FileNotFoundError):
        for file in files:
            file.unlink()
    if files:
        yield Done(folder / ".claims", f"deleted {len(files)} records of claims long ended; the newest are kept")
