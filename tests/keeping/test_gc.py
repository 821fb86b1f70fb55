"""gc frees what nothing needs: reports stay the same to the byte, and models can be opened, asked and fine-tuned."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.keeping.freeing import Asked, Item, free
from paribus.keeping.occupying import occupied
from paribus.runs.checkpoints import write_alone
from paribus.runs.claims import claim
from paribus.runs.folder import CellFolder
from paribus.runs.records import read_json, write_json
from paribus.runs.study_folder import StudyFolder
from tests.runs.conftest import CHECKPOINT, end, train

Cli = Callable[..., tuple[int, str, str]]
Contents = Callable[[Path], dict[str, bytes]]
Hold = Callable[..., subprocess.Popen[str]]


def cell(study: Path, arm: str, seed: int) -> CellFolder:
    (path,) = (study / "S" / arm).glob(f"{seed}-*")
    return CellFolder(path)


def going(study: Path, **asked: bool) -> dict[str, str]:
    (found,) = occupied(study, Asked(**asked))
    return {item.path.relative_to(study).as_posix(): item.kind for item in found.going}


def freed(study: Path, **asked: bool) -> tuple[Item, ...]:
    (found,) = occupied(study, Asked(**asked))
    return free(study, found.going, Asked(**asked))


def without_rows_at(cell: CellFolder, step: int) -> None:
    """The cell as if nothing had been scored after an update: its checkpoint is then no milestone."""
    done = read_json(cell.path / "DONE")
    name = f"likelihood/test-{step:08d}.parquet"
    (cell.path / name).unlink()
    del done["row_digests"][name]
    write_json(cell.path / "DONE", done)


def test_the_report_is_the_same_to_the_byte_and_the_study_is_sound_after_everything_went(
    here: Path, cli: Cli, contents: Contents
):
    assert cli("report", "study.toml")[0] == 0
    study = here / "runs" / "tiny"
    page = {name: content for name, content in contents(study).items() if "checkpoints" not in name}
    code, out, err = cli("gc", "runs", "--delete")
    assert (code, err) == (0, "")
    assert "other checkpoints" in out
    assert out.count("deleted tiny/") == 2
    steps = {path.name for path in study.glob("*/*/*/checkpoints/*")}
    assert steps == {"step-00000020"}
    after = {name: content for name, content in contents(study).items() if "checkpoints" not in name}
    assert after == page
    assert cli("report", "study.toml")[0] == 0
    again = {name: content for name, content in contents(study).items() if "checkpoints" not in name}
    assert {name for name in page.keys() | again.keys() if page.get(name) != again.get(name)} == {"looks.jsonl"}
    assert cli("doctor", "runs")[0] == 0
    assert "nothing to delete" in cli("gc", "runs")[1]


def test_a_finished_model_can_still_be_opened_with_its_optimisers_state(here: Path, cli: Cli):
    from paribus.finetuning.base import BaseCell
    from paribus.trained import open_model

    assert cli("gc", "runs", "--delete")[0] == 0
    for path in (here / "runs" / "tiny" / "tiny").glob("*/*"):
        assert open_model(path).step == 20
        files = BaseCell.read(path).last_files()
        assert b"optimiser/" in files["state.safetensors"]


def test_nothing_is_deleted_without_being_asked_and_sizes_are_those_of_the_disk(
    here: Path, cli: Cli, contents: Contents
):
    before = contents(here)
    code, out, _ = cli("gc", "runs")
    assert code == 0
    assert "would come free; --delete deletes them" in out
    assert "are states of optimisers, from which fine-tuning goes on: kept" in out
    assert contents(here) == before
    found = json.loads(cli("gc", "runs", "--json")[1])
    (study,) = found["studies"]
    files = [path for path in (here / "runs" / "tiny").rglob("*") if path.is_file()]
    assert sum(of["files"] for of in study["kinds"].values()) == len(files)
    assert sum(of["bytes"] for of in study["kinds"].values()) == sum(path.stat().st_size for path in files)
    assert found["bytes"] == sum(item["bytes"] for item in study["going"]) > 0
    assert found["deleted"] is False
    last = sum(path.stat().st_size for path in (here / "runs").glob("*/*/*/*/checkpoints/step-00000020/*"))
    assert study["kinds"]["last checkpoints"]["bytes"] == last > study["optimiser_bytes"] > last / 3


def test_a_milestone_and_the_last_checkpoint_stay(study: Path):
    assert going(study) == {}, "held-out documents were scored at both"
    without_rows_at(cell(study, "standard", 2), 2)
    assert going(study) == {"S/standard/2-2abc/checkpoints/step-00000002": "other checkpoints"}
    freed(study)
    assert cell(study, "standard", 2).checkpoint_steps() == [4]
    assert going(study) == {}


def test_every_checkpoint_stays_while_a_cell_of_the_plan_may_leave_the_run_there(study: Path):
    own = cell(study, "standard", 2)
    without_rows_at(own, 2)
    folder = StudyFolder(study)
    branch = {"scale": "S", "arm": "standard", "seed": 2, "variant": "budget-1024", "digest": "9abc"}
    plan = folder.plan() or {}
    folder.write_plan({**plan, "cells": [*plan["cells"], branch]})
    (found,) = occupied(study, Asked())
    assert found.going == ()
    assert (own.path, "S/standard/2-9abc-budget-1024 has not ended and may start from it") in found.kept
    train(folder.cell("S", "standard", 2, "9abc", "budget-1024"))
    assert going(study) == {}, "begun is not ended"
    end(folder.cell("S", "standard", 2, "9abc", "budget-1024"))
    assert list(going(study)) == ["S/standard/2-2abc/checkpoints/step-00000002"]
    (study / "plan.json").write_text("{torn", encoding="utf-8")
    (found,) = occupied(study, Asked(stale=True))
    assert found.going == (), "without a plan nothing can be told"


def test_checkpoints_of_cells_that_have_not_ended_or_have_diverged_stay(study: Path):
    for seed in (1, 2):
        for name in (2, 4):
            (cell(study, "other", seed).path / f"likelihood/test-{name:08d}.parquet").unlink()
    assert going(study) == {}


def test_older_checkpoints_stay_where_the_last_is_damaged_or_missing(study: Path):
    own = cell(study, "standard", 2)
    without_rows_at(own, 2)
    state = own.path / "checkpoints" / "step-00000004" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    write_alone(own.path / "checkpoints", 3, CHECKPOINT)
    assert freed(study) == ()
    assert own.checkpoint_steps() == [2, 3, 4]
    (own.path / "checkpoints" / "step-00000004" / "COMPLETE").unlink()
    assert going(study) == {}
    assert own.checkpoint_steps() == [2, 3]


def test_a_cell_that_somebody_holds_is_left_also_when_taken_in_between(study: Path, hold: Hold):
    own = cell(study, "standard", 2)
    without_rows_at(own, 2)
    (found,) = occupied(study, Asked())
    process = hold(own.path)
    assert going(study) == {}
    assert free(study, found.going, Asked()) == ()
    assert own.checkpoint_steps() == [2, 4]
    process.kill()
    process.wait()
    assert len(freed(study)) == 1


def test_stale_cells_go_on_request_only_and_whole(study: Path, cli: Cli, hold: Hold):
    old = CellFolder(study / "S" / "standard" / "1-9fff")
    train(old)
    end(old)
    unfinished = CellFolder(study / "S" / "standard" / "2-9fff")
    train(unfinished)
    code, out, _ = cli("gc", str(study))
    assert code == 0
    assert "cells that are not in the plan: evidence, so they go with --stale only" in out
    (old.path / "likelihood" / "test-00000002.parquet").unlink()
    assert going(study) == {}, "not even its older checkpoint, which is no milestone"
    process = hold(unfinished.path)
    assert set(going(study, stale=True)) == {"S/standard/1-9fff"}
    process.kill()
    process.wait()
    assert set(going(study, stale=True)) == {"S/standard/1-9fff", "S/standard/2-9fff"}
    code, out, _ = cli("gc", str(study), "--stale", "--delete")
    assert code == 0
    assert "deleted S/standard/1-9fff (cells that are not in the plan" in out
    assert sorted(path.name for path in (study / "S" / "standard").iterdir()) == ["1-1abc", "2-2abc"]
    assert cli("doctor", str(study))[0] == 0


def test_a_stale_cell_that_is_being_fine_tuned_stays(study: Path, hold: Hold):
    old = CellFolder(study / "S" / "standard" / "1-9fff")
    train(old)
    end(old)
    hold(old.path / "finetuned" / "7-chat")
    assert going(study, stale=True) == {}


def test_what_a_killed_gc_or_writer_left_goes(study: Path, aged: Callable[[Path], Path]):
    shutil.copytree(cell(study, "standard", 1).path, study / "S" / "standard" / ".1-9fff.12-ab.partial")
    (cell(study, "standard", 1).path / ".DONE.12-ab.partial").write_bytes(b"half")
    assert set(going(study)) == {"S/standard/1-1abc/.DONE.12-ab.partial"}, (
        "the other is new, and nobody's claim covers it"
    )
    aged(study / "S" / "standard" / ".1-9fff.12-ab.partial")
    assert len(freed(study)) == 2
    assert not list(study.rglob("*.partial"))


def test_states_before_trouble_go_on_request_and_their_records_stay(study: Path):
    own = cell(study, "other", 2)
    write_alone(own.path / "trouble", 3, CHECKPOINT)
    write_json(own.path / "trouble" / "trouble.json", {"step": 4})
    assert going(study) == {}
    assert going(study, trouble=True) == {"S/other/2-2abc/trouble/step-00000003": "states before trouble"}
    freed(study, trouble=True)
    assert [path.name for path in (own.path / "trouble").iterdir()] == ["trouble.json"]


def test_a_fine_tuned_model_keeps_its_last_checkpoint(study: Path):
    tuned = CellFolder(cell(study, "standard", 1).path / "finetuned" / "7-chat")
    for step in (2, 4):
        (tuned.path / f"likelihood/test-{step:08d}.parquet").unlink()
    (tuned.path / "rows.jsonl").unlink()
    assert going(study) == {}, "it has not ended"
    end(tuned)
    assert list(going(study)) == ["S/standard/1-1abc/finetuned/7-chat/checkpoints/step-00000002"]
    freed(study)
    assert tuned.checkpoint_steps() == [4]


def test_corpora_that_no_study_reads_are_told_with_the_command_that_deletes_them(here: Path, cli: Cli):
    assert "no study needs" not in cli("gc", "runs")[1]
    (here / "runs" / "tiny" / "corpus.json").unlink()
    assert "of corpora no study needs: `paribus data gc --runs runs --delete`" in cli("gc", "runs")[1]


def test_the_cells_claim_is_released_afterwards(study: Path):
    own = cell(study, "standard", 2)
    without_rows_at(own, 2)
    freed(study)
    with claim(own.path) as held:
        assert held is not None


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 16, b"\x02\x00\x00\x00\x00\x00\x00\x00[]", b"\x04" + b"\x00" * 7 + b"null"]
)
def test_a_state_file_that_is_none_costs_only_its_figure(study: Path, content: bytes):
    (cell(study, "standard", 1).path / "checkpoints" / "step-00000004" / "state.safetensors").write_bytes(content)
    (found,) = occupied(study, Asked())
    assert found.optimiser_bytes == 0
