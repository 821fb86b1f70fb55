import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.config import CorpusConfig, TokenizerConfig
from paribus.data.frozen import FrozenCorpus, TokenFile
from paribus.data.prepare.pipeline import prepare
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.backbone import Backbone
from paribus.model.build import build_model
from paribus.model.config import PrenormConfig
from paribus.seeds import generator


@pytest.fixture(scope="session")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> FrozenCorpus:
    """80 documents of 1 to 40 random words, as a frozen corpus."""
    folder = tmp_path_factory.mktemp("texts")
    draw = generator("tests", "measure", "texts")
    words = ["".join(draw.choice(list("kalominerusotivué漢"), size=draw.integers(2, 7))) for _ in range(80)]
    texts = [" ".join(draw.choice(words, size=draw.integers(1, 40))) for _ in range(80)]
    pq.write_table(pa.table({"text": texts}), folder / "texts.parquet")
    config = CorpusConfig(kind="folder", folder=folder, test_fraction=0.2, validation_fraction=0.1)
    tokenizer = TokenizerConfig(vocabulary_size=300)
    return prepare(config, tokenizer, tmp_path_factory.mktemp("store"), name="texts", workers=1)


@pytest.fixture(scope="session")
def held_out(frozen: FrozenCorpus) -> TokenFile:
    """The test split: documents shorter and longer than the context."""
    split = frozen.split("test")
    assert min(split.documents.tokens) < 16
    assert max(split.documents.tokens) > 32
    return split


@pytest.fixture(scope="session")
def model(frozen: FrozenCorpus) -> Backbone:
    config = PrenormConfig(
        layers=2, width=16, head_width=8, mlp_width=24, vocabulary_size=frozen.vocabulary_size, context_length=16
    )
    tables = {Seam.ROUTING: {"name": "role-decoupled", "blocks": 2}}
    return build_model(config, {seam: resolve(seam, tables.get(seam), seam) for seam in Seam}, ("study", "S", 0))
