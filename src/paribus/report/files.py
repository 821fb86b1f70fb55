"""How a report reaches the disk: every file aside and renamed, and nothing of an earlier report left beside it."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from paribus.errors import StorageError

FOLDERS = ("figures", "tables")
"""where files may be removed, by plain names that the report before this one listed"""


def replace_files(folder: Path, files: Mapping[str, str | bytes], listed_in: str) -> None:
    """Write `files` (name below `folder`: content), then remove those that the last report listed and this one lacks.

    `listed_in` is the JSON file that lists them under "files"; it is read before it is replaced. A figure that is no
    longer due must not be found beside a page that withholds it.
    """
    earlier = _listed(folder / listed_in)
    for name, content in files.items():
        _replace(folder / name, content.encode() if isinstance(content, str) else content)
    for name in earlier:
        if name not in files:
            _remove(folder / name)


def digest_of(content: str | bytes) -> str:
    """blake2b-64 of a file's bytes, hexadecimal."""
    return hashlib.blake2b(content.encode() if isinstance(content, str) else content, digest_size=8).hexdigest()


def _listed(path: Path) -> list[str]:
    """Names of an earlier report; a file that cannot be read lists none, since nothing is removed on a guess."""
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, LookupError, TypeError):
        return []
    return [name for name in names if isinstance(name, str) and _ours(name)] if isinstance(names, list) else []


def _ours(name: str) -> bool:
    below, _, plain = name.partition("/")
    return below in FOLDERS and plain not in ("", ".", "..") and not set(plain) & set("/\\\x00")


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"a file of an earlier report could not be removed: {path}",
            received=str(error),
            remedy="remove it by hand: it shows what this report does not",
        ) from error


def _replace(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        with suppress(OSError):  # where the folder is what refuses, nothing lies there
            aside.unlink()
        raise StorageError(
            f"the report could not be written to {path}",
            received=str(error),
            remedy="free space or make the folder writable, then ask for the report again; no run is touched by it",
        ) from error
