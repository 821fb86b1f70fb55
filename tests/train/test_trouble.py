"""What went wrong in an update is found by name, whatever part of the update it went wrong in."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paribus.data.order import Order
from paribus.errors import DivergenceError
from paribus.model.backbone import Backbone
from paribus.optim.config import OptimiserConfig, ScheduleConfig
from paribus.train.loop import BrokenUpdateError, Course, RunLength, advance
from paribus.train.state import TrainState
from paribus.train.trouble import (
    AFTER,
    BACKWARD,
    BEFORE,
    FORWARD,
    Located,
    first_not_finite,
    locate,
    watch,
)

Build = Callable[..., Backbone]
STEPS, ROWS = 6, 2
POISONED = 3
"""the update in which something goes wrong, from 0: the fourth"""


@pytest.fixture
def course(order: Order) -> Course:
    return Course(order, RunLength(STEPS * 96, 96), ScheduleConfig(), ROWS)


class _Times(torch.autograd.Function):
    """x, whose gradient is multiplied."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: float) -> Tensor:
        ctx.by = by
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.by, None


class _Poison(nn.Module):
    """An output map that goes wrong in one update of a run, in the forward pass or behind it."""

    def __init__(self, forward: float = 1.0, backward: float = 1.0, call: int = 0) -> None:
        super().__init__()
        self.by, self.call = (forward, backward), call
        self.here, self.calls = False, 0

    def at_step(self, step: int, steps: int) -> None:
        del steps
        self.here, self.calls = step == POISONED, 0

    def forward(self, y: Tensor, *_: object) -> Tensor:
        if not self.here:
            return y
        self.calls += 1
        return _Times.apply(y * self.by[0] if self.calls > self.call else y, self.by[1])


class _Overflow(Optimizer):
    """Writes infinity into a parameter at one of its steps."""

    def __init__(self, parameter: nn.Parameter) -> None:
        super().__init__([parameter], {"lr": 0.0, "base_lr": 0.0})
        self.steps = 0

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        del closure
        if self.steps == POISONED:
            self.param_groups[0]["params"][0].view(-1)[0] = torch.inf
        self.steps += 1


def begin(build: Build, poison: nn.Module | None = None, layer: int = 1, **recipe: Any) -> TrainState:
    model = build()
    if poison is not None:
        model.get_submodule(f"layers.{layer}.attention").set_submodule("output_map", poison)
    return TrainState.fresh(model, OptimiserConfig(**recipe))


def to_the_end(state: TrainState, course: Course) -> None:
    while state.step < STEPS:
        advance(state, course)


def found_after_divergence(start: Callable[[], TrainState], course: Course, seen: int) -> Located:
    """Train until the update that training stops at, then make it again."""
    state = start()
    with pytest.raises(BrokenUpdateError):
        to_the_end(state, course)
    assert state.step == seen
    return locate(start, course, seen, lambda _: None)


def test_the_first_tensor_of_a_broken_forward_pass_is_the_output_of_the_module_that_broke_it(
    build: Build, course: Course
):
    found = found_after_divergence(lambda: begin(build, _Poison(forward=torch.nan)), course, POISONED + 1)
    first, *later = found.watched.findings
    assert (first.phase, first.tensor) == (FORWARD, "output of layers.1.attention.output_map")
    assert first.rows == (0, ROWS)
    assert first.nan == torch.Size(first.shape).numel()
    assert (first.infinite, first.largest_finite) == (0, None)
    assert later[0].tensor == "z, attention output of layer 1"
    assert found.updates_before == POISONED
    assert found.watched.broken


def test_the_micro_batch_that_broke_is_told_apart_from_those_before_it(build: Build, course: Course):
    found = found_after_divergence(lambda: begin(build, _Poison(forward=torch.inf, call=2)), course, POISONED + 1)
    assert found.watched.findings[0].rows == (2 * ROWS, 3 * ROWS)
    assert found.watched.findings[0].infinite > 0


def test_a_gradient_that_is_not_finite_stops_training_though_the_loss_is_and_is_found_where_it_arose(
    build: Build, course: Course
):
    start = lambda: begin(build, _Poison(backward=torch.inf), layer=0)  # noqa: E731
    found = found_after_divergence(start, course, POISONED + 1)
    first = found.watched.findings[0]
    assert (first.phase, first.tensor) == (BACKWARD, "gradient of y, attention output of layer 0")
    assert torch.tensor(found.watched.event.loss_nats_per_token).isfinite()
    parameters = [f.tensor for f in found.watched.findings if f.tensor.startswith("gradient of parameter")]
    # The output projection lies in front of the map, whose gradient was finite when it was computed.
    assert parameters
    assert "gradient of parameter layers.0.attention.output" not in parameters


def test_the_message_of_a_broken_gradient_says_that_the_loss_was_finite(build: Build, course: Course):
    state = begin(build, _Poison(backward=torch.nan))
    said = r"gradient became nan while the loss was finite at step 4 \(384 tokens\)"
    with pytest.raises(DivergenceError, match=said):
        to_the_end(state, course)


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_gradient_whose_values_are_finite_and_whose_norm_is_not_is_told_as_that(
    build: Build, course: Course, clip: float | None
):
    # 1e-3 or so times 1e25 twice over: squares beyond 3.4e38, values far below.
    start = lambda: begin(build, _Poison(backward=1e30), gradient_clip_norm=clip)  # noqa: E731
    if clip is None:
        found = found_after_divergence(start, course, POISONED + 1)
        assert [f.tensor for f in found.watched.findings] == ["norm of the gradient of all parameters"]
    else:  # a norm of float64 holds it, and what is clipped by it is fine
        state = start()
        norms = [advance(state, course).gradient_norm or 0.0 for _ in range(STEPS)]
        assert norms[POISONED] > 1e20
        assert first_not_finite(state) is None


def test_what_an_optimiser_breaks_is_found_in_the_update_before_the_one_whose_loss_showed_it(
    build: Build, course: Course
):
    def start() -> TrainState:
        state = begin(build)
        state.optimisers.append(_Overflow(state.model.get_parameter("layers.0.mlp.up")))
        return state

    found = found_after_divergence(start, course, POISONED + 2)
    assert found.updates_before == POISONED
    assert found.watched.event.step == POISONED + 1
    assert not found.watched.broken
    (first,) = found.watched.findings
    assert (first.phase, first.tensor, first.infinite, first.nan) == (AFTER, "parameter layers.0.mlp.up", 1, 0)


def test_an_update_that_begins_broken_says_so_first(build: Build, course: Course):
    state = begin(build)
    with torch.no_grad():
        state.model.get_parameter("embedding")[7, 3] = -torch.inf
    first = watch(state, course).findings[0]
    assert (first.phase, first.tensor, first.infinite) == (BEFORE, "parameter embedding", 1)
    assert "parameter embedding (before the update): 1 infinite of 4,800 values" in first.sentence


def test_a_state_of_an_optimiser_is_looked_at_as_well(build: Build, course: Course):
    state = begin(build)
    advance(state, course)
    assert first_not_finite(state) is None
    state.optimisers[-1].state[state.model.get_parameter("embedding")]["exp_avg_sq"][0] = torch.inf
    found = first_not_finite(state)
    assert found is not None
    assert found.tensor == "exp_avg_sq of parameter embedding"


def test_a_watched_update_is_the_update_bit_for_bit_and_finds_nothing(build: Build, course: Course):
    plain, watched = begin(build), begin(build)
    for _ in range(3):
        event = advance(plain, course)
        seen = watch(watched, course, sizes=True)
        assert (seen.event.loss_nats_per_token, seen.event.batch_digest) == (
            event.loss_nats_per_token,
            event.batch_digest,
        )
        assert seen.findings == ()
    assert plain.to_files() == watched.to_files()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in watched.model.modules())


def test_magnitudes_are_those_of_the_whole_batch_whatever_the_micro_batches(build: Build, order: Order):
    found = {}
    for rows in (6, 2):
        course = Course(order, RunLength(STEPS * 96, 96), ScheduleConfig(), rows)
        found[rows] = watch(begin(build), course, sizes=True)
    assert found[6].sizes.keys() == found[2].sizes.keys()
    assert "output of layers.1.mlp" in found[6].sizes
    for name, sizes in found[6].sizes.items():
        other = found[2].sizes[name]
        for one, two in zip(sizes, other, strict=True):
            # Rows are computed apart; matrix products of other shapes add up in another order.
            assert one.count == two.count
            assert two.rms == pytest.approx(one.rms, rel=1e-4, abs=1e-12)
            assert two.largest == pytest.approx(one.largest, rel=1e-3, abs=1e-10)
    weight = found[6].weights["layers.0.mlp.up"]
    value = begin(build).model.get_parameter("layers.0.mlp.up").detach().double()
    assert weight.activation.rms == pytest.approx(float(value.square().mean().sqrt()), rel=1e-12)
    assert weight.gradient.largest > 0


def test_updates_made_again_can_be_ended_between_two_of_them(build: Build, course: Course):
    def stop(step: int) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        locate(lambda: begin(build), course, 5, stop)
