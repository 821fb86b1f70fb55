"""How a cell in training comes to its end when numbers go wrong: what stops it, what is kept, what a stop leaves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import Optimizer

from paribus import training
from paribus.experiment import loading
from paribus.runs.folder import CellFolder
from paribus.study import Study, open_study, prepare_process
from paribus.train import state as state_module


@pytest.fixture
def study(trained: Any, tmp_path: Path) -> Study:
    """The same study, of which nothing was trained yet."""
    text = (trained.folder / "study.toml").read_text(encoding="utf-8")
    (tmp_path / "study.toml").write_text(text.replace('path = "texts"', f'path = "{trained.folder / "texts"}"'))
    study = open_study(loading.load(tmp_path / "study.toml"), tmp_path, tmp_path / "runs")
    prepare_process(study.experiment.execution)
    return study


def train(study: Study, arm: str, should_stop: Callable[[], bool] = lambda: False) -> tuple[CellFolder, list[str]]:
    cell = next(cell for cell in study.cells if (cell.arm, cell.variant) == (arm, ""))
    kinds: list[str] = []
    training.train_cell(study, cell, lambda event: kinds.append(event["kind"]), should_stop)
    return study.cell_folder(cell), kinds


class _Overflow(Optimizer):
    """At its fourth step, the second moment of a gain becomes infinite: the gain stops, and no loss shows it."""

    def __init__(self, gain: torch.nn.Parameter, adam: Optimizer) -> None:
        super().__init__([gain], {"lr": 0.0, "base_lr": 0.0})
        self.gain, self.adam, self.steps = gain, adam, 0

    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        del closure
        self.steps += 1
        if self.steps == 4:
            self.adam.state[self.gain]["exp_avg_sq"].fill_(torch.inf)


def test_what_no_loss_shows_stops_a_cell_before_it_is_kept_in_a_checkpoint(
    study: Study, monkeypatch: pytest.MonkeyPatch
):
    build = state_module.build_optimisers

    def poisoned(model: Any, config: Any) -> list[Optimizer]:
        found = build(model, config)
        return [*found, _Overflow(model.get_parameter("output_norm.gain"), found[-1])]

    monkeypatch.setattr(state_module, "build_optimisers", poisoned)
    folder, kinds = train(study, "standard")
    assert kinds[-1] == "diverged"
    told = folder.summary()
    # The branch leaves after 4 updates, and its state is kept.
    assert told["reason"] == ("exp_avg_sq of parameter output_norm.gain is not finite after step 4, while the loss was")
    assert (told["kind"], told["first"]["step"], told["first"]["phase"]) == ("update", 4, "after the update")
    assert told["first"]["tensor"] == "exp_avg_sq of parameter output_norm.gain"
    assert folder.checkpoint_steps() == []
    assert len(folder.metrics()) == 4, "its losses stay on record"


def test_a_wish_to_stop_while_a_divergence_is_explained_leaves_the_cell_to_the_next_worker(study: Study):
    asked = iter([False])
    folder, kinds = train(study, "exploding", lambda: next(asked, True))
    assert kinds == ["started", "step", "stopped"]
    assert folder.state == "started"
    assert folder.checkpoint_steps() == []
    folder, kinds = train(study, "exploding")
    assert kinds == ["started", "step", "diverged"]
    assert folder.summary()["first"]["tensor"] == "output 0 of layers.0.attention"
