"""Texts to look at a model with: a file, a folder of files, or the validation split of a prepared corpus.

Whole documents are read in order until they hold as many tokens as asked for, and are scored as those of a study are
(`paribus.data.windows`). Documents of a prepared corpus are turned back into their bytes, so that the model reads them
with its own tokenizer whatever the corpus was prepared with.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from paribus.data.config import CorpusConfig
from paribus.data.frozen import MANIFEST, DocumentTable, TokenFile, open_frozen
from paribus.data.held_out import EvaluationBatch, HeldOut
from paribus.data.sources import open_source
from paribus.data.sources.contract import RawDocument, Source
from paribus.data.sources.jsonl import JsonlSource
from paribus.data.sources.parquet import ParquetSource
from paribus.data.sources.text import TextSource
from paribus.data.store import find_prepared
from paribus.data.tokenizer import Tokenizer
from paribus.data.windows import windows
from paribus.errors import CorpusError

SPLIT = "validation"
_TEXT, _PARQUET, _JSON_LINES = (".txt", ".md"), (".parquet",), (".jsonl", ".ndjson", ".json.gz", ".json.zst")
_COMPRESSED = (".gz", ".zst")


def read_texts(text: str, runs: Path, tokenizer: Tokenizer, tokens: int, context_length: int) -> HeldOut:
    """The first documents of `text`, whole, until they hold `tokens` tokens.

    CorpusError where nothing can be read, or nothing but white space is there.
    """
    ids: list[np.ndarray] = []
    sizes: list[int] = []
    sources: list[str] = []
    held = 0
    for document in _documents(text, runs):
        encoded, _ = tokenizer.encode_batch_utf8([document.utf8])
        if not len(encoded):
            continue
        ids.append(encoded)
        sizes.append(len(document.utf8))
        sources.append(document.source)
        held += len(encoded)
        if held >= tokens:
            break
    if not ids:
        raise CorpusError("there is no document to read", expected="at least one text", received=text)
    return _held_out(ids, sizes, sources, tokenizer, context_length)


def _held_out(
    ids: list[np.ndarray], sizes: list[int], sources: list[str], tokenizer: Tokenizer, context_length: int
) -> HeldOut:
    names = [f"{place}" for place in range(len(ids))]
    kinds = sorted(set(sources))
    lengths = np.array([len(each) for each in ids], dtype=np.int64)
    documents = DocumentTable(
        id=np.array(names),
        source=np.array([kinds.index(source) for source in sources], dtype=np.int16),
        offset=np.cumsum(lengths) - lengths,
        tokens=lengths,
        bytes=np.array(sizes, dtype=np.int64),
    )
    file = TokenFile(np.concatenate(ids), documents)

    def batches(max_tokens: int) -> Iterator[EvaluationBatch]:
        return windows(file, context_length, tokenizer.bos_id).batches(max_tokens)

    return HeldOut(names, sources, lengths, documents.bytes, None, len(names), batches)


def _documents(text: str, runs: Path) -> Iterator[RawDocument]:
    path = Path(text)
    if path.is_dir() and not (path / MANIFEST).exists():
        return _of_source(open_source(CorpusConfig(kind="folder", folder=path)))
    if path.is_file():
        return _of_source(_file(path))
    if path.suffix and not path.exists():
        raise CorpusError(
            "there is no such text",
            expected="a file, a folder, or a name of `paribus data list`",
            received=text,
            remedy="correct the path",
        )
    return _of_prepared(path if path.is_dir() else find_prepared(runs, text))


def _of_source(source: Source) -> Iterator[RawDocument]:
    for piece in source.pieces():
        for document in source.read(piece):
            if isinstance(document, RawDocument):
                yield document


def _of_prepared(folder: Path) -> Iterator[RawDocument]:
    frozen = open_frozen(folder)
    own, split = frozen.tokenizer(), frozen.split(SPLIT)
    table = split.documents
    for source, offset, tokens in zip(table.source, table.offset, table.tokens, strict=True):
        utf8 = own.decode_bytes(split.tokens[offset : offset + tokens])
        yield RawDocument(utf8, frozen.sources[source])


def _file(path: Path) -> Source:
    name = path.name.lower()
    plain = name.removesuffix(".gz").removesuffix(".zst")
    if name.endswith(_TEXT):
        return TextSource(path.parent, (path.name,))
    if name.endswith(_PARQUET):
        return ParquetSource(path.parent, (path.name,))
    if plain.endswith(_JSON_LINES) or name.endswith(_JSON_LINES):
        return JsonlSource(path.parent, (path.name,))
    raise CorpusError(
        f"{path.name} is of a kind that is not read",
        expected=", ".join(f"*{suffix}" for suffix in (*_TEXT, *_PARQUET, *_JSON_LINES)),
        received=str(path),
        remedy="give it the ending of what it holds",
    )
