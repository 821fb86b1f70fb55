"""Freezes a corpus: documents become files of tokens, written once and never changed.

All files are written into a folder beside the final one, flushed to the disk, and renamed into place as the last
act. A process killed at any moment leaves either the finished corpus or none.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from paribus.data.corpus import Corpus, CorpusConfig, Document, Progress, read_corpus
from paribus.data.frozen import (
    MANIFEST,
    TOKENIZER,
    FrozenCorpus,
    SplitCounts,
    file_digest,
    index_digest,
    open_frozen,
    token_type,
)
from paribus.data.parquet_folder import source_digest
from paribus.data.split import SPLITS, Split, split_of
from paribus.data.tokenizer import Tokenizer
from paribus.errors import CorpusError, StorageError

__all__ = ["FrozenCorpus", "open_frozen", "prepare"]

_CHARACTERS_PER_BATCH = 4_000_000
_SOURCES_AT_MOST = 2**15


def prepare(
    corpus_config: CorpusConfig,
    folder: Path,
    *,
    vocabulary_size: int,
    progress: Progress | None = None,
) -> FrozenCorpus:
    """Freeze the declared corpus into the folder, or open the one that is already there.

    `progress` is called with (phase, done, total). Several processes may call this at once; one does the work.
    A finished folder is used as it is. For a Parquet corpus the source files must still be the ones it was made of.
    Raises CorpusError for a corpus that cannot be read or differs from the frozen one, StorageError where the disk
    refuses a write.
    """
    report = progress or (lambda *_: None)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Released by the kernel when its holder dies, so nobody waits for a dead process.
        with FileLock(folder.parent / f".{folder.name}.lock"):
            if folder.is_dir() and any(folder.iterdir()):
                frozen = open_frozen(folder)
                _check_same(frozen, corpus_config, vocabulary_size)
                return frozen
            partial = folder.parent / f".{folder.name}.partial"
            # Left by a process that was killed; under the lock nobody else is writing it.
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                _freeze(corpus_config, partial, vocabulary_size, report)
                report("move into place", 0, 1)
                partial.rename(folder)
                _flush(folder.parent)
                report("move into place", 1, 1)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
    except OSError as error:
        raise StorageError(
            "the corpus could not be written",
            expected=f"to write {folder}",
            received=f"{type(error).__name__}: {error}",
            remedy="free space or permissions there, then run the same command again",
        ) from error
    return open_frozen(folder)


def _freeze(config: CorpusConfig, partial: Path, vocabulary_size: int, report: Progress) -> None:
    digest = source_digest(config.folder) if config.folder is not None else None
    corpus = read_corpus(config, progress=report)
    splits = _splits(corpus, config)
    report("train the tokenizer", 0, 1)
    tokenizer = Tokenizer.train((document.text for document in splits["train"]), vocabulary_size)
    report("train the tokenizer", 1, 1)
    _write(
        partial,
        corpus,
        splits,
        tokenizer,
        declared={"config": config.as_json(), "requested_vocabulary_size": vocabulary_size, "source_digest": digest},
        report=report,
    )


def _splits(corpus: Corpus, config: CorpusConfig) -> dict[Split, list[Document]]:
    splits: dict[Split, list[Document]] = {name: [] for name in SPLITS}
    for document in corpus.documents:
        name = split_of(
            document.text, test_fraction=config.test_fraction, validation_fraction=config.validation_fraction
        )
        splits[name].append(document)
    fractions = {"train": 1.0, "validation": config.validation_fraction, "test": config.test_fraction}
    for name, documents in splits.items():
        if not documents and fractions[name] > 0:
            raise CorpusError(
                f"the {name} split is empty",
                expected=f"at least one document ({fractions[name]:.1%} of the corpus)",
                received=f"none of {len(corpus.documents)} documents",
                remedy=f"use more documents, or another {'test' if name == 'train' else name}_fraction",
            )
    return splits


def _write(
    partial: Path,
    corpus: Corpus,
    splits: dict[Split, list[Document]],
    tokenizer: Tokenizer,
    *,
    declared: dict[str, Any],
    report: Progress,
) -> None:
    sources = tuple(sorted({document.source for document in corpus.documents}))
    if len(sources) > _SOURCES_AT_MOST:
        raise CorpusError(
            "the corpus has too many sources",
            expected=f"at most {_SOURCES_AT_MOST} different values in the column 'source'",
            received=str(len(sources)),
            remedy="let the column name collections, not single documents",
        )
    tokenizer.save(partial / TOKENIZER)
    counts: dict[Split, SplitCounts] = {}
    files = {TOKENIZER: tokenizer.digest}
    index: dict[Split, str] = {}
    for name in SPLITS:
        tokens_path = partial / f"{name}.tokens"
        table, files[tokens_path.name] = _write_tokens(splits[name], tokenizer, tokens_path, name, report)
        documents_path = partial / f"{name}.documents.parquet"
        pq.write_table(table, documents_path)
        _flush(documents_path)
        files[documents_path.name] = file_digest(documents_path)
        index[name] = index_digest(table)
        counts[name] = SplitCounts(
            documents=len(table), bytes=sum(table["bytes"].to_pylist()), tokens=sum(table["tokens"].to_pylist())
        )
    frozen = FrozenCorpus(
        folder=partial,
        vocabulary_size=tokenizer.vocabulary_size,
        counts=counts,
        dropped=asdict(corpus.dropped),
        versions=dict(corpus.versions),
        sources=sources,
        files=files,
        index=index,
        **declared,
    )
    (partial / MANIFEST).write_text(frozen.to_json(), encoding="utf-8")
    for path in (partial / TOKENIZER, partial / MANIFEST, partial):
        _flush(path)


def _write_tokens(
    documents: Sequence[Document], tokenizer: Tokenizer, path: Path, name: str, report: Progress
) -> tuple[pa.Table, str]:
    """Write the token file; return the document table and the file's digest."""
    kind = token_type(tokenizer.vocabulary_size)
    digest = hashlib.blake2b(digest_size=32)
    lengths: list[int] = []
    with path.open("wb") as stream:
        for batch in _batches(documents):
            report(f"encode {name}", len(lengths), len(documents))
            for ids in tokenizer.encode_batch([document.text for document in batch]):
                content = ids.astype(kind).tobytes()
                stream.write(content)
                digest.update(content)
                lengths.append(len(ids))
        stream.flush()
        os.fsync(stream.fileno())
    report(f"encode {name}", len(lengths), len(documents))
    offsets = [0]
    for length in lengths:
        offsets.append(offsets[-1] + length)
    table = pa.table(
        {
            "id": pa.array([document.id for document in documents], pa.string()),
            "source": pa.array([document.source for document in documents], pa.string()),
            "offset": pa.array(offsets[:-1], pa.int64()),
            "tokens": pa.array(lengths, pa.int64()),
            "bytes": pa.array([len(document.text.encode()) for document in documents], pa.int64()),
        }
    )
    return table, digest.hexdigest()


def _batches(documents: Sequence[Document]) -> Iterator[Sequence[Document]]:
    """Consecutive documents of bounded total length, so that encoding needs bounded memory."""
    begin = characters = 0
    for end, document in enumerate(documents):
        if characters and characters + len(document.text) > _CHARACTERS_PER_BATCH:
            yield documents[begin:end]
            begin, characters = end, 0
        characters += len(document.text)
    if begin < len(documents):
        yield documents[begin:]


def _check_same(frozen: FrozenCorpus, config: CorpusConfig, vocabulary_size: int) -> None:
    # The folder's place is not part of what was frozen; the digest of its files is.
    declared = json.loads(json.dumps(config.as_json())) | {"vocabulary_size": vocabulary_size, "folder": None}
    stored = dict(frozen.config) | {"vocabulary_size": frozen.requested_vocabulary_size, "folder": None}
    different = sorted(name for name in declared | stored if declared.get(name) != stored.get(name))
    if different:
        raise CorpusError(
            "this study's corpus was frozen from another declaration",
            expected=", ".join(f"{name} = {stored.get(name)!r}" for name in different),
            received=", ".join(f"{name} = {declared.get(name)!r}" for name in different),
            remedy="restore the declaration, or give the study a new name",
        )
    if config.folder is not None and (received := source_digest(config.folder)) != frozen.source_digest:
        raise CorpusError(
            f"the files in {config.folder} are not the ones this study was frozen from",
            expected=f"source digest {frozen.source_digest}",
            received=received,
            remedy="restore the files, or give the study a new name",
        )


def _flush(path: Path) -> None:
    """Force a file's content, or a folder's entries, onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
