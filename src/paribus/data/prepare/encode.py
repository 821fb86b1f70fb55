"""The second reading: the kept documents of a lot become tokens, in one file for each split."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from paribus.data.chunks import LongRunError
from paribus.data.frozen import TOKENIZER
from paribus.data.overlap import HeldOutNgrams
from paribus.data.prepare import learn, marks
from paribus.data.prepare.dedupe import decisions_of
from paribus.data.prepare.finished import record, recorded
from paribus.data.prepare.inventory import DOCUMENTS_PER_BLOCK, Lot, Work
from paribus.data.prepare.reading import BATCH_BYTES, Batch, batches
from paribus.data.prepare.scan import identity, scanned
from paribus.data.split import SPLITS
from paribus.data.tokenizer import Tokenizer
from paribus.disk import whole
from paribus.errors import CorpusError

STAGE = "encode"
SCHEMA = pa.schema(
    [("id", pa.string()), ("source", pa.string()), ("tokens", pa.int64()), ("bytes", pa.int64()), ("split", pa.int8())]
)


_TRAIN = SPLITS.index("train")
_UNCUTTABLE = -1
"""tokens of a document that cannot be encoded in bounded memory; its row stays until the splits are put together"""


@dataclass(frozen=True)
class EncodeTask:
    lot: Lot
    first: int
    """documents before it"""
    documents: int
    beginning: str | None
    """name of the tokenizer's token for the beginning of a document"""


def encode(work: Work, task: EncodeTask) -> dict[str, Any]:
    """Encode a lot, unless that is done. Returns counts: documents, bytes, tokens, uncuttable.

    Raises CorpusError where the source is no longer what it was, and for a text that cannot be encoded.
    """
    mark = work.path(STAGE, f"{task.lot.stem}.json")
    if (done := recorded(mark)) is not None:
        return done
    tokenizer = _tokenizer(work.path(learn.STAGE, TOKENIZER), task.beginning)
    held_out = _held_out(work.folder / marks.STAGE)
    decisions = decisions_of(work, task.first, task.documents)
    before = scanned(work, task.lot)
    paths = [token_path(work, task.lot, place) for place in range(len(SPLITS))]
    table, hits = document_path(work, task.lot), work.path(STAGE, f"{task.lot.stem}.hits")
    written = _Written()
    with ExitStack() as stack:
        streams = [stack.enter_context(whole(path)) for path in paths]
        hit_stream = stack.enter_context(whole(hits))
        writer = stack.enter_context(pa.ipc.new_file(stack.enter_context(whole(table)), SCHEMA))
        block, ids, count = -1, [], 0
        for batch in batches(work, task.lot):
            if batch.block != block:
                written.flush(writer)
                block, ids = batch.block, next(before)["id"].to_pylist()
            rows = slice(batch.row, batch.row + len(batch.documents))
            if [identity(text) for text in batch.texts] != ids[rows]:
                raise _changed(task.lot)
            count += len(batch.documents)
            begin = batch.block * DOCUMENTS_PER_BLOCK + batch.row
            _encode_batch(work, tokenizer, batch, decisions[begin:], ids[rows], streams, written)
            trained = [
                text for text, decision in zip(batch.texts, decisions[begin:], strict=False) if decision == _TRAIN
            ]
            hit_stream.write(held_out.hits(trained).tobytes())
            del batch, trained
        written.flush(writer)
        if count != task.documents:
            raise _changed(task.lot)
    summary = {
        "documents": written.count,
        "bytes": written.size,
        "tokens": written.token_count,
        "uncuttable": written.uncuttable,
    }
    record(mark, [*paths, table, hits], summary)
    return summary


def encoded(work: Work, lot: Lot) -> Iterator[pa.Table]:
    """The table of a lot's kept documents in order, some at a time; those with fewer than no tokens are dropped."""
    with pa.OSFile(str(document_path(work, lot))) as stream, pa.ipc.open_file(stream) as reader:
        for block in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(block)])


def token_path(work: Work, lot: Lot, split: int) -> Path:
    """The tokens of a lot's documents in a split (its place in SPLITS)."""
    return work.path(STAGE, f"{lot.stem}.{SPLITS[split]}.tokens")


def document_path(work: Work, lot: Lot) -> Path:
    return work.path(STAGE, f"{lot.stem}.documents")


@dataclass
class _Written:
    """The rows of documents that are not in the table yet, and counts of all."""

    rows: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    count: int = 0
    size: int = 0
    token_count: int = 0
    uncuttable: int = 0

    def add(self, identity: bytes, source: str, tokens: int, size: int, split: int) -> None:
        self.rows.append((identity.hex(), source, tokens, size, split))
        if tokens == _UNCUTTABLE:
            self.uncuttable += 1
            return
        self.count += 1
        self.size += size
        self.token_count += tokens

    def flush(self, writer: pa.ipc.RecordBatchFileWriter) -> None:
        if self.rows:
            columns = zip(*self.rows, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
            self.rows = []


def _encode_batch(
    work: Work,
    tokenizer: Tokenizer,
    batch: Batch,
    decisions: NDArray[np.uint8],
    ids: Sequence[bytes],
    streams: Sequence[BinaryIO],
    written: _Written,
) -> None:
    kept = [place for place in range(len(batch.documents)) if decisions[place] < len(SPLITS)]
    lengths: dict[int, int] = {}
    for split, stream in enumerate(streams):
        places = [place for place in kept if decisions[place] == split]
        texts = [batch.documents[place].utf8 for place in places]
        if sum(map(len, texts)) <= BATCH_BYTES:
            try:
                tokens, counts = tokenizer.encode_batch_utf8(texts)
                stream.write(tokens.tobytes())
                lengths |= dict(zip(places, counts.tolist(), strict=True))
                continue
            except LongRunError:
                # One by one, it will show which it is.
                pass
        for place, text in zip(places, texts, strict=True):
            begin = stream.tell()
            try:
                lengths[place] = 0
                for tokens in tokenizer.encode_utf8(text):
                    stream.write(tokens.tobytes())
                    lengths[place] += len(tokens)
            except LongRunError as error:
                if work.corpus.bad_documents == "refuse":
                    raise CorpusError(
                        f"{batch.documents[place].source}: document {ids[place].hex()}: {error.what}",
                        expected=error.expected,
                        received=error.received,
                        remedy='leave the document out, or declare bad_documents = "skip"',
                    ) from error
                stream.truncate(begin)
                stream.seek(begin)
                lengths[place] = _UNCUTTABLE
    for place in kept:
        document = batch.documents[place]
        written.add(ids[place], document.source, lengths[place], len(document.utf8), int(decisions[place]))


def _changed(lot: Lot) -> CorpusError:
    first, last = lot.pieces[0], lot.pieces[-1]
    return CorpusError(
        f"{first} changed while the corpus was prepared" if first == last else f"a file from {first} to {last} changed",
        expected="the documents that were there when it was read first",
        received="others",
        remedy="let nothing write to the source, and prepare the corpus again",
    )


@lru_cache(maxsize=1)
def _tokenizer(path: Path, beginning: str | None) -> Tokenizer:
    return Tokenizer.load(path, beginning)


@lru_cache(maxsize=1)
def _held_out(folder: Path) -> HeldOutNgrams:
    return HeldOutNgrams.open(folder)
