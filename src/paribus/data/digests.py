"""Digests of files, computed once: remembered under path, size, time of change and inode.

A file that is written, hashed and written again within one tick of the file system's clock keeps its time of change.
So a digest is remembered only where the file was left alone for longer than any such tick before it was read.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock

REMEMBERED = ".digests.json"
_TICK_NS = 2_000_000_000
"""the coarsest clock among common file systems (FAT) counts two seconds"""
_BYTES_BETWEEN_SAVES = 4 * 2**30


def file_digest(path: Path) -> str:
    """blake2b-256 of a file's content, hexadecimal. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


class RememberedDigests:
    """`of(path)` reads a file only where it is not the one whose digest is remembered. A context: leaving it saves."""

    def __init__(self, file: Path, compute: Callable[[Path], str] = file_digest) -> None:
        """`file`: where they are kept, shared by several processes."""
        self._file = file
        self._compute = compute
        self._known = _read(file)
        self._new: dict[str, list[int | str]] = {}
        self._unsaved_bytes = 0

    def of(self, path: Path) -> str:
        """blake2b-256 of the content, hexadecimal. Raises OSError."""
        name = str(path.resolve())
        before = _stamp(path)
        known = self._new.get(name) or self._known.get(name)
        if known is not None and known[:-1] == before:
            return str(known[-1])
        began_ns = time.time_ns()
        digest = self._compute(path)
        if _stamp(path) == before and began_ns - before[1] > _TICK_NS:
            self._new[name] = [*before, digest]
            self._unsaved_bytes += before[0]
            if self._unsaved_bytes >= _BYTES_BETWEEN_SAVES:
                self.save()
        return digest

    def save(self) -> None:
        """Add what was learnt to the file. Where that is refused, nothing is lost but the time to read again."""
        if not self._new:
            return
        with contextlib.suppress(OSError), FileLock(self._file.with_name(f"{self._file.name}.lock")):
            self._known = _read(self._file) | self._new
            kept = {name: entry for name, entry in self._known.items() if name in self._new or Path(name).exists()}
            aside = self._file.with_name(f"{self._file.name}.{os.getpid()}")
            aside.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n", encoding="utf-8")
            aside.replace(self._file)
            self._new, self._unsaved_bytes = {}, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.save()


def _stamp(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _read(file: Path) -> dict[str, list[int | str]]:
    """What is remembered; a file that is missing or damaged remembers nothing."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = isinstance(content, dict)
    return (
        {name: entry for name, entry in content.items() if isinstance(entry, list) and len(entry) == 4} if whole else {}
    )
