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
its own clock, before anybody may take over. Here cells are taken and held; who holds one is looked up in
`paribus.runs.holders`.
"""

import contextlib
import datetime
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from paribus.disk import flush, make_folder, sealed
from paribus.errors import ParibusError
from paribus.runs.holders import (
    FOLDER,
    LEASE_SECONDS,
    Holder,
    Owner,
    claim_file,
    earlier_lock,
    now,
    owner_of,
    record_of,
    released_file,
    seen,
    tokens_of,
    vacant,
)
from paribus.runs.records import explaining_storage, name_aside, write_flushed

RENEWALS = 4
"""heartbeats in the time of a lease"""
MARGIN = 0.125
"""share of the lease at its end in which the holder already refuses to write: time for a rename under way"""
PATIENCE_SECONDS = 1800.0
QUIET_FACTOR = 10.0
"""A trainer that has given no sign of life for half an hour, or for ten times the longest silence it has broken so
far, is taken to hang: its heartbeat stops, and with it the lease. Every update and every batch that is scored is a
sign. No single one should take half an hour; where one does and is cut off, the cell goes on from its checkpoint."""
WITHOUT_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK}
"""what file systems without hard links answer"""


class ClaimLostError(ParibusError):
    """The cell is no longer this worker's: its lease ran out, or somebody took it over. It must not write."""


class Claim:
    """A cell that this process holds. Made by `claim`."""

    def __init__(
        self, folder: Path, token: int, lease_seconds: float, begun: float, after: Holder | None, patience: float
    ) -> None:
        self.folder, self.token, self.lease_seconds = folder, token, lease_seconds
        self.after = after
        """who held the cell before and never released it; None where nobody did"""
        self._file = claim_file(folder, token)
        self._renewed = self._sign = begun
        self._patience = patience
        self._lost = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat of {folder.name}", daemon=True)

    def alive(self) -> None:
        """A sign that the trainer gets on. Without one for long, the heartbeat stops: see PATIENCE_SECONDS."""
        at = now()
        self._patience = max(self._patience, QUIET_FACTOR * (at - self._sign))
        self._sign = at

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
        late = now() - self._renewed
        tokens = tokens_of(self.folder)
        if tokens and tokens[-1] > self.token:
            self._lost = f"claim {tokens[-1]} was made by another worker"
        elif self.token not in tokens:
            self._lost = "the file of the claim was removed"
        elif late > (1.0 - MARGIN) * self.lease_seconds:
            self._lost = f"its heartbeat was {late:.1f} s late, of a lease of {self.lease_seconds:g} s"

    def _beat(self) -> None:
        while not self._lost and not self._ended.wait(self.lease_seconds / RENEWALS):
            at = now()
            if at - self._sign > self._patience:
                continue
            # Before the heartbeat, so that one that comes too late does not look as if it had come in time.
            with contextlib.suppress(OSError):  # the next one may get through
                self._look()
                if not self._lost:
                    os.utime(self._file)
                    self._renewed = at

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop the heartbeat and say that this holder writes no more, unless somebody else already holds the cell."""
        self._ended.set()
        self._thread.join(timeout=1.0)  # it may hang in a file system that does not answer
        with contextlib.suppress(OSError):  # a process that ends releases as well, only later
            if tokens_of(self.folder)[-1:] == [self.token]:
                released_file(self.folder, self.token).touch()


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
        make_folder(folder / FOLDER)
    with earlier_lock(folder) as free:
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
    newest = (tokens_of(folder) or [0])[-1]
    if newest and not vacant(folder, newest):
        return None
    released = not newest or released_file(folder, newest).exists()
    after = None if released else seen(folder, newest)
    token, begun = max(newest, above()) + 1, now()
    taken = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    record = {"token": token, "owner": asdict(Owner.of_this_process()), "taken": taken, "lease_seconds": lease_seconds}
    with explaining_storage(folder):
        if not _make(claim_file(folder, token), sealed(record)):
            return None
        # Two that knew of different tokens make different ones: the higher holds.
        return Claim(folder, token, lease_seconds, begun, after, patience) if tokens_of(folder)[-1] == token else None


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


def release_for(folder: Path, pid: int) -> None:
    """Release what a process of this machine held, for whoever ended it on purpose: it did not die of the cell."""
    tokens = tokens_of(folder)
    owner = owner_of(record_of(claim_file(folder, tokens[-1]))) if tokens else None
    if owner is not None and owner.pid == pid and owner.gone():
        with contextlib.suppress(OSError):
            released_file(folder, tokens[-1]).touch()
