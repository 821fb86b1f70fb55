"""Files that appear whole and stay: written aside, flushed, renamed; and the disk's refusal as one error.

A JSON record says itself whether it is whole: its last key is `checksum`, blake2b over the content in canonical form
(keys sorted, no spaces).
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from paribus.errors import StorageError

CHECKSUM = "checksum"
_KIND = "blake2b-8:"


@contextlib.contextmanager
def whole(path: Path, aside_in: Path | None = None) -> Iterator[BinaryIO]:
    """A stream whose content is at `path` once the context ends without an error; until then it grows beside it.

    `aside_in`: a folder on the same file system for the growing file.
    """
    aside = (aside_in or path.parent) / f".{path.name}.{os.getpid()}"
    try:
        with aside.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except BaseException:
        # On a full disk every byte counts for whoever frees it.
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def flush(path: Path) -> None:
    """Force a file's content, or a folder's entries, onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def storing(path: Path, kept: str = "what is fetched is kept") -> Iterator[None]:
    """Turn the operating system's refusal into one error that names the place, the remedy and what is `kept`."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"could not write {path}",
            received=f"{error.strerror or error}",
            remedy=f"make room there, or name another folder, and run it again: {kept}",
        ) from error


def _canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _checksum(content: Mapping[str, Any]) -> str:
    return _KIND + hashlib.blake2b(_canonical(content), digest_size=8).hexdigest()


def sealed(value: Mapping[str, Any]) -> bytes:
    """The file of a JSON record: sorted keys, one a line, and last the checksum. NaN and infinity are refused."""
    if CHECKSUM in value:
        raise ValueError(f"a record has no field '{CHECKSUM}': that is where its own stands")
    content = json.loads(json.dumps(value, sort_keys=True, allow_nan=False))
    return (json.dumps({**content, CHECKSUM: _checksum(content)}, indent=1) + "\n").encode()


def unsealed(file: bytes) -> tuple[Any, bool]:
    """(content, True) of a JSON record whose checksum holds; (content, False) where it has none, of an earlier version.

    ValueError, in words, where it is damaged.
    """
    content = json.loads(file.decode("utf-8"))
    if not isinstance(content, dict):
        return content, False
    if CHECKSUM not in content:
        if name := name_of(_KIND, content):
            raise ValueError(f"its checksum stands under the name {name!r}")
        return content, False
    stated = content.pop(CHECKSUM)
    if stated != _checksum(content):
        raise ValueError(f"its checksum is {_checksum(content)}, not {stated} as it says: it was changed")
    return content, True


def name_of(kind: str, content: Mapping[str, Any]) -> str:
    """The first key whose value is a checksum of this kind; empty without one."""
    return next((key for key, value in content.items() if isinstance(value, str) and value.startswith(kind)), "")
