"""Unpacking a zip of somebody else's: only plain files, only below the folder, never more than is allowed.

A name may lead out of the folder, a link may point anywhere, and a few kilobytes may unpack to a full disk. The whole
list is judged before the first byte is written, and sizes are counted as they come, not as the archive claims.
"""

import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NoReturn

from paribus.disk import flush, storing
from paribus.downstream.core.errors import CoreBundleError

LARGEST_BYTES = 2_000_000_000
"""of all unpacked files; the bundle's are below a tenth of it"""
MOST_FILES = 10_000
_BLOCK_BYTES = 1 << 20


def unpack(
    archive: Path,
    folder: Path,
    below: str,
    told: Callable[[int, int, int], None],
    *,
    largest_bytes: int = LARGEST_BYTES,
) -> list[str]:
    """Write every file of the archive below its folder `below` into `folder`, which must not hold any of them.

    `told(bytes so far, bytes in all, files so far)` is called as it goes. Returns the names, sorted, below `folder`.
    What the archive holds elsewhere stays in it. Raises CoreBundleError, before anything is written, for a file that
    is no zip, a name that leads out of the folder or occurs twice, a link, or more than is allowed; StorageError.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _judged(opened.infolist(), below, largest_bytes)
            total, written = sum(member.file_size for _, member in members), 0
            for count, (name, member) in enumerate(members, 1):
                written += _write(opened, member, folder / name)
                told(written, total, count)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, zlib.error) as error:
        _refuse(archive.name, "a whole zip file without a password", f"{type(error).__name__}: {error}")
    return sorted(name for name, _ in members)


def _judged(members: list[zipfile.ZipInfo], below: str, largest_bytes: int) -> list[tuple[str, zipfile.ZipInfo]]:
    found: dict[str, tuple[str, zipfile.ZipInfo]] = {}
    for member in members:
        path = PurePosixPath(member.filename)
        mode = member.external_attr >> 16
        if path.is_absolute() or ".." in path.parts or "\\" in member.filename or ":" in member.filename:
            _refuse("the archive", "names of files below its folder", repr(member.filename))
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            _refuse("the archive", "plain files and folders", f"{member.filename!r}, which is a link or a device")
        if member.is_dir() or path.parts[:1] != (below,) or len(path.parts) == 1:
            continue
        name = str(path.relative_to(below))
        # Some file systems tell upper from lower case and some do not.
        if name.casefold() in found:
            _refuse("the archive", "each name once", repr(member.filename))
        found[name.casefold()] = name, member
    size = sum(member.file_size for _, member in found.values())
    if not found or len(found) > MOST_FILES or size > largest_bytes:
        _refuse(
            "the archive",
            f"1 to {MOST_FILES:,} files below {below}/, of {largest_bytes:,} bytes at most",
            f"{len(found):,} files of {size:,} bytes",
        )
    return list(found.values())


def _write(opened: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> int:
    written = 0
    with storing(path, kept="nothing is left half written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("xb")
    with stream, opened.open(member) as content:
        while block := content.read(_BLOCK_BYTES):
            written += len(block)
            if written > member.file_size:
                _refuse("the archive", f"{member.file_size:,} bytes of {member.filename}, as it claims", "more")
            with storing(path, kept="nothing is left half written"):
                stream.write(block)
    with storing(path, kept="nothing is left half written"):
        flush(path)
    return written


def _refuse(what: str, expected: str, received: str) -> NoReturn:
    raise CoreBundleError(
        f"{what} is not unpacked",
        expected=expected,
        received=received,
        remedy="fetch it again; if this stays, take a bundle from elsewhere and name its folder",
    )
