"""The first reading: what must be known of every document before any can be kept, and not its text.

The corpus is read twice, here and when it is encoded, and no text is stored in between. Reading compressed Parquet
takes a few hundredths of the time that encoding it takes, so a stored copy would save next to nothing, and it would
need as much disk as the corpus' text. The second reading checks every document's id against the first one's. Only the
documentation of packages is stored: parsing 40 MB of source files for 12 MB of text takes longer than the rest.

Of a lot: the digests and, where near duplicates matter, the band keys of each block; a table of all documents.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from paribus.data.config import CorpusConfig
from paribus.data.duplicates import write_band_keys
from paribus.data.exact import write_digests
from paribus.data.overlap import NgramSet
from paribus.data.prepare.finished import record, recorded
from paribus.data.prepare.inventory import Lot, Work, block_number
from paribus.data.prepare.reading import TEXT_SCHEMA, first_batches, keep, text_path
from paribus.data.shingles import band_keys
from paribus.data.sources.contract import RawDocument, Skip
from paribus.data.split import SPLITS, split_beside_last_file, split_of_key
from paribus.disk import whole

STAGE = "scan"
EVALUATION = "evaluation"
"""the folder of the evaluation sets' 13-grams"""
BY_CLUSTER = -1
SCHEMA = pa.schema(
    [
        ("id", pa.binary(16)),
        ("source", pa.string()),
        ("bytes", pa.int64()),
        # place in SPLITS, or BY_CLUSTER
        ("split", pa.int8()),
        ("contaminated", pa.bool_()),
    ]
)


def needs_band_keys(config: CorpusConfig) -> bool:
    """Whether texts are compared for near duplicates, to drop them or to keep them in one split."""
    return config.near_duplicate_similarity is not None or config.split_by == "minhash-cluster"


def scan(work: Work, lot: Lot) -> dict[str, Any]:
    """Read a lot, unless that is done.

    Returns counts: documents, bytes, hostless (documents without a web address), skips, contaminated (of each set).
    """
    mark = work.path(STAGE, f"{lot.stem}.json")
    if (done := recorded(mark)) is not None:
        return done
    skips: Counter[Skip] = Counter()
    evaluation = _evaluation(work.folder / EVALUATION) if work.corpus.decontaminate else None
    in_last_file = work.corpus.held_out == "last-file" and lot.pieces[0].file == work.last_file
    contaminated = np.zeros(len(evaluation.files) if evaluation else 0, dtype=np.int64)
    documents = hostless = size = 0
    table = work.path(STAGE, f"{lot.stem}.documents")
    written: list[Path] = []
    with ExitStack() as stack:
        writer = stack.enter_context(pa.ipc.new_file(stack.enter_context(whole(table)), SCHEMA))
        texts_writer = None
        if work.keeps_texts:
            written.append(text_path(work, lot))
            stream = stack.enter_context(whole(text_path(work, lot)))
            texts_writer = stack.enter_context(pa.ipc.new_file(stream, TEXT_SCHEMA))
        block = _Block(0)
        for batch in first_batches(work, lot, skips):
            if batch.block != block.number:
                written += _flush(work, lot, block, writer)
                block = _Block(batch.block)
            texts = batch.texts
            hits = evaluation.matches(texts) if evaluation else np.zeros((len(texts), 0), dtype=np.bool_)
            contaminated += hits.sum(axis=0)
            block.contaminated.extend(np.any(hits, axis=1).tolist())
            if needs_band_keys(work.corpus):
                block.keys.append(band_keys(texts))
            for document in batch.documents:
                block.add(document, work.corpus, in_last_file)
            if texts_writer is not None:
                keep(batch, texts_writer)
            documents += len(texts)
            hostless += sum(document.host is None for document in batch.documents)
            size += sum(map(len, texts))
            del batch, texts
        written += _flush(work, lot, block, writer)
    summary = {
        "documents": documents,
        "bytes": size,
        "hostless": hostless,
        "skips": {str(reason): count for reason, count in sorted(skips.items())},
        "contaminated": contaminated.tolist(),
    }
    record(mark, [table, *written], summary)
    return summary


def scanned(work: Work, lot: Lot) -> Iterator[pa.RecordBatch]:
    """The table of a lot's documents, a block at a time."""
    with pa.OSFile(str(work.path(STAGE, f"{lot.stem}.documents"))) as stream, pa.ipc.open_file(stream) as reader:
        for block in range(reader.num_record_batches):
            yield reader.get_batch(block)


def digest_path(work: Work, lot: Lot, block: int) -> Path:
    return work.path(STAGE, f"{lot.stem}-{block:05d}.digests")


def band_path(work: Work, lot: Lot, block: int) -> Path:
    return work.path(STAGE, f"{lot.stem}-{block:05d}.bands")


def identity(utf8: bytes) -> bytes:
    """The 16 bytes whose hexadecimal form is the document's id."""
    return hashlib.blake2b(utf8, digest_size=16).digest()


@dataclass
class _Block:
    number: int
    ids: list[bytes] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)
    contaminated: list[bool] = field(default_factory=list)
    keys: list[NDArray[np.uint64]] = field(default_factory=list)

    def add(self, document: RawDocument, config: CorpusConfig, in_last_file: bool) -> None:
        self.ids.append(identity(document.utf8))
        self.sources.append(document.source)
        self.sizes.append(len(document.utf8))
        if config.split_by == "minhash-cluster":
            self.splits.append(BY_CLUSTER)
        else:
            by_host = config.split_by == "host" and document.host is not None
            key = document.host.encode() if by_host and document.host else document.utf8
            self.splits.append(split_number(config, key, in_last_file))


def split_number(config: CorpusConfig, key: bytes, in_last_file: bool) -> int:
    """The place in SPLITS of a document with this key."""
    if config.held_out == "last-file":
        split = split_beside_last_file(key, stands_in_last_file=in_last_file, test_fraction=config.test_fraction)
    else:
        split = split_of_key(key, test_fraction=config.test_fraction, validation_fraction=config.validation_fraction)
    return SPLITS.index(split)


def _flush(work: Work, lot: Lot, block: _Block, writer: pa.ipc.RecordBatchFileWriter) -> list[Path]:
    if not block.ids:
        return []
    columns = [block.ids, block.sources, block.sizes, block.splits, block.contaminated]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
    number = block_number(lot.number, block.number)
    write_digests(digest_path(work, lot, block.number), number, block.ids)
    written = [digest_path(work, lot, block.number)]
    if block.keys:
        write_band_keys(band_path(work, lot, block.number), number, block.keys)
        written.append(band_path(work, lot, block.number))
    return written


@lru_cache(maxsize=1)
def _evaluation(folder: Path) -> NgramSet:
    return NgramSet.open(folder)
