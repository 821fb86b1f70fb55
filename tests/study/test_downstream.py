"""A file that declares evaluation sets: they are asked once the cells are trained, and change no cell."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

Cli = Callable[..., tuple[int, str, str]]
DOWNSTREAM = '[downstream]\ncore = "bundle"\nfirst_items = 6\nat = "milestones"\n'


def write_bundle(folder: Path) -> None:
    """One task of ten items, which no bundle of CORE would call complete."""
    (folder / "eval_data").mkdir(parents=True)
    task = {"label": "arc_easy", "dataset_uri": "arc.jsonl", "num_fewshot": [1], "icl_task_type": "multiple_choice"}
    (folder / "core.yaml").write_text(json.dumps({"icl_tasks": [task]}))
    rows = [{"query": f"ka lo {item}", "choices": ["mi", "ne ru"], "gold": item % 2} for item in range(10)]
    (folder / "eval_data" / "arc.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "eval_meta_data.csv").write_text("Eval Task,Random baseline\narc_easy,50\n")


@pytest.fixture
def study(tmp_path: Path, text: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Path:
    write_bundle(tmp_path / "bundle")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(
        text(arms=("standard", "block"), seeds=1, execution="workers = 1\ncost_rounds = 0") + DOWNSTREAM
    )
    return tmp_path


def test_run_asks_every_cell_at_every_milestone_and_adding_the_table_retrains_nothing(study: Path, cli: Cli) -> None:
    file = study / "study.toml"
    asked = file.read_text()
    file.write_text(asked.replace(DOWNSTREAM, ""))
    assert cli("run", "study.toml")[0] == 0
    trained = {path: path.stat().st_mtime_ns for path in study.glob("runs/tiny/tiny/*/*/DONE")}
    file.write_text(asked)
    code, out, err = cli("run", "study.toml")
    assert code == 0, err
    assert "nothing to train" in out
    assert "core: 2 tasks asked, 0 answered before" in out
    assert {path: path.stat().st_mtime_ns for path in study.glob("runs/tiny/tiny/*/*/DONE")} == trained
    # Checkpoints of milestones were not kept by the first run, so only the end could be asked.
    rows = sorted(study.glob("runs/tiny/tiny/*/*/tasks/*.parquet"))
    assert [path.name for path in rows] == ["core.arc_easy+first-6-00000020.parquet"] * 2
    assert all(pq.read_metadata(path).num_rows == 6 for path in rows)
    code, out, _ = cli("run", "study.toml")
    assert code == 0
    assert "core: 0 tasks asked, 2 answered before" in out


def test_declared_from_the_start_checkpoints_of_milestones_are_kept_and_asked(study: Path, cli: Cli) -> None:
    code, out, err = cli("run", "study.toml")
    assert code == 0, err
    rows = sorted(path.name for path in study.glob("runs/tiny/tiny/standard/*/tasks/*.parquet"))
    assert rows == ["core.arc_easy+first-6-00000010.parquet", "core.arc_easy+first-6-00000020.parquet"]
    code, out, _ = cli("evaluate", "study.toml", "--json")
    found = json.loads(out)
    assert code == 0
    assert [score["new"] for score in found["scores"]] == [False] * 4
    code, out, err = cli("report", "study.toml")
    assert code == 0, err
    assert "arc_easy" in (study / "runs" / "tiny" / "report.html").read_text()


def test_a_bundle_that_is_not_there_is_said_before_anything_is_trained(study: Path, cli: Cli) -> None:
    (study / "bundle" / "core.yaml").unlink()
    code, _, err = cli("run", "study.toml")
    assert code == 1
    assert "holds no list of tasks" in err
    assert not (study / "runs").exists()


def test_a_synthetic_task_is_not_asked_questions_in_words(study: Path, cli: Cli) -> None:
    file = study / "study.toml"
    lines = [
        line for line in file.read_text().splitlines() if not line.startswith(("corpus", "tokenizer", "evaluation"))
    ]
    file.write_text("\n".join(lines).replace("[base]", '[base]\ncorpus = { task = "tally" }'))
    code, _, err = cli("plan", "study.toml")
    assert code == 2
    assert "downstream asks questions in words" in err


def test_evaluate_says_what_it_needs(study: Path, cli: Cli) -> None:
    file = study / "study.toml"
    file.write_text(file.read_text().replace(DOWNSTREAM, ""))
    code, _, err = cli("evaluate", "study.toml")
    assert code == 1
    assert "one evaluation set is asked at a time" in err
    assert "neither" in err
    code, _, err = cli("evaluate", "study.toml", "--core", "bundle")
    assert code == 1
    assert "study 'tiny' has no run folder yet" in err
    code, _, err = cli("evaluate", "study.toml", "--core", "bundle", "--task", "arc_eazy")
    assert code == 1
    assert "did you mean 'arc_easy'?" in err
    code, _, err = cli("evaluate", "nowhere", "--core", "bundle")
    assert code == 1
    assert "holds no trained model" in err
