"""Writers of real files of every kind, and one way to read them."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.config import CorpusConfig
from paribus.data.sources import open_source
from paribus.data.sources.contract import RawDocument, Skip
from paribus.data.sources.gpt2_tokens import byte_letters

Judged = list[RawDocument | Skip]


@pytest.fixture(scope="session")
def write_lines() -> Callable[[Path, bytes], Path]:
    """Bytes as they are, or compressed as the file's name says."""

    def write(path: Path, content: bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(content))
        elif path.suffix == ".zst":
            with pa.CompressedOutputStream(str(path), "zstd") as stream:
                stream.write(content)
        else:
            path.write_bytes(content)
        return path

    return write


@pytest.fixture(scope="session")
def write_texts(write_lines: Callable[[Path, bytes], Path]) -> Callable[..., Path]:
    """Texts as a file of the kind that its name says; further arguments go to the Parquet writer."""

    def write(path: Path, texts: Sequence[str], **parquet: Any) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), path, **parquet)
            return path
        return write_lines(path, b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts))

    return write


@pytest.fixture(scope="session")
def read_folder() -> Callable[..., Judged]:
    """Everything that the source of a folder yields, piece after piece."""

    def read(folder: Path, **declared: Any) -> Judged:
        source = open_source(CorpusConfig(kind="folder", folder=folder, **declared))
        return [judged for piece in source.pieces() for judged in source.read(piece)]

    return read


@pytest.fixture(scope="session")
def byte_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer.json whose token ids are the 256 bytes, and 256 the end of text."""
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    vocabulary = {letter: byte for byte, letter in enumerate(byte_letters())}
    path.write_text(json.dumps({"model": {"vocab": vocabulary | {"<|endoftext|>": 256}}}))
    return path
