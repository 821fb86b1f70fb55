import datetime
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.errors import StorageError, StudyFolderError
from paribus.runs import checkpoints as checkpoints_module
from paribus.runs.checkpoints import MARKER
from paribus.runs.faults import Kind
from paribus.runs.folder import CellFolder
from paribus.runs.study_folder import StudyFolder
from paribus.runs.verifying import examine_cell

FILES = {"state.safetensors": b"t" * 5000, "state.json": b"{}"}

# Writes checkpoint 2 over a folder that has checkpoint 1, and is killed at the named moment.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from paribus.runs import checkpoints, folder

moment, write, rename = sys.argv[2], checkpoints.write_flushed, Path.rename

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

checkpoints.write_flushed, Path.rename = writing, renaming
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
    finished = moment in ("after the rename", "never")
    assert latest == ((2, FILES | {"state.safetensors": b"u" * 5000}) if finished else (1, FILES))
    cell.write_checkpoint(2, FILES)
    assert cell.latest_checkpoint() == (2, FILES)
    cell.keep_metrics_until(0)
    assert not list(cell.path.glob("checkpoints/.*")), "what the kill left is gone"


def test_the_marker_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written: list[str] = []
    write = checkpoints_module.write_flushed

    def watching(path: Path, content: bytes) -> None:
        assert path.parent.name.startswith(".step-00000007."), "nothing is written where readers look"
        written.append(path.name)
        write(path, content)

    monkeypatch.setattr(checkpoints_module, "write_flushed", watching)
    CellFolder(tmp_path).write_checkpoint(7, FILES)
    assert written == ["state.safetensors", "state.json", MARKER]


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

    monkeypatch.setattr(checkpoints_module, "write_flushed", full)
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
    with pytest.raises(StudyFolderError, match=r"test-00000001\.parquet was changed after it was written"):
        cell.rows("likelihood/test-00000001")
    (tmp_path / "rows.jsonl").unlink()
    with pytest.raises(StudyFolderError, match=r"test-00000001\.parquet is not readable"):
        cell.rows("likelihood/test-00000001")


@pytest.mark.parametrize("ended", [False, True])
def test_a_change_that_no_checksum_of_a_page_covers_is_noticed_on_reading(tmp_path: Path, ended: bool):
    """The footer's type of a column: the file reads as other numbers and is refused by its digest alone."""
    cell = CellFolder(tmp_path / "1-abc")
    cell.write_rows("likelihood/test-00000001", {"nats": [1.0]})
    if ended:
        cell.finish({"steps": 1})
    path = cell.path / "likelihood" / "test-00000001.parquet"
    path.write_bytes(path.read_bytes().replace(b"nats", b"mats"))
    with pytest.raises(StudyFolderError, match="was changed after it was written"):
        cell.rows("likelihood/test-00000001")
    assert pq.read_table(path, page_checksum_verification=True).column_names == ["mats"], "no other check would see it"


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


LINE = {"tokens_seen": 1, "loss_nats_per_token": 1.0}


def lines(*steps_and_tokens: tuple[int, int | None]) -> list[dict]:
    return [LINE | {"step": s} | ({} if token is None else {"token": token}) for s, token in steps_and_tokens]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        # A worker that had lost the cell wrote update 3 after its successor had begun.
        ([(1, 1), (2, 2), (3, 1), (3, 2)], [(1, 1), (2, 2), (3, 2)]),
        # It wrote before the successor's first line: that one trained the same update again.
        ([(1, 1), (2, 1), (3, 1), (2, 2), (3, 2)], [(1, 1), (2, 2), (3, 2)]),
        ([(1, 1), (2, 3), (3, 2), (4, 1), (3, 3)], [(1, 1), (2, 3), (3, 3)]),
        ([(1, 1), (2, 2), (3, 2), (3, 1), (4, 2), (5, 1)], [(1, 1), (2, 2), (3, 2), (4, 2)]),
        # Lines of an earlier version carry none.
        ([(1, None), (2, None), (3, 1), (4, 2)], [(1, None), (2, None), (3, 1), (4, 2)]),
    ],
)
def test_lines_of_a_worker_that_had_lost_the_cell_are_not_read(tmp_path: Path, written: list, read: list):
    cell = CellFolder(tmp_path)
    for line in lines(*written):
        cell.append_metrics(line)
    assert cell.metrics() == lines(*read)
    cell.keep_metrics_until(2)
    assert cell.metrics() == lines(*read[:2])


def test_a_line_that_is_no_update_stays_for_who_looks_at_it(tmp_path: Path):
    cell = CellFolder(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('"text"\n{"token": 3}\n', encoding="utf-8")
    cell.append_metrics(LINE | {"step": 1, "token": 1})
    cell.append_metrics(LINE | {"step": 2, "token": 2})
    assert cell.metrics() == ["text", {"token": 3}, *lines((1, 1), (2, 2))]


def test_every_write_of_a_cell_asks_the_fence_and_no_reader_does(tmp_path: Path):
    asked: list[str] = []
    path = tmp_path / "cell"
    cell = CellFolder(path, fence=lambda: asked.append("asked"))
    writes = {
        "record": lambda: cell.write_record({"scale": "S"}),
        "metrics": lambda: cell.append_metrics({"step": 1}),
        "kept": lambda: cell.keep_metrics_until(1),
        "rows": lambda: cell.write_rows("likelihood/test-1", {"a": [1]}),
        "checkpoint": lambda: cell.write_checkpoint(1, FILES),
        "end": lambda: cell.finish({"steps": 1}),
    }
    for name, write in writes.items():
        asked.clear()
        write()
        assert asked, name
    asked.clear()
    read = (cell.record(), cell.metrics(), cell.rows("likelihood/test-1"), cell.latest_checkpoint(), cell.summary())
    assert all(read)
    assert (cell.state, cell.damaged_checkpoints(), cell.alterations()) == ("complete", {}, [])
    assert not asked


class Lost(Exception):  # noqa: N818 - what a fence raises is the claim's affair
    pass


def test_a_cell_that_was_lost_stays_as_its_successor_has_it(tmp_path: Path):
    def refuse() -> None:
        raise Lost

    own = CellFolder(tmp_path / "cell")
    own.write_record({"a": 1})
    own.append_metrics(LINE | {"step": 1})
    own.write_rows("likelihood/test-1", {"a": [1]})
    own.write_checkpoint(1, FILES)
    before = {path: path.read_bytes() for path in own.path.rglob("*") if path.is_file()}
    lost = CellFolder(own.path, fence=refuse)
    for write in (
        lambda: lost.write_record({"a": 2}),
        lambda: lost.append_metrics(LINE | {"step": 2}),
        lambda: lost.keep_metrics_until(0),
        lambda: lost.write_rows("likelihood/test-1", {"a": [2]}),
        lambda: lost.write_checkpoint(1, FILES | {"state.json": b"other"}),
        lambda: lost.write_checkpoint(2, FILES),
        lambda: lost.finish({"steps": 1}),
        lambda: lost.finish({"reason": ""}, diverged=True),
    ):
        with pytest.raises(Lost):
            write()
        assert {path: path.read_bytes() for path in own.path.rglob("*") if path.is_file()} == before


def test_a_writer_whose_half_written_checkpoint_its_successor_removed_learns_of_the_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse() -> None:
        raise Lost

    write = checkpoints_module.write_flushed

    def swept(path: Path, content: bytes) -> None:
        write(path, content)
        CellFolder(tmp_path).keep_metrics_until(0)

    monkeypatch.setattr(checkpoints_module, "write_flushed", swept)
    with pytest.raises(Lost):
        CellFolder(tmp_path, fence=refuse).write_checkpoint(1, FILES)


def test_what_killed_writers_left_goes_when_training_goes_on_and_what_others_write_stays(tmp_path: Path):
    cell = CellFolder(tmp_path)
    left = [
        ".metrics.jsonl.1-00.partial",
        "likelihood/.test.parquet.1-00.partial",
        "checkpoints/.step-1.1-00.partial/x",
    ]
    others = ["tasks/.a.json.1-00.partial", "finetuned/.a.1-00.partial", ".claims/.00000001.json.1-00.partial"]
    for name in left + others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    cell.keep_metrics_until(0)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.partial")) == sorted(others)


def test_a_page_of_rows_that_was_changed_is_refused(tmp_path: Path):
    cell = CellFolder(tmp_path)
    values = [float(number) for number in range(200)]
    cell.write_rows("likelihood/test-1", {"nats": values})
    path = tmp_path / "likelihood" / "test-1.parquet"
    whole = path.read_bytes()
    pages = pq.ParquetFile(path).metadata.row_group(0).column(0)
    start, size = pages.data_page_offset, pages.total_compressed_size
    refused = 0
    for place in range(start, start + size, 17):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            read = cell.rows("likelihood/test-1")["nats"].to_pylist()
        except StudyFolderError:
            refused += 1
        else:
            assert read == values
    assert refused > size / 17 * 0.8


def test_the_cost_of_another_scale_is_refused(tmp_path: Path):
    study = StudyFolder(tmp_path)
    study.write_cost("S", {"host": "h"})
    assert study.cost("S") == {"host": "h", "scale": "S"}
    (tmp_path / "cost" / "S.json").rename(tmp_path / "cost" / "M.json")
    with pytest.raises(StudyFolderError, match="is that of another scale"):
        study.cost("M")


def test_a_look_that_lost_its_end_is_kept_and_a_torn_one_is_not(tmp_path: Path):
    study, path = StudyFolder(tmp_path), tmp_path / "looks.jsonl"
    study.append_look("report", {"main": 1}, {}, "r")
    whole = path.read_bytes()
    for damaged, looks in ((whole[:-1], 2), (whole[:-1] + b"\x8a", 2), (whole[:-2], 1)):
        path.write_bytes(damaged)
        assert len(study.looks()) == looks - 1
        study.append_look("report", {"main": 2}, {}, "r")
        assert len(study.looks()) == looks
        assert study.unreadable_looks() == []
        assert path.read_bytes().count(b"\n") == looks


def test_a_changed_look_is_named_and_the_others_are_read(tmp_path: Path):
    study, path = StudyFolder(tmp_path), tmp_path / "looks.jsonl"
    for number in range(3):
        study.append_look("report", {"main": number}, {}, "r")
    path.write_bytes(path.read_bytes().replace(b'"main": 1', b'"main": 9'))
    assert [look["pairs"]["main"] for look in study.looks()] == [0, 2]
    (said,) = study.unreadable_looks()
    assert said.startswith("line 2 (its CRC is not")


def test_going_on_gives_metrics_a_new_file_so_that_a_late_writer_has_the_old_one(tmp_path: Path):
    cell = CellFolder(tmp_path)
    cell.append_metrics(LINE | {"step": 1})
    with (tmp_path / "metrics.jsonl").open("ab") as late:
        cell.keep_metrics_until(1)  # nothing is to be dropped
        late.write(b"late\n")
    assert cell.metrics() == [LINE | {"step": 1}]


def test_a_column_name_that_is_no_text_any_more_is_a_damaged_file_to_the_reader_and_to_who_verifies(tmp_path: Path):
    cell = CellFolder(tmp_path / "1-abc")
    cell.write_rows("likelihood/test-00000001", {"nats": [1.0]})
    path = cell.path / "likelihood" / "test-00000001.parquet"
    path.write_bytes(path.read_bytes().replace(b"nats", b"n\x9ets"))
    (cell.path / "rows.jsonl").unlink()
    with pytest.raises(StudyFolderError, match="not readable"):
        cell.rows("likelihood/test-00000001")
    assert [fault.kind for fault in examine_cell(cell.path)] == [Kind.DAMAGED]
