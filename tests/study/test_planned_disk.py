"""The disk that `paribus plan` prints, beside what a study leaves there once it is trained; and a disk too small."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from paribus import disk
from paribus.draining import train_missing
from paribus.errors import StorageError
from paribus.experiment import loading
from paribus.experiment.plan import Cell
from paribus.experiment.space import CellSpace, cell_space, checkpoint_file_bytes, scored_units
from paribus.experiment.spec import STUDY
from paribus.model.accounting.checkpoints import checkpoint_bytes
from paribus.planning.facts import cell_states
from paribus.planning.of_disk import ROWS_TOLERANCE, StudySpace, study_space
from paribus.runs.checkpoints import KEPT
from paribus.runs.claims import Claim
from paribus.runs.failures import is_parked
from paribus.runs.verifying import verify
from paribus.study import Study, open_study, write_plan
from paribus.train.state import TENSORS
from paribus.training import train_cell

NAMES_TOLERANCE = 0.1
"""of names and records, which are estimated by the number of tensors: 97 to 106 bytes each were measured"""


def opened(folder: Path) -> Study:
    return open_study(loading.load(folder / "study.toml"), folder, Path("runs"))


def planned(study: Study) -> StudySpace:
    states = cell_states(study.experiment, Path("runs"))
    return study_space(study.experiment, Path("runs"), study.arms, states)


def sizes(folder: Path, *, checkpoints: bool) -> int:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files if ("checkpoints" in path.parts) == checkpoints)


class Held:
    """A claim that counts, before every write, the checkpoints that lie there, whole or growing."""

    token = 1

    def __init__(self, cell: Path) -> None:
        self.group, self.most = cell / "checkpoints", 0

    def require(self) -> None:
        self.most = max(self.most, len(list(self.group.iterdir())) if self.group.exists() else 0)

    alive = require


BRANCHES = 'milestones_tokens = [5_000]\nbudgets_tokens = [4_000, 7_000]\nbudget_cells = "branches"'


@pytest.fixture
def branched(fresh: Path, text: Callable[..., str]) -> Study:
    """Two arms at one seed, each with two smaller budgets that leave the full run; nothing is trained."""
    written = text(arms=("standard", "block"), seeds=1)
    (fresh / "study.toml").write_text(written.replace("milestones_tokens = [5_000]", BRANCHES), encoding="utf-8")
    study = opened(fresh)
    write_plan(study, [])
    return study


def space_of(study: Study, cell: Cell) -> CellSpace:
    arm = study.arms[cell.scale, cell.arm]
    return cell_space(study.experiment, cell, arm, KEPT, scored_units(arm.base, study.corpus.counts))


def test_a_cell_that_is_stopped_at_every_update_has_at_most_as_many_checkpoints_as_planned(branched: Study):
    stepped: list[dict[str, Any]] = []

    def stop() -> bool:
        """True once behind each update: what is measured is not stopped."""
        return bool(stepped) and stepped.pop()["kind"] == "step"

    for cell in branched.cells[:3]:
        folder, held = branched.cell_folder(cell), Held(branched.cell_folder(cell).path)
        while not folder.finished:
            train_cell(branched, cell, stepped.append, stop, cast(Claim, held))
        assert held.most == space_of(branched, cell).at_once


def test_each_cell_keeps_as_many_checkpoints_as_planned_and_as_large_ones(branched: Study):
    met = set()
    for cell in branched.cells:
        folder, space = branched.cell_folder(cell), space_of(branched, cell)
        held = Held(folder.path)
        train_cell(branched, cell, lambda _: None, lambda: False, cast(Claim, held))
        assert held.most <= space.at_once
        assert len(folder.checkpoint_steps()) == space.at_end
        met.add(cell.variant == STUDY)
        arm = branched.arms[cell.scale, cell.arm]
        for step in folder.checkpoint_steps():
            files = folder.checkpoint_at(step)
            assert files is not None
            names = 8 + int.from_bytes(files[TENSORS][:8], "little")
            tensors = checkpoint_bytes(arm.model, arm.seam_configs, arm.base.optimiser.matrix_update)
            assert len(files[TENSORS]) - names == tensors, "to the byte"
            own = sizes(folder.path / "checkpoints" / f"step-{step:08d}", checkpoints=True)
            assert own - tensors == pytest.approx(checkpoint_file_bytes(arm) - tensors, rel=NAMES_TOLERANCE)
    assert met == {True, False}, "full runs and branches were among them"


def test_what_a_study_leaves_is_what_was_planned_and_then_lies_there(branched: Study, fresh: Path):
    before = planned(branched)
    assert train_missing(branched, lambda _: None, lambda: False)
    cells = Path("runs/tiny/tiny")
    assert before.cells == len(branched.cells)
    assert sizes(cells, checkpoints=True) == pytest.approx(before.checkpoints_at_end, rel=0.01)
    assert 1 / ROWS_TOLERANCE < before.rows / sizes(cells, checkpoints=False) < ROWS_TOLERANCE
    assert before.corpus == sum(f.stat().st_size for f in Path("runs/corpora").glob("*/*"))
    after = planned(opened(fresh))
    assert after.there - before.there == before.checkpoints_at_end + before.rows
    assert (after.total, after.checkpoints_at_once) == (before.total, before.checkpoints_at_once)


@pytest.mark.usefixtures("fresh")
def test_the_plan_prints_the_disk_and_hands_it_to_machines(cli: Callable[..., tuple[int, str, str]]):
    code, shown, _ = cli("plan", "study.toml")
    assert code == 0
    for line in ("checkpoints of 13 cells when all have ended", "most at once", "the corpus, prepared", "free there"):
        assert line in shown
    assert "not enough room" not in shown
    code, shown, _ = cli("plan", "study.toml", "--json")
    found = json.loads(shown)["disk_bytes"]
    assert code == 0
    assert found["corpus_state"] == "prepared"
    assert found["total"] == sum(found[part] for part in ("checkpoints_at_once", "rows", "trials", "corpus"))
    assert found["lacking"] == 0 < found["free"]


def test_the_plan_of_a_study_whose_corpus_is_not_prepared_counts_the_tokens_it_trains_on(
    tmp_path: Path, text: Callable[..., str], cli: Callable[..., tuple[int, str, str]]
):
    (tmp_path / "study.toml").write_text(text(seeds=1), encoding="utf-8")
    code, shown, _ = cli("plan", str(tmp_path / "study.toml"), "--runs", str(tmp_path / "runs"), "--json")
    found = json.loads(shown)["disk_bytes"]
    assert code == 0
    assert (found["corpus_state"], found["corpus"], found["there"]) == ("not prepared", 2 * 20 * 512, 0)
    assert not (tmp_path / "runs").exists()


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.usefixtures("fresh")
def test_the_plan_says_how_much_room_is_missing(
    cli: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: Usage(10**9, 0, 1_000_000))
    code, shown, _ = cli("plan", "study.toml")
    assert code == 0
    assert "there is not enough room" in shown
    assert "MB more are needed" in shown


def test_a_cell_that_has_no_room_is_not_begun_and_nobody_is_blamed(branched: Study, monkeypatch: pytest.MonkeyPatch):
    cell = branched.cells[0]
    space = space_of(branched, cell)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: Usage(10**9, 0, space.peak_bytes))  # without the margin
    with pytest.raises(StorageError, match=f"no room for the checkpoints and the rows of {cell.name}"):
        train_missing(branched, lambda _: None, lambda: False)
    folder = branched.cell_folder(cell)
    assert not (folder.path / "cell.json").exists()
    assert not is_parked(folder.path)


def test_a_disk_that_fills_up_while_a_cell_is_trained_stops_it_before_a_checkpoint_and_it_goes_on_later(
    branched: Study, monkeypatch: pytest.MonkeyPatch
):
    cell = branched.cells[0]
    folder = branched.cell_folder(cell)
    cleared: list[str] = []

    def answer(_: object) -> Usage:
        return Usage(10**9, 0, 1_000 if folder.checkpoint_steps() and not cleared else 10**9)

    monkeypatch.setattr(disk.shutil, "disk_usage", answer)
    with pytest.raises(StorageError, match="no room for the checkpoint of step 5"):
        train_missing(branched, lambda _: None, lambda: False)
    assert folder.checkpoint_steps() == [4]
    assert not list(folder.path.rglob("*.partial"))
    assert list(verify(Path("runs/tiny"))) == []
    assert not is_parked(folder.path)
    cleared.append("by somebody")
    assert train_missing(branched, lambda _: None, lambda: False)
    assert folder.state == "complete"


def test_a_cell_whose_folder_leads_elsewhere_by_a_link_is_not_trained(branched: Study, tmp_path: Path):
    folder, outside = branched.cell_folder(branched.cells[0]).path, tmp_path / "outside"
    outside.mkdir()
    folder.mkdir(parents=True)
    (folder / "likelihood").symlink_to(outside)
    with pytest.raises(StorageError, match="likelihood is a symbolic link"):
        train_missing(branched, lambda _: None, lambda: False)
    assert list(outside.iterdir()) == []
