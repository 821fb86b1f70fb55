from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.frozen import FrozenCorpus
from paribus.data.order import Order
from paribus.data.prepare.pipeline import prepare
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.backbone import Backbone
from paribus.model.build import build_model
from paribus.model.config import PrenormConfig
from paribus.seeds import generator

CONTEXT, ROWS = 16, 6


@pytest.fixture(scope="session")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> FrozenCorpus:
    """80 short documents of random words, as a frozen corpus."""
    folder = tmp_path_factory.mktemp("texts")
    draw = generator("tests", "train", "texts")
    words = ["".join(draw.choice(list("kalominerusotivu"), size=draw.integers(2, 7))) for _ in range(80)]
    texts = [" ".join(draw.choice(words, size=draw.integers(3, 30))) for _ in range(80)]
    pq.write_table(pa.table({"text": texts}), folder / "texts.parquet")
    config = CorpusConfig(kind="folder", folder=folder, test_fraction=0.1, validation_fraction=0.1)
    tokenizer = TokenizerConfig(vocabulary_size=300)
    return prepare(config, tokenizer, tmp_path_factory.mktemp("store"), name="texts", workers=1)


@pytest.fixture(scope="session")
def order(frozen: FrozenCorpus) -> Order:
    return Order(frozen, CONTEXT, ROWS, study="study", scale="S", seed=0)


@pytest.fixture(scope="session")
def build(frozen: FrozenCorpus) -> Callable[..., Backbone]:
    """A fresh model of an arm."""
    config = PrenormConfig(
        layers=2,
        width=16,
        head_width=8,
        mlp_width=24,
        vocabulary_size=frozen.vocabulary_size,
        context_length=CONTEXT,
    )

    def model(arm: Mapping[str, Mapping[str, Any]] | None = None, dtype: torch.dtype = torch.float32) -> Backbone:
        tables = arm or {}
        mechanisms = {seam: resolve(seam, dict(tables[seam]) if seam in tables else None, seam) for seam in Seam}
        return build_model(config, mechanisms, ("study", "S", 0), dtype)

    return model
