"""What `paribus doctor` says, in words and as JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from paribus.keeping.doctor import Diagnosis, Examined, ExaminedCorpus
from paribus.keeping.leases import Lease, lease_as_json
from paribus.keeping.repairing import Done
from paribus.runs.faults import Fault, Kind
from paribus.terminal import bytes_in_words

SHOWN = 20
"""of one kind in one study; --json has all"""
_INDENT = "    "


def show(found: Diagnosis, console: Console, command: str) -> None:
    """A line a study and corpus, what is wrong below it, and the sum. `command` repeats the look."""
    for study in found.studies:
        _study(study, console)
    for corpus in found.corpora:
        _corpus(corpus, console)
    for fault in found.strangers:
        _fault(fault, found.folder, console)
    damaged = len(found.damaged)
    if damaged:
        _say(console, f"\n{_many(damaged, 'damaged file')}; what to do stands below each")
    else:
        sides = (_many(len(found.studies), "study", "studies"), _many(len(found.corpora), "corpus", "corpora"))
        _say(console, f"\nsound: {' and '.join(sides)}")
    if found.repairs:
        _say(console, f"{_many(found.repairs, 'thing')} can be seen to safely: {command} --repair")


def show_repairs(done: Sequence[Done], left: Sequence[Done], folder: Path, console: Console) -> None:
    """What was done, one line each, and what could not be done now."""
    for each in done:
        _say(console, f"repaired  {_short(each.path, folder)}: {each.what}")
    for each in left:
        _say(console, f"left      {_short(each.path, folder)}: {each.what}")
    if not (done or left):
        _say(console, "nothing to repair")


def as_json(found: Diagnosis, done: Sequence[Done] = (), left: Sequence[Done] = ()) -> dict[str, Any]:
    """Everything that was found and done, as JSON types."""
    return {
        "folder": str(found.folder),
        "sound": found.sound,
        "repairs": found.repairs,
        "studies": [_study_as_json(study) for study in found.studies],
        "corpora": [
            {
                "path": str(corpus.corpus),
                "files": corpus.files,
                "bytes": corpus.bytes,
                "faults": [_fault_as_json(fault) for fault in corpus.faults],
            }
            for corpus in found.corpora
        ],
        "strangers": [_fault_as_json(fault) for fault in found.strangers],
        "repaired": [{"path": str(each.path), "what": each.what} for each in done],
        "left": [{"path": str(each.path), "what": each.what} for each in left],
    }


def _study(found: Examined, console: Console) -> None:
    counts = {kind: sum(fault.kind is kind for fault in found.faults) for kind in Kind}
    wrong = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count and kind is not Kind.UNCHECKED)
    _say(
        console, f"{found.study}: {_many(found.files, 'file')}, {bytes_in_words(found.bytes)}: {wrong or 'all is well'}"
    )
    if unchecked := counts[Kind.UNCHECKED]:
        _say(console, f"{_INDENT}{_many(unchecked, 'file')} kept no checksum (an earlier version wrote them): readable")
    for kind in (Kind.DAMAGED, Kind.ORPHAN, Kind.REFORMATTED):
        of_kind = [fault for fault in found.faults if fault.kind is kind]
        for fault in of_kind[:SHOWN]:
            _fault(fault, found.study, console)
        if len(of_kind) > SHOWN:
            _say(console, f"{_INDENT}and {len(of_kind) - SHOWN} more {kind}; --json names them")
    for lease in found.leases:
        _say(console, f"{_INDENT}{lease_in_words(lease, found.study)}")
    for folder, why in found.parked.items():
        _say(console, f"{_INDENT}parked  {_short(folder, found.study)}: {why}")
        _say(console, f"{_INDENT * 2}`paribus run --retry-parked` tries it again")
    if found.old_claims:
        _say(console, f"{_INDENT}{_many(len(found.old_claims), 'record')} of claims long ended")


def lease_in_words(lease: Lease, study: Path) -> str:
    """Who holds a cell, and whether it looks as if nobody did."""
    holder = lease.holder
    who = f"process {holder.pid} of {holder.host}" if holder.pid else holder.host
    since = f" since {holder.taken}" if holder.taken else ""
    age = f"heartbeat {holder.heartbeat_age_seconds:.0f} s ago"
    how = {
        "held": f"held  {_short(lease.folder, study)}: {who}{since}, {age}",
        "silent": f"silent  {_short(lease.folder, study)}: {who}{since}, {age} by the clocks of two machines; free to "
        f"be taken over once a worker has watched it for {holder.lease_seconds:.0f} s",
        "stale": f"stale lease  {_short(lease.folder, study)}: {who}{since} is gone; the next worker takes it over",
    }
    return how[lease.state]


def _corpus(found: ExaminedCorpus, console: Console) -> None:
    state = f"{len(found.faults)} damaged" if found.faults else "all is well"
    _say(console, f"{found.corpus}: {_many(found.files, 'file')}, {bytes_in_words(found.bytes)}: {state}")
    for fault in found.faults:
        _fault(fault, found.corpus, console)


def _fault(fault: Fault, below: Path, console: Console) -> None:
    _say(console, f"{_INDENT}{fault.kind}  {_short(fault.path, below)}: {fault.what}")
    if fault.repair:
        _say(console, f"{_INDENT * 2}{fault.repair}")


def _study_as_json(found: Examined) -> dict[str, Any]:
    repairable = {fault.path for fault in found.repairable}
    return {
        "path": str(found.study),
        "files": found.files,
        "bytes": found.bytes,
        "faults": [_fault_as_json(fault) | {"repairable": fault.path in repairable} for fault in found.faults],
        "leases": [lease_as_json(lease) for lease in found.leases],
        "parked": [{"path": str(folder), "reason": why} for folder, why in found.parked.items()],
        "old_claims": len(found.old_claims),
    }


def _fault_as_json(fault: Fault) -> dict[str, Any]:
    return {"path": str(fault.path), "kind": str(fault.kind), "what": fault.what, "remedy": fault.repair}


def _short(path: Path, below: Path) -> str:
    return path.relative_to(below).as_posix() if path.is_relative_to(below) and path != below else str(path)


def _many(count: int, what: str, plural: str = "") -> str:
    return f"{count:,} {what if count == 1 else plural or f'{what}s'}"


def _say(console: Console, line: str) -> None:
    # Names and paths come from the disk: what looks like markup in them is text.
    console.print(line, highlight=False, markup=False, soft_wrap=True)
