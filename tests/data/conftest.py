"""A small Parquet corpus with documents of very different lengths, and its frozen copy."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.frozen import FrozenCorpus
from paribus.data.prepare.pipeline import prepare
from paribus.seeds import generator

WriteCorpus = Callable[..., Path]


@pytest.fixture(scope="session")
def random_texts() -> list[str]:
    """240 texts of 1 to 400 random words."""
    draw = generator("tests", "texts")
    syllables = ["ka", "lo", "mi", "ne", "ru", "so", "ti", "vu", "é", "ß", "漢", "🙂"]
    words = ["".join(draw.choice(syllables, size=draw.integers(1, 5))) for _ in range(600)]
    return [" ".join(draw.choice(words, size=int(10 ** draw.uniform(0, 2.6)))) + f" {index}" for index in range(240)]


@pytest.fixture(scope="session")
def write_parquet() -> WriteCorpus:
    """Write one file `path` from texts and sources."""

    def write(path: Path, texts: Sequence[str | None], sources: Sequence[str | None] | None = None) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = {"text": pa.array(texts, pa.string())}
        if sources is not None:
            columns["source"] = pa.array(sources, pa.string())
        pq.write_table(pa.table(columns), path)
        return path

    return write


@pytest.fixture(scope="session")
def parquet_folder(
    tmp_path_factory: pytest.TempPathFactory, random_texts: list[str], write_parquet: WriteCorpus
) -> Path:
    """The random texts in two files with three sources."""
    folder = tmp_path_factory.mktemp("parquet")
    sources = [("birch", "ash", "cedar")[index % 3] for index in range(len(random_texts))]
    write_parquet(folder / "a.parquet", random_texts[:100], sources[:100])
    write_parquet(folder / "b.parquet", random_texts[100:], sources[100:])
    return folder


@pytest.fixture(scope="session")
def parquet_config(parquet_folder: Path) -> CorpusConfig:
    return CorpusConfig(kind="folder", folder=parquet_folder, test_fraction=0.1, validation_fraction=0.1)


@pytest.fixture(scope="session")
def frozen(tmp_path_factory: pytest.TempPathFactory, parquet_config: CorpusConfig) -> FrozenCorpus:
    store = tmp_path_factory.mktemp("frozen")
    return prepare(parquet_config, TokenizerConfig(vocabulary_size=400), store, name="random")
