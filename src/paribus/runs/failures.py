"""Cells that fail: each attempt that ended without an end, and after too many of them the cell is parked.

<cell>/.claims/failures.json  attempts that raised, or whose process died, since the last `--retry-parked`
<cell>/PARKED                 the last of them, of a cell that nobody tries again until somebody says so

A parked cell is neither complete nor diverged: it is missing from its pair, and every count of pairs shows it. It is
not a result, so that nothing can be gained by parking.
"""

import contextlib
import datetime
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError, StudyFolderError
from paribus.runs.claims import FOLDER
from paribus.runs.records import explaining_storage, read_json, write_json

PARKED = "PARKED"
FAILURES = "failures.json"
KEPT = 100
"""attempts on record; a cell that is interrupted for ever does not grow for ever"""


class ParkedError(ParibusError):
    """Some cells failed too often and were set aside; the others are finished."""


@dataclass(frozen=True)
class Failure:
    """One attempt at a cell that neither finished nor was stopped."""

    time: str
    """UTC"""
    host: str
    token: int
    """of the attempt's claim"""
    checkpoint_step: int
    """updates of the newest checkpoint at that time; 0 where there was none"""
    reason: str

    @classmethod
    def now(cls, token: int, checkpoint_step: int, reason: str, host: str = "") -> "Failure":
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return cls(time, host or socket.gethostname(), token, checkpoint_step, reason)


def failures(folder: Path) -> list[Failure]:
    """Attempts on record, in order. A damaged record counts as none: it costs further attempts, no result."""
    try:
        return _of(read_json(folder / FOLDER / FAILURES)) if (folder / FOLDER / FAILURES).exists() else []
    except (StudyFolderError, KeyError, TypeError):
        return []


def is_parked(folder: Path) -> bool:
    return (folder / PARKED).exists()


def parked(folder: Path) -> list[Failure] | None:
    """Why the cell is parked; None where it is not. Empty where it is and the reasons cannot be read."""
    if not is_parked(folder):
        return None
    try:
        return _of(read_json(folder / PARKED), "reasons")
    except (StudyFolderError, KeyError, TypeError):
        return []


def _of(record: dict[str, Any], key: str = "failures") -> list[Failure]:
    return [Failure(**each) for each in record[key]]


def record_failure(folder: Path, failure: Failure, attempts: int, fence: Callable[[], None] | None = None) -> bool:
    """Put an attempt on record, and park the cell where so many (`attempts`) have failed since its last checkpoint.

    True where it is parked now. An attempt that is on record is not counted twice.
    """
    known = failures(folder)
    if any(each.token == failure.token for each in known):
        return is_parked(folder)
    known = [*known, failure][-KEPT:]
    write_json(folder / FOLDER / FAILURES, {"failures": [asdict(each) for each in known]}, fence)
    in_vain = [each for each in known if each.checkpoint_step == failure.checkpoint_step]
    if len(in_vain) < attempts:
        return False
    write_json(folder / PARKED, {"reasons": [asdict(each) for each in in_vain[-attempts:]]}, fence)
    return True


def retry(study: Path) -> list[Path]:
    """Take every parked cell of a study's folder off the siding, and forget how often it failed; which ones."""
    found = sorted(marker.parent for marker in study.glob(f"*/*/*/{PARKED}"))
    for folder in found:
        with explaining_storage(folder):
            with contextlib.suppress(FileNotFoundError):
                (folder / FOLDER / FAILURES).unlink()
            (folder / PARKED).unlink(missing_ok=True)
    return found
