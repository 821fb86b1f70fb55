"""Who holds a cell, and who held it before, as its claims on disk tell: looking, which writes nothing.

The layout and the rules are `paribus.runs.claims`'s.
"""

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from paribus.disk import unsealed

FOLDER = ".claims"
LEASE_SECONDS = 60.0
EARLIER_LOCK = ".claim"
"""the lock file of an earlier version, which the kernel released"""


@dataclass(frozen=True)
class Owner:
    """One claimant, told apart from every other one."""

    host: str
    machine: str
    """start of the system and space of process numbers; only within one are pids compared. "" where it is not known"""
    pid: int
    started: str
    """when the process started, in the system's ticks: pids come again. "" where it is not known"""
    nonce: str

    @classmethod
    def of_this_process(cls) -> "Owner":
        pid = os.getpid()
        return cls(socket.gethostname(), _machine(), pid, _started(pid) or "", secrets.token_hex(8))

    def gone(self) -> bool:
        """Whether its process has surely ended. False also where that cannot be known from here."""
        if not self.machine or self.machine != _machine() or not self.started:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # somebody else's process: it exists
            pass
        found = _started(self.pid)
        return found is not None and found != self.started


@dataclass(frozen=True)
class Holder:
    """Who holds a cell, as far as can be seen from here."""

    token: int
    host: str
    pid: int
    taken: str
    """UTC, by the holder's clock"""
    lease_seconds: float
    unchanged_seconds: float
    """since this process saw the newest heartbeat first, by its own clock; 0 when it looks for the first time"""
    heartbeat_age_seconds: float
    """difference of two clocks, for showing only: wrong where the machine of the heartbeat has another time"""


@dataclass(frozen=True)
class PastClaim:
    """One claim of the folder's history."""

    token: int
    owner: Owner | None
    """None where the file is damaged"""
    taken: str
    lease_seconds: float
    last_heartbeat: float
    """seconds since the epoch, by the file system"""
    released: float | None
    """likewise; None where it was not, or not yet"""


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process started, in ticks; "ended" of one that only waits to be reaped; None where nobody says."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return "ended" if fields[0] in "ZX" else fields[19]


def now() -> float:
    """Seconds on a clock that only this machine has. It goes on while the machine sleeps, where the system can."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@contextmanager
def earlier_lock(folder: Path) -> Iterator[bool]:
    """Where an earlier version has trained the cell, its lock is held as well: such a worker may still be at it.

    Nobody makes that file any more, so an earlier version that comes to an untouched cell later is not noticed: all
    workers of a study should be of one version.
    """
    file = folder / EARLIER_LOCK
    if not file.is_file():
        yield True
        return
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    except OSError:  # a folder that may only be read, or a file system without locks: nobody holds it by one
        yield True
        return
    try:
        yield True
    finally:
        lock.release()


def claim_file(folder: Path, token: int) -> Path:
    return folder / FOLDER / f"{token:08d}.json"


def released_file(folder: Path, token: int) -> Path:
    return folder / FOLDER / f"{token:08d}.released"


def tokens_of(folder: Path) -> list[int]:
    """Tokens of the claims that are on record, in order."""
    try:
        names = [entry.name for entry in (folder / FOLDER).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def record_of(file: Path) -> dict[str, Any]:
    """What a claim says; nothing where it is damaged, so that only its heartbeat counts."""
    try:
        found = unsealed(file.read_bytes())[0]
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def owner_of(record: dict[str, Any]) -> Owner | None:
    try:
        return Owner(**record["owner"])
    except (KeyError, TypeError):
        return None


_first_seen: dict[Path, tuple[tuple[int, int], float]] = {}
"""by claim: its inode and heartbeat, and when this process saw that one first"""


def _heartbeat(file: Path) -> tuple[float, float]:
    """(seconds since the epoch of the last heartbeat, seconds since this process saw it first)."""
    # Opened, because a mere stat may be answered from the cache of a network file system.
    with file.open("rb") as stream:
        found = os.fstat(stream.fileno())
    known, at = (found.st_ino, found.st_mtime_ns), now()
    if _first_seen.get(file, (None, at))[0] != known:
        _first_seen[file] = (known, at)
    return found.st_mtime, at - _first_seen[file][1]


def seen(folder: Path, token: int) -> Holder | None:
    """The claim as it can be seen, whether it is still held or not; None where it is not there."""
    file = claim_file(folder, token)
    try:
        beat, unchanged = _heartbeat(file)
    except OSError:
        return None
    record = record_of(file)
    owner = owner_of(record)
    return Holder(
        token=token,
        host=owner.host if owner is not None else "unknown",
        pid=owner.pid if owner is not None else 0,
        taken=str(record.get("taken", "")),
        lease_seconds=float(record.get("lease_seconds", LEASE_SECONDS)),
        unchanged_seconds=unchanged,
        heartbeat_age_seconds=max(0.0, time.time() - beat),
    )


def vacant(folder: Path, token: int) -> bool:
    """Whether the holder of this claim has released it, is gone, or has let its lease run out."""
    if released_file(folder, token).exists():
        return True
    found = seen(folder, token)
    if found is None:
        return True
    owner = owner_of(record_of(claim_file(folder, token)))
    return (owner is not None and owner.gone()) or found.unchanged_seconds >= found.lease_seconds


def holder(folder: Path) -> Holder | None:
    """Who holds the folder now; None where nobody does. Asking writes nothing.

    That a worker on another machine is gone is seen after its lease only, by a process that looks twice.
    """
    tokens = tokens_of(folder)
    if tokens and not vacant(folder, tokens[-1]):
        return seen(folder, tokens[-1])
    with earlier_lock(folder) as free:
        return None if free else Holder(0, "a worker of an earlier version", 0, "", 0.0, 0.0, 0.0)


def claimed(folder: Path) -> bool:
    """Whether some process holds the folder now."""
    return holder(folder) is not None


def history(folder: Path) -> list[PastClaim]:
    """Every claim of the folder that is on record, in order."""
    found = []
    for token in tokens_of(folder):
        file, released = claim_file(folder, token), released_file(folder, token)
        record = record_of(file)
        with contextlib.suppress(FileNotFoundError):  # cleared away just now
            found.append(
                PastClaim(
                    token=token,
                    owner=owner_of(record),
                    taken=str(record.get("taken", "")),
                    lease_seconds=float(record.get("lease_seconds", LEASE_SECONDS)),
                    last_heartbeat=file.stat().st_mtime,
                    released=released.stat().st_mtime if released.exists() else None,
                )
            )
    return found
