"""One small study, trained once: a plain arm with its twin and a branch, and an arm that diverges."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.draining import train_missing
from paribus.experiment import loading
from paribus.runs.folder import CellFolder
from paribus.seeds import generator
from paribus.study import open_study
from tests.shared import process_as_it_was

STUDY = """
study = "tiny"
question = "Does it come again?"
[base]
context_length = 16
batch_tokens = 128
corpus = { path = "texts", test_fraction = 0.1, validation_fraction = 0.1 }
tokenizer = { vocabulary_size = 300 }
model = { head_width = 16 }
optimiser = { gradient_clip_norm = 0.5 }
evaluation = { test_tokens = 200, validation_tokens = 200, probe_tokens = 100 }
[scales.tiny]
layers = 2
width = 16
mlp_width = 24
budget_tokens = 1536
budgets_tokens = [1024]
budget_cells = "branches"
[arms.standard]
[arms.exploding]
optimiser = { matrix_learning_rate = 1e30 }
[contrasts.main]
treatment = "exploding"
baseline = "standard"
primary = true
smallest_effect = 0.01
design_effect = 0.03
also_differs = ["optimiser.matrix_learning_rate"]
[seeds]
count = 1
[noise]
twins = 1
[execution]
checkpoint_steps = 5
micro_batch_rows = 3
workers = 1
"""


@dataclass(frozen=True)
class Trained:
    folder: Path

    def cell(self, arm: str, variant: str = "") -> Path:
        found = sorted((self.folder / "runs" / "tiny" / "tiny" / arm).iterdir())
        return next(p for p in found if p.name.split("-", 2)[2:] == ([variant] if variant else []))


def texts(folder: Path) -> None:
    draw = generator("tests", "replaying", "corpus")
    words = ["".join(draw.choice(list("kalominerusotivu"), size=draw.integers(2, 7))) for _ in range(90)]
    documents = [" ".join(draw.choice(words, size=draw.integers(10, 40))) for _ in range(200)]
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"text": documents}), folder / "texts.parquet")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("replayed")
    texts(folder / "texts")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    study = open_study(loading.load(folder / "study.toml"), folder, folder / "runs")
    with process_as_it_was():
        assert train_missing(study, lambda _: None, lambda: False)
    return Trained(folder)


@pytest.fixture
def plain(trained: Trained) -> CellFolder:
    return CellFolder(trained.cell("standard"))


@pytest.fixture
def exploded(trained: Trained) -> CellFolder:
    return CellFolder(trained.cell("exploding"))
