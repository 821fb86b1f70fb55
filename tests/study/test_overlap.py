"""A real study on a corpus with planted overlaps: from the texts to the report."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.split import split_of
from paribus.draining import train_missing
from paribus.experiment import loading
from paribus.report.overlap import TITLE
from paribus.reporting.overlap import SPLIT
from paribus.runs.folder import CellFolder
from paribus.seeds import generator
from paribus.study import open_study, write_plan

FRACTIONS = {"test_fraction": 0.1, "validation_fraction": 0.1}
ARMS = ("standard", "xsa")
SEEDS = 3
SMALL = {
    "budget_tokens = 10_000\nmilestones_tokens = [5_000]": "budget_tokens = 2_000",
    "width = 32\nmlp_width = 48": "width = 16\nmlp_width = 24",
}


def texts() -> tuple[list[str], list[str]]:
    """240 texts of random words, then those among 60 candidates that fall into the test split.

    Each candidate repeats 13 words of a training text between words of its own.
    """
    draw = generator("tests", "study", "planted")
    words = ["".join(draw.choice(["ka", "lo", "mi", "ne", "ru", "so"], size=3)) for _ in range(200)]
    plain = [" ".join(draw.choice(words, size=int(draw.integers(20, 90)))) for _ in range(240)]
    train = [text for text in plain if split_of(text, **FRACTIONS) == "train"]
    planted = []
    for text in train[:60]:
        own = [" ".join(draw.choice(words, size=20)) for _ in range(2)]
        planted.append(f"{own[0]} {' '.join(text.split()[3:16])} {own[1]}")
    return plain, [text for text in planted if split_of(text, **FRACTIONS) == "test"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, text: Callable[..., str]) -> Path:
    """A folder with study.toml and every cell of it."""
    folder = tmp_path_factory.mktemp("overlap")
    plain, planted = texts()
    (folder / "corpus").mkdir()
    pq.write_table(pa.table({"text": [*plain, *planted]}), folder / "corpus" / "texts.parquet")
    said = text(folder / "corpus", arms=ARMS, seeds=SEEDS, execution="threads = 1")
    for old, new in SMALL.items():
        assert old in said
        said = said.replace(old, new)
    (folder / "study.toml").write_text(said.replace("test_tokens = 1500", "test_tokens = 20_000"), encoding="utf-8")
    study = open_study(loading.load(folder / "study.toml"), folder, folder / "runs")
    write_plan(study, [])
    train_missing(study, lambda _: None, lambda: False)
    return folder


def rows(folder: Path, arm: str, seed: int, split: str = SPLIT) -> list[dict]:
    (cell,) = (folder / "runs" / "tiny" / "tiny" / arm).glob(f"{seed}-*")
    found = CellFolder(cell)
    (name,) = (name for name in found.row_files("likelihood") if name.startswith(f"likelihood/{split}-"))
    return found.rows(name).to_pylist()


def test_a_planted_document_is_marked_in_the_rows_of_every_cell(trained: Path) -> None:
    planted = {hashlib.blake2b(text.encode(), digest_size=16).hexdigest() for text in texts()[1]}
    assert len(planted) >= 3
    for arm in ARMS:
        for seed in range(SEEDS):
            marks = {row["document"]: row["overlap_free"] for row in rows(trained, arm, seed)}
            assert {document for document, mark in marks.items() if mark is False} == planted
            assert list(marks.values()).count(True) == len(marks) - len(planted) > len(planted)
            assert all("overlap_free" not in row for row in rows(trained, arm, seed, "validation"))


def test_the_report_leaves_planted_documents_out(trained: Path, cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    status, _, err = cli("report", "study.toml")
    assert (status, err) == (0, "")
    folder = trained / "runs" / "tiny"
    data = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    (row,) = data["overlap"]
    (verdict,) = data["verdicts"]
    differences = []
    for seed in range(SEEDS):
        free = [[r for r in rows(trained, arm, seed) if r["overlap_free"]] for arm in ARMS]
        losses = [math.fsum(r["nats"] for r in of) / sum(r["tokens"] for r in of) for of in free]
        differences.append(losses[1] - losses[0])
    assert row["mean"] == pytest.approx(math.fsum(differences) / SEEDS, abs=1e-12)
    assert row["mean"] != pytest.approx(verdict["mean"], abs=1e-9)
    assert row["mean_of_all"] == verdict["mean"]
    assert (row["shared_documents"], row["unchecked_documents"]) == (len(texts()[1]), 0)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert TITLE in page
    assert f", {100 * row['free_tokens'] / (row['free_tokens'] + row['shared_tokens']):.0f} %" in page
