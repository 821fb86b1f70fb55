"""A study arrives whole or stays whole, whatever happens while it is moved, and goes on where it arrived."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paribus.errors import StorageError, StudyFolderError
from paribus.experiment import loading
from paribus.keeping import moving
from paribus.keeping.moving import move
from paribus.runs.folder import CellFolder
from paribus.runs.study_folder import StudyFolder
from paribus.study import open_study

Cli = Callable[..., tuple[int, str, str]]
Hold = Callable[..., subprocess.Popen[str]]
SLOWLY = """
import sys, time
from pathlib import Path
from paribus.experiment import loading
from paribus.keeping import moving

real = moving._copy_file
def slow(source, target):
    real(source, target)
    print(target, flush=True)
    time.sleep(0.1)
moving._copy_file = slow
moving.move(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def everything(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def folders(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_dir()}


class Killed(BaseException):
    """As if the process had ended here."""


def test_a_study_is_moved_with_its_corpus_and_goes_on_there(here: Path, cli: Cli):
    before, inner = everything(here / "runs" / "tiny"), folders(here / "runs" / "tiny")
    code, out, err = cli("move", "runs/tiny", "disk/other")
    assert (code, err) == (0, "")
    assert f"moved to disk/other/tiny: {len(before)} files" in out
    assert "its corpus was copied to disk/other/corpora/" in out
    assert "from now on name its folder: --runs disk/other" in out
    assert not (here / "runs" / "tiny").exists()
    assert everything(here / "disk" / "other" / "tiny") == before
    assert folders(here / "disk" / "other" / "tiny") == inner
    assert [path.name for path in (here / "runs").iterdir()] == ["corpora"], "where other studies may read it"
    assert cli("doctor", "disk/other")[0] == 0
    shutil.rmtree(here / "runs")
    opened = open_study(loading.load(here / "study.toml"), here, here / "disk" / "other")
    assert (len(opened.cells), opened.missing) == (2, []), "with the corpus that it was planned with"


def test_a_copy_keeps_the_source_and_is_the_same(here: Path, cli: Cli):
    before = everything(here / "runs" / "tiny")
    code, out, _ = cli("move", "runs/tiny", "other", "--keep", "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["target"], told["files"], told["kept"], told["notes"]) == ("other/tiny", len(before), True, [])
    assert told["bytes"] == sum(map(len, before.values()))
    assert everything(here / "runs" / "tiny") == before == everything(here / "other" / "tiny")
    times = [path.stat().st_mtime_ns for path in (here / "runs" / "tiny").rglob("*") if path.is_file()]
    assert times == [path.stat().st_mtime_ns for path in (here / "other" / "tiny").rglob("*") if path.is_file()]


def test_a_corpus_that_is_there_already_is_not_copied_and_another_one_in_its_place_is_refused(here: Path):
    move(here / "runs" / "tiny", here / "other", keep=True)
    shutil.rmtree(here / "other" / "tiny")
    assert move(here / "runs" / "tiny", here / "other", keep=True).corpus is None
    shutil.rmtree(here / "other" / "tiny")
    link = StudyFolder(here / "runs" / "tiny").read_corpus()
    assert link is not None
    StudyFolder(here / "runs" / "tiny").write_corpus({**link, "digest": "0" * 64})
    with pytest.raises(StudyFolderError, match="another corpus lies at"):
        move(here / "runs" / "tiny", here / "other", keep=True)
    assert not (here / "other" / "tiny").exists()


def test_a_corpus_that_is_gone_is_said_with_what_to_do(here: Path):
    shutil.rmtree(here / "runs" / "corpora")
    moved = move(here / "runs" / "tiny", here / "other")
    assert moved.corpus is None
    assert "paribus data prepare FILE" in moved.notes[0]


def test_the_tuning_of_a_study_is_named(study: Path, tmp_path: Path):
    shutil.copytree(study, study.with_name("mine+tuning"))
    assert move(study, tmp_path / "to").notes == (
        f"{study}+tuning belongs to it: paribus move {study}+tuning {tmp_path / 'to'}",
    )


@contextmanager
def dying(number: int) -> Iterator[None]:
    """Die before this file is copied, file or folder deleted, or folder renamed, counted from 0."""
    left = number

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return real(*arguments, **options)

        return operation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving, "_copy_file", counted(moving._copy_file))
        for owner, name in ((Path, "rename"), (os, "unlink"), (os, "rmdir")):
            patch.setattr(owner, name, counted(getattr(owner, name)))
        yield


def test_killed_before_any_operation_the_source_or_the_target_is_whole_and_the_same_command_ends_it(
    study: Path, tmp_path: Path
):
    for more in ("S/standard", "S/other/1-1abc", "S/other/2-2abc/checkpoints", "S/other/2-2abc/likelihood"):
        shutil.rmtree(study / more)
    (study / "S" / "empty").mkdir()
    whole, inner, to = everything(study), folders(study), tmp_path / "to"
    number = 0
    while True:
        try:
            with dying(number):
                move(study, to)
            break
        except Killed:
            copies = [place for place in (study, to / "mine") if place.exists() and everything(place) == whole]
            assert copies, number
        assert move(study, to).files == len(whole)
        assert (everything(to / "mine"), folders(to / "mine")) == (whole, inner)
        assert list(study.parent.iterdir()) == []
        shutil.move(to / "mine", study)
        assert list(to.iterdir()) == []
        number += 1
    assert number == 2 * len(whole) + len(inner) + 1 + 2, "copies, deletions of files and folders, two renames"


def test_a_move_that_was_killed_goes_on_without_copying_again(study: Path, tmp_path: Path):
    whole = everything(study)
    process = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, str(study), str(tmp_path / "to")], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        copied = [Path(process.stdout.readline().strip()) for _ in range(5)]
        process.send_signal(signal.SIGKILL)
    assert everything(study) == whole
    assert not (tmp_path / "to" / "mine").exists()
    before = {path: path.stat().st_ino for path in copied}
    damaged = copied[2]
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    (tmp_path / "to" / ".mine.moving" / "no-longer.json").write_bytes(b"of another time")
    move(study, tmp_path / "to")
    assert everything(tmp_path / "to" / "mine") == whole
    after = [tmp_path / "to" / "mine" / path.relative_to(tmp_path / "to" / ".mine.moving") for path in copied]
    assert [path.stat().st_ino for path in after] == list(before.values())


def test_a_study_that_somebody_trains_in_is_refused_and_untouched(study: Path, tmp_path: Path, hold: Hold):
    whole = {name for name in everything(study) if ".claims" not in name}
    process = hold(study / "S" / "other" / "1-1abc")
    with pytest.raises(StudyFolderError, match="cannot be moved, since somebody trains in it") as error:
        move(study, tmp_path / "to")
    assert f"by process {process.pid} of" in error.value.received
    assert whole <= everything(study).keys()
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("keep", [False, True])
def test_a_study_that_changes_while_it_is_copied_stays_where_it_is(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
):
    real = moving._copy_file

    def writing(source: Path, target: Path) -> None:
        real(source, target)
        (study / "looks.jsonl").write_bytes((study / "looks.jsonl").read_bytes() + b"\n")

    monkeypatch.setattr(moving, "_copy_file", writing)
    with pytest.raises(StudyFolderError, match="was changed while it was copied"):
        move(study, tmp_path / "to", keep=keep)
    assert study.exists()
    assert not (tmp_path / "to" / "mine").exists()


def test_a_file_that_a_disk_does_not_keep_is_noticed_and_nothing_is_deleted(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = shutil.copyfileobj

    def losing(read, written, length: int) -> None:
        real(read, written, length)
        if read.name.endswith("DONE"):
            written.seek(-1, os.SEEK_END)
            written.write(b"?")

    monkeypatch.setattr(shutil, "copyfileobj", losing)
    with pytest.raises(StudyFolderError, match="DONE is not like it"):
        move(study, tmp_path / "to")
    assert study.exists()
    assert not (tmp_path / "to" / "mine").exists()


def test_another_folder_in_the_targets_place_is_refused_and_an_exact_copy_is_not(study: Path, tmp_path: Path):
    shutil.copytree(study, tmp_path / "to" / "mine")
    other = tmp_path / "to" / "mine" / "S" / "standard" / "1-1abc" / "DONE"
    content = other.read_bytes()
    other.write_bytes(content.replace(b"4", b"5"))
    for change in (lambda: None, other.unlink, lambda: other.write_bytes(content + b" ")):
        change()
        with pytest.raises(StudyFolderError, match="is there already") as error:
            move(study, tmp_path / "to")
        assert "1-1abc/DONE" in error.value.received
        assert study.exists()
    other.write_bytes(content)
    move(study, tmp_path / "to")
    assert not study.exists()
    assert CellFolder(other.parent).state == "complete"


def test_a_disk_without_room_is_refused_before_anything_is_copied(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(StorageError, match="no room for a copy of mine"):
        move(study, tmp_path / "to")
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize(
    ("source", "to", "said"),
    [
        ("runs/mine", "runs", "cannot be moved there"),
        ("runs/mine", "runs/mine", "cannot be moved there"),
        ("runs/mine", "runs/mine/inside", "cannot be moved there"),
        ("runs/absent", "to", "is not the run folder of a study"),
        ("runs", "to", "is not the run folder of a study"),
    ],
)
def test_what_cannot_be_moved_is_one_clear_error(study: Path, tmp_path: Path, source: str, to: str, said: str):
    before = everything(study)
    with pytest.raises(StudyFolderError, match=said):
        move(tmp_path / source, tmp_path / to)
    assert everything(study) == before


def test_a_link_inside_a_study_is_refused(study: Path, tmp_path: Path):
    (study / "S" / "link").symlink_to(tmp_path)
    with pytest.raises(StudyFolderError, match="cannot be copied file by file") as error:
        move(study, tmp_path / "to")
    assert error.value.received == "S/link, a link or no ordinary file"


def test_ctrl_c_leaves_a_move_that_can_be_gone_on_with(study: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moving, "_copy_file", interrupt)
    code, out, _ = cli("move", str(study), str(study.parent.parent / "to"))
    assert (code, out) == (130, "stopped; the same command continues: what was copied is kept\n")
    assert study.exists()


def test_a_silent_claim_is_watched_before_a_study_is_moved(study: Path, tmp_path: Path, aged: Callable[[Path], Path]):
    from paribus.disk import sealed

    owner = {"host": "elsewhere", "machine": "another", "pid": 7, "started": "1", "nonce": "0"}
    file = study / "S" / "other" / "1-1abc" / ".claims" / "00000003.json"
    file.parent.mkdir()
    file.write_bytes(sealed({"token": 3, "owner": owner, "taken": "2026-01-01T00:00:00", "lease_seconds": 0.5}))
    aged(file)
    began = time.monotonic()
    move(study, tmp_path / "to")
    assert time.monotonic() - began >= 0.5
    assert (tmp_path / "to" / "mine" / file.relative_to(study)).exists(), "tokens go on from it"
