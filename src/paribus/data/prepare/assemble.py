"""The last act but one: the parts of all lots, in order, become one token file and one table for each split."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paribus.data.digests import file_digest
from paribus.data.frozen import IndexDigest
from paribus.data.prepare.encode import encoded, token_path
from paribus.data.prepare.finished import record, recorded
from paribus.data.prepare.inventory import Lot, Work
from paribus.data.split import SPLITS, Split
from paribus.disk import whole
from paribus.errors import CorpusError

STAGE = "assemble"
SOURCES_AT_MOST = 2**15
_ROWS_PER_GROUP = 65_536
_COPIED_BYTES = 4_000_000


def assemble(
    work: Work, lots: Sequence[Lot], split: Split, free: pa.Array | None, progress: Callable[[int], None]
) -> dict[str, Any]:
    """Write the split's two files among the working files, unless that is done.

    `free`: of the test split, `overlap_free` of each of its documents. Returns counts (documents, bytes, tokens), the
    digests of both files and of the table's values, their sizes, and the names of the sources. `progress` is called
    with the bytes of tokens written. Until the working files go, the disk holds the tokens twice.
    """
    mark = work.path(STAGE, f"{split}.json")
    if (done := recorded(mark)) is not None:
        return done
    tokens, table = work.path(STAGE, f"{split}.tokens"), work.path(STAGE, f"{split}.documents.parquet")
    digest = _join(work, lots, split, tokens, progress)
    summary = _write_table(work, lots, split, table, free)
    summary["files"] = {tokens.name: digest, table.name: file_digest(table)}
    summary["file_bytes"] = {path.name: path.stat().st_size for path in (tokens, table)}
    record(mark, [tokens, table], summary)
    return summary


def _join(work: Work, lots: Sequence[Lot], split: Split, path: Path, progress: Callable[[int], None]) -> str:
    digest = hashlib.blake2b(digest_size=32)
    written = 0
    with whole(path) as stream:
        for lot in lots:
            with token_path(work, lot, SPLITS.index(split)).open("rb") as part:
                while content := part.read(_COPIED_BYTES):
                    stream.write(content)
                    digest.update(content)
                    written += len(content)
            progress(written)
    return digest.hexdigest()


def _write_table(work: Work, lots: Sequence[Lot], split: Split, path: Path, free: pa.Array | None) -> dict[str, Any]:
    columns = [("id", pa.string()), ("source", pa.string()), ("offset", pa.int64())]
    columns += [("tokens", pa.int64()), ("bytes", pa.int64())]
    columns += [] if free is None else [("overlap_free", pa.bool_())]
    schema = pa.schema(columns)
    index = IndexDigest(schema.names)
    rows = decided = offset = size = 0
    sources: set[str] = set()
    waiting: list[pa.Table] = []
    with whole(path) as stream, pq.ParquetWriter(stream, schema) as writer:
        for lot in lots:
            for table in encoded(work, lot):
                of_split = table.filter(pc.field("split") == SPLITS.index(split))
                if free is not None:
                    of_split = of_split.append_column("overlap_free", free.slice(decided, len(of_split)))
                    decided += len(of_split)
                of_split = of_split.filter(pc.field("tokens") >= 0)
                lengths = of_split["tokens"].to_numpy()
                ends = offset + lengths.cumsum()
                of_split = of_split.append_column("offset", pa.array(ends - lengths, pa.int64()))
                if len(ends):
                    offset = int(ends[-1])
                of_split = of_split.select(schema.names)
                rows += len(of_split)
                size += int(of_split["bytes"].to_numpy().sum())
                sources.update(pc.call_function("unique", [of_split["source"]]).to_pylist())
                _check_sources(sources)
                index.update(of_split)
                waiting.append(of_split)
                if sum(map(len, waiting)) >= _ROWS_PER_GROUP:
                    writer.write_table(pa.concat_tables(waiting), row_group_size=2 * _ROWS_PER_GROUP)
                    waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting), row_group_size=2 * _ROWS_PER_GROUP)
    counts = {"documents": rows, "bytes": size, "tokens": offset}
    return {"counts": counts, "index": index.hexdigest(), "sources": sorted(sources)}


def move_into(folder: Path, work: Work, names: Sequence[str]) -> None:
    """Rename finished files out of the working files."""
    for name in names:
        work.path(STAGE, name).replace(folder / name)


def _check_sources(sources: set[str]) -> None:
    if len(sources) > SOURCES_AT_MOST:
        raise CorpusError(
            "the corpus has too many sources",
            expected=f"at most {SOURCES_AT_MOST} different names of collections",
            received="more",
            remedy="let the column of the source name collections, not single documents, or declare none",
        )
