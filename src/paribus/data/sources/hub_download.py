"""Bringing files of a hub's repository into a folder: in threads, each file going on where it was cut."""

import hashlib
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NoReturn

from paribus.data.progress import Advance, Progress
from paribus.data.sources.hub_listing import OWN, Listing, RemoteFile
from paribus.data.sources.hub_requests import AnswerError, Hub, PassingError, Retries
from paribus.disk import flush, storing
from paribus.errors import CorpusError, StorageError

PHASE = "fetch files"
"""of the progress: `done` and `total` in bytes, `documents` counts finished files"""
_TOLD_EVERY_BYTES = 1 << 20
_SAVE_EVERY_S = 5.0
_GIVE_UP_AFTER = 8
"""files in a row that the hub's state kept from coming; with all others a dead hub would be waited for again"""


class _FileFailedError(Exception):
    def __init__(self, reason: str, *, hub_to_blame: bool = False) -> None:
        super().__init__(reason)
        self.hub_to_blame = hub_to_blame
        """the others will most likely fail the same way"""


class _StoppedError(Exception):
    """Another thread failed for good, or the user interrupted."""


class Fetching:
    """Brings the named files into the folder; its threads share the counts, under one lock."""

    def __init__(
        self, hub: Hub, listing: Listing, folder: Path, names: Sequence[str], progress: Progress, writable: bool
    ) -> None:
        self.hub, self.listing, self.folder, self.writable = hub, listing, folder, writable
        self.files = [listing.files[name] for name in names if not listing.is_verified(folder / name, name)]
        self.of = len(names)
        self.failed: dict[str, str] = {}
        self.finished = self.of - len(self.files)
        self.in_a_row = 0
        self.done_bytes = 0
        self.total_bytes = sum(file.bytes for file in self.files)
        self.progress = progress
        self.lock = threading.Lock()
        self.saved_at = monotonic()

    def run(self, workers: int) -> None:
        """Compare what is there, load what is not. Raises CorpusError naming every file that failed, StorageError."""
        if not self.files:
            return
        self._check_room()
        self._advance(0)
        pool = ThreadPoolExecutor(max(1, workers), thread_name_prefix="fetch")
        try:
            for settled in as_completed([pool.submit(self._settle, file) for file in self.files]):
                settled.result()
        except BaseException:
            self.hub.stop.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            if self.writable:
                with suppress(OSError):
                    self.listing.save(self.folder)
                with suppress(OSError):
                    self._aside.rmdir()
        if self.failed:
            self._refuse()

    @property
    def _aside(self) -> Path:
        return self.folder / OWN

    def _growing(self, file: RemoteFile) -> Path:
        # Of name and content: what is left of another commit's file of this name is not gone on with.
        return self._aside / hashlib.blake2b(f"{file.digest} {file.name}".encode(), digest_size=16).hexdigest()

    def _check_room(self) -> None:
        missing = [file for file in self.files if not (self.folder / file.name).exists()]
        needed = sum(file.bytes - _size(self._growing(file)) for file in missing)
        free = shutil.disk_usage(self.folder).free
        if needed > free or (missing and not self.writable):
            raise StorageError(
                f"{len(missing)} files of {self.hub.repository} cannot be stored in {self.folder}",
                expected=f"{needed:,} bytes of room",
                received=f"{free:,} bytes" if self.writable else "a folder that cannot be written to",
                remedy="make room, take fewer files (limit), or name another folder; what is there already is kept",
            )

    def _settle(self, file: RemoteFile) -> None:
        path = self.folder / file.name
        there = path.exists() or path.is_symlink()
        try:
            if there:
                self._compare(file, path)
            else:
                self._download(file, path)
        except _StoppedError:
            return
        except _FileFailedError as error:
            with self.lock:
                self.failed[file.name] = str(error)
                if not there:
                    self.in_a_row = self.in_a_row + 1 if error.hub_to_blame else 0
            return
        with self.lock, storing(path):
            if not there:
                self.in_a_row = 0
            self.finished += 1
            self.listing.note_verified(path, file.name)
            if self.writable and monotonic() - self.saved_at > _SAVE_EVERY_S:
                self.listing.save(self.folder)
                self.saved_at = monotonic()
        self._advance(0)

    def _compare(self, file: RemoteFile, path: Path) -> None:
        try:
            wrong = file.difference(path, self._advance)
        except OSError as error:
            raise _FileFailedError(f"it lies there and cannot be read: {error.strerror or error}") from error
        if wrong is not None:
            raise _FileFailedError(f"other content lies there ({wrong}) and is left alone")

    def _download(self, file: RemoteFile, path: Path) -> None:
        with self.lock:
            given_up = self.in_a_row >= _GIVE_UP_AFTER
        if given_up:
            raise _FileFailedError(f"not tried after {_GIVE_UP_AFTER} others had failed in a row", hub_to_blame=True)
        growing = self._growing(file)
        with storing(growing):
            growing.parent.mkdir(exist_ok=True)
            growing.touch()
        self._advance(_size(growing))
        if _size(growing) > file.bytes or (wrong := self._completed(file, growing)) is not None:
            # A second time from its first byte: what lay there may have been wrong before this connection was.
            self._discard(growing)
            wrong = self._completed(file, growing)
            if wrong is not None:
                self._discard(growing)
                raise _FileFailedError(f"wrong content twice: {wrong}")
        with storing(path):
            flush(growing)
            path.parent.mkdir(parents=True, exist_ok=True)
            growing.replace(path)
            flush(path.parent)

    def _completed(self, file: RemoteFile, growing: Path) -> str | None:
        """Loads what is missing; what is wrong with the whole, or None."""
        retries = Retries(self.hub.patience, self.hub.stop)
        most = start = _size(growing)
        while start < file.bytes:
            try:
                self._stream(file, growing, start)
            except PassingError as error:
                if self.hub.stop.is_set():
                    raise _StoppedError from None
                try:
                    # Beyond the most so far: a server that starts over each time brings nothing.
                    retries.after(error, max(0, _size(growing) - most))
                except PassingError as last:
                    raise _FileFailedError(str(last), hub_to_blame=True) from None
                most = max(most, _size(growing))
            except AnswerError as answer:
                # The commit is fixed, so a file that is not there will not come either; the others may.
                raise _FileFailedError(str(answer), hub_to_blame=answer.status != 404) from None
            start = _size(growing)
        with storing(growing):
            return file.difference(growing)

    def _stream(self, file: RemoteFile, growing: Path, start: int) -> None:
        with self.hub.opened(self.hub.address(file.name, self.listing.revision), start=start) as response:
            with storing(growing):
                stream = growing.open("r+b")
            with stream:
                if start and not response.headers.get("content-range", "").startswith(f"bytes {start}-"):
                    self._advance(-start)
                    start = 0
                with storing(growing):
                    stream.truncate(start)
                    stream.seek(start)
                received = told = start
                try:
                    # In the pieces that come: of larger ones, what a cut leaves incomplete would be lost.
                    for block in response.iter_bytes():
                        if self.hub.stop.is_set():
                            raise _StoppedError
                        with storing(growing):
                            stream.write(block)
                            # Here, where a full disk is told as one, not when the file is closed.
                            stream.flush()
                        received += len(block)
                        if received - told >= _TOLD_EVERY_BYTES:
                            self._advance(received - told)
                            told = received
                        if received > file.bytes:
                            return
                finally:
                    self._advance(received - told)
        if received < file.bytes:
            raise PassingError(f"the connection ended after {received:,} of {file.bytes:,} bytes")

    def _discard(self, growing: Path) -> None:
        self._advance(-_size(growing))
        with storing(growing):
            growing.write_bytes(b"")

    def _advance(self, count: int) -> None:
        if self.hub.stop.is_set():
            return
        with self.lock:
            self.done_bytes += count
            self.progress(Advance(PHASE, self.done_bytes, self.total_bytes, documents=self.finished))

    def _refuse(self) -> NoReturn:
        reasons: dict[str, list[str]] = {}
        for name, reason in sorted(self.failed.items()):
            reasons.setdefault(reason, []).append(name)
        account = "\n    ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        remedies = ["run it again: what is finished is kept, and what was cut goes on where it ended"]
        if any("left alone" in reason for reason in reasons):
            remedies.append("delete or move the files that hold something else, or name another folder")
        if any(reason.startswith(("the hub answers 401", "the hub answers 403")) for reason in reasons):
            remedies.append(f"accept the terms on {self.hub.page} and set HF_TOKEN to a token that may read it")
        if any("HF_HUB_OFFLINE" in reason for reason in reasons):
            remedies.append("unset HF_HUB_OFFLINE, or bring the files from another machine")
        raise CorpusError(
            f"{len(self.failed)} of {self.of} files of {self.hub.repository} could not be fetched",
            expected=f"the content of commit {self.listing.revision} in {self.folder}",
            received=account,
            remedy="; ".join(remedies),
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
