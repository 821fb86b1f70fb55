import datetime
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from paribus.errors import StorageError, StudyFolderError
from paribus.runs import folder as folder_module
from paribus.runs.folder import MARKER, CellFolder, StudyFolder

FILES = {"state.safetensors": b"t" * 5000, "state.json": b"{}"}

# Writes checkpoint 2 over a folder that has checkpoint 1, and is killed at the named moment.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from paribus.runs import folder

moment, write, rename = sys.argv[2], folder.write_flushed, Path.rename

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def writing(path, content):
    if path.name == moment:
        path.write_bytes(content[: len(content) // 2])
        die()
    write(path, content)

def renaming(self, target):
    if moment == "before the rename":
        die()
    rename(self, target)
    if moment == "after the rename":
        die()

folder.write_flushed, Path.rename = writing, renaming
files = {"state.safetensors": b"u" * 5000, "state.json": b"{}"}
folder.CellFolder(Path(sys.argv[1])).write_checkpoint(2, files)
"""


def markers(cell: CellFolder) -> list[str]:
    return sorted(marker.parent.name for marker in cell.path.glob(f"checkpoints/*/{MARKER}"))


@pytest.mark.parametrize(
    "moment", ["state.safetensors", "state.json", "before the rename", "after the rename", MARKER, "never"]
)
def test_a_kill_inside_a_checkpoints_write_leaves_the_one_before(tmp_path: Path, moment: str):
    cell = CellFolder(tmp_path / "cell")
    cell.write_checkpoint(1, FILES)
    done = subprocess.run([sys.executable, "-c", KILLED, str(cell.path), moment], check=False)
    assert done.returncode == (0 if moment == "never" else -signal.SIGKILL)
    latest = cell.latest_checkpoint()
    assert latest is not None
    # The marker is an empty file: half of it is all of it.
    finished = moment in (MARKER, "never")
    assert latest == ((2, FILES | {"state.safetensors": b"u" * 5000}) if finished else (1, FILES))
    cell.write_checkpoint(2, FILES)
    assert cell.latest_checkpoint() == (2, FILES)
    assert not list(cell.path.glob("checkpoints/.*")), "what the kill left is gone"


def test_the_marker_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written: list[str] = []
    write = folder_module.write_flushed

    def watching(path: Path, content: bytes) -> None:
        written.append(f"{path.parent.name}/{path.name}")
        write(path, content)

    monkeypatch.setattr(folder_module, "write_flushed", watching)
    CellFolder(tmp_path).write_checkpoint(7, FILES)
    aside = ".step-00000007.partial"
    assert written == [f"{aside}/state.safetensors", f"{aside}/state.json", f"step-00000007/{MARKER}"]


def test_a_checkpoint_without_its_marker_is_never_loaded(tmp_path: Path):
    cell = CellFolder(tmp_path)
    assert cell.latest_checkpoint() is None
    cell.write_checkpoint(1, FILES)
    cell.write_checkpoint(2, FILES)
    (tmp_path / "checkpoints" / "step-00000002" / MARKER).unlink()
    assert cell.latest_checkpoint() == (1, FILES)
    (tmp_path / "checkpoints" / "step-00000001" / MARKER).unlink()
    assert cell.latest_checkpoint() is None


def test_at_most_two_checkpoints_are_kept(tmp_path: Path):
    cell = CellFolder(tmp_path)
    for step in range(1, 5):
        cell.write_checkpoint(step, FILES)
        assert len(list((tmp_path / "checkpoints").iterdir())) == min(step, 2)
    assert markers(cell) == ["step-00000003", "step-00000004"]
    assert cell.latest_checkpoint() == (4, FILES)


def test_a_refused_checkpoint_keeps_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cell = CellFolder(tmp_path)
    cell.write_checkpoint(1, FILES)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module, "write_flushed", full)
    with pytest.raises(StorageError, match="step-00000002"):
        cell.write_checkpoint(2, FILES)
    assert cell.latest_checkpoint() == (1, FILES)


def test_metrics_beyond_the_checkpoint_are_dropped(tmp_path: Path):
    cell = CellFolder(tmp_path)
    cell.keep_metrics_until(0)
    assert cell.metrics() == []
    for step in range(1, 6):
        cell.append_metrics({"step": step, "loss": step / 3})
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 6, "lo')
    cell.keep_metrics_until(3)
    assert cell.metrics() == [{"step": step, "loss": step / 3} for step in (1, 2, 3)]
    cell.append_metrics({"step": 4})
    assert [line["step"] for line in cell.metrics()] == [1, 2, 3, 4]


def test_a_cells_state_is_what_lies_in_its_folder(tmp_path: Path):
    cell = CellFolder(tmp_path / "cell")
    assert (cell.state, cell.finished) == ("missing", False)
    cell.write_record({})
    assert (cell.state, cell.finished) == ("started", False)
    cell.finish({"steps": 3})
    assert (cell.state, cell.finished, cell.summary()["steps"]) == ("complete", True, 3)
    lost = CellFolder(tmp_path / "lost")
    lost.finish({"reason": "NaN"}, diverged=True)
    assert (lost.state, lost.finished, lost.summary()["reason"]) == ("diverged", True, "NaN")


def test_rows_come_back_as_they_were_written(tmp_path: Path):
    cell = CellFolder(tmp_path)
    cell.write_rows("likelihood/test-00000002", {"document": ["a", "b"], "nats": [1.5, 2.5]})
    cell.write_rows("likelihood/test-00000001", {"document": ["a"], "nats": [3.5]})
    assert cell.row_files("likelihood") == ["likelihood/test-00000001", "likelihood/test-00000002"]
    assert cell.rows("likelihood/test-00000002").equals(pa.table({"document": ["a", "b"], "nats": [1.5, 2.5]}))
    (tmp_path / "likelihood" / "test-00000001.parquet").write_bytes(b"PAR1")
    with pytest.raises(StudyFolderError, match=r"test-00000001\.parquet is not readable"):
        cell.rows("likelihood/test-00000001")


def test_a_new_or_empty_folder_becomes_the_studys(tmp_path: Path):
    for path in (tmp_path / "new" / "deep", tmp_path / "empty"):
        if path.name == "empty":
            path.mkdir()
        StudyFolder(path).claim_for("mine")
        StudyFolder(path).claim_for("mine")


def test_the_folder_of_another_study_is_refused_naming_both(tmp_path: Path):
    StudyFolder(tmp_path).claim_for("theirs")
    before = (tmp_path / "study.json").read_bytes()
    with pytest.raises(StudyFolderError, match="another study") as caught:
        StudyFolder(tmp_path).claim_for("mine")
    assert "'mine'" in caught.value.expected
    assert "'theirs'" in caught.value.received
    assert "--runs" in caught.value.remedy
    assert (tmp_path / "study.json").read_bytes() == before


def test_a_folder_that_paribus_did_not_write_is_refused_and_left_alone(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(StudyFolderError, match="holds files that are not a study's") as caught:
        StudyFolder(tmp_path).claim_for("mine")
    assert caught.value.received == "thesis.tex"
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_process_that_creates_the_same_study_just_now_is_no_stranger(tmp_path: Path):
    # What another process's durable write looks like before its rename.
    (tmp_path / ".study.json.4711.partial").write_bytes(b'{"form')
    StudyFolder(tmp_path).claim_for("mine")
    StudyFolder(tmp_path).claim_for("mine")


def test_cells_under_another_digest_are_found_and_repeats_are_not_among_them(tmp_path: Path):
    study = StudyFolder(tmp_path)
    for seed, digest, variant in ((1, "aaaa", ""), (1, "aaaa", "repeat"), (1, "bbbb", ""), (11, "bbbb", "")):
        study.cell("tiny", "xsa", seed, digest, variant).write_record({})
    study.cell("tiny", "xsa", 1, "cccc").path.mkdir()
    assert [other.path.name for other in study.other_cells("tiny", "xsa", 1, "aaaa")] == ["1-bbbb"]


def test_the_ledger_of_looks_only_grows(tmp_path: Path):
    study = StudyFolder(tmp_path)
    assert study.looks() == []
    for number in range(3):
        study.append_look("report", pairs={"main": number}, words={}, rule_digest="r")
    looks = study.looks()
    assert [look["pairs"]["main"] for look in looks] == [0, 1, 2]
    assert all(datetime.datetime.fromisoformat(look["time"]).tzinfo is not None for look in looks)
