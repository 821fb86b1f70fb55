"""What the files of a repository are at one commit, kept beside them, so that the hub is asked once.

The hub names for every file its size and either the SHA-256 of its content (what Git LFS stores) or the SHA-1 of the
git blob, which is the SHA-1 of `blob <size>`, a zero byte and the content.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from paribus.data.sources.hub_requests import RepositoryKind

OWN = ".paribus-hub"
"""how everything begins that is written beside the files"""
STATE = f"{OWN}.json"
_FORMAT = 1
_BLOCK_BYTES = 1 << 20
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class RemoteFile:
    name: str
    """path in the repository"""
    bytes: int
    digest: str
    """hexadecimal: 64 digits of SHA-256 or 40 of a git blob's SHA-1"""

    def difference(self, path: Path, read: Callable[[int], None] | None = None) -> str | None:
        """What is wrong with the content at `path`, or None. `read` is told of bytes read. Raises OSError."""
        size = path.stat().st_size
        if size != self.bytes:
            return f"{size:,} bytes, not {self.bytes:,}"
        if len(self.digest) == 64:
            name, hashed = "SHA-256", hashlib.sha256()
        else:
            name, hashed = "git SHA-1", hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                hashed.update(block)
                if read is not None:
                    read(len(block))
        found = hashed.hexdigest()
        return None if found == self.digest else f"{name} {found[:12]}..., not {self.digest[:12]}..."


@dataclass
class Listing:
    """The files of a repository below a folder, and which of them were found to be right."""

    repository: str
    kind: RepositoryKind
    revision: str
    below: str
    """the folder; empty: the whole repository"""
    files: Mapping[str, RemoteFile]
    verified: dict[str, tuple[int, int]] = field(default_factory=dict)
    """bytes and time of last change (ns) of files whose content was compared with the digest"""

    def covers(self, folder: str) -> bool:
        """Whether everything below `folder` was listed."""
        return not self.below or f"{folder}/".startswith(f"{self.below}/")

    def is_verified(self, path: Path, name: str) -> bool:
        """Whether the file was compared with its digest and has not been written since."""
        try:
            status = path.stat()
        except OSError:
            return False
        return self.verified.get(name) == (status.st_size, status.st_mtime_ns)

    def note_verified(self, path: Path, name: str) -> None:
        """Remember that the content at `path` is right."""
        status = path.stat()
        self.verified[name] = (status.st_size, status.st_mtime_ns)

    def save(self, folder: Path) -> None:
        """Write the listing into the folder of the files, aside first. Raises OSError."""
        content = {
            "format": _FORMAT,
            "repository": self.repository,
            "kind": self.kind,
            "revision": self.revision,
            "below": self.below,
            "files": {name: [file.bytes, file.digest] for name, file in sorted(self.files.items())},
            "verified": dict(sorted(self.verified.items())),
        }
        aside = folder / f"{STATE}.{os.getpid()}"
        try:
            with aside.open("w", encoding="utf-8") as stream:
                json.dump(content, stream)
                stream.flush()
                os.fsync(stream.fileno())
            aside.replace(folder / STATE)
        finally:
            aside.unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: Path) -> "Listing | None":
        """The listing that lies in the folder; None where none does, or one that cannot be read."""
        try:
            content = json.loads((folder / STATE).read_bytes())
            if content["format"] != _FORMAT:
                return None
            files = {name: _checked(name, size, digest) for name, (size, digest) in content["files"].items()}
            verified = {name: (int(size), int(changed)) for name, (size, changed) in content["verified"].items()}
            about = (content[key] for key in ("repository", "kind", "revision", "below"))
            return cls(*about, files=files, verified=verified)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def files_of(items: Iterable[Mapping[str, Any]]) -> dict[str, RemoteFile]:
    """The files of what the hub lists. Raises ValueError for what no listing of a repository can be."""
    found = {}
    for item in items:
        try:
            if item["type"] == "file":
                lfs = item.get("lfs")
                size, digest = (lfs["size"], lfs["oid"]) if lfs else (item["size"], item["oid"])
                found[item["path"]] = _checked(item["path"], size, digest)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"an entry without {error}") from error
    return found


def folder_of(patterns: Sequence[str]) -> str:
    """The deepest folder below which everything lies that the patterns can match; empty: the whole repository."""
    fixed = [_WILD.split(pattern, maxsplit=1)[0].split("/")[:-1] for pattern in patterns]
    common: list[str] = []
    for parts in zip(*fixed, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return "/".join(common)


def chosen(names: Iterable[str], patterns: Sequence[str], limit: int | None, *, last_file: bool) -> tuple[str, ...]:
    """The names that match a pattern, sorted; the first `limit`, and the last one of all with `last_file`."""
    matching = tuple(sorted(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)))
    if limit is None:
        return matching
    kept = matching[:limit]
    return kept + (matching[len(kept) :][-1:] if last_file else ())


def _checked(name: Any, size: Any, digest: Any) -> RemoteFile:
    # A name decides where bytes from the network are written.
    path = PurePosixPath(name)
    leads_out = path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or str(path) != name
    if leads_out or path.parts[:1] == () or path.parts[0].startswith(OWN):
        raise ValueError(f"a file named {name!r}")
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"{name} of {size!r} bytes")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", digest):
        raise ValueError(f"{name} with the digest {digest!r}")
    return RemoteFile(name, size, digest)
