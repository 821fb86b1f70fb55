"""Parquet: a row is a document, a row group a piece.

A row group is read through a small buffer and a row at a time, never as a whole: rows differ too much in length for a
number of rows to bound the memory (a batch of one costs 4 us more than its share of a large one). It is not mapped into
memory: a file that shrinks under a mapping ends the process, under a read it is an error. What a row needs besides its
text is its page, the unit of compression, whose size the writer chose.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from paribus.data.sources.contract import Piece, RawDocument, Skip
from paribus.data.sources.folder import FolderSource, unreadable
from paribus.data.sources.gpt2_tokens import text_of_ids
from paribus.data.sources.hosts import host_of
from paribus.data.sources.judging import BadValueError, document
from paribus.errors import CorpusError

_BUFFER_BYTES = 1 << 20
_BLOCK_IDS = 1 << 16


@dataclass(frozen=True)
class ParquetSource(FolderSource):
    """Files `*.parquet`. A column that is missing or of another type is an error, whatever single values may be."""

    text_column: str = "text"
    source_column: str | None = "source"
    url_column: str | None = None
    """read where the split is by host"""
    vocabulary: Path | None = None
    """where the text column holds GPT-2 token ids: the file that decodes them"""

    def pieces(self) -> tuple[Piece, ...]:
        """Every row group. Raises CorpusError for a file whose footer or whose columns are not as they must be."""
        found = []
        for name in self.names:
            with self._opened(name) as file:
                self._check_columns(name, file.schema_arrow)
                found += [
                    Piece(name, part, _bytes_of(file.metadata.row_group(part)))
                    for part in range(file.metadata.num_row_groups)
                ]
        return tuple(found)

    def read(self, piece: Piece) -> Iterator[RawDocument | Skip]:
        """The documents of a row group, row by row."""
        stem = PurePosixPath(piece.file).stem
        with self._opened(piece.file) as file:
            self._check_columns(piece.file, file.schema_arrow)
            groups = file.metadata.num_row_groups
            self.unchanged(piece, _bytes_of(file.metadata.row_group(piece.part)) if piece.part < groups else 0)
            for row, cells in enumerate(self._rows(file, piece)):
                try:
                    yield self._document(cells, stem)
                except BadValueError as bad:
                    yield bad.settle(f"{_place(piece)}, row {row}", refuse=self.refuse_bad)

    @contextmanager
    def _opened(self, name: str) -> Iterator[pq.ParquetFile]:
        try:
            file = pq.ParquetFile(
                self.folder / name, buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
            )
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise unreadable(self.folder, name, error, "a complete Parquet file") from error
        with file:
            yield file

    def _rows(self, file: pq.ParquetFile, piece: Piece) -> Iterator[dict[str, pa.Array]]:
        """Each row: arrays of one value by column."""
        columns = [name for name in self._types() if name in file.schema_arrow.names]
        expected = file.metadata.row_group(piece.part).num_rows
        rows = 0
        try:
            for batch in file.iter_batches(batch_size=1, row_groups=[piece.part], columns=columns, use_threads=False):
                rows += batch.num_rows
                cells = {name: _plain(batch.column(name)) for name in columns}
                # Whoever takes a cell out frees it: a large text is not to be held twice while it is worked on.
                del batch
                yield cells
            if rows != expected:
                raise OSError(f"{rows} rows")
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise unreadable(self.folder, _place(piece), error, f"{expected} rows") from error

    def _document(self, cells: dict[str, pa.Array], stem: str) -> RawDocument | Skip:
        # Taken out, so that the array is freed before the text goes on.
        cell = cells.pop(self.text_column)
        if cell.null_count:
            return Skip.NULL
        utf8 = _bytes(cell) if self.vocabulary is None else text_of_ids(_ids(cell), self.vocabulary)
        del cell
        address = _label(cells.get(self.url_column or ""))
        collection = _label(cells.get(self.source_column or ""))
        return document(utf8, collection or stem, host_of(address) if address else None)

    def _types(self) -> dict[str, str]:
        """What each column that is read must hold; the text's column first."""
        text = {self.text_column: "strings" if self.vocabulary is None else "lists of integers"}
        others = {name: "strings" for name in (self.source_column, self.url_column) if name is not None}
        return others | text

    def _check_columns(self, name: str, schema: pa.Schema) -> None:
        for column, kind in self._types().items():
            count = schema.names.count(column)
            if count == 0 and column == self.source_column != self.text_column:
                continue
            if count != 1:
                raise CorpusError(
                    f"{name} has {'no' if count == 0 else 'more than one'} column '{column}'",
                    expected=f"one column '{column}' of {kind}",
                    received="columns " + ", ".join(schema.names),
                    remedy=self._instead(column, schema),
                )
            found = schema.field(column).type
            if not (_of_integers if kind == "lists of integers" else _of_strings)(found):
                raise CorpusError(
                    f"the column '{column}' of {name} is of the wrong type",
                    expected=kind,
                    received=str(found),
                    remedy="name another column, or none of the collections (source_column), or declare the form of "
                    "the texts ('text' or 'gpt2-tokens')",
                )

    def _instead(self, missing: str, schema: pa.Schema) -> str:
        """What may have been meant by a column that is not there."""
        ids = [field.name for field in schema if _holds_ids(field.type)]
        if missing == self.text_column and self.vocabulary is None and ids:
            return (
                f"where '{ids[0]}' holds GPT-2 token ids, declare the form 'gpt2-tokens' (form in an experiment file, "
                "--form on the command line); else name the column of the text (text_column)"
            )
        return (
            "name the column that holds it (text_column, source_column, url_column), or take the file out of "
            f"{self.folder}"
        )


def _place(piece: Piece) -> str:
    return f"{piece.file}, row group {piece.part}"


def _bytes_of(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(index).total_compressed_size for index in range(group.num_columns))


def _of_strings(found: pa.DataType) -> bool:
    # A column of nothing but nulls has the null type.
    kinds = pa.types
    return (
        kinds.is_null(found)
        or kinds.is_string(found)
        or kinds.is_large_string(found)
        or kinds.is_string_view(found)
        or kinds.is_binary(found)
        or kinds.is_large_binary(found)
        or kinds.is_binary_view(found)
        or (kinds.is_dictionary(found) and _of_strings(found.value_type))
    )


def _of_integers(found: pa.DataType) -> bool:
    return pa.types.is_null(found) or _holds_ids(found)


def _holds_ids(found: pa.DataType) -> bool:
    kinds = pa.types
    lists = kinds.is_list(found) or kinds.is_large_list(found) or kinds.is_fixed_size_list(found)
    return lists and kinds.is_integer(found.value_type)


def _plain(column: pa.Array) -> pa.Array:
    """Strings as one of the two layouts with offsets."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    views = pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type)
    return column.cast(pa.large_binary()) if views else column


def _bytes(cell: pa.Array) -> bytes:
    # From the buffers: a scalar copies the value once more, and as a string it would be decoded.
    wide = pa.types.is_large_string(cell.type) or pa.types.is_large_binary(cell.type)
    _, offsets, content = cell.buffers()
    start, stop = np.frombuffer(
        offsets, np.int64 if wide else np.int32, count=2, offset=cell.offset * (8 if wide else 4)
    )
    return b"" if content is None else content.slice(int(start), int(stop - start)).to_pybytes()


def _label(cell: pa.Array | None) -> str | None:
    if cell is None or cell.null_count:
        return None
    try:
        return _bytes(cell).decode()
    except UnicodeDecodeError as error:
        raise BadValueError(
            Skip.INVALID_UTF8, expected="UTF-8 in every column that is read", received=repr(_bytes(cell)[:60])
        ) from error


def _ids(cell: pa.Array) -> Iterator[NDArray[np.integer]]:
    values = cell.flatten()
    if values.null_count:
        raise BadValueError(Skip.WRONG_TYPE, expected="a list of integers", received="a list with null in it")
    for start in range(0, len(values), _BLOCK_IDS):
        yield values.slice(start, _BLOCK_IDS).to_numpy()
