"""A frozen corpus: the folder that training and measurement read, and the proof that it has not changed.

manifest.json                    what was declared, counted and written, with a digest of every file
tokenizer.json
{split}.tokens                   token ids without special tokens, uint16 or uint32, little endian, documents end to end
{split}.documents.parquet        one row a document: id, source, offset (token), tokens, bytes; of test: overlap_free
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from paribus.data.digests import REMEMBERED, RememberedDigests
from paribus.data.marks import NOT_CHECKED
from paribus.data.sources.contract import SourceFile
from paribus.data.split import SPLITS, Split
from paribus.data.tokenizer import Tokenizer
from paribus.disk import sealed, unsealed
from paribus.errors import CorpusError, nearest

FORMAT_VERSION = 2
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
_ROWS_PER_READ = 65_536
_REMEDY = "restore the folder from a copy, or delete it and prepare the corpus again"


@dataclass(frozen=True)
class SplitCounts:
    documents: int
    bytes: int
    """UTF-8 bytes of the texts."""
    tokens: int
    """Without special tokens."""


class Ids(Protocol):
    """Ids of documents `[document]`: `DocumentIds`, or a NumPy array of strings."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def tolist(self) -> Any: ...


class DocumentIds(Sequence[str]):
    """The ids of consecutive rows of a document table, read when one is first asked for: training never asks.

    36 bytes a document once they are read, and twice as much again as a list.
    """

    def __init__(self, path: Path, begin: int, end: int) -> None:
        self._path, self._begin, self._end = path, begin, end

    def __len__(self) -> int:
        return self._end - self._begin

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, int | np.integer):
            return self._column[int(place)].as_py()
        begin, end, step = place.indices(len(self))
        if step != 1:
            return self.tolist()[place]
        return DocumentIds(self._path, self._begin + begin, self._begin + max(begin, end))

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def tolist(self) -> list[str]:
        return self._column.to_pylist()

    @cached_property
    def _column(self) -> pa.ChunkedArray:
        found, row = [], 0
        for (batch,) in _batches(self._path, ["id"]):
            found.append(batch[max(self._begin - row, 0) : max(self._end - row, 0)])
            row += len(batch)
            if row >= self._end:
                break
        return pa.chunked_array(found, pa.string())


@dataclass(frozen=True)
class DocumentTable:
    """The documents of one split, in the order of the token file; every array is `[document]`."""

    id: Ids
    source: NDArray[np.int16]
    """Index in `FrozenCorpus.sources`."""
    offset: NDArray[np.int64]
    """Position of the first token in the token file."""
    tokens: NDArray[np.int64]
    bytes: NDArray[np.int64]
    overlap_free: NDArray[np.int8] | None = None
    """Of the test split: 1 where the text shares no 13-gram with the training texts, 0 where it does, `NOT_CHECKED`
    where that is not known. None of the other splits."""

    def __len__(self) -> int:
        return len(self.id)

    def first(self, count: int) -> Self:
        """The first documents."""
        columns = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return replace(self, **{name: None if column is None else column[:count] for name, column in columns.items()})


@dataclass(frozen=True)
class TokenFile:
    tokens: NDArray[np.uint16] | NDArray[np.uint32]
    """`[token]`, memory-mapped and read-only."""
    documents: DocumentTable


@dataclass(frozen=True)
class FrozenCorpus:
    """The manifest of a frozen corpus, and the way to its files."""

    folder: Path
    name: str
    key: str
    """Of everything that was declared and of every file it was made of; the folder's name ends in its beginning."""
    config: Mapping[str, Any]
    """The declared corpus, without places."""
    tokenizer_config: Mapping[str, Any]
    """The declared tokenizer; of one that was loaded, with the file's digest."""
    split_rule: Mapping[str, Any]
    """What decides the splits, and a digest of what it decides for a fixed list of keys."""
    vocabulary_size: int
    """Token ids of the tokenizer; of one that was learnt, fewer than declared where the texts offered fewer merges."""
    bos_id: int
    """The token that marks where a document begins; it stands in no token file."""
    counts: Mapping[Split, SplitCounts]
    dropped: Mapping[str, int]
    """How much was read and not kept, by reason."""
    contaminated_by: Mapping[str, int]
    """Documents that share a 13-gram with each evaluation set, whatever else became of them."""
    overlap: Mapping[str, int]
    """Test documents that are free of 13-grams of the training texts, that are not, and that were not checked."""
    versions: Mapping[str, str]
    """Versions of the packages that local-docs read."""
    made_with: Mapping[str, str]
    """Versions of paribus and of the libraries that decide tokens or write files."""
    sources: tuple[str, ...]
    """Sorted names of all sources, over all splits."""
    source_files: tuple[SourceFile, ...]
    """What was read; none for local-docs, whose packages may change while the copy stays."""
    evaluation_files: tuple[SourceFile, ...]
    """What the training documents were compared with to decontaminate them."""
    files: Mapping[str, str]
    """blake2b-256 of each file, hexadecimal."""
    file_bytes: Mapping[str, int]
    """Size of each of them."""
    index: Mapping[Split, str]
    """Digest of each document table's values, which unlike its file does not depend on the writer's version."""
    hostless: int = 0
    """Where the split is by host: documents that were read without a web address. Each is split by its own text."""

    @property
    def digest(self) -> str:
        """One string for the tokenizer, all token ids and the document tables: equal on every machine."""
        parts = [self.files[TOKENIZER], *(self.files[f"{split}.tokens"] for split in SPLITS)]
        parts += [self.index[split] for split in SPLITS]
        return hashlib.blake2b(" ".join(parts).encode(), digest_size=32).hexdigest()

    @property
    def tokenizer_digest(self) -> str:
        """blake2b-256 of tokenizer.json, hexadecimal."""
        return self.files[TOKENIZER]

    def tokenizer(self) -> Tokenizer:
        special = self.tokenizer_config.get("special_tokens")
        return Tokenizer.load(self.folder / TOKENIZER, special[0] if special else self.tokenizer_config["beginning"])

    def split(self, name: Split) -> TokenFile:
        """Tokens and documents of one split. Raises CorpusError where the files do not hold what the manifest says.

        Memory: 26 bytes a document; the tokens and the ids stay on the disk.
        """
        if name not in SPLITS:
            raise CorpusError("unknown split", expected=", ".join(SPLITS), received=name, remedy=nearest(name, SPLITS))
        expected = self.counts[name]
        path = self.folder / f"{name}.tokens"
        kind = token_type(self.vocabulary_size)
        try:
            size = path.stat().st_size
            # An empty file cannot be mapped; a split may be empty where its fraction is 0.
            tokens = np.memmap(path, dtype=kind, mode="r") if size and size % kind.itemsize == 0 else np.zeros(0, kind)
        except OSError as error:
            raise _changed(path, "a readable file", f"{type(error).__name__}: {error}") from error
        if size != expected.tokens * kind.itemsize:
            raise _changed(path, f"{expected.tokens * kind.itemsize} bytes", f"{size} bytes")
        return TokenFile(tokens, self._documents(name))

    def verify(self, remembered: Path | None = None) -> None:
        """Compare every file's size and digest. Raises CorpusError naming the first file that changed.

        A file is read only where it was not read before, as the digests remembered in `remembered` (by default beside
        the corpus' folder) tell by size, time of change and inode: of several processes that verify, one reads.
        """
        for name, expected in self.file_bytes.items():
            path = self.folder / name
            try:
                received = path.stat().st_size
            except OSError as error:
                raise _changed(path, "a readable file", f"{type(error).__name__}: {error}") from error
            if received != expected:
                raise _changed(path, f"digest {self.files[name]} over {expected} bytes", f"{received} bytes")
        with RememberedDigests(remembered or self.folder.parent / REMEMBERED) as digests:
            for name, expected in self.files.items():
                path = self.folder / name
                try:
                    received = digests.of(path)
                except OSError as error:
                    raise _changed(path, "a readable file", f"{type(error).__name__}: {error}") from error
                if received != expected:
                    raise _changed(path, f"digest {expected}", f"digest {received}")

    def to_json(self) -> str:
        """The manifest's text, with a checksum of its own."""
        content = {"format_version": FORMAT_VERSION, "digest": self.digest} | asdict(self)
        del content["folder"]
        return sealed(content).decode()

    def _documents(self, name: Split) -> DocumentTable:
        path = self.folder / f"{name}.documents.parquet"
        count = self.counts[name].documents
        place = {source: index for index, source in enumerate(self.sources)}
        source = np.empty(count, dtype=np.int16)
        numbers = {column: np.empty(count, dtype=np.int64) for column in ("offset", "tokens", "bytes")}
        free = np.empty(count, dtype=np.int8) if name == "test" else None
        columns = ["source", *numbers, *(["overlap_free"] if free is not None else [])]
        row = 0
        for batch in _batches(path, columns):
            rows = slice(row, row := row + len(batch[0]))
            if row > count:
                break
            names = batch[0].dictionary_encode()
            of_names = np.array([place.get(source, -1) for source in names.dictionary.to_pylist()], dtype=np.int16)
            if (of_names < 0).any():
                raise _changed(path, "the sources that the manifest lists", str(names.dictionary.to_pylist()))
            source[rows] = of_names[names.indices.to_numpy()]
            for column, values in zip(numbers, batch[1:], strict=False):
                numbers[column][rows] = values.to_numpy()
            if free is not None:
                free[rows] = batch[-1].cast(pa.int8()).fill_null(NOT_CHECKED).to_numpy()
        if row != count:
            raise _changed(path, f"{count} documents", f"{row} documents" if row < count else "more documents")
        return DocumentTable(DocumentIds(path, 0, count), source, **numbers, overlap_free=free)


def open_frozen(folder: Path) -> FrozenCorpus:
    """Read the manifest of a prepared corpus. Raises CorpusError where there is none, or one that cannot be used.

    The files' contents are not read; `FrozenCorpus.verify` does that.
    """
    path = folder / MANIFEST
    try:
        content, _ = unsealed(path.read_bytes())
    except FileNotFoundError as error:
        raise CorpusError(
            "no frozen corpus here",
            expected=f"a finished corpus with a {MANIFEST} in {folder}",
            received="no such folder" if not folder.exists() else f"a folder without {MANIFEST}",
            remedy="prepare the corpus first",
        ) from error
    except (OSError, ValueError) as error:
        raise _changed(path, "a readable manifest", f"{type(error).__name__}: {error}") from error
    version = content.pop("format_version", None) if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise CorpusError(
            f"{MANIFEST} has another format",
            expected=f"format version {FORMAT_VERSION}",
            received=str(version),
            remedy="prepare the corpus again with this version of paribus",
        )
    try:
        digest = content.pop("digest")
        content["counts"] = {split: SplitCounts(**content["counts"][split]) for split in SPLITS}
        content["sources"] = tuple(content["sources"])
        for name in ("source_files", "evaluation_files"):
            content[name] = tuple(SourceFile(**entry) for entry in content[name])
        frozen = FrozenCorpus(folder=folder, **content)
        consistent = digest == frozen.digest
    except (KeyError, TypeError) as error:
        names = ", ".join(entry.name for entry in fields(FrozenCorpus) if entry.name != "folder")
        raise _changed(path, f"the fields {names}", f"{type(error).__name__}: {error}") from error
    if not consistent:
        raise _changed(path, f"digest {digest}, as written", f"{frozen.digest}, from the digests it lists")
    return frozen


def token_type(vocabulary_size: int) -> np.dtype[Any]:
    """The smallest unsigned type that holds every token id, little endian."""
    return np.dtype("<u2") if vocabulary_size <= 65536 else np.dtype("<u4")


class IndexDigest:
    """blake2b-256 over the values of a document table that comes in parts of any size."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = {name: hashlib.blake2b(digest_size=32) for name in columns}

    def update(self, table: pa.Table) -> None:
        for name, digest in self._columns.items():
            column = table[name]
            if pa.types.is_string(column.type):
                digest.update("".join(f"{len(value)}:{value}" for value in column.to_pylist()).encode())
            else:
                numbers = column.cast(pa.int64()).fill_null(NOT_CHECKED)
                digest.update(numbers.to_numpy().astype("<i8").tobytes())

    def hexdigest(self) -> str:
        joined = " ".join(f"{name} {digest.hexdigest()}" for name, digest in self._columns.items())
        return hashlib.blake2b(joined.encode(), digest_size=32).hexdigest()


def index_digest(table: pa.Table) -> str:
    """The same of a table that is whole."""
    digest = IndexDigest(table.column_names)
    digest.update(table)
    return digest.hexdigest()


def _batches(path: Path, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
    """The columns of a document table, some rows at a time. Raises CorpusError for one that cannot be read."""
    try:
        with pq.ParquetFile(path) as file:
            missing = set(columns) - set(file.schema_arrow.names)
            if missing:
                raise _changed(path, f"the columns {', '.join(columns)}", ", ".join(file.schema_arrow.names))
            for batch in file.iter_batches(_ROWS_PER_READ, columns=list(columns)):
                yield [batch[name] for name in columns]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last of a damaged footer
        raise _changed(path, "a readable Parquet file", f"{type(error).__name__}: {error}") from error


def _changed(path: Path, expected: str, received: str) -> CorpusError:
    return CorpusError(
        f"the frozen corpus has changed: {path.name}", expected=expected, received=received, remedy=_REMEDY
    )
