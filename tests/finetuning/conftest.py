"""Two tiny arms at two seeds, pretrained with the tokens of conversations, and a small mixture to fine-tune them on."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from paribus.downstream.chat.mixture import Mixture, load_mixture
from paribus.finetuning.running import finetune_cells
from paribus.seeds import generator
from tests.shared import built_once, process_as_it_was

WORDS = ("cat", "dog", "tree", "house", "green", "blue", "runs", "sits", "over", "under", "apple", "sky")
MIXTURE = """
validation_fraction = 0.2
checkpoint_updates = 2
[[parts]]
source = "conversations"
path = "talk.jsonl"
[[parts]]
source = "gsm8k"
path = "sums"
epochs = 2
bad_rows = "skip"
[training]
batch_tokens = 128
momentum_warmup_updates = 4
"""


def write_data(folder: Path) -> None:
    """A corpus to pretrain on, and conversations."""
    draw = generator("tests", "finetuning", "data")

    def sentence(words: int) -> str:
        return " ".join(draw.choice(WORDS, size=words))

    (folder / "corpus").mkdir()
    texts = [sentence(int(draw.integers(40, 120))) for _ in range(160)]
    pq.write_table(pa.table({"text": texts}), folder / "corpus" / "texts.parquet")
    lines = []
    for _ in range(30):
        turns = [sentence(int(n)) for n in draw.integers(1, 4, size=4)]
        lines.append([{"role": ("assistant" if i % 2 else "user"), "content": t} for i, t in enumerate(turns)])
    (folder / "talk.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (folder / "sums").mkdir()
    answers = [f"It is <<{a}+{b}={a + b}>>{a + b}.\n#### {a + b}" for a, b in draw.integers(1, 9, size=(12, 2))]
    questions = {"question": [f"cat {i}?" for i in range(13)], "answer": [*answers, None]}
    pq.write_table(pa.table(questions), folder / "sums" / "00000.parquet")
    (folder / "mixture.toml").write_text(MIXTURE, encoding="utf-8")


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory, study_text: Callable[..., str]) -> Path:
    """A folder with study.toml, its run folder with four finished cells, the data and mixture.toml."""

    def build(folder: Path) -> None:
        write_data(folder)
        _pretrain(folder, study_text)

    return built_once(tmp_path_factory, "finetuning", build)


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory, pretrained: Path) -> Path:
    """The same, and all four cells fine-tuned."""

    def build(folder: Path) -> None:
        shutil.copytree(pretrained, folder, dirs_exist_ok=True)
        with process_as_it_was():
            finetune_cells(cells_of(folder), load_mixture(folder / "mixture.toml"), folder, Console(quiet=True))

    return built_once(tmp_path_factory, "finetuned", build)


def cells_of(folder: Path) -> list[Path]:
    found = sorted(path.parent for path in (folder / "runs").glob("*/*/*/*/cell.json"))
    assert len(found) == 4
    return found


def _pretrain(folder: Path, study_text: Callable[..., str]) -> None:
    from paribus.draining import train_missing
    from paribus.experiment import loading
    from paribus.study import open_study, write_plan

    text = study_text(
        base={
            "context_length": "64",
            "tokenizer": '{ vocabulary_size = 300, pre_tokenizer = "nanochat" }',
            "corpus": '{ path = "corpus", test_fraction = 0.1, validation_fraction = 0.1 }',
            "evaluation": "{ test_tokens = 300, validation_tokens = 300, probe_tokens = 100 }",
        },
        scale={"budget_tokens": "2048"},
    )
    (folder / "study.toml").write_text(text.replace("count = 3", "count = 2"), encoding="utf-8")
    study = open_study(loading.load(folder / "study.toml"), folder, folder / "runs")
    with process_as_it_was():
        train_missing(study, lambda _: None, lambda: False)
    write_plan(study, [])


@pytest.fixture
def study(pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the working folder."""
    shutil.copytree(pretrained, tmp_path / "study")
    monkeypatch.chdir(tmp_path / "study")
    return tmp_path / "study"


@pytest.fixture
def done(tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the fine-tuned study, as the working folder."""
    shutil.copytree(tuned, tmp_path / "study")
    monkeypatch.chdir(tmp_path / "study")
    return tmp_path / "study"


@pytest.fixture
def cells(study: Path) -> list[Path]:
    """The folders of the four cells."""
    return cells_of(study)


@pytest.fixture
def done_cells(done: Path) -> list[Path]:
    """Of the fine-tuned study."""
    return cells_of(done)


@pytest.fixture
def mixture(pretrained: Path) -> Mixture:
    return load_mixture(pretrained / "mixture.toml")
