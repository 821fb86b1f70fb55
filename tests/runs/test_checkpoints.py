"""A checkpoint vouches for itself; the newest one that can be used is used, and the others are named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.errors import StorageError, StudyFolderError
from paribus.runs import checkpoints
from paribus.runs.checkpoints import MARKER, Checkpoint, write_alone
from paribus.runs.folder import CellFolder
from paribus.runs.records import sealed
from paribus.seeds import generator

FILES = {"state.safetensors": bytes(range(256)) * 20, "state.json": sealed({"step": 1})}
Flip = Callable[[Path, int, int], None]


def write(cell: CellFolder, steps: int, every: int = 1, *, first: int = 1) -> None:
    for step in range(first, steps + 1):
        cell.append_metrics({"step": step, "tokens_seen": step, "loss_nats_per_token": 1.0})
        if step % every == 0:
            cell.write_checkpoint(step, FILES)


def folder_of(cell: CellFolder, step: int) -> Path:
    return cell.path / "checkpoints" / f"step-{step:08d}"


def latest(cell: CellFolder) -> tuple[int | None, dict[int, str]]:
    """The step that is used, and what was said of the others."""
    said: dict[int, str] = {}
    found = cell.latest_checkpoint(said.__setitem__)
    assert found is None or found[1] == FILES
    return (None if found is None else found[0]), said


def test_a_flipped_byte_anywhere_is_refused_or_changes_nothing_and_the_checkpoint_before_is_used(
    tmp_path: Path, flip: Flip
):
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 2)
    draw = generator("tests", "checkpoints", "flips")
    refused = 0
    for name in (*FILES, MARKER):
        path = folder_of(cell, 2) / name
        before = path.read_bytes()
        for place in {0, len(before) - 1, *draw.integers(0, len(before), 60).tolist()}:
            flip(path, place, int(draw.integers(1, 256)))
            step, said = latest(cell)
            if step == 2:  # a space that became another kind of space
                assert name == MARKER
                assert json.loads(path.read_bytes()) == json.loads(before)
            else:
                assert (step, said.keys()) == (1, {2})
                assert cell.damaged_checkpoints() == said
                with pytest.raises(StudyFolderError, match="step-00000002 is damaged"):
                    cell.checkpoint_at(2)
                refused += 1
            path.write_bytes(before)
    assert refused > 150
    assert latest(cell) == (2, {})
    assert cell.damaged_checkpoints() == {}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "state.safetensors").write_bytes(b""), "state.safetensors has 0 bytes of 5,120"),
        (lambda f: (f / "state.safetensors").write_bytes(b"x" * 5120), "state.safetensors was changed after"),
        (lambda f: (f / "state.json").unlink(), "No such file"),
        (lambda f: (f / MARKER).write_bytes(b""), "COMPLETE was emptied"),
        (lambda f: (f / MARKER).write_bytes((f / MARKER).read_bytes()[:50]), ""),
        (lambda f: (f / MARKER).write_bytes(b"{}"), "COMPLETE is not as it was written (without its checksum)"),
        (lambda f: (f / MARKER).write_bytes(sealed({})), "COMPLETE is not as it was written (step: "),
    ],
)
def test_what_is_wrong_is_said_in_words(tmp_path: Path, damage: Callable[[Path], object], said: str):
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 2)
    damage(folder_of(cell, 2))
    step, damaged = latest(cell)
    assert step == 1
    assert said in damaged[2]
    assert said in cell.damaged_checkpoints()[2]


def test_a_marker_that_names_a_file_elsewhere_is_refused(tmp_path: Path):
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 1)
    (tmp_path / "secret").write_bytes(b"s")
    marker = {"format": 2, "step": 1, "cell": "1-abc", "files": {"../../../secret": {"bytes": 1, "digest": "00"}}}
    (folder_of(cell, 1) / MARKER).write_bytes(sealed(marker))
    assert latest(cell)[0] is None


def test_a_checkpoint_of_another_cell_or_step_is_not_used(tmp_path: Path):
    one, other = CellFolder(tmp_path / "1-abc"), CellFolder(tmp_path / "2-abc")
    write(one, 2)
    write(other, 2)
    folder_of(one, 2).rename(tmp_path / "aside")
    folder_of(other, 2).rename(folder_of(one, 2))
    assert latest(one) == (1, {2: f"{MARKER} is that of step 2 of 2-abc"})
    (tmp_path / "aside").rename(folder_of(one, 3))
    assert "is that of step 2 of 1-abc" in latest(one)[1][3] or "is whole up to" in latest(one)[1][3]


def test_a_moved_study_and_a_link_to_a_cell_keep_their_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cell = CellFolder(tmp_path / "here" / "S" / "a" / "1-abc")
    write(cell, 1)
    (tmp_path / "here").rename(tmp_path / "there")
    (tmp_path / "link").symlink_to(tmp_path / "there" / "S" / "a" / "1-abc")
    assert latest(CellFolder(tmp_path / "link"))[0] == 1
    monkeypatch.chdir(tmp_path / "link")
    assert latest(CellFolder(Path()))[0] == 1


def test_a_checkpoint_of_an_earlier_version_is_used_and_nothing_vouches_for_it(tmp_path: Path):
    cell = CellFolder(tmp_path / "1-abc")
    old = folder_of(cell, 1)
    old.mkdir(parents=True)
    for name, content in {"state.safetensors": b"tensors", "state.json": b'{"format": 1, "step": 1}'}.items():
        (old / name).write_bytes(content)
    (old / MARKER).touch()
    assert cell.latest_checkpoint() == (1, {"state.safetensors": b"tensors", "state.json": b'{"format": 1, "step": 1}'})
    assert (cell.damaged_checkpoints(), Checkpoint(old).checked) == ({}, False)


def test_the_last_two_and_the_steps_to_keep_stay_and_those_of_a_future_that_was_given_up_go(tmp_path: Path):
    cell = CellFolder(tmp_path / "1-abc")
    for step in (2, 4, 6, 8, 10):
        cell.write_checkpoint(step, FILES, kept=(4,))
    assert cell.checkpoint_steps() == [4, 8, 10]
    cell.write_checkpoint(6, FILES, kept=(4,))  # 8 and 10 could not be used, and training came back to 4
    assert cell.checkpoint_steps() == [4, 6]
    cell.write_checkpoint(8, FILES, kept=(4,))
    assert cell.checkpoint_steps() == [4, 6, 8]


def test_a_checkpoint_of_an_unfinished_cell_counts_only_where_metrics_reach_it(tmp_path: Path, flip: Flip):
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 6, every=3)
    path = cell.path / "metrics.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for damage, used in {
        b"".join(lines[:5]): 3,  # lost by a power cut
        b"".join([*lines[:4], *lines[5:]]): 3,
        b"".join(lines[:2]): None,
        b"".join([*lines[:4], lines[4].replace(b"1.0", b"1.5"), *lines[5:]]): 3,
        b"".join([*lines[:1], lines[1].replace(b"1.0", b"1.5"), *lines[2:]]): None,
        whole + b'{"st': 6,
        whole + b"nonsense\n": 6,
    }.items():
        path.write_bytes(damage)
        step, said = latest(cell)
        assert step == used
        assert all("metrics.jsonl is whole up to update" in why for why in said.values())
        assert cell.damaged_checkpoints() == said
        cell.keep_metrics_until(step or 0)
        assert [line["step"] for line in cell.metrics()] == list(range(1, (step or 0) + 1))
    path.write_bytes(whole)
    flip(path, 10, 1)
    with pytest.raises(StudyFolderError, match="line 1 of 6 is damaged"):
        cell.metrics()


def test_a_cell_whose_metrics_are_gone_begins_anew(tmp_path: Path):
    cell = CellFolder(tmp_path / "1-abc")
    cell.write_record({})
    write(cell, 2)
    (cell.path / "metrics.jsonl").unlink()
    assert latest(cell)[0] is None


def test_metrics_that_do_not_reach_the_step_to_go_on_from_are_refused(tmp_path: Path):
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 2)
    with pytest.raises(StudyFolderError, match="does not reach the checkpoint") as caught:
        cell.keep_metrics_until(3)
    assert caught.value.received == "updates up to 2"
    assert len(cell.metrics()) == 2


def test_a_checkpoint_is_used_only_where_rows_up_to_it_are_as_they_were_written(tmp_path: Path):
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 2)
    cell.write_rows("likelihood/test-00000002", {"nats": [1.0]})
    write(cell, 3, first=3)
    cell.write_checkpoint(3, FILES, kept=(1, 2))
    assert latest(cell)[0] == 3
    path = cell.path / "likelihood" / "test-00000002.parquet"
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:40] + b"!" + whole[41:], None):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        step, said = latest(cell)
        assert step == 2, "rows of that very update are measured anew"
        assert all("likelihood/test-00000002.parquet " in why for why in said.values())
        with pytest.raises(StudyFolderError, match=r"test-00000002\.parquet (was changed|is missing)"):
            cell.finish({"steps": 3})
        path.write_bytes(whole)
    cell.finish({"steps": 3})
    assert not (cell.path / "rows.jsonl").exists()
    assert cell.alterations() == []


def test_an_old_checkpoint_loses_its_name_durably_before_a_file_of_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 2)
    seen: list[tuple[str, bool]] = []
    remove, flush = shutil.rmtree, checkpoints.flush

    def removing(path: Path, *, ignore_errors: bool = False) -> None:
        if path.exists():
            seen.append((path.name, (path / "COMPLETE").exists()))
        remove(path, ignore_errors=ignore_errors)

    def flushing(path: Path) -> None:
        flush(path)
        seen.append((path.name, (path / "step-00000001").exists()))

    monkeypatch.setattr(shutil, "rmtree", removing)
    monkeypatch.setattr(checkpoints, "flush", flushing)
    write(cell, 3, first=3)
    *_, (group, named), (removed, whole) = seen
    assert (group, named) == ("checkpoints", False)
    assert removed.startswith(".step-00000001.")
    assert whole
    assert cell.checkpoint_steps() == [2, 3]


def test_a_damaged_record_of_row_files_brings_training_back_to_its_begin_and_no_further(tmp_path: Path, flip: Flip):
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 2)
    cell.write_rows("likelihood/test-00000002", {"nats": [1.0]})
    flip(cell.path / "rows.jsonl", 20, 1)
    step, said = latest(cell)
    assert (step, len(said)) == (None, 2)
    assert all(why.startswith("rows.jsonl line 1: its CRC is not") for why in said.values())
    cell.keep_metrics_until(0)
    write(cell, 2)
    cell.write_rows("likelihood/test-00000002", {"nats": [1.0]})
    cell.finish({"steps": 2})
    assert latest(cell)[0] == 2


def test_a_row_file_that_was_announced_and_never_written_is_forgotten_when_training_goes_on_before_it(tmp_path: Path):
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 3)
    cell.write_rows("likelihood/test-00000004", {"nats": [1.0]})
    (cell.path / "likelihood" / "test-00000004.parquet").unlink()
    assert latest(cell)[0] == 3
    cell.keep_metrics_until(3)
    assert cell.damaged_rows() == {}


def test_rows_that_were_written_twice_may_be_either(tmp_path: Path):
    cell = CellFolder(tmp_path / "1-abc")
    cell.write_rows("likelihood/test-00000002", {"nats": [1.0]})
    first = (cell.path / "likelihood" / "test-00000002.parquet").read_bytes()
    cell.write_rows("likelihood/test-00000002", {"nats": [2.0]})
    assert cell.damaged_rows() == {}
    # A kill between the line and the rename leaves the file before.
    (cell.path / "likelihood" / "test-00000002.parquet").write_bytes(first)
    assert cell.damaged_rows() == {}


def test_lines_are_on_the_disk_before_the_checkpoint_that_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from paribus.runs import folder

    events: list[str] = []
    monkeypatch.setattr(folder, "flush", lambda path: events.append(path.name))
    monkeypatch.setattr(folder.checkpoints, "write", lambda *_: events.append("checkpoint"))
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 1)
    assert events == ["metrics.jsonl", "1-abc", "checkpoint"]


def test_a_refused_write_leaves_every_checkpoint_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 2)
    before = {path: path.read_bytes() for path in cell.path.rglob("*") if path.is_file()}
    write_flushed = checkpoints.write_flushed

    def full(path: Path, content: bytes) -> None:
        write_flushed(path, content[:10])
        if path.name == MARKER:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_flushed", full)
    for step in (2, 3):  # one that is there is not removed before the new one is whole
        with pytest.raises(StorageError, match=f"step-0000000{step}"):
            cell.write_checkpoint(step, FILES | {"state.json": b"other"})
        assert {path: path.read_bytes() for path in cell.path.rglob("*") if path.is_file()} == before
    assert not list(cell.path.rglob(".*"))


def test_a_checkpoint_beside_the_others_touches_none(tmp_path: Path):
    cell = CellFolder(tmp_path / "1-abc")
    write(cell, 2)
    written = write_alone(cell.path / "trouble", 9, FILES)
    assert Checkpoint(written).read() == FILES
    assert cell.checkpoint_steps() == [1, 2]
