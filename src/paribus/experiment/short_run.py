"""A few real optimiser steps of a narrowed arm, with everything that the gates want to know about them.

The same losses, optimisers, schedule and announcements as in training. Shared matrices that start at zero are given
noise of the standard fan-in size first: behind a zero projection every arm looks like every other.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from paribus import mechanisms
from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.build import abstract_model, build_model
from paribus.model.config import ModelConfig
from paribus.model.lawbench import wake
from paribus.optim.config import OptimiserConfig, ScheduleConfig
from paribus.optim.schedule import moment
from paribus.roles import Role, declarations
from paribus.seeds import generator
from paribus.train.loop import announce
from paribus.train.state import TrainState
from paribus.train.step import Consumed, apply_gradients, token_losses

STEPS = 5
"""updates of a short run; a module that changes during a run is told that this is the whole run"""
ROWS, TIME = 2, 16


@dataclass(frozen=True)
class Setting:
    """What a short run depends on."""

    model: ModelConfig
    mechanisms: Mapping[Seam, MechanismConfig]
    optimiser: OptimiserConfig
    schedule: ScheduleConfig

    @property
    def key(self) -> str:
        """Equal for settings that train alike."""
        tables = {str(seam): table_of(config) for seam, config in self.mechanisms.items()}
        recipe = [part.model_dump(mode="json") for part in (self.model, self.optimiser, self.schedule)]
        return json.dumps([tables, recipe], sort_keys=True, default=str)


def table_of(config: MechanismConfig) -> dict[str, Any]:
    """The mechanism's table, as an experiment file would hold it."""
    return {"name": config.name, **config.model_dump()}


def tables_of(configs: Mapping[Seam, MechanismConfig]) -> dict[str, dict[str, Any]]:
    """The tables of an arm by seam, without the seams that nothing changes."""
    return {str(seam): table_of(config) for seam, config in configs.items() if config.name != mechanisms.IDENTITY[seam]}


@dataclass(frozen=True)
class ShortRun:
    """What a short run left behind. Updates count from 1."""

    values: tuple[Mapping[str, Tensor], ...]
    """every parameter after 0, 1, ..., STEPS updates"""
    reached: Mapping[str, int]
    """the update in which a gradient that is finite and not zero first reached each parameter that one reached"""
    fixed: tuple[str, ...]
    """parameters that no optimiser may touch"""
    moved: Mapping[str, int]
    """fixed parameters that an update changed, by the first that did"""
    scheduled: Mapping[str, int]
    """fixed parameters that their own module changed when it was told the step, by the first update it was before"""
    not_finite: Mapping[str, int] = field(default_factory=dict)
    """parameters whose gradient held NaN or inf, by the first update in which it did"""


def short_run(setting: Setting, *, restarted: bool = False) -> ShortRun:
    """Train STEPS updates; `restarted` saves, builds and restores everything between any two of them."""
    state = _fresh(setting)
    fixed = tuple(name for name, found in declarations(state.model).items() if found.role is Role.FIXED)
    values = [_values(state.model)]
    reached: dict[str, int] = {}
    moved: dict[str, int] = {}
    scheduled: dict[str, int] = {}
    not_finite: dict[str, int] = {}
    for number in range(1, STEPS + 1):
        if restarted and number > 1:
            files = state.to_files()
            state = _fresh(setting)
            state.restore(files)
        if restarted or number == 1:
            announce(state.model, state.step, STEPS)  # a run that begins or continues is told where it stands,
        announce(state.model, state.step, STEPS)  # and told again before the update
        told = {name: state.model.get_parameter(name).detach().clone() for name in fixed}
        for name, finite in _update(state, setting).items():
            (reached if finite else not_finite).setdefault(name, number)
        values.append(_values(state.model))
        for name in fixed:
            if not torch.equal(told[name], values[-2][name]):
                scheduled.setdefault(name, number)
            if not torch.equal(values[-1][name], told[name]):
                moved.setdefault(name, number)
    return ShortRun(tuple(values), reached, fixed, moved, scheduled, not_finite)


def _fresh(setting: Setting) -> TrainState:
    model = build_model(setting.model, dict(setting.mechanisms), ("gates",))
    standard = abstract_model(setting.model, {seam: mechanisms.resolve(seam, None, str(seam)) for seam in Seam})
    wake(model, {name for name, found in declarations(standard).items() if found.role is Role.MATRIX}, "gates")
    return TrainState.fresh(model, setting.optimiser)


def _update(state: TrainState, setting: Setting) -> dict[str, bool]:
    """One update. Returns the parameters that a non-zero gradient reached, and whether it was finite."""
    consumed = batch(state.step, setting.model.vocabulary_size)
    # As in `paribus.train.step.update`, to the bit.
    ((token_losses(state.model, consumed) * consumed.weight).sum() / consumed.weight.sum()).backward()
    reached: dict[str, bool] = {}
    for name, parameter in state.model.named_parameters():
        if parameter.grad is not None and bool((parameter.grad != 0).any()):
            reached[name] = bool(parameter.grad.isfinite().all())
        elif parameter.grad is None and parameter.requires_grad:
            # An optimiser may insist on a gradient; that there was none is for the gate to say.
            parameter.grad = torch.zeros_like(parameter)
    now = moment(state.step, STEPS, setting.schedule)
    apply_gradients(state.model, state.optimisers, now, state.gradient_clip_norm)
    state.step += 1
    return reached


class ShortRuns:
    """Short runs, each setting trained once."""

    def __init__(self) -> None:
        self._found: dict[str, ShortRun] = {}

    def of(self, setting: Setting) -> ShortRun:
        if setting.key not in self._found:
            self._found[setting.key] = short_run(setting)
        return self._found[setting.key]


def batch(step: int, vocabulary_size: int) -> Consumed:
    """Random tokens of one step, all positions counted. Row 0 holds two documents, row 1 one."""
    draw = generator("gates", "tokens", step)
    tokens, targets = (torch.from_numpy(draw.integers(0, vocabulary_size, (ROWS, TIME))) for _ in range(2))
    document = torch.zeros(ROWS, TIME, dtype=torch.int64)
    document[0, TIME // 3 :] = 1
    return Consumed(tokens, targets, torch.ones(ROWS, TIME), document)


def first_difference(left: ShortRun, right: ShortRun) -> tuple[int, str, float] | None:
    """(finished updates, tensor, largest difference) where two runs first differ in a tensor that both have."""
    for step, (a, b) in enumerate(zip(left.values, right.values, strict=True)):
        for name in a:
            if name in b and not torch.equal(a[name], b[name]):
                same_shape = a[name].shape == b[name].shape
                return step, name, float((a[name] - b[name]).abs().max()) if same_shape else float("inf")
    return None


def _values(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
