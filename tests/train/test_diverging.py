"""A cell that diverged is explained, whatever is found, and what is kept of it can be read."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paribus.data.order import Order
from paribus.diverging import explain
from paribus.errors import DivergenceError, StorageError, StudyFolderError
from paribus.model.backbone import Backbone
from paribus.optim.config import OptimiserConfig, ScheduleConfig
from paribus.runs import trouble
from paribus.runs.claims import ClaimLostError
from paribus.runs.folder import CellFolder
from paribus.runs.records import read_json
from paribus.train.loop import BrokenUpdateError, Course, RunLength, advance
from paribus.train.state import TrainState

Build = Callable[..., Backbone]
OF = {"study": "study", "scale": "S", "arm": "a", "seed": 0, "environment": {"torch": "x"}, "code_version": "y"}
EXPLODING = OptimiserConfig(matrix_learning_rate=1e30)
HELD_OUT = DivergenceError("the test loss became inf after step 3")


@pytest.fixture
def course(order: Order) -> Course:
    return Course(order, RunLength(6 * 96, 96), ScheduleConfig(), 4)


@pytest.fixture
def cell(tmp_path: Path) -> CellFolder:
    return CellFolder(tmp_path / "S" / "a" / "0-abc")


def diverged(build: Build, course: Course, recipe: OptimiserConfig) -> tuple[TrainState, BrokenUpdateError]:
    state = TrainState.fresh(build(), recipe)
    try:
        for _ in range(6):
            advance(state, course)
    except BrokenUpdateError as error:
        return state, error
    raise AssertionError("nothing broke")


def test_an_update_that_broke_is_kept_with_the_state_before_it_its_batch_and_its_numbers(
    build: Build, course: Course, cell: CellFolder
):
    state, error = diverged(build, course, EXPLODING)
    start = lambda: TrainState.fresh(build(), EXPLODING)  # noqa: E731
    seen: list[int] = []
    told = explain(cell, start, course, error, state.step, OF, seen.append)
    assert (told["kind"], told["step"], told["reason"]) == ("update", state.step, error.what)
    assert told["batch_digest"] == error.update.batch_digest
    assert told["loss_nats_per_token"] in ("nan", "inf")
    assert seen == list(range(state.step - 1))
    kept = trouble.kept(cell)
    assert kept is not None
    assert kept["findings"][0]["sentence"] == told["first"]["sentence"]
    assert (kept["rows_per_batch"], kept["micro_batch_rows"]) == (6, 4)
    assert {name: kept[name] for name in OF} == OF
    json.dumps(told, allow_nan=False)
    # What is kept is the state before: from it the same update breaks in the same way.
    again = TrainState.fresh(build(), EXPLODING)
    again.restore(trouble.state_before(cell, kept))
    assert again.step == state.step - 1
    with pytest.raises(BrokenUpdateError) as caught:
        advance(again, course)
    assert caught.value.update.batch_digest == error.update.batch_digest


def test_an_update_that_is_finite_when_it_is_made_again_is_told_as_that(build: Build, course: Course, cell: CellFolder):
    state, error = diverged(build, course, EXPLODING)
    start = lambda: TrainState.fresh(build(), OptimiserConfig())  # noqa: E731 - a machine that errs only once
    told = explain(cell, start, course, error, state.step, OF, lambda _: None)
    assert (told["kind"], told["first"]) == ("not seen again", None)
    assert "suspect the machine" in trouble.in_words(told)


def test_a_held_out_loss_that_is_not_finite_after_finite_updates_is_told_as_that(
    build: Build, course: Course, cell: CellFolder
):
    start = lambda: TrainState.fresh(build(), OptimiserConfig())  # noqa: E731
    told = explain(cell, start, course, HELD_OUT, 3, OF, lambda _: None)
    assert (told["kind"], told["first"]) == ("held out", None)
    kept = trouble.kept(cell)
    assert kept is not None
    assert (kept["step"], kept["state"]) == (3, "step-00000002")
    assert "batch_digest" not in told, "no update is at fault"


@pytest.mark.parametrize("kind", [StudyFolderError, KeyError])
def test_what_cannot_be_made_again_is_told_and_the_cell_ends_all_the_same(
    build: Build, course: Course, cell: CellFolder, kind: type[Exception]
):
    state, error = diverged(build, course, EXPLODING)

    def start() -> TrainState:
        raise kind("the checkpoint is damaged")

    told = explain(cell, start, course, error, state.step, OF, lambda _: None)
    assert told["not_explained"].startswith(kind.__name__)
    assert "the checkpoint is damaged" in told["not_explained"]
    assert told["reason"] == error.what
    assert trouble.kept(cell) is None


def test_a_lost_claim_and_a_wish_to_stop_are_not_swallowed(build: Build, course: Course, cell: CellFolder):
    state, error = diverged(build, course, EXPLODING)
    start = lambda: TrainState.fresh(build(), EXPLODING)  # noqa: E731

    def lost() -> None:
        raise ClaimLostError("taken over")

    with pytest.raises(ClaimLostError):
        explain(replace(cell, fence=lost), start, course, error, state.step, OF, lambda _: None)
    assert trouble.kept(cell) is None

    class Stop(Exception):  # noqa: N818
        pass

    def stop(_: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        explain(cell, start, course, error, state.step, OF, stop)


def test_a_disk_that_refuses_is_the_disks_fault(
    build: Build, course: Course, cell: CellFolder, monkeypatch: pytest.MonkeyPatch
):
    state, error = diverged(build, course, EXPLODING)

    def full(*_: Any) -> None:
        raise StorageError("no room")

    monkeypatch.setattr("paribus.diverging.require_space", full)
    start = lambda: TrainState.fresh(build(), EXPLODING)  # noqa: E731
    with pytest.raises(StorageError):
        explain(cell, start, course, error, state.step, OF, lambda _: None)


def test_a_record_of_trouble_that_was_edited_is_refused(build: Build, course: Course, cell: CellFolder):
    state, error = diverged(build, course, EXPLODING)
    explain(cell, lambda: TrainState.fresh(build(), EXPLODING), course, error, state.step, OF, lambda _: None)
    file = cell.path / "trouble" / "trouble.json"
    assert read_json(file)["format"] == trouble.FORMAT
    file.write_bytes(file.read_bytes().replace(b'"kind": "update"', b'"kind": "others"'))
    with pytest.raises(StudyFolderError, match=r"trouble\.json is not readable"):
        trouble.kept(cell)
    file.write_text('{"step": 0}')
    with pytest.raises(StudyFolderError, match="not as it was written"):
        trouble.kept(cell)


@pytest.mark.parametrize("value", [1.5, None, torch.nan, torch.inf, -torch.inf])
def test_a_number_is_written_as_json_can_hold_it(value: float | None):
    written = trouble.number(value)
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert written in (1.5, None, "nan", "inf", "-inf")
