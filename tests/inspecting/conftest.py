"""A small corpus with what a page must survive: markup, control characters, scripts, a split without documents."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.frozen import FrozenCorpus
from paribus.data.prepare.pipeline import prepare
from paribus.inspecting.findings import Findings, look_into
from paribus.seeds import generator

HOSTILE = "</pre><script>alert('x')</script> & \x1b[31mred\x1b[0m \x00\u2028 漢字 🙂\n\tsecond line"
CONTEXT_LENGTH = 64


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """180 texts of 1 to 400 words; each begins with what a page must escape."""
    draw = generator("tests", "inspecting")
    words = ["".join(draw.choice(list("abcdefgh"), size=draw.integers(2, 7))) for _ in range(300)]
    sizes = [int(10 ** draw.uniform(0, 2.6)) for _ in range(180)]
    found = [f"{HOSTILE} {number} {' '.join(draw.choice(words, size=size))}" for number, size in enumerate(sizes)]
    # Few characters, many tokens: one a byte.
    return [*found, "".join(draw.choice(list("漢字書道文"), size=500))]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """The texts from 24 sources, one of them with markup in its name, and five rows that hold none."""
    found = tmp_path_factory.mktemp("inspecting") / "texts"
    found.mkdir()
    sources = [f"<b>source</b> {row % 24}" for row in range(len(texts))]
    table = pa.table({"text": [*texts, None, "", " ", texts[0], texts[1]], "source": [*sources, *["rest"] * 5]})
    pq.write_table(table, found / "shard.parquet")
    return found


@pytest.fixture(scope="session")
def frozen(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> FrozenCorpus:
    config = CorpusConfig(kind="folder", folder=folder, test_fraction=0.1, validation_fraction=0.1)
    store = tmp_path_factory.mktemp("store")
    return prepare(config, TokenizerConfig(vocabulary_size=320), store, name="<i>texts & more", workers=1)


@pytest.fixture(scope="session")
def only_training(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> FrozenCorpus:
    """Nothing is held out."""
    config = CorpusConfig(
        kind="folder", folder=folder, test_fraction=0, validation_fraction=0, near_duplicate_similarity=None
    )
    store = tmp_path_factory.mktemp("store")
    return prepare(config, TokenizerConfig(vocabulary_size=320), store, name="training", workers=1)


@pytest.fixture(scope="session")
def found(frozen: FrozenCorpus) -> Findings:
    return look_into(frozen, CONTEXT_LENGTH)
