"""What a source of texts is: files, cut into pieces that are read at once and finished as a whole.

A piece is a file or a part of one (a Parquet row group). Pieces have a fixed order, and what a piece holds does not
depend on the others, so that they can be read by several processes and read again after a kill.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Skip(StrEnum):
    """Why something that was read is not a document. Each is counted."""

    NULL = "null"
    EMPTY = "empty"
    """no text but white space"""
    TOO_SHORT = "too_short"
    WRONG_TYPE = "wrong_type"
    """not a string, where a bad document may be skipped"""
    INVALID_UTF8 = "invalid_utf8"
    MALFORMED = "malformed"
    """a line that is no JSON object, or one without the column"""
    UNREADABLE_FILE = "unreadable_file"
    """a source file of installed documentation that cannot be decoded or parsed"""


@dataclass(frozen=True)
class SourceFile:
    name: str
    """relative to the source's folder, parts joined by `/`"""
    bytes: int
    digest: str
    """blake2b-256 of the content, hexadecimal"""


@dataclass(frozen=True)
class Piece:
    file: str
    """the name of a `SourceFile`"""
    part: int
    """row group of a Parquet file, else 0"""
    bytes: int
    """that it occupies in the file: a share of the work, for progress"""

    def __str__(self) -> str:
        return self.file if self.part == 0 else f"{self.file}, row group {self.part}"


@dataclass(frozen=True)
class RawDocument:
    utf8: bytes
    """the text, valid UTF-8"""
    source: str
    """where it came from (a package, a collection); results can be sliced by it"""
    host: str | None = None
    """of its web address, lower case, for a split by host; None where there is none"""


class Source(Protocol):
    """Texts in a fixed order. Small and frozen: it travels to worker processes."""

    def files(self) -> tuple[SourceFile, ...]:
        """Every file that is read, sorted by name. Empty for documentation of installed packages.

        Raises CorpusError where there is none, or one cannot be read.
        """
        ...

    def pieces(self) -> tuple[Piece, ...]:
        """Every piece once, in the corpus' order. Raises CorpusError naming a file whose structure cannot be read."""
        ...

    def read(self, piece: Piece) -> Iterator[RawDocument | Skip]:
        """The documents of one piece in order, and a reason for everything that is none.

        Memory: a few documents at a time, however large the piece. Raises CorpusError naming file and row group (and
        the row or line) for what cannot be read and may not be skipped, and for a file that is gone.
        """
        ...

    def versions(self) -> Mapping[str, str]:
        """Version of each package that is read; empty for files."""
        ...
