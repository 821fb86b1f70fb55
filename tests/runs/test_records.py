import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus import disk
from paribus.disk import sealed, unsealed
from paribus.errors import StorageError, StudyFolderError
from paribus.runs import records
from paribus.runs.records import RESTORE, append_line, lines_of, read_json, read_lines, write_durably, write_json
from paribus.seeds import generator

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
    (aside, before), (folder, after) = flushed
    assert re.fullmatch(rf"\.file\.{os.getpid()}-[0-9a-f]{{8}}\.partial", aside)
    assert (folder, before, after) == (tmp_path.name, False, True)


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


def test_a_complete_line_that_is_not_json_is_an_error_with_its_number_and_a_remedy(tmp_path: Path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"step": 0}\nnonsense\n{"step": 1}\n')
    with pytest.raises(StudyFolderError, match=r"lines\.jsonl: line 2 of 3 is damaged") as caught:
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


RECORD = {"text": "é", "nested": {"b": [1, 2.5e-07, None, True], "a": ""}, "count": 3, "rate": 0.1, "long": 2**70}


def test_a_record_is_for_people_sorted_and_its_checksum_is_last(tmp_path: Path):
    write_json(tmp_path / "a.json", RECORD)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    content = json.loads(text)
    assert list(content) == [*sorted(RECORD), "checksum"]
    assert list(content["nested"]) == ["a", "b"]
    assert text.splitlines()[1] == ' "count": 3,'
    assert text.endswith("}\n")
    assert read_json(tmp_path / "a.json") == RECORD
    # From the definition: blake2b of 8 bytes over the content with sorted keys and no spaces.
    stated = content.pop("checksum")
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    assert stated == "blake2b-8:" + hashlib.blake2b(canonical, digest_size=8).hexdigest()


def test_any_byte_of_a_record_that_changes_is_refused_or_changes_nothing(tmp_path: Path):
    whole = sealed(RECORD)
    draw = generator("tests", "records", "flips")
    read = []
    for place in range(len(whole)):
        for by in {1, 32, 128, *draw.integers(1, 256, 5).tolist()}:
            changed = whole[:place] + bytes([whole[place] ^ by]) + whole[place + 1 :]
            with contextlib.suppress(ValueError):
                assert unsealed(changed) == (RECORD, True)
                read.append(whole[place : place + 1])
    # A space that became another one, and the "e" of an exponent in capitals: the content is the same.
    assert set(read) <= {b" ", b"\n", b"e"}
    assert len(read) < len(whole) / 2
    path = tmp_path / "a.json"
    for length in range(0, len(whole) - 1, 20):
        path.write_bytes(whole[:length])
        with pytest.raises(StudyFolderError, match=r"a\.json is not readable"):
            read_json(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.update(count=4), "as it says: it was changed"),
        (lambda r: r.pop("count"), "as it says: it was changed"),
        (lambda r: r.update(checksum="blake2b-8:0000000000000000"), "not blake2b-8:0000000000000000 as it says"),
        (lambda r: r.update(checksum=None), "not None as it says"),
        (lambda r: r.update(chfcksum=r.pop("checksum")), "its checksum stands under the name 'chfcksum'"),
    ],
)
def test_a_record_that_was_edited_says_so_and_one_that_lost_the_name_of_its_checksum_is_not_taken_for_an_old_one(
    tmp_path: Path, change: Callable[[dict], object], said: str
):
    path = tmp_path / "a.json"
    write_json(path, RECORD)
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(StudyFolderError) as caught:
        read_json(path)
    assert said in caught.value.received


@pytest.mark.parametrize("content", ['{"a": 1}', "[1, 2]", "3"])
def test_a_file_without_a_checksum_is_read_as_it_is(tmp_path: Path, content: str):
    (tmp_path / "old.json").write_text(content, encoding="utf-8")
    assert read_json(tmp_path / "old.json") == json.loads(content)
    assert unsealed(content.encode()) == (json.loads(content), False)
    assert unsealed(sealed({"a": 1})) == ({"a": 1}, True)


def test_the_names_of_the_checksums_are_reserved(tmp_path: Path):
    for write, name in ((write_json, "checksum"), (append_line, "crc")):
        with pytest.raises(ValueError, match=f"no field '{name}'"):
            write(tmp_path / "a", {name: 1})


def test_a_line_ends_with_the_crc_of_its_content(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    append_line(path, {"b": 1.5, "a": "é"})
    append_line(path, {})
    first, second = path.read_bytes().splitlines()
    content = b'{"a": "\\u00e9", "b": 1.5}'
    assert first == content[:-1] + b', "crc": "crc32:%08x"}' % zlib.crc32(content)
    assert second == b'{"crc": "crc32:%08x"}' % zlib.crc32(b"{}")
    assert read_lines(path) == [{"a": "é", "b": 1.5}, {}]


def test_any_byte_of_a_line_that_changes_is_named_with_its_number_or_changes_nothing(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    lines = [{"step": step, "loss": 1 / (step + 3), "tiny": 2.5e-07, "slices": {"x": {"n": step}}} for step in range(3)]
    for line in lines:
        append_line(path, line)
    whole = path.read_bytes()
    draw = generator("tests", "records", "lines")
    read = []
    for place in range(len(whole)):
        for by in {1, 32, 7, *draw.integers(1, 256, 4).tolist()}:
            found = list(lines_of(whole[:place] + bytes([whole[place] ^ by]) + whole[place + 1 :]))
            wrong = [line.number for line in found if line.wrong]
            if not wrong:
                assert [line.content for line in found] == lines
                read.append(whole[place : place + 1])
            assert wrong[:1] in ([], [whole[:place].count(b"\n") + 1])
    assert set(read) <= {b" ", b"e"}
    path.write_bytes(whole.replace(b'"step": 1', b'"step": 4'))
    with pytest.raises(StudyFolderError, match="line 2 of 3 is damaged"):
        read_lines(path)


def test_a_line_that_was_laid_out_anew_or_is_of_an_earlier_version_is_read(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    append_line(path, {"b": 1, "a": 2})
    compact = json.dumps(json.loads(path.read_bytes()), separators=(",", ":")).encode()
    path.write_bytes(compact + b'\n{"old": 1}\n"text"\n')
    assert read_lines(path) == [{"a": 2, "b": 1}, {"old": 1}, "text"]
    assert [line.checked for line in lines_of(path.read_bytes())] == [True, False, False]


def test_a_line_that_only_lost_its_end_is_not_dropped_by_the_next(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    append_line(path, {"step": 1})
    path.write_bytes(path.read_bytes()[:-1] + b"\x8a")  # a flipped byte, which no kill leaves
    with pytest.raises(StudyFolderError, match="line 1 of 1 is damaged"):
        read_lines(path)
    append_line(path, {"step": 2})
    assert read_lines(path) == [{"step": 1}, {"step": 2}]


class Lost(Exception):  # noqa: N818 - what a fence raises is the claim's affair
    pass


def refuse() -> None:
    raise Lost


@pytest.mark.parametrize("write", [write_json, append_line])
def test_the_fence_is_asked_once_and_where_it_refuses_nothing_is_changed(tmp_path: Path, write: Callable[..., None]):
    path = tmp_path / "file"
    asked: list[bool] = []
    write(path, {"a": 1}, lambda: asked.append(path.exists()))
    assert len(asked) == 1
    before = path.read_bytes()
    with pytest.raises(Lost):
        write(path, {"a": 2}, refuse)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_writer_that_wakes_up_after_the_file_was_replaced_appends_to_nothing_that_is_read(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    append_line(path, {"step": 1})

    def successor() -> None:  # between the question and the write, which then goes through
        write_durably(path, path.read_bytes())

    append_line(path, {"step": 2}, successor)
    assert read_lines(path) == [{"step": 1}]


def test_a_refused_append_leaves_the_lines_before_it(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    append_line(path, {"text": "x" * 100})
    script = f"""
import resource, signal, sys
from pathlib import Path
from paribus.errors import StorageError
from paribus.runs.records import append_line, write_json
path = Path({str(path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 30, resource.RLIM_INFINITY))
for write in (append_line, write_json):
    try:
        write(path, {{"text": "y" * 1000}})
    except StorageError as error:
        print("refused:", error.remedy)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.count("refused: ") == done.stdout.count("finished cells and checkpoints are kept") == 2
    assert read_lines(path) == [{"text": "x" * 100}]
    assert path.read_bytes().count(b"y") == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_durable_line_is_flushed_and_so_is_the_folder_of_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    append_line(tmp_path / "a.jsonl", {"a": 1}, durable=True)
    assert len(flushed) == 2
    append_line(tmp_path / "a.jsonl", {"a": 1}, durable=True)
    assert len(flushed) == 3
    append_line(tmp_path / "a.jsonl", {"a": 1})
    assert len(flushed) == 3


def test_every_new_folder_above_a_file_has_its_name_on_the_disk_before_the_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flushed: list[tuple[Path, list[str]]] = []
    monkeypatch.setattr(disk, "flush", lambda path: flushed.append((path, [each.name for each in path.iterdir()])))
    write_durably(tmp_path / "a" / "b" / "c" / "file", b"x")
    expected = [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    assert flushed == [(path, [name]) for path, name in zip(expected, "abc", strict=True)]
    append_line(tmp_path / "a" / "d" / "lines.jsonl", {})
    assert [path for path, _ in flushed[3:]] == [tmp_path / "a"]
    write_durably(tmp_path / "a" / "b" / "c" / "other", b"x")
    assert len(flushed) == 4, "a folder that is there is left alone"
