"""Writing so that a kill at any moment leaves the old file or the new one, never half of one."""

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from paribus.disk import flush, storing
from paribus.errors import StudyFolderError

RESTORE = "restore this file from a copy; where it belongs to one cell, deleting that cell's folder trains it anew"
"""what is right for any file of a run folder. Whoever knows which one is read says something better"""


def explaining_storage(path: Path) -> AbstractContextManager[None]:
    """`storing`, in the words of a study's folder."""
    return storing(path, "finished cells and checkpoints are kept")


def write_flushed(path: Path, content: bytes) -> None:
    """Write and fsync; for files inside a folder that is renamed into place as a whole."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_durably(path: Path, content: bytes) -> None:
    """Written aside, fsynced, renamed over `path`, the folder fsynced."""
    with explaining_storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            write_flushed(aside, content)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        flush(path.parent)


def write_json(path: Path, value: Any) -> None:
    """A durable JSON file with sorted keys; NaN and infinity are refused by the encoder."""
    write_durably(path, (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def read_json(path: Path, remedy: str = RESTORE) -> Any:
    """The content of a JSON file. StudyFolderError with the `remedy` for this file where it is not one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StudyFolderError(
            f"{path} is not readable",
            expected="a JSON file written by paribus",
            received=str(error),
            remedy=remedy,
        ) from error


def json_line(value: Any) -> bytes:
    """One line of a .jsonl file."""
    return json.dumps(value, sort_keys=True, allow_nan=False).encode() + b"\n"


def append_line(path: Path, value: Any) -> None:
    """Append one JSON line in a single write. A torn last line is dropped, or it would swallow the new one."""
    with explaining_storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                if file.read(1) != b"\n":
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
            file.write(json_line(value))


def read_lines(path: Path, remedy: str = RESTORE) -> list[Any]:
    """All complete lines. A torn last line, left by a kill, is not a line.

    StudyFolderError with the `remedy` for this file where another line is not JSON.
    """
    if not path.exists():
        return []
    complete, _, _ = path.read_bytes().rpartition(b"\n")
    try:
        return [json.loads(line) for line in complete.splitlines()]
    except ValueError as error:
        raise StudyFolderError(
            f"{path} holds a line that is not JSON",
            expected="JSON, one record a line",
            received=str(error),
            remedy=remedy,
        ) from error
