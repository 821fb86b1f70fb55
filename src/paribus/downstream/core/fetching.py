"""Bringing nanochat's archive of CORE tasks into a folder: fetched, compared with its published digest, unpacked beside
the folder and renamed, so that the folder is there whole or not at all.

    .<folder>.fetching/archive.zip    grows; what was cut goes on where it ended
    .<folder>.fetching/unpacked/      the files, until the folder is renamed
    <folder>/.paribus-core.json       where it came from, and the size and digest of every file

A folder that is there is never written into.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from paribus.data.progress import Advance, Progress, silent
from paribus.data.sources.hub_requests import Patience
from paribus.disk import flush, storing
from paribus.downstream.core.archive import unpack
from paribus.downstream.core.downloading import Download, Source
from paribus.downstream.core.errors import CoreBundleError

RECORD = ".paribus-core.json"
_ATTEMPTS = 4
"""in a row that bring nothing: 7 s without a network until that is said"""


@dataclass(frozen=True)
class Fetched:
    """A bundle's folder."""

    folder: Path
    new: bool
    """whether it had to be fetched"""


def fetch_core(
    folder: Path,
    source: Source | None = None,
    *,
    progress: Progress = silent,
    patience: Patience | None = None,
) -> Fetched:
    """Fetch the bundle into a folder that is not there yet; one that was fetched before is compared and left as it is.

    CoreBundleError where the archive cannot be had or is another one, or something else is in the folder; StorageError.
    An interruption leaves what a second call goes on with.
    """
    source = source or Source()
    folder = Path(folder)
    if _is_taken(folder):
        _compare(folder, progress)
        return Fetched(folder, new=False)
    aside = folder.parent / f".{folder.name}.fetching"
    with storing(aside):
        aside.mkdir(parents=True, exist_ok=True)
    archive, lock = aside / "archive.zip", FileLock(aside / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise CoreBundleError(
            f"another process is fetching into {folder}", remedy="wait for it, or name another folder with --to"
        ) from error
    useful = False
    try:
        Download(source, archive, patience or Patience(attempts=_ATTEMPTS), progress).run()
        _place(archive, aside / "unpacked", folder, source, progress)
    except BaseException:
        useful = archive.exists() and archive.stat().st_size > 0
        raise
    finally:
        lock.release()
        if not useful:
            shutil.rmtree(aside, ignore_errors=True)
    return Fetched(folder, new=True)


def _place(archive: Path, unpacked: Path, folder: Path, source: Source, progress: Progress) -> None:
    """The archive's files as the folder, with the record of what they are."""
    shutil.rmtree(unpacked, ignore_errors=True)
    with storing(unpacked):
        unpacked.mkdir()

    def told(done: int, total: int, files: int) -> None:
        progress(Advance("unpack", done, total, documents=files))

    names = unpack(archive, unpacked, source.below, told)
    record = {
        "format": 1,
        "address": source.address,
        "sha256": source.sha256,
        "files": {name: list(_seen(unpacked / name)) for name in names},
    }
    with storing(unpacked / RECORD):
        (unpacked / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        flush(unpacked / RECORD)
        flush(unpacked)
        # Onto a folder that is there only where it is empty; else the system refuses.
        unpacked.replace(folder)
        flush(folder.parent)


def _is_taken(folder: Path) -> bool:
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def _compare(folder: Path, progress: Progress) -> None:
    """Whether a folder is what was fetched into it. CoreBundleError where it is not, or somebody else's."""
    record = _record(folder)
    if record is None:
        raise CoreBundleError(
            f"{folder} is there already and was not fetched by this command",
            expected="no folder of this name, or one that it fetched",
            remedy="to use it as it is, just name it; to fetch another copy, name another folder with --to",
        )
    files: dict[str, list[Any]] = record["files"]
    total = sum(size for size, _ in files.values())
    done, wrong = 0, []
    for count, (name, seen) in enumerate(files.items(), 1):
        path = folder / name
        if not path.is_file() or list(_seen(path)) != seen:
            wrong.append(name)
        done += seen[0]
        progress(Advance("digests of the files", done, total, documents=count))
    if wrong:
        raise CoreBundleError(
            f"{len(wrong)} of {len(files)} files in {folder} are gone, or changed since they were fetched",
            received=", ".join(wrong[:5]) + (", ..." if len(wrong) > 5 else ""),
            remedy="delete the folder and fetch it again; it can still be named as it is, and reports say what differs",
        )


def _record(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("format") != 1 or not isinstance(found.get("files"), dict):
        return None
    sound = all(
        isinstance(seen, list) and len(seen) == 2 and type(seen[0]) is int and isinstance(seen[1], str)
        for seen in found["files"].values()
    )
    return found if sound else None


def _seen(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return path.stat().st_size, digest
