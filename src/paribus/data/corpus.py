"""What a corpus is: documents in a fixed order, without duplicates, and an account of all that was left out.

A reader (`local_docs`, `parquet_folder`) yields raw documents; this file joins them to one corpus. The texts of a
corpus are held in memory while it is prepared; afterwards only the frozen copy (`shards`) is read.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Literal, Self

import numpy as np

from paribus.data.duplicates import near_duplicates
from paribus.data.local_docs import LOCAL_DOCS_PACKAGES, read_local_docs
from paribus.data.parquet_folder import read_parquet_folder
from paribus.errors import CorpusError, nearest

Progress = Callable[[str, int, int], None]
"""Called with (phase, done, total) while a corpus is prepared; total is 0 where it is not known beforehand."""


@dataclass(frozen=True)
class Document:
    id: str
    """blake2b-128 of the UTF-8 text, hexadecimal: equal texts have equal ids on every machine."""
    text: str
    source: str
    """Where it came from (a package, a collection); results can be sliced by it."""

    @classmethod
    def of(cls, text: str, source: str) -> Self:
        return cls(hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), text, source)


@dataclass(frozen=True)
class CorpusConfig:
    """Which documents an experiment reads, as its file declares them."""

    kind: Literal["local-docs", "parquet"] = "local-docs"
    """`local-docs`: the docstrings installed on this machine, no download. `parquet`: a folder of Parquet files."""
    folder: Path | None = None
    """The folder of a `parquet` corpus: files `*.parquet` with a column `text`, optionally a column `source`."""
    packages: tuple[str, ...] = LOCAL_DOCS_PACKAGES
    """What `local-docs` reads: `pydoc-topics`, `python` (the standard library) and names of installed packages."""
    minimum_characters: int = 200
    """`local-docs` documents shorter than this are dropped; a Parquet corpus keeps every text that is not blank."""
    near_duplicate_similarity: float | None = 0.8
    """Jaccard similarity of word shingles from which a document repeats an earlier one; none: keep near duplicates."""
    test_fraction: float = 0.04
    """Share of the documents that no training and no tuning ever sees."""
    validation_fraction: float = 0.02
    """Share of the documents for tuning."""

    def __post_init__(self) -> None:
        if self.kind not in ("local-docs", "parquet"):
            raise CorpusError(
                "unknown kind of corpus",
                expected="local-docs or parquet",
                received=repr(self.kind),
                remedy=nearest(str(self.kind), ["local-docs", "parquet"]),
            )
        if (self.kind == "parquet") != (self.folder is not None):
            raise CorpusError(
                "a corpus is either the local docs or a folder of Parquet files",
                expected="a folder exactly when kind is 'parquet'",
                received=f"kind {self.kind!r}, folder {self.folder}",
                remedy="name the folder, or leave it out for local-docs",
            )
        held_out = self.test_fraction + self.validation_fraction
        if not (self.test_fraction >= 0 and self.validation_fraction >= 0 and held_out < 1):
            raise CorpusError(
                "the split fractions leave no training split",
                expected="test_fraction >= 0, validation_fraction >= 0, their sum < 1",
                received=f"test_fraction {self.test_fraction}, validation_fraction {self.validation_fraction}",
            )
        similarity = self.near_duplicate_similarity
        if similarity is not None and not 0.7 <= similarity <= 1:
            raise CorpusError(
                "the near-duplicate similarity is out of range",
                expected="0.7 to 1 (below, the banded index misses too many pairs), or none to keep near duplicates",
                received=str(similarity),
            )

    def as_json(self) -> dict[str, object]:
        """The declared fields as JSON types. Fields of the other kind are left out: they select nothing."""
        declared = asdict(self) | {"folder": str(self.folder), "packages": list(self.packages)}
        unused = {"local-docs": ("folder",), "parquet": ("packages", "minimum_characters")}[self.kind]
        return {name: value for name, value in declared.items() if name not in unused}


@dataclass(frozen=True)
class Dropped:
    """How much was read and not kept."""

    exact_duplicates: int = 0
    near_duplicates: int = 0
    too_short: int = 0
    empty: int = 0
    """Texts that are null or blank."""
    skipped_files: int = 0
    """Source files that could not be decoded or parsed."""


@dataclass(frozen=True)
class Corpus:
    documents: tuple[Document, ...]
    dropped: Dropped
    versions: Mapping[str, str] = field(default_factory=dict)
    """Version of each package that `local-docs` read; `absent` where it is not installed."""


def read_corpus(config: CorpusConfig, *, progress: Progress | None = None) -> Corpus:
    """All documents of the declared corpus, in the order of the sorted sources, duplicates dropped.

    Raises CorpusError for a missing, unreadable or empty source.
    """
    report = progress or _silent
    if config.kind == "local-docs":
        raw = read_local_docs(config.packages, report)
        minimum_characters = config.minimum_characters
    else:
        assert config.folder is not None
        raw = read_parquet_folder(config.folder, report)
        minimum_characters = 0
    counts = {counter.name: 0 for counter in fields(Dropped)} | {"empty": raw.empty, "skipped_files": raw.skipped_files}
    kept: dict[str, Document] = {}
    for text, source in _longer(raw.texts, minimum_characters, counts):
        document = Document.of(text, source)
        if document.id in kept:
            counts["exact_duplicates"] += 1
        else:
            kept[document.id] = document
    documents = tuple(kept.values())
    if config.near_duplicate_similarity is not None and documents:
        repeats = near_duplicates([document.text for document in documents], config.near_duplicate_similarity, report)
        counts["near_duplicates"] = int(np.count_nonzero(repeats))
        documents = tuple(document for document, repeat in zip(documents, repeats, strict=True) if not repeat)
    if not documents:
        raise CorpusError(
            "the corpus is empty",
            expected="at least one document",
            received=", ".join(f"{name} {count}" for name, count in counts.items()),
            remedy="name packages that are installed, or a folder whose Parquet files hold texts",
        )
    return Corpus(documents, Dropped(**counts), raw.versions)


def _longer(
    texts: Iterable[tuple[str, str]], minimum_characters: int, counts: dict[str, int]
) -> Iterable[tuple[str, str]]:
    for text, source in texts:
        if len(text) < minimum_characters:
            counts["too_short"] += 1
        else:
            yield text, source


def _silent(phase: str, done: int, total: int) -> None:
    del phase, done, total
