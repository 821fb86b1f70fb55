"""A study small enough to be run for real: four arms, three seeds, twenty updates a cell, generated text."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.seeds import generator
from tests.shared import built_once

ARMS = {
    "standard": "",
    "xsa": 'output_map = { name = "xsa" }',
    "block": 'routing = { name = "block-attnres", blocks = 2 }',
    "rd": 'routing = { name = "role-decoupled", blocks = 2 }',
}
CONTRASTS = (("block", "standard"), ("xsa", "standard"), ("rd", "block"))


def experiment_text(
    corpus: Path,
    *,
    arms: Sequence[str] = tuple(ARMS),
    seeds: int = 3,
    repeats: int = 0,
    execution: str = "",
    **base: str,
) -> str:
    """An experiment file of some of the four arms; the first contrast whose arms are there is the primary one."""
    declared = {
        "context_length": "32",
        "batch_tokens": "512",
        "corpus": f'{{ path = "{corpus}", test_fraction = 0.1, validation_fraction = 0.1 }}',
        "tokenizer": "{ vocabulary_size = 300 }",
        "model": "{ head_width = 16 }",
        "evaluation": "{ test_tokens = 1500, validation_tokens = 800, probe_tokens = 400 }",
    } | base
    contrasts = [(t, b) for t, b in CONTRASTS if t in arms and b in arms]
    lines = [
        'study = "tiny"',
        'question = "Does it hold?"',
        "[base]",
        *(f"{key} = {value}" for key, value in declared.items()),
        "[scales.tiny]\nlayers = 2\nwidth = 32\nmlp_width = 48\nbudget_tokens = 10_000\nmilestones_tokens = [5_000]",
        *(f"[arms.{arm}]\n{ARMS[arm]}" for arm in arms),
    ]
    for index, (treatment, baseline) in enumerate(contrasts):
        lines.append(f'[contrasts.{treatment}]\ntreatment = "{treatment}"\nbaseline = "{baseline}"')
        lines.append(f"primary = {str(index == 0).lower()}\nsmallest_effect = 0.01\ndesign_effect = 0.03")
    lines.append(
        f"[seeds]\ncount = {seeds}\n[noise]\nrepeats = {repeats}\n[execution]\ncheckpoint_steps = 5\n{execution}"
    )
    return "\n".join(lines) + "\n"


def write_corpus(folder: Path, documents: int = 220) -> Path:
    """Parquet with texts of 20 to 200 words from a vocabulary of 300."""
    draw = generator("tests", "study", "corpus")
    syllables = ["ka", "lo", "mi", "ne", "ru", "so", "ti", "vu", "the", "er", "ing", "an"]
    words = ["".join(draw.choice(syllables, size=draw.integers(1, 4))) for _ in range(300)]
    texts = [" ".join(draw.choice(words, size=draw.integers(20, 200))).capitalize() + "." for _ in range(documents)]
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": texts}), folder / "texts.parquet")
    return folder


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Parquet files."""
    return built_once(tmp_path_factory, "corpus", write_corpus)


@pytest.fixture(scope="session")
def text(corpus: Path) -> Callable[..., str]:
    """The text of an experiment file on the corpus, or on the one `at` another folder."""
    return lambda at=corpus, **changes: experiment_text(at, **changes)


@pytest.fixture(scope="session")
def paribus() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command line as a process group of its own; `first` is a statement that it begins with."""

    started: list[subprocess.Popen[str]] = []

    def start(folder: Path, *arguments: str, first: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", f"import resource\n{first}\nfrom paribus.cli import main\nmain()", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:  # where a test has failed
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, text: Callable[..., str]) -> Path:
    """A folder with study.toml and a run folder that holds the study's frozen corpus and no cell."""

    def build(folder: Path) -> None:
        from paribus.experiment import loading
        from paribus.study import open_study

        (folder / "study.toml").write_text(text(repeats=1), encoding="utf-8")
        open_study(loading.load(folder / "study.toml"), folder, folder / "runs")

    return built_once(tmp_path_factory, "prepared", build)


@pytest.fixture(scope="session")
def finished(
    tmp_path_factory: pytest.TempPathFactory, prepared: Path, paribus: Callable[..., subprocess.Popen[str]]
) -> Path:
    """A folder with study.toml and the run folder that `paribus run` made of it; what it printed is in run.txt."""

    def build(folder: Path) -> None:
        shutil.copytree(prepared, folder, dirs_exist_ok=True)
        process = paribus(folder, "run", "study.toml")
        out, err = process.communicate(timeout=240)
        assert (process.returncode, err) == (0, ""), err
        (folder / "run.txt").write_text(out, encoding="utf-8")

    return built_once(tmp_path_factory, "finished", build)


@pytest.fixture
def study(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished study, as the working folder."""
    shutil.copytree(finished, tmp_path / "study")
    monkeypatch.chdir(tmp_path / "study")
    return tmp_path / "study"


@pytest.fixture
def fresh(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the prepared study, as the working folder."""
    shutil.copytree(prepared, tmp_path / "study")
    monkeypatch.chdir(tmp_path / "study")
    return tmp_path / "study"


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Every file of the cells below a run folder, with its bytes."""

    def of(runs: Path) -> dict[str, bytes]:
        files = sorted((runs / "tiny" / "tiny").rglob("*"))
        return {str(file.relative_to(runs)): file.read_bytes() for file in files if file.is_file()}

    return of


@pytest.fixture
def trained() -> Callable[[Path], dict[str, object]]:
    """What a cell's training determined: everything on record but times."""

    def of(folder: Path) -> dict[str, object]:
        from paribus.runs.folder import CellFolder

        cell = CellFolder(folder)
        summary = cell.summary()
        del summary["train_seconds"], summary["row_digests"]["metrics.jsonl"]  # metrics hold times as well
        groups = ("likelihood", "diagnostics", "interventions", "routes")
        rows = {name: cell.rows(name).to_pydict() for group in groups for name in cell.row_files(group)}
        metrics = [
            {key: value for key, value in line.items() if key not in ("wall_seconds", "token")}
            for line in cell.metrics()
        ]
        initial = cell.record()["initial_digests"]
        return {"summary": summary, "rows": rows, "metrics": metrics, "initial": initial}

    return of
