"""The documents of a lot, some at a time: from the source, or from the texts that the first reading kept."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from filelock import FileLock

from paribus.data.prepare.inventory import DOCUMENTS_PER_BLOCK, Lot, Work
from paribus.data.sources.contract import RawDocument, Skip

BATCH_BYTES = 1_000_000
BATCH_DOCUMENTS = 2_000
"""With 1 MB, whichever comes first: the lists of a batch stay small however short the texts are."""
LARGE_BYTES = 8_000_000
"""Of a document: what is done with it takes several times as much memory, so only one is worked on at a time."""
TEXT_SCHEMA = pa.schema([("text", pa.large_binary()), ("source", pa.string())])


@dataclass(frozen=True)
class Batch:
    """Consecutive documents of one block; a document larger than a batch is one."""

    block: int
    row: int
    """of the first, in its block"""
    documents: list[RawDocument]

    @property
    def texts(self) -> list[bytes]:
        return [document.utf8 for document in self.documents]


def first_batches(work: Work, lot: Lot, skips: Counter[Skip]) -> Iterator[Batch]:
    """The lot's documents in order. What is none is counted. Raises CorpusError as the source does."""
    documents = (document for piece in lot.pieces for document in work.source.read(piece))
    return _batches(documents, skips, _alone(work))


def batches(work: Work, lot: Lot) -> Iterator[Batch]:
    """The same once more, after the scan."""
    if work.keeps_texts:
        return _batches(_kept(work, lot), Counter(), _alone(work))
    return first_batches(work, lot, Counter())


def text_path(work: Work, lot: Lot) -> Path:
    """Where the texts are kept."""
    return work.path("scan", f"{lot.stem}.texts")


def keep(batch: Batch, writer: pa.ipc.RecordBatchFileWriter) -> None:
    """Store the texts of a batch."""
    arrays = [
        pa.array(batch.texts, pa.large_binary()),
        pa.array([document.source for document in batch.documents], pa.string()),
    ]
    writer.write_batch(pa.record_batch(arrays, schema=TEXT_SCHEMA))


def _kept(work: Work, lot: Lot) -> Iterator[RawDocument]:
    with pa.OSFile(str(text_path(work, lot))) as stream, pa.ipc.open_file(stream) as reader:
        for number in range(reader.num_record_batches):
            texts, sources = reader.get_batch(number).columns
            for text, source in zip(texts, sources, strict=True):
                yield RawDocument(text.as_buffer().to_pybytes(), source.as_py())


def _alone(work: Work) -> AbstractContextManager[object]:
    """What a process enters while it works on a large document. Where there is no other, it is not to be held: who
    keeps the traceback of an error keeps the reader, and with it the lock."""
    return FileLock(work.folder / "large.lock") if work.in_turns else nullcontext()


def _batches(
    documents: Iterable[RawDocument | Skip], skips: Counter[Skip], alone: AbstractContextManager[object]
) -> Iterator[Batch]:
    count = begin = size = 0
    found: list[RawDocument] = []
    for document in documents:
        if isinstance(document, Skip):
            skips[document] += 1
            continue
        full = size + len(document.utf8) > BATCH_BYTES or len(found) == BATCH_DOCUMENTS
        if found and (full or count % DOCUMENTS_PER_BLOCK == 0):
            yield Batch(begin // DOCUMENTS_PER_BLOCK, begin % DOCUMENTS_PER_BLOCK, found)
            begin, size, found = count, 0, []
        found.append(document)
        count += 1
        size += len(document.utf8)
        # A large text must not live on in a name while the next one is read.
        del document
        if size > LARGE_BYTES:
            with alone:
                yield Batch(begin // DOCUMENTS_PER_BLOCK, begin % DOCUMENTS_PER_BLOCK, found)
            begin, size, found = count, 0, []
    if found:
        yield Batch(begin // DOCUMENTS_PER_BLOCK, begin % DOCUMENTS_PER_BLOCK, found)
