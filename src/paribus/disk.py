"""Files that appear whole and stay: written aside, flushed, renamed; room for them, and a full disk as one error.

A JSON record says itself whether it is whole: its last key is `checksum`, blake2b over the content in canonical form
(keys sorted, no spaces).
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from paribus.errors import StorageError

MARGIN_BYTES = 64 * 1024
"""Each file and folder occupies whole blocks (4 KiB almost everywhere), and what is written beside what is asked for (a
marker, a line of metrics, a claim) is a dozen small files."""
MARGIN_SHARE = 0.01
"""What file systems keep of a large file beside its content: lists of its blocks, far below this, and checksums of
blocks where they have them (btrfs: 4 bytes for each 4 KiB)."""
CHECKSUM = "checksum"
_KIND = "blake2b-8:"


def user_cache() -> Path:
    """The folder of what can be had again by waiting for it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paribus"


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


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, each with its name forced onto the disk.

    A file may be flushed, and its folder's entries: without the names of those above they are gone with the power.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    flush(path.parent)


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


def is_plain_name(text: str) -> bool:
    """Whether a text from a file names something directly inside a folder, on any system, and leads nowhere else."""
    return bool(text) and text.strip(".") != "" and not any(c in "/\\:" or ord(c) < 32 for c in text)


def require_no_links(folder: Path) -> None:
    """StorageError where the folder, or one directly below it, holds a symbolic link: a write would follow it out.

    Nothing is said of the folder itself and those above it, which may well be links to another disk.
    """
    for place in (folder, *(entry for entry in folder.iterdir() if entry.is_dir())) if folder.is_dir() else ():
        for entry in place.iterdir():
            if entry.is_symlink():
                raise StorageError(
                    f"{entry} is a symbolic link",
                    expected="a file or a folder of its own, as paribus made it",
                    received=f"a link to {entry.readlink()}",
                    remedy="put what it points to in its place; the folder of all runs, or of a study, may be a link",
                )


def require_space(path: Path, needed_bytes: int, what: str) -> None:
    """Raise StorageError where the disk of `path` has less room than `what` needs with a margin.

    `path` need not be there: its nearest folder that is says which disk is meant. What is free is what this user may
    still write, without what is reserved for root. A quota is not seen, and other writers may take the room at any
    moment: the write's own error has the last word. A disk that does not say how large it is is not judged.
    """
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        total, _, free = shutil.disk_usage(place)
    except OSError:
        return
    wanted = needed_bytes + int(needed_bytes * MARGIN_SHARE) + MARGIN_BYTES
    if total and free < wanted:
        raise StorageError(
            f"there is no room for {what}",
            expected=f"{_in_words(wanted)} free at {place}: {_in_words(needed_bytes)} and a margin",
            received=f"{_in_words(free)} free, {_in_words(wanted - free)} too few",
            remedy="make room there (`paribus gc RUNS` shows what can go), or name another folder, and run again: "
            "finished cells and checkpoints are kept",
        )


def _in_words(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e7 else f"{size / 1e3:,.0f} kB" if size >= 1e4 else f"{size:,} bytes"


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


def sealed_text(text: str) -> str:
    """The text of a JSON object, laid out by its author, with the checksum as its last key."""
    body = text.rstrip().removesuffix("}").rstrip()
    return f'{body},\n  "{CHECKSUM}": "{_checksum(json.loads(text))}"\n}}\n'


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
