"""What the sources of files share: a folder, the names of its files, and errors that name them."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paribus.data.sources.contract import Piece, SourceFile
from paribus.errors import CorpusError


def file_digest(path: Path) -> str:
    """blake2b-256 of the content, hexadecimal. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


@dataclass(frozen=True)
class FolderSource:
    """Files of one kind. The names are fixed when the folder is opened, so that a file that vanishes is missed."""

    folder: Path
    names: tuple[str, ...]
    """relative to the folder, parts joined by `/`, in the corpus' order"""
    refuse_bad: bool = True
    """a bad value is an error; else it is counted"""
    digest_of: Callable[[Path], str] = field(default=file_digest, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        # Workers read; the digests, and a callable that may be bound to the parent's store, stay with the parent.
        return {**self.__dict__, "digest_of": file_digest}

    def files(self) -> tuple[SourceFile, ...]:
        """Every file with its size and digest, sorted by name. Raises CorpusError for one that cannot be read."""
        found = []
        for name in sorted(self.names):
            size = self.size_of(name)
            try:
                found.append(SourceFile(name, size, self.digest_of(self.folder / name)))
            except OSError as error:
                raise unreadable(self.folder, name, error) from error
        return tuple(found)

    def pieces(self) -> tuple[Piece, ...]:
        """One piece a file. Raises CorpusError for a file that cannot be read."""
        return tuple(Piece(name, 0, self.size_of(name)) for name in self.names)

    def versions(self) -> Mapping[str, str]:
        """None: files are known by their digests."""
        return {}

    def size_of(self, name: str) -> int:
        """Bytes of the file. Raises CorpusError for one that is gone or cannot be read."""
        try:
            return (self.folder / name).stat().st_size
        except OSError as error:
            raise unreadable(self.folder, name, error) from error

    def unchanged(self, piece: Piece, size: int) -> None:
        """Raises CorpusError where what the piece occupies in its file is no longer what it was when listed."""
        if size != piece.bytes:
            raise CorpusError(
                f"{piece} changed while the corpus was read",
                expected=f"{piece.bytes} bytes, as when the files were listed",
                received=f"{size} bytes",
                remedy=f"let nothing write to {self.folder}, and prepare the corpus again",
            )


def unreadable(folder: Path, place: str, error: Exception, expected: str = "a complete file") -> CorpusError:
    """The error for a file, or a part of it, that is gone, cut short, damaged or not permitted."""
    gone = isinstance(error, FileNotFoundError)
    return CorpusError(
        f"{place} is gone" if gone else f"{place} cannot be read",
        expected=f"{expected} in {folder}",
        received=f"{type(error).__name__}: {error}",
        remedy=f"fetch it again into {folder}, or take it out of the corpus; what is finished is kept",
    )
