"""Files that say whether they are whole, written so that a kill at any moment leaves the old one or the new one.

A JSON record ends with `checksum`, blake2b over its content in canonical form, and each line of a .jsonl file with
`crc`, the CRC-32 of the same form: keys sorted, no spaces. Both are of the content, so a file that an editor
only laid out anew still holds. Their values name their kind, so that a record whose `checksum` has lost its
name is not taken for one of an earlier version, which had none.

Whoever holds a claim on the folder gives its `fence`, which is called just before what is written becomes visible.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from paribus.disk import flush, make_folder, name_of, sealed, storing, unsealed
from paribus.errors import StudyFolderError

Fence = Callable[[], None]
"""raises where the caller may no longer write"""
RESTORE = "restore this file from a copy; where it belongs to one cell, deleting that cell's folder trains it anew"
"""what is right for any file of a run folder. Whoever knows which one is read says something better"""
CRC = "crc"
_CRC_KIND = "crc32:"
_CRC_HEAD, _CRC_LENGTH = b', "crc": "crc32:', 26
"""of what follows the content in a line as it was written"""


def explaining_storage(path: Path) -> AbstractContextManager[None]:
    """`storing`, in the words of a study's folder."""
    return storing(path, "finished cells and checkpoints are kept")


def write_flushed(path: Path, content: bytes) -> None:
    """Write and fsync; for files inside a folder that is renamed into place as a whole."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def name_aside(name: str) -> str:
    """What `name` is called until it is whole; another one each time, since writers on two machines may share a pid."""
    return f".{name}.{os.getpid()}-{secrets.token_hex(4)}.partial"


def write_durably(path: Path, content: bytes, fence: Fence | None = None) -> None:
    """Written aside, fsynced, renamed over `path`, the folder fsynced. Where that fails, the old file stays alone."""
    with explaining_storage(path):
        make_folder(path.parent)
        aside = path.with_name(name_aside(path.name))
        try:
            write_flushed(aside, content)
            if fence is not None:
                fence()
            aside.replace(path)
        finally:
            with suppress(OSError):  # the first error is the one to tell
                aside.unlink(missing_ok=True)
        flush(path.parent)


def write_json(path: Path, value: Mapping[str, Any], fence: Fence | None = None) -> None:
    """A durable JSON record, see `sealed`."""
    write_durably(path, sealed(value), fence)


def read_json(path: Path, remedy: str = RESTORE) -> Any:
    """The content of a JSON file, without its checksum, which was verified. A file without one is read as it is.

    StudyFolderError with the `remedy` for this file where it is not readable, or not as it was written.
    """
    try:
        return unsealed(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        raise StudyFolderError(
            f"{path} is not readable",
            expected="a JSON file as paribus wrote it",
            received=str(error),
            remedy=remedy,
        ) from error


def json_line(value: Mapping[str, Any]) -> bytes:
    """One line of a .jsonl file: sorted keys, and last the CRC."""
    if CRC in value:
        raise ValueError(f"a line has no field '{CRC}': that is where its own stands")
    content = json.dumps(value, sort_keys=True, allow_nan=False).encode()
    comma = b", " if value else b""
    return content[:-1] + comma + b'"crc": "%s"}\n' % _crc(content).encode()


def _crc(content: bytes, before: int = 0) -> str:
    """`before`: CRC-32 of what comes before the content."""
    return f"{_CRC_KIND}{crc32(content, before):08x}"


class Line(NamedTuple):
    """A line of a .jsonl file."""

    number: int
    """from 1"""
    text: bytes
    """as it stands in the file, without its end"""
    content: Any = None
    """without the CRC; None where the line is damaged"""
    wrong: str = ""
    """what is damaged, in words"""
    checked: bool = False
    """whether it has a CRC, which holds; a line of an earlier version has none"""


def line_of(number: int, text: bytes) -> Line:
    """The line `text`, without its end."""
    try:
        content = json.loads(text)
    except ValueError as error:  # a UnicodeDecodeError is one
        return Line(number, text, wrong=str(error))
    if not isinstance(content, dict):
        return Line(number, text, content)
    if CRC not in content:
        name = name_of(_CRC_KIND, content)
        return (
            Line(number, text, wrong=f"its CRC stands under the name {name!r}") if name else Line(number, text, content)
        )
    stated = content.pop(CRC)
    as_written = text[-_CRC_LENGTH:].startswith(_CRC_HEAD) and stated == _crc(b"}", crc32(text[:-_CRC_LENGTH]))
    if not as_written and stated != _crc(json.dumps(content, sort_keys=True).encode()):
        return Line(number, text, wrong=f"its CRC is not {stated} as it says: it was changed")
    return Line(number, text, content, checked=True)


def lines_of(file: bytes) -> Iterator[Line]:
    """Every line of a .jsonl file. A torn last one, left by a kill, is not a line.

    A whole one behind which another byte stands in the place of the line's end is damaged: no kill leaves that.
    """
    *complete, last = file.split(b"\n")
    for number, text in enumerate(complete, 1):
        yield line_of(number, text)
    if last and line_of(0, last[:-1]).checked:
        yield Line(len(complete) + 1, last, wrong="another byte stands where the line ends")


def append_line(path: Path, value: Mapping[str, Any], fence: Fence | None = None, *, durable: bool = False) -> None:
    """Append one line in a single write, and fsync it where it must be `durable` now.

    A torn last line is dropped, or it would swallow the new one. A write that fails leaves the lines before it.
    The file is opened before the fence is asked: a writer that loses its claim between the two and wakes up later
    writes into a file that its successor, who rewrites it first of all, has replaced.
    """
    line = json_line(value)
    with explaining_storage(path):
        make_folder(path.parent)
        new = durable and not path.exists()
        with open(path, "a+b", buffering=0, opener=_without_following) as file:
            end, lost = _end_of_lines(file.fileno())
            line = lost + line
            if fence is not None:
                fence()
            if end != os.fstat(file.fileno()).st_size:
                file.truncate(end)
            try:
                if file.write(line) != len(line):
                    raise OSError(28, "No space left on device")
            except OSError:
                with suppress(OSError):
                    file.truncate(end)
                raise
            if durable:
                os.fsync(file.fileno())
        if new:
            flush(path.parent)


def _without_following(path: str, flags: int) -> int:
    """A link at the place of a file would lead the lines elsewhere; records are renamed over one."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _end_of_lines(descriptor: int) -> tuple[int, bytes]:
    """(where lines end, what must be written there first): the line's end, where the last line only lost that."""
    end = os.fstat(descriptor).st_size
    if not end or os.pread(descriptor, 1, end - 1) == b"\n":
        return end, b""
    before, newline, tail = os.pread(descriptor, end, 0).rpartition(b"\n")
    if line_of(0, tail[:-1]).checked:
        return end - 1, b"\n"
    return len(before) + len(newline), b""


def read_lines(path: Path, remedy: str = RESTORE) -> list[Any]:
    """All complete lines, without their CRC, which was verified. A torn last line, left by a kill, is not a line.

    StudyFolderError with the `remedy` for this file that names the first line that is damaged.
    """
    if not path.exists():
        return []
    try:
        found = list(lines_of(path.read_bytes()))
    except OSError as error:
        raise StudyFolderError(f"{path} is not readable", received=str(error), remedy=remedy) from error
    if damaged := next((line for line in found if line.wrong), None):
        raise StudyFolderError(
            f"{path}: line {damaged.number} of {len(found)} is damaged",
            expected="JSON, one record a line, as paribus wrote it",
            received=damaged.wrong,
            remedy=remedy,
        )
    return [line.content for line in found]
