"""How long a set of tasks took: the wall time of every session that tuned or trained some of it, summed on the disk.

A session that was killed leaves its mark, and then nobody knows the sum: no figure is shown that was not measured.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paribus.runs.records import read_json, write_json

FILE = "time.json"
_REMEDY = "delete it: only the time of the set is lost"


def seconds(folder: Path) -> float | None:
    """Wall time of all sessions; None where one of them did not say its own, or none trained."""
    path = folder / FILE
    if not path.exists():
        return None
    found = read_json(path, _REMEDY)
    return None if found["running"] else found["seconds"]


@dataclass
class Session:
    """One run of the command on a set."""

    trains: bool = True
    """False where it finds nothing to tune and to train: looking at a set again takes no time of it"""


@contextmanager
def timed(folder: Path, started: float) -> Iterator[Session]:
    """Add the time since `started` (of `time.monotonic`) to what earlier sessions took, however the block ends."""
    path = folder / FILE
    known = read_json(path, _REMEDY) if path.exists() else None
    before = 0.0 if known is None else seconds(folder)
    session = Session()
    write_json(path, {"seconds": before, "running": True})
    try:
        yield session
    finally:
        if session.trains:
            total = None if before is None else before + time.monotonic() - started
            write_json(path, {"seconds": total, "running": False})
        elif known is None:
            path.unlink(missing_ok=True)
        else:
            write_json(path, known)
