"""A study whose plan is real and whose rows are drawn, so that every estimate has a known truth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from paribus.experiment import loading
from paribus.experiment.spec import STUDY, Key, variant_budget
from paribus.reading.evidence import verdicts_of
from paribus.reading.study import ReadStudy, read_study
from paribus.report.content import ReportContent
from paribus.reporting.assemble import report_content
from paribus.seeds import generator
from paribus.stats.rule import Verdict
from paribus.study import Study, open_study, write_plan
from tests.reading.conftest import Asking, Given, finetune, give
from tests.study.conftest import experiment_text, write_corpus

DOCUMENTS = 60
Loss = Callable[[Key], float]
"""mean nats per token that a cell is given"""


@dataclass(frozen=True)
class Filled:
    """A study on disk with the truth behind its rows."""

    study: Study
    runs: Path
    folder: Path

    def read(self) -> ReadStudy:
        return read_study(self.study.experiment, self.runs)

    def content(self) -> tuple[ReportContent, tuple[Verdict, ...]]:
        read = self.read()
        verdicts = verdicts_of(read)
        return report_content(read, verdicts, "paribus run study.toml", self.folder), verdicts


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("reporting") / "corpus")


@pytest.fixture
def fill(tmp_path: Path, small_corpus: Path) -> Callable[..., Filled]:
    """Write a study and its cells: `loss` of each, `changes` of the file's text, `skip` of cells that are absent."""

    def made(
        loss: Loss, changes: Mapping[str, str] | None = None, skip: tuple[Key, ...] = (), **options: object
    ) -> Filled:
        text = experiment_text(small_corpus, **options)  # pyright: ignore[reportArgumentType]
        for old, new in (changes or {}).items():
            assert old in text
            text = text.replace(old, new)
        file = tmp_path / "study.toml"
        file.write_text(text, encoding="utf-8")
        study = open_study(loading.load(file), tmp_path, tmp_path / "runs")
        write_plan(study, [])
        for cell in study.cells:
            if cell.key not in skip:
                _write(study, cell.key, loss(cell.key))
        return Filled(study, tmp_path / "runs", tmp_path)

    return made


def _write(study: Study, key: Key, nats_per_token: float) -> None:
    cell = next(cell for cell in study.cells if cell.key == key)
    folder = study.cell_folder(cell)
    draw = generator("tests", "documents")  # the same documents for every cell
    tokens, of_document = draw.integers(50, 200, DOCUMENTS), draw.normal(0.0, 0.5, DOCUMENTS)
    own = generator("tests", "cell", *key[:3], key[3].replace("repeat", "")).normal(0.0, 0.01, DOCUMENTS)
    of_arm = generator("tests", "arm", key[1]).normal(0.0, 0.1, DOCUMENTS)  # what an arm is better and worse at
    nats = tokens * (of_document + of_arm + own)
    nats += tokens * (nats_per_token - nats.sum() / tokens.sum())  # exactly the mean that was asked for
    where = dict(zip(("scale", "arm", "seed", "variant"), key, strict=True))
    record = {
        "initial_digests": {"embedding": "0"},
        "environment": {},
        "code_version": "x",
        "resolved": {},
        "donors": {},
    }
    folder.write_record({**where, "digest": cell.digest, **record})
    budget = variant_budget(key[3]) or study.experiment.scales[key[0]].budget_tokens
    columns = {
        "document": [f"{number:04d}" for number in range(DOCUMENTS)],
        "source": ["one"] * DOCUMENTS,
        "tokens": tokens,
        "bytes": 4 * tokens,
        "nats": nats,
        "tokens_seen": np.full(DOCUMENTS, budget),
        "mid_schedule": np.full(DOCUMENTS, False),
    }
    for split in ("test", "validation"):
        folder.write_rows(f"likelihood/{split}-{cell.length.steps:08d}", columns)
    for step in range(1, cell.length.steps + 1):
        line = {"step": step, "tokens_seen": step * 512, "loss_nats_per_token": 5.0}
        folder.append_metrics({**line, "learning_rate_multiplier": 1.0, "wall_seconds": 0.1})
    folder.finish(
        {
            "steps": cell.length.steps,
            "tokens_seen": budget,
            "train_seconds": 1.0,
            "batch_digest": "0",
            "final_tensors_digest": f"{key[:3]}" if key[3] in (STUDY, "repeat") else f"{key}",
        }
    )


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(tmp_path)


@pytest.fixture
def given() -> type[Given]:
    return Given


@pytest.fixture
def put() -> Callable[..., dict[str, list]]:
    return give


@pytest.fixture
def tune() -> Callable[..., Path]:
    return finetune
