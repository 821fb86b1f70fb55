"""Files that appear whole and stay: written aside, flushed, renamed; and the disk's refusal as one error."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from paribus.errors import StorageError


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
