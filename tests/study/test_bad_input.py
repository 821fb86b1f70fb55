"""What goes wrong in a user's hands: one clear error with a remedy, and nothing that was computed is lost."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.draining import train_missing
from paribus.experiment import loading
from paribus.reading.evidence import verdicts_of
from paribus.reading.study import read_study
from paribus.reporting.assemble import report_content
from paribus.runs.folder import CellFolder
from paribus.stats.rule import Word
from paribus.study import open_study, write_plan

Cli = Callable[..., tuple[int, str, str]]


def train(folder: Path) -> list[dict]:
    """Train what is missing inside this process; what happened."""
    events: list[dict] = []
    study = open_study(loading.load(folder / "study.toml"), folder, folder / "runs")
    write_plan(study, None)
    train_missing(study, events.append, lambda: False)
    return events


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(folder: Path, cli: Cli, text: Callable[..., str]) -> Callable[..., str]:
    """What `paribus run` on a corpus folder says before it ends with exit code 1."""

    def run(corpus: Path, **changes: object) -> str:
        Path("study.toml").write_text(text(at=corpus, **changes), encoding="utf-8")
        code, _, err = cli("run", "study.toml")
        assert code == 1
        assert "remedy: " in err
        assert "Traceback" not in err
        assert not list(folder.glob("runs/tiny/tiny/*")), "no cell was begun"
        assert not list(folder.glob("runs/corpora/[!.]*")) or "corpus smaller" in err, "no half corpus looks like one"
        return err

    return run


def test_a_corpus_smaller_than_the_budget_is_refused_with_both_numbers(refused, folder: Path, corpus: Path):
    texts = pq.read_table(corpus / "texts.parquet").slice(0, 60)
    (folder / "few").mkdir()
    pq.write_table(texts, folder / "few" / "texts.parquet")
    error = refused(folder / "few", batch_tokens="8192", context_length="8192")
    assert "corpus smaller than the budget" in error
    assert "expected: 16,384 tokens" in error
    assert "name a larger corpus" in error


@pytest.mark.parametrize("texts", [[], [None, "", "   "]])
def test_an_empty_corpus_is_refused(refused, folder: Path, texts: list[str | None]):
    (folder / "corpus").mkdir()
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), folder / "corpus" / "texts.parquet")
    assert "the corpus is empty" in refused(folder / "corpus")


def test_a_missing_or_empty_corpus_folder_is_named(refused, folder: Path, cli: Cli):
    assert f"received: {folder / 'nowhere'}" in refused(folder / "nowhere")
    assert not (folder / "runs").exists(), "nothing was written"
    code, _, err = cli("plan", "study.toml")
    assert (code, f"received: {folder / 'nowhere'}" in err) == (1, True)
    (folder / "empty").mkdir()
    assert "holds no file of a corpus" in refused(folder / "empty")


def test_an_unreadable_parquet_file_is_named(refused, folder: Path, corpus: Path):
    shutil.copytree(corpus, folder / "corpus")
    whole = (folder / "corpus" / "texts.parquet").read_bytes()
    (folder / "corpus" / "torn.parquet").write_bytes(whole[: len(whole) // 2])
    assert "torn.parquet cannot be read" in refused(folder / "corpus")
    (folder / "corpus" / "torn.parquet").unlink()
    pq.write_table(pa.table({"content": ["a"]}), folder / "corpus" / "other.parquet")
    assert "other.parquet has no column 'text'" in refused(folder / "corpus")


def test_changed_corpus_files_are_refused_and_finished_cells_are_untouched(
    study: Path, cli: Cli, corpus: Path, contents
):
    shutil.copytree(corpus, study / "texts")
    text = (study / "study.toml").read_text(encoding="utf-8")
    (study / "study.toml").write_text(text.replace(str(corpus), "texts"), encoding="utf-8")
    assert cli("run", "study.toml")[1].startswith("nothing to train"), "the folder may move"
    before = contents(study / "runs")
    pq.write_table(pa.table({"text": ["One more document."]}), study / "texts" / "more.parquet")
    code, _, err = cli("run", "study.toml")
    assert code == 1
    assert "are not the ones this study was planned with" in err
    assert "restore the files, move the folder away, or give the study a new name" in err
    assert contents(study / "runs") == before
    assert cli("report", "study.toml")[0] == 0, "what is there can still be read"


def test_a_changed_frozen_corpus_is_refused_and_finished_cells_are_untouched(study: Path, cli: Cli, contents):
    before = contents(study / "runs")
    (tokens,) = (study / "runs" / "corpora").glob("*/train.tokens")
    content = bytearray(tokens.read_bytes())
    content[0] ^= 1
    tokens.write_bytes(content)
    code, _, err = cli("run", "study.toml")
    assert code == 1
    assert "the frozen corpus has changed: train.tokens" in err
    assert contents(study / "runs") == before


def test_another_vocabulary_for_the_same_study_is_refused(study: Path, cli: Cli, contents):
    before = contents(study / "runs")
    text = (study / "study.toml").read_text(encoding="utf-8")
    (study / "study.toml").write_text(text.replace("vocabulary_size = 300", "vocabulary_size = 301"), encoding="utf-8")
    code, _, err = cli("run", "study.toml")
    assert code == 1
    assert "planned with another corpus" in err
    assert "vocabulary_size = 301" in err
    assert contents(study / "runs") == before


EXPLODING = "[arms.xsa]\noptimiser = { matrix_learning_rate = 1e30 }"
DECLARED = '[contrasts.xsa]\nalso_differs = ["optimiser.matrix_learning_rate"]'


def test_a_diverging_arm_is_named_the_others_complete_and_no_word_is_given(
    fresh: Path, cli: Cli, text: Callable[..., str], contents
):
    file = text(arms=("standard", "xsa")).replace("[arms.xsa]", EXPLODING).replace("[contrasts.xsa]", DECLARED)
    (fresh / "study.toml").write_text(file, encoding="utf-8")
    kinds = [(event["arm"], event["kind"]) for event in train(fresh) if event["kind"] not in ("started", "step")]
    assert kinds == [("standard", "finished"), ("xsa", "diverged")] * 3
    cell = CellFolder(next((fresh / "runs" / "tiny" / "tiny" / "xsa").glob("0-*")))
    assert cell.state == "diverged"
    assert "the training loss became nan at step " in cell.summary()["reason"]
    before = contents(fresh / "runs")

    code, out, err = cli("run", "study.toml")
    assert code == 1
    assert err.startswith("error: 3 of 6 cells diverged\n")
    assert "report: runs/tiny/report.html" in out
    assert contents(fresh / "runs") == before, "nothing is trained again"
    data = json.loads((fresh / "runs" / "tiny" / "report.json").read_text(encoding="utf-8"))
    (verdict,) = data["verdicts"]
    assert verdict["word"] == Word.DIVERGENCE.value
    assert (verdict["treatment_diverged"], verdict["baseline_diverged"], verdict["mean"]) == (3, 0, None)
    assert {cell["state"] for cell in data["cells"] if cell["arm"] == "xsa"} == {"diverged"}


def test_a_model_that_breaks_at_its_last_update_has_diverged_too(fresh: Path, text: Callable[..., str]):
    # One update: the loss that was trained on is finite, the model that it leaves is not.
    file = text(arms=("standard", "xsa"), seeds=1).replace("[arms.xsa]", EXPLODING).replace("[contrasts.xsa]", DECLARED)
    file = file.replace("budget_tokens = 10_000\nmilestones_tokens = [5_000]", "budget_tokens = 512")
    (fresh / "study.toml").write_text(file, encoding="utf-8")
    kinds = [(event["arm"], event["kind"]) for event in train(fresh) if event["kind"] not in ("started", "step")]
    assert kinds == [("standard", "finished"), ("xsa", "diverged")]
    read = read_study(loading.load(fresh / "study.toml"), fresh / "runs")
    verdicts = verdicts_of(read)
    assert verdicts[0].treatment_diverged == 1
    assert "1 of 2 cells are diverged." in report_content(read, verdicts, "").caveats
