"""JSON lines, plain or compressed: a line is a document.

A stream that was cut is never a shorter corpus: the decompressor says where a gzip member or zstd frame has no end,
and the last line of a plain file that is no JSON and has no line feed was cut too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath

import pyarrow as pa

from paribus.data.sources.contract import Piece, RawDocument, Skip
from paribus.data.sources.folder import FolderSource, unreadable
from paribus.data.sources.gpt2_tokens import text_of_ids
from paribus.data.sources.hosts import host_of
from paribus.data.sources.json_line import members, numbers_of, utf8_of
from paribus.data.sources.judging import BadValueError, document
from paribus.errors import CorpusError

_CODECS = {".gz": "gzip", ".zst": "zstd"}
_READ_BYTES = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class JsonlSource(FolderSource):
    """Files of JSON lines, read as streams."""

    text_column: str = "text"
    source_column: str | None = "source"
    url_column: str | None = None
    """read where the split is by host"""
    vocabulary: Path | None = None
    """where the text column holds GPT-2 token ids: the file that decodes them"""

    def read(self, piece: Piece) -> Iterator[RawDocument | Skip]:
        """The documents of a file, line by line; a blank line counts as empty."""
        self.unchanged(piece, self.size_of(piece.file))
        documents = addresses = 0
        for number, (line, ended) in enumerate(self._lines(piece.file), 1):
            place = f"{piece.file}, line {number}"
            if not line.strip():
                yield Skip.EMPTY
                continue
            try:
                entry = members(line)
                addresses += self.url_column in entry
                judged = self._document(entry, PurePosixPath(piece.file).name.split(".", 1)[0])
            except BadValueError as bad:
                if not ended and bad.skip is not Skip.WRONG_TYPE:
                    raise _cut_short(place, bad) from bad
                judged = bad.settle(place, refuse=self.refuse_bad)
            documents += isinstance(judged, RawDocument)
            yield judged
        if self.url_column is not None and documents and not addresses:
            raise CorpusError(
                f"{piece.file} has no '{self.url_column}' in any line",
                expected="web addresses, for a split by host",
                received=f"{documents} documents without one",
                remedy="name another url_column, or split by document",
            )

    def _document(self, entry: dict[str, object], stem: str) -> RawDocument | Skip:
        if self.text_column not in entry:
            raise BadValueError(
                Skip.MALFORMED, expected=f"a key '{self.text_column}'", received=f"keys {', '.join(entry) or 'none'}"
            )
        value = entry[self.text_column]
        if self.vocabulary is None:
            utf8 = utf8_of(value, self.text_column)
        else:
            blocks = numbers_of(value, self.text_column)
            utf8 = None if blocks is None else text_of_ids(blocks, self.vocabulary)
        return document(utf8, self._label(entry, self.source_column) or stem, self._host(entry))

    def _host(self, entry: dict[str, object]) -> str | None:
        address = self._label(entry, self.url_column)
        return host_of(address) if address else None

    @staticmethod
    def _label(entry: dict[str, object], key: str | None) -> str | None:
        utf8 = None if key is None else utf8_of(entry.get(key), key)
        return None if utf8 is None else utf8.decode()

    def _lines(self, name: str) -> Iterator[tuple[bytes, bool]]:
        """(line without its line feed, whether it had one); what follows the last line feed only if it is not empty."""
        codec = _CODECS.get(PurePosixPath(name).suffix.lower())
        held = BytesIO()
        first = True
        try:
            with pa.OSFile(str(self.folder / name), "rb") as file:
                if codec is not None and file.size() == 0:
                    raise OSError("an empty file is no compressed stream")
                stream = file if codec is None else pa.CompressedInputStream(file, codec)
                while block := stream.read(_READ_BYTES):
                    head, *rest = (block.removeprefix(_BYTE_ORDER_MARK) if first else block).split(b"\n")
                    first = False
                    held.write(head)
                    for part in rest:
                        # The buffer itself becomes the line: no second copy of a long one.
                        yield held.getvalue(), True
                        held = BytesIO()
                        held.write(part)
        except (OSError, pa.ArrowException) as error:
            expected = "a complete file" if codec is None else f"a complete {codec} stream"
            raise unreadable(self.folder, name, error, expected) from error
        if rest_of_file := held.getvalue():
            yield rest_of_file, False


def _cut_short(place: str, bad: BadValueError) -> CorpusError:
    return CorpusError(
        f"{place}: the file ends within a line",
        expected=f"{bad.expected}, and a line feed after the last line",
        received=bad.received,
        remedy="fetch the file again; if the line is whole, mend it",
    )
