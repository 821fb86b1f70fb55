"""Plain text: a file is a document, byte for byte."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from paribus.data.sources.contract import Piece, RawDocument, Skip
from paribus.data.sources.folder import FolderSource, unreadable
from paribus.data.sources.judging import BadValueError, document


@dataclass(frozen=True)
class TextSource(FolderSource):
    """Files `*.txt` and `*.md`; the collection is the sub-folder they lie in, else the file's stem."""

    def read(self, piece: Piece) -> Iterator[RawDocument | Skip]:
        """The one document of a file."""
        self.unchanged(piece, self.size_of(piece.file))
        name = PurePosixPath(piece.file)
        collection = str(name.parent) if len(name.parts) > 1 else name.stem
        try:
            yield document((self.folder / piece.file).read_bytes(), collection)
        except OSError as error:
            raise unreadable(self.folder, piece.file, error) from error
        except BadValueError as bad:
            yield bad.settle(piece.file, refuse=self.refuse_bad)
