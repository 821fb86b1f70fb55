"""A small corpus with everything that preparing has to deal with, in several files and row groups, and small lots."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.frozen import FrozenCorpus
from paribus.data.prepare import inventory
from paribus.data.prepare.pipeline import prepare
from paribus.seeds import generator

Row = tuple[str | None, str | None, str | None]
"""text, source, web address"""

TOKENIZER = TokenizerConfig(vocabulary_size=300)
CONFIG = {"kind": "folder", "test_fraction": 0.1, "validation_fraction": 0.1}
SYLLABLES = ["ka", "lo", "mi", "ne", "ru", "so", "ti", "vu", "é", "ß", "漢", "🙂"]


def random_text(draw: np.random.Generator, words: int) -> str:
    return " ".join("".join(draw.choice(SYLLABLES, size=int(draw.integers(1, 5)))) for _ in range(words))


def rows() -> list[Row]:
    """300 documents of 1 to 300 words, 20 of them repeated, 20 nearly, 6 that are none."""
    draw = generator("tests", "prepare", "rows")
    found: list[Row] = []
    for index in range(260):
        text = random_text(draw, int(10 ** draw.uniform(0, 2.5))) + f" {index}"
        found.append((text, ("birch", "ash", None)[index % 3], f"https://www.host{index % 40}.org/{index}"))
    long = [row for row in found if len((row[0] or "").split()) > 60]
    found += [found[place] for place in draw.choice(len(found), 20, replace=False)]
    found += [((row[0] or "") + " and more", row[1], row[2]) for row in long[:20]]
    found += [(None, "ash", None), ("", "ash", None), (" \n\t", None, None), (None, None, None), ("\u3000", None, None)]
    return [found[place] for place in draw.permutation(len(found))]


def write(path: Path, some: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = zip(*some, strict=True)
    table = pa.table(dict(zip(("text", "source", "url"), map(list, columns), strict=True)))
    pq.write_table(table, path, row_group_size=40, compression="zstd")


@pytest.fixture(scope="session")
def all_rows() -> list[Row]:
    return rows()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, all_rows: list[Row]) -> Path:
    """The rows in three files of up to three row groups."""
    found = tmp_path_factory.mktemp("rows")
    for number in range(3):
        write(found / f"shard_{number}.parquet", all_rows[number * 105 : (number + 1) * 105])
    return found


@pytest.fixture(scope="session")
def config(folder: Path) -> CorpusConfig:
    return CorpusConfig(folder=folder, **CONFIG)


@contextmanager
def lots_of(size: int) -> Iterator[None]:
    before = inventory.LOT_BYTES
    inventory.LOT_BYTES = size
    try:
        yield
    finally:
        inventory.LOT_BYTES = before


@pytest.fixture(scope="package", autouse=True)
def unflushed() -> Iterator[None]:
    """Nothing waits for the disk, half the time of a small preparation: no test here cuts the power.

    What must be flushed before what is a test of its own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture(autouse=True)
def small_lots() -> Iterator[None]:
    """A lot for each row group, so that a small corpus has several."""
    with lots_of(1):
        yield


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, config: CorpusConfig) -> FrozenCorpus:
    """Prepared by this process alone."""
    with lots_of(1):
        return prepare(config, TOKENIZER, tmp_path_factory.mktemp("store"), name="rows", workers=1)


@pytest.fixture
def partly(tmp_path: Path, config: CorpusConfig) -> Callable[[str], Path]:
    """A store in which a preparation was stopped when it began the named phase; returns the working folder."""

    class StopError(Exception):
        pass

    def stop_at(phase: str) -> Path:
        def progress(advance: object) -> None:
            if getattr(advance, "phase", "") == phase:
                raise StopError

        with pytest.raises(StopError):
            prepare(config, TOKENIZER, tmp_path / "store", name="rows", progress=progress, workers=1)
        (partial,) = (tmp_path / "store").glob(".*.partial")
        return partial

    return stop_at
