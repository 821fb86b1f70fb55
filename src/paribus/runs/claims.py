"""Who trains a cell: a lease with a fencing token, kept in the cell's folder by whoever shares its file system.

<cell>/.claims/00000003.json      token 3: who took it and when. Its modification time is the holder's heartbeat
<cell>/.claims/00000003.released  that holder will write no more

A lease (Gray and Cheriton 1989) ends by itself when its holder no longer renews it, and the token that grows with each
holder is what an earlier one is recognised by when it wakes up late (Chubby's sequencers: Burrows 2006). A claim is
made whole by link(2), of which one of many succeeds. It is taken over where it was released; where its process is gone
from this very machine; or where its heartbeat has not changed for as long as the holder said, by the observer's own
clock alone: the clocks of two machines are never compared.

What this cannot do: a file system does not refuse a rename for its token. A holder that is stopped for longer than its
lease between asking and renaming, some microseconds, still renames; in proof mode it then writes the bytes that its
successor would. Over NFS what a holder sees of a newer token can be as old as the attribute cache; it also gives up by
its own clock, before anybody may take over.
"""

import contextlib
import datetime
import errno
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from paribus.disk import flush
from paribus.errors import ParibusError
from paribus.runs.records import explaining_storage, name_aside, sealed, unsealed, write_flushed

FOLDER = ".claims"
LEASE_SECONDS = 60.0
RENEWALS = 4
"""heartbeats in the time of a lease"""
MARGIN = 0.125
"""share of the lease at its end in which the holder already refuses to write: time for a rename under way"""
PATIENCE_SECONDS = 1800.0
QUIET_FACTOR = 10.0
"""A trainer that has given no sign of life for half an hour, or for ten times the longest silence it has broken so
far, is taken to hang: its heartbeat stops, and with it the lease. Every update and every batch that is scored is a
sign. No single one should take half an hour; where one does and is cut off, the cell goes on from its checkpoint."""
EARLIER_LOCK = ".claim"
"""the lock file of versions before 0.2, which the kernel released"""
WITHOUT_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK}
"""what file systems without hard links answer"""


class ClaimLostError(ParibusError):
    """The cell is no longer this worker's: its lease ran out, or somebody took it over. It must not write."""


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


def _now() -> float:
    """Seconds on a clock that only this machine has. It goes on while the machine sleeps, where the system can."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Claim:
    """A cell that this process holds. Made by `claim`."""

    def __init__(
        self, folder: Path, token: int, lease_seconds: float, begun: float, after: Holder | None, patience: float
    ) -> None:
        self.folder, self.token, self.lease_seconds = folder, token, lease_seconds
        self.after = after
        """who held the cell before and never released it; None where nobody did"""
        self._file = _file(folder, token)
        self._renewed = self._sign = begun
        self._patience = patience
        self._lost = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat of {folder.name}", daemon=True)

    def alive(self) -> None:
        """A sign that the trainer gets on. Without one for long, the heartbeat stops: see PATIENCE_SECONDS."""
        now = _now()
        self._patience = max(self._patience, QUIET_FACTOR * (now - self._sign))
        self._sign = now

    def require(self) -> None:
        """To be called just before each write. ClaimLostError where the cell is no longer this worker's."""
        self.alive()
        self._look()
        if self._lost:
            raise ClaimLostError(
                f"{self.folder} is no longer this worker's (claim {self.token})",
                received=self._lost,
                remedy="nothing to do: whoever holds the cell goes on from its last checkpoint",
            )

    def _look(self) -> None:
        """Whether the claim still holds. What was lost stays lost: somebody may be taking the cell over just now."""
        if self._lost:
            return
        late = _now() - self._renewed
        tokens = _tokens(self.folder)
        if tokens and tokens[-1] > self.token:
            self._lost = f"claim {tokens[-1]} was made by another worker"
        elif self.token not in tokens:
            self._lost = "the file of the claim was removed"
        elif late > (1.0 - MARGIN) * self.lease_seconds:
            self._lost = f"its heartbeat was {late:.1f} s late, of a lease of {self.lease_seconds:g} s"

    def _beat(self) -> None:
        while not self._lost and not self._ended.wait(self.lease_seconds / RENEWALS):
            now = _now()
            if now - self._sign > self._patience:
                continue
            # Before the heartbeat, so that one that comes too late does not look as if it had come in time.
            with contextlib.suppress(OSError):  # the next one may get through
                self._look()
                if not self._lost:
                    os.utime(self._file)
                    self._renewed = now

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop the heartbeat and say that this holder writes no more, unless somebody else already holds the cell."""
        self._ended.set()
        self._thread.join(timeout=1.0)  # it may hang in a file system that does not answer
        with contextlib.suppress(OSError):  # a process that ends releases as well, only later
            if _tokens(self.folder)[-1:] == [self.token]:
                _released(self.folder, self.token).touch()


@contextmanager
def claim(
    folder: Path,
    *,
    lease_seconds: float = LEASE_SECONDS,
    above: Callable[[], int] = lambda: 0,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Iterator[Claim | None]:
    """Try to hold the folder while the block runs; yields None where another worker holds it.

    The token is higher than every earlier one and than `above()`, the highest that the cell's rows mention: claims may
    have been cleared away. StorageError where the file system refuses.
    """
    with explaining_storage(folder):
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    with _earlier_lock(folder) as free:
        held = _take(folder, lease_seconds, above, patience_seconds) if free else None
        if held is None:
            yield None
            return
        held.start()
        try:
            yield held
        finally:
            held.end()


def _take(folder: Path, lease_seconds: float, above: Callable[[], int], patience: float) -> Claim | None:
    newest = (_tokens(folder) or [0])[-1]
    if newest and not _vacant(folder, newest):
        return None
    released = not newest or _released(folder, newest).exists()
    after = None if released else _seen(folder, newest)
    token, begun = max(newest, above()) + 1, _now()
    taken = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    record = {"token": token, "owner": asdict(Owner.of_this_process()), "taken": taken, "lease_seconds": lease_seconds}
    with explaining_storage(folder):
        if not _make(_file(folder, token), sealed(record)):
            return None
        # Two that knew of different tokens make different ones: the higher holds.
        return Claim(folder, token, lease_seconds, begun, after, patience) if _tokens(folder)[-1] == token else None


def _make(file: Path, content: bytes) -> bool:
    """Make a file with all its content, durably; False where it is there. One of many that try at once succeeds."""
    aside = file.with_name(name_aside(file.name))
    try:
        write_flushed(aside, content)
        try:
            os.link(aside, file)
        except FileExistsError:
            # Over NFS the answer to a link that was made can be lost, and its repetition then finds the file there.
            if file.read_bytes() != content:
                return False
        except FileNotFoundError:  # whoever holds the cell by now swept away what looked half written
            return False
        except OSError as error:
            if error.errno not in WITHOUT_LINKS:
                raise
            # Whoever reads it before the content is there knows nobody to ask for, and waits for the lease.
            try:
                with file.open("xb") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())
            except FileExistsError:
                return False
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
    flush(file.parent)
    flush(file.parent.parent)
    return True


@contextmanager
def _earlier_lock(folder: Path) -> Iterator[bool]:
    """Where a version before 0.2 has trained the cell, its lock is held as well: such a worker may still be at it.

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


def _file(folder: Path, token: int) -> Path:
    return folder / FOLDER / f"{token:08d}.json"


def _released(folder: Path, token: int) -> Path:
    return folder / FOLDER / f"{token:08d}.released"


def _tokens(folder: Path) -> list[int]:
    """Tokens of the claims that are on record, in order."""
    try:
        names = [entry.name for entry in (folder / FOLDER).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def _record(file: Path) -> dict[str, Any]:
    """What a claim says; nothing where it is damaged, so that only its heartbeat counts."""
    try:
        found = unsealed(file.read_bytes())[0]
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _owner(record: dict[str, Any]) -> Owner | None:
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
    known, now = (found.st_ino, found.st_mtime_ns), _now()
    if _first_seen.get(file, (None, now))[0] != known:
        _first_seen[file] = (known, now)
    return found.st_mtime, now - _first_seen[file][1]


def _seen(folder: Path, token: int) -> Holder | None:
    """The claim as it can be seen, whether it is still held or not; None where it is not there."""
    file = _file(folder, token)
    try:
        beat, unchanged = _heartbeat(file)
    except OSError:
        return None
    record = _record(file)
    owner = _owner(record)
    return Holder(
        token=token,
        host=owner.host if owner is not None else "unknown",
        pid=owner.pid if owner is not None else 0,
        taken=str(record.get("taken", "")),
        lease_seconds=float(record.get("lease_seconds", LEASE_SECONDS)),
        unchanged_seconds=unchanged,
        heartbeat_age_seconds=max(0.0, time.time() - beat),
    )


def _vacant(folder: Path, token: int) -> bool:
    """Whether the holder of this claim has released it, is gone, or has let its lease run out."""
    if _released(folder, token).exists():
        return True
    seen = _seen(folder, token)
    if seen is None:
        return True
    owner = _owner(_record(_file(folder, token)))
    return (owner is not None and owner.gone()) or seen.unchanged_seconds >= seen.lease_seconds


def holder(folder: Path) -> Holder | None:
    """Who holds the folder now; None where nobody does. Asking writes nothing.

    That a worker on another machine is gone is seen after its lease only, by a process that looks twice.
    """
    tokens = _tokens(folder)
    if tokens and not _vacant(folder, tokens[-1]):
        return _seen(folder, tokens[-1])
    with _earlier_lock(folder) as free:
        return None if free else Holder(0, "a worker of an earlier version", 0, "", 0.0, 0.0, 0.0)


def claimed(folder: Path) -> bool:
    """Whether some process holds the folder now."""
    return holder(folder) is not None


def history(folder: Path) -> list[PastClaim]:
    """Every claim of the folder that is on record, in order."""
    found = []
    for token in _tokens(folder):
        file, released = _file(folder, token), _released(folder, token)
        record = _record(file)
        with contextlib.suppress(FileNotFoundError):  # cleared away just now
            found.append(
                PastClaim(
                    token=token,
                    owner=_owner(record),
                    taken=str(record.get("taken", "")),
                    lease_seconds=float(record.get("lease_seconds", LEASE_SECONDS)),
                    last_heartbeat=file.stat().st_mtime,
                    released=released.stat().st_mtime if released.exists() else None,
                )
            )
    return found


def release_for(folder: Path, pid: int) -> None:
    """Release what a process of this machine held, for whoever ended it on purpose: it did not die of the cell."""
    tokens = _tokens(folder)
    owner = _owner(_record(_file(folder, tokens[-1]))) if tokens else None
    if owner is not None and owner.pid == pid and owner.gone():
        with contextlib.suppress(OSError):
            _released(folder, tokens[-1]).touch()
