"""A frozen corpus: the folder that training and measurement read, and the proof that it has not changed.

manifest.json                    what was declared, counted and written, with a digest of every file
tokenizer.json
{split}.tokens                   token ids without special tokens, uint16 or uint32, little endian, documents end to end
{split}.documents.parquet        one row a document: id, source, offset (token), tokens, bytes
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from paribus.data.split import SPLITS, Split
from paribus.data.tokenizer import Tokenizer
from paribus.errors import CorpusError, nearest

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
_REMEDY = "restore the folder from a copy, or delete it and prepare the corpus again under a new study name"


@dataclass(frozen=True)
class SplitCounts:
    documents: int
    bytes: int
    """UTF-8 bytes of the texts."""
    tokens: int
    """Without special tokens."""


@dataclass(frozen=True)
class DocumentTable:
    """The documents of one split, in the order of the token file; every array is `[document]`."""

    id: NDArray[np.str_]
    source: NDArray[np.int16]
    """Index in `FrozenCorpus.sources`."""
    offset: NDArray[np.int64]
    """Position of the first token in the token file."""
    tokens: NDArray[np.int64]
    bytes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True)
class TokenFile:
    tokens: NDArray[np.uint16] | NDArray[np.uint32]
    """`[token]`, memory-mapped and read-only."""
    documents: DocumentTable


@dataclass(frozen=True)
class FrozenCorpus:
    """The manifest of a frozen corpus, and the way to its files."""

    folder: Path
    config: Mapping[str, Any]
    """The declared corpus, as in the experiment file."""
    requested_vocabulary_size: int
    vocabulary_size: int
    """Token ids of the tokenizer; smaller than requested where the texts offered fewer merges."""
    counts: Mapping[Split, SplitCounts]
    dropped: Mapping[str, int]
    versions: Mapping[str, str]
    """Versions of the packages that local-docs read."""
    sources: tuple[str, ...]
    """Sorted names of all sources, over all splits."""
    source_digest: str | None
    """Digest of the Parquet files read; none for local-docs, whose packages may change while the copy stays."""
    files: Mapping[str, str]
    """blake2b-256 of each file, hexadecimal."""
    index: Mapping[Split, str]
    """Digest of each document table's values, which unlike its file does not depend on the writer's version."""

    @property
    def digest(self) -> str:
        """One string for the tokenizer, all token ids and the document tables: equal on every machine."""
        parts = [self.files[TOKENIZER], *(self.files[f"{split}.tokens"] for split in SPLITS)]
        parts += [self.index[split] for split in SPLITS]
        return hashlib.blake2b(" ".join(parts).encode(), digest_size=32).hexdigest()

    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.folder / TOKENIZER)

    def split(self, name: Split) -> TokenFile:
        """Tokens and documents of one split. Raises CorpusError where the files do not hold what the manifest says."""
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
        documents = self._documents(name)
        if len(documents) != expected.documents:
            path = self.folder / f"{name}.documents.parquet"
            raise _changed(path, f"{expected.documents} documents", f"{len(documents)} documents")
        return TokenFile(tokens, documents)

    def verify(self) -> None:
        """Read every file and compare its digest. Raises CorpusError naming the first file that changed."""
        for name, expected in self.files.items():
            received = file_digest(self.folder / name)
            if received != expected:
                raise _changed(self.folder / name, f"digest {expected}", f"digest {received}")
        for name in SPLITS:
            received = index_digest(self._table(name))
            if received != self.index[name]:
                path = self.folder / f"{name}.documents.parquet"
                raise _changed(path, f"values with digest {self.index[name]}", f"digest {received}")

    def to_json(self) -> str:
        """The manifest's text."""
        content = {"format_version": FORMAT_VERSION, "digest": self.digest} | asdict(self)
        del content["folder"]
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    def _table(self, name: Split) -> pa.Table:
        path = self.folder / f"{name}.documents.parquet"
        try:
            with pq.ParquetFile(path) as file:
                return file.read(columns=["id", "source", "offset", "tokens", "bytes"])
        except (pa.ArrowException, OSError) as error:
            raise _changed(path, "a readable Parquet file", f"{type(error).__name__}: {error}") from error

    def _documents(self, name: Split) -> DocumentTable:
        table = self._table(name)
        place = {source: index for index, source in enumerate(self.sources)}
        return DocumentTable(
            id=np.array(table["id"].to_pylist(), dtype="U32"),
            source=np.array([place[source] for source in table["source"].to_pylist()], dtype=np.int16),
            offset=table["offset"].to_numpy().astype(np.int64),
            tokens=table["tokens"].to_numpy().astype(np.int64),
            bytes=table["bytes"].to_numpy().astype(np.int64),
        )


def open_frozen(folder: Path) -> FrozenCorpus:
    """Read the manifest of a prepared corpus. Raises CorpusError where there is none, or one that cannot be used.

    The files' contents are not read; `FrozenCorpus.verify` does that.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
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
            remedy="prepare the corpus again with this version of paribus under a new study name",
        )
    try:
        digest = content.pop("digest")
        content["counts"] = {split: SplitCounts(**content["counts"][split]) for split in SPLITS}
        content["sources"] = tuple(content["sources"])
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


def file_digest(path: Path) -> str:
    """blake2b-256 of a file, hexadecimal. Raises CorpusError where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
    except OSError as error:
        raise _changed(path, "a readable file", f"{type(error).__name__}: {error}") from error


def index_digest(table: pa.Table) -> str:
    """blake2b-256 over the values of a document table, hexadecimal."""
    digest = hashlib.blake2b(digest_size=32)
    for name in ("id", "source"):
        digest.update(json.dumps(table[name].to_pylist()).encode())
    for name in ("offset", "tokens", "bytes"):
        digest.update(table[name].to_numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def _changed(path: Path, expected: str, received: str) -> CorpusError:
    return CorpusError(
        f"the frozen corpus has changed: {path.name}", expected=expected, received=received, remedy=_REMEDY
    )
