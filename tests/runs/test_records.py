import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.errors import StorageError, StudyFolderError
from paribus.runs import records
from paribus.runs.records import RESTORE, append_line, read_json, read_lines, write_durably, write_json

OLD, NEW = b"old" * 1000, b"new" * 1000

# Replaces a file's content and is killed at the named moment.
KILLED = """
import os, signal, sys
from pathlib import Path
from paribus.runs import records

path, moment = Path(sys.argv[1]), sys.argv[2]
fsync, replace = os.fsync, Path.replace

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def half(aside, content):
    with aside.open("wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        die()

def replace_and_die(self, target):
    replace(self, target)
    die()

if moment == "half written":
    records.write_flushed = half
elif moment == "before the flush":
    os.fsync = die
elif moment == "before the rename":
    Path.replace = die
elif moment == "after the rename":
    Path.replace = replace_and_die
records.write_durably(path, b"new" * 1000)
"""


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("half written", OLD),
        ("before the flush", OLD),
        ("before the rename", OLD),
        ("after the rename", NEW),
        ("never", NEW),
    ],
)
def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path, moment: str, expected: bytes):
    path = tmp_path / "file"
    write_durably(path, OLD)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), moment], check=False)
    assert done.returncode == (0 if moment == "never" else -signal.SIGKILL)
    assert path.read_bytes() == expected
    write_durably(path, NEW)
    assert path.read_bytes() == NEW


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors have no names here")
def test_the_folder_is_flushed_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    flushed: list[tuple[str, bool]] = []
    fsync = os.fsync

    def watching(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushed.append((target.name, (tmp_path / "file").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watching)
    write_durably(tmp_path / "file", NEW)
    assert flushed == [(f".file.{os.getpid()}.partial", False), (tmp_path.name, True)]


def test_a_refused_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "file"
    write_durably(path, OLD)

    def full(aside: Path, content: bytes) -> None:
        aside.write_bytes(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records, "write_flushed", full)
    with pytest.raises(StorageError) as caught:
        write_durably(path, NEW)
    assert caught.value.what == f"could not write {path}"
    assert caught.value.received == "No space left on device"
    assert "finished cells and checkpoints are kept" in caught.value.remedy
    assert path.read_bytes() == OLD
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_no_space_left_is_a_storage_error_with_a_remedy():
    with pytest.raises(StorageError, match="could not write /dev/full") as caught:
        append_line(Path("/dev/full"), {"a": 1})
    assert caught.value.received == "No space left on device"
    assert "finished cells and checkpoints are kept" in caught.value.remedy


def test_a_torn_last_line_is_not_a_line(tmp_path: Path):
    path = tmp_path / "lines.jsonl"
    assert read_lines(path) == []
    for step in range(3):
        append_line(path, {"step": step})
    whole = path.read_bytes()
    for length in range(len(whole) - len(b'{"step": 2}\n'), len(whole)):
        path.write_bytes(whole[:length])
        assert read_lines(path) == [{"step": 0}, {"step": 1}]


@pytest.mark.parametrize("torn", [b'{"st', b'{"step": 0}\n{"st', b'{"step": 0}\n{"step": 1}'])
def test_a_line_after_a_torn_one_is_not_lost(tmp_path: Path, torn: bytes):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(torn)
    append_line(path, {"step": 7})
    assert read_lines(path) == [{"step": 0}] * torn.count(b"\n") + [{"step": 7}]


def test_a_complete_line_that_is_not_json_is_an_error_with_a_remedy(tmp_path: Path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"step": 0}\nnonsense\n{"step": 1}\n')
    with pytest.raises(StudyFolderError, match=r"lines\.jsonl holds a line that is not JSON") as caught:
        read_lines(path)
    assert caught.value.remedy == RESTORE


@pytest.mark.parametrize("content", [None, "", '{"a": ', "\x00\x00"])
def test_an_unreadable_json_file_is_an_error_that_names_it(tmp_path: Path, content: str | None):
    path = tmp_path / "file.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(StudyFolderError, match=r"file\.json is not readable"):
        read_json(path)


@pytest.mark.parametrize("read", [read_json, read_lines])
def test_the_remedy_is_the_callers_who_knows_the_file_and_never_the_loss_of_a_study(
    tmp_path: Path, read: Callable[..., object]
):
    path = tmp_path / "study" / "looks.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"nonsense\n")
    with pytest.raises(StudyFolderError) as caught:
        read(path, remedy="correct the line that was edited")
    assert caught.value.remedy == "correct the line that was edited"
    with pytest.raises(StudyFolderError) as caught:
        read(path)
    # The folder that holds a study's files holds every cell: "delete it" may only ever be said of a cell's.
    assert "restore this file from a copy" in caught.value.remedy
    assert "where it belongs to one cell, deleting that cell's folder" in caught.value.remedy


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nothing_that_json_lacks_is_written(tmp_path: Path, value: float):
    for write in (write_json, append_line):
        with pytest.raises(ValueError, match="JSON compliant"):
            write(tmp_path / "file", {"loss": value})
        assert read_lines(tmp_path / "file") == []


def test_json_is_the_same_bytes_whatever_the_order_of_keys(tmp_path: Path):
    write_json(tmp_path / "a", {"x": 1, "y": [1.5, "é"]})
    write_json(tmp_path / "b", {"y": [1.5, "é"], "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_json(tmp_path / "a") == {"x": 1, "y": [1.5, "é"]}
