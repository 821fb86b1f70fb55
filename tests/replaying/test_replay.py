"""An update that is made again comes out as it was, from wherever it is begun, and nothing is written."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paribus.draining import train_missing
from paribus.errors import CorpusError, ParibusError, StudyFolderError
from paribus.experiment import loading
from paribus.replaying.opening import OpenCell
from paribus.replaying.replay import as_json, replay
from paribus.runs.folder import CellFolder
from paribus.runs.records import read_json, write_json
from paribus.runs.verifying import examine_cell, verify
from paribus.study import open_study, write_plan

FIELDS = ["batch_digest", "loss_nats_per_token", "gradient_norm", "learning_rate_multiplier"]


def silent(done: int, of: int) -> None:
    del done, of


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.fixture
def copied(trained: Any, tmp_path: Path) -> Any:
    """The study in another place, to be damaged."""
    shutil.copytree(trained.folder, tmp_path / "copy")
    return type(trained)(tmp_path / "copy")


@pytest.mark.parametrize(
    ("step", "start", "updates"),
    [(1, "its beginning", 0), (4, "its beginning", 3), (11, "its checkpoint of step 10", 0), (12, "10", 1)],
)
def test_every_update_comes_again_bit_for_bit_from_the_nearest_state(
    plain: CellFolder, step: int, start: str, updates: int
):
    before = contents(plain.path)
    seen: list[tuple[int, int]] = []
    found = replay(plain.path, step, lambda done, of: seen.append((done, of)))
    assert start in found.start
    assert found.updates == updates
    assert seen == [(done, updates) for done in range(updates + 1)]
    assert [each.field for each in found.compared] == FIELDS
    assert found.same is True
    assert found.sentence == "same, bit for bit"
    assert found.watched.findings == ()
    assert found.notes == ()
    assert contents(plain.path) == before, "nothing is written, not even to a claim"


TASK = """
study = "task"
question = "Does a task's cell come again?"
[base]
context_length = 32
batch_tokens = 128
corpus = { task = "twin", ids = 4, colours = 4 }
model = { head_width = 16 }
evaluation = { probe_tokens = 128 }
[scales.tiny]
layers = 1
width = 16
mlp_width = 24
budget_tokens = 768
[arms.standard]
[arms.xsa]
output_map = { name = "xsa" }
[contrasts.main]
treatment = "xsa"
baseline = "standard"
metric = "train.area"
primary = true
smallest_effect = 0.01
design_effect = 0.03
[seeds]
count = 1
[execution]
checkpoint_steps = 2
workers = 1
"""


def test_an_update_of_a_synthetic_task_comes_again_without_any_corpus_on_disk(tmp_path: Path):
    (tmp_path / "task.toml").write_text(TASK, encoding="utf-8")
    study = open_study(loading.load(tmp_path / "task.toml"), tmp_path, tmp_path / "runs")
    write_plan(study, None)
    assert train_missing(study, lambda _: None, lambda: False)
    found = replay(study.cell_folder(study.cells[0]).path, 6, silent)
    assert found.same is True
    assert found.updates == 1
    assert found.notes == ()


@pytest.mark.parametrize("variant", ["twin", "budget-1024"])
def test_twins_and_branches_come_again_as_well(trained: Any, variant: str):
    path = trained.cell("standard", variant)
    steps = CellFolder(path).summary()["steps"]
    first = CellFolder(path).metrics()[0]["step"]
    for step in (first, first + 3, steps):  # a millionth shows only after some updates
        assert replay(path, step, silent).same is True
    opened = OpenCell.read(path)
    assert (opened.trunk is not None) == (variant != "twin")


def test_an_update_that_is_another_one_on_record_is_told_with_how_far_it_is_off(copied: Any):
    path = copied.cell("standard")
    lines = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    other = json.loads(lines[2])
    del other["crc"]
    other["loss_nats_per_token"] += 0.25
    lines[2] = json.dumps(other).encode() + b"\n"
    (path / "metrics.jsonl").write_bytes(b"".join(lines))
    found = replay(path, 3, silent)
    assert found.same is False
    assert [each.field for each in found.compared if not each.same] == ["loss_nats_per_token"]
    assert "not the same: loss, nats per token " in found.sentence
    assert "(-0.25)" in found.sentence
    assert replay(path, 4, silent).same is True


def test_a_damaged_checkpoint_is_passed_over(copied: Any):
    path = copied.cell("standard")
    file = path / "checkpoints" / "step-00000010" / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    found = replay(path, 12, silent)
    assert found.same is True
    assert found.start == "its checkpoint of step 4", "where a branch leaves"


def test_the_record_of_a_diverged_cell_names_the_update_its_batch_and_the_first_tensor(exploded: CellFolder):
    told = exploded.summary()
    kept = read_json(exploded.path / "trouble" / "trouble.json")
    assert told["reason"].startswith("the training loss became nan at step ")
    assert told["kind"] == kept["kind"] == "update"
    assert (kept["step"], kept["seen_at"]) == (told["step"], told["step"])
    assert told["batch_digest"] == kept["batch_digest"]
    assert told["loss_nats_per_token"] == "nan"
    assert told["first"]["sentence"] == kept["findings"][0]["sentence"]
    # Value and output matrices of 1e30: their product is beyond float32.
    assert told["first"]["tensor"] == "output 0 of layers.0.attention"
    assert (kept["study"], kept["arm"], kept["seed"], kept["micro_batch_rows"]) == ("tiny", "exploding", 0, 3)
    assert kept["environment"] == exploded.record()["environment"]
    assert (exploded.path / "trouble" / kept["state"] / "COMPLETE").exists()


def test_what_is_kept_of_trouble_is_known_to_whoever_verifies_a_study(trained: Any, exploded: CellFolder):
    assert list(verify(trained.folder / "runs" / "tiny")) == []
    assert sum("trouble" in found.path.parts for found in examine_cell(exploded.path)) == 4


def test_trouble_comes_again_in_a_fresh_process_with_the_same_first_tensor(trained: Any, exploded: CellFolder):
    before = contents(exploded.path)
    kept = read_json(exploded.path / "trouble" / "trouble.json")
    done = subprocess.run(
        [sys.executable, "-m", "paribus", "replay", str(exploded.path), "--inspect", "--json"],
        cwd=trained.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["step"], found["updates_before"]) == (kept["step"], 0)
    assert found["same"] is True
    assert found["broken"] is True
    assert found["findings"] == found["recorded_findings"] == kept["findings"]
    assert {"layers.0.mlp.up", "embedding"} <= {row["name"] for row in found["parameters"]}
    assert any(row["activation_largest"] in ("nan", "inf") for row in found["tensors"])
    assert contents(exploded.path) == before


def test_the_command_says_in_words_what_came_again(
    plain: CellFolder, exploded: CellFolder, capsys: Any, monkeypatch: Any
):
    from paribus.cli import app

    monkeypatch.setenv("COLUMNS", "200")
    app(["replay", str(plain.path), "--step", "12", "--inspect"], standalone_mode=False)
    out = capsys.readouterr().out
    assert "tiny/standard/0: update 12 and 1 updates before it, made again from its checkpoint of step 10" in out
    assert "same, bit for bit" in out
    assert "output of layers.1.mlp" in out
    app(["replay", str(exploded.path)], standalone_mode=False)
    out = capsys.readouterr().out
    assert f"first tensor that is not finite: {exploded.summary()['first']['sentence']}" in out
    assert "as on record" in out


def test_a_cell_that_diverged_before_trouble_was_kept_comes_again_from_its_beginning(copied: Any):
    path = copied.cell("exploding")
    step = CellFolder(path).summary()["step"]
    shutil.rmtree(path / "trouble")
    found = replay(path, step, silent)
    assert (found.start, found.same) == ("its beginning", None)
    assert found.watched.broken
    assert "nothing is on record of update" in found.sentence
    with pytest.raises(ParibusError, match=f"update {step + 1} cannot be reached"):
        replay(path, step + 1, silent)


@pytest.mark.parametrize("step", [0, -1, 13])
def test_an_update_that_the_cell_does_not_have_is_refused_with_those_it_has(plain: CellFolder, step: int):
    with pytest.raises(ParibusError, match="--step from 1 to 12"):
        replay(plain.path, step, silent)


def test_a_healthy_cell_needs_to_be_told_which_update(plain: CellFolder):
    with pytest.raises(ParibusError, match="which update of tiny/standard/0"):
        replay(plain.path, None, silent)


def test_a_folder_that_is_no_cells_is_refused(trained: Any, tmp_path: Path):
    for path, received in ((tmp_path / "absent", "no such folder"), (trained.folder / "runs", "a folder")):
        with pytest.raises(StudyFolderError, match=received):
            replay(path, 1, silent)


def test_a_corpus_that_is_gone_is_told_as_that(copied: Any):
    (copied.folder / "runs" / "tiny" / "corpus.json").unlink()
    with pytest.raises(CorpusError, match="what tiny/standard/0 was trained on is not here"):
        replay(copied.cell("standard"), 1, silent)


def test_a_mechanism_whose_code_is_not_here_is_told_with_its_module(copied: Any):
    path = copied.cell("standard")
    record = read_json(path / "cell.json")
    record["resolved"]["mechanisms"]["output_map"] = {"name": "mine", "module": "no_such_package.mine"}
    write_json(path / "cell.json", record)
    with pytest.raises(ParibusError, match=r"'mine' of tiny/standard/0 is not here") as caught:
        replay(path, 1, silent)
    assert "no_such_package.mine" in caught.value.expected


def test_another_environment_and_changed_code_are_said(copied: Any):
    path = copied.cell("standard")
    record = read_json(path / "cell.json")
    record["environment"]["torch"] = "1.0"
    record["resolved"]["code"] = "0" * 16
    write_json(path / "cell.json", record)
    found = replay(path, 1, silent)
    assert "the cell began with torch 1.0, here " in found.notes[0]
    assert as_json(found)["same"] is True
