"""Training as a generator of events. It knows batches and updates; what an event leads to is the caller's business."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from paribus.data.order import Batch, Batches
from paribus.data.updates import updates_of
from paribus.errors import DivergenceError
from paribus.optim.config import ScheduleConfig
from paribus.optim.schedule import moment
from paribus.train.state import TrainState, digest_hex
from paribus.train.step import update


@dataclass(frozen=True)
class StepFinished:
    """`step` updates are finished. Raw values; nothing is smoothed."""

    step: int
    tokens_seen: int
    loss_nats_per_token: float
    learning_rate_multiplier: float
    wall_seconds: float
    slices: Mapping[str, Mapping[str, int | float]] = field(default_factory=dict)
    """of each slice with targets in this batch: `targets`, and per target the nats of the loss (`loss_nats`) and of
    the best predictor (`floor_nats`); empty for text"""
    gradient_norm: float | None = None
    """of all trained parameters together, before it was clipped; None where gradients are not clipped"""
    batch_digest: str = ""
    """of this batch alone, 16 hexadecimal digits"""


class BrokenUpdateError(DivergenceError):
    """An update whose loss or gradient was not finite. It was applied: what was before is gone."""

    update: StepFinished
    """what it was made of"""


@dataclass(frozen=True)
class MilestoneReached:
    """The first step with at least `budget_tokens`; `final` at the end of the schedule."""

    step: int
    tokens_seen: int
    budget_tokens: int
    final: bool


@dataclass(frozen=True)
class RunLength:
    """How long a cell trains, and where it is measured. Budgets in tokens; a step is one optimiser update."""

    budget_tokens: int
    batch_tokens: int
    milestones_tokens: tuple[int, ...] = ()
    leaves_after: int = 0
    """updates that this run shares with a longer one, its trunk; 0 for a run of its own"""
    trunk_steps: int = 0
    """length of the trunk, which the schedule is a fraction of until the run leaves it"""

    @property
    def steps(self) -> int:
        return updates_of(self.budget_tokens, self.batch_tokens)

    def steps_of_schedule(self, step: int) -> int:
        """The length that update `step` (counted from 0) is a fraction of."""
        return self.trunk_steps if step < self.leaves_after else self.steps

    def milestones(self) -> dict[int, int]:
        """Budget by step, in order; the last is the end of the run."""
        budgets = sorted({*self.milestones_tokens, self.budget_tokens})
        return {updates_of(budget, self.batch_tokens): budget for budget in budgets}


def announce(model: nn.Module, step: int, steps: int) -> None:
    """Tell every module that changes during a run where the run stands (`at_step` of `Scheduled` modules)."""
    for module in model.modules():
        at_step = getattr(module, "at_step", None)
        if at_step is not None:
            at_step(step, steps)


@dataclass(frozen=True)
class Course:
    """What the updates of one run are made by; with a `TrainState` it determines all of them."""

    order: Batches
    length: RunLength
    schedule: ScheduleConfig
    micro_batch_rows: int


def not_finite(loss: float, gradient_size: float) -> str:
    """What of an update became infinite or no number, in words; empty where nothing did."""
    if not math.isfinite(loss):
        return f"loss became {loss}"
    return "" if math.isfinite(gradient_size) else f"gradient became {gradient_size} while the loss was finite"


def advance(state: TrainState, course: Course) -> StepFinished:
    """Make the next update, which moves `state`. BrokenUpdateError where its loss or gradient is not finite; the state
    then holds the broken update."""
    started = time.perf_counter()
    order, length = course.order, course.length
    steps = length.steps_of_schedule(state.step)
    announce(state.model, state.step, steps)
    now = moment(state.step, steps, course.schedule)
    batch, slices = order.batch(state.step), order.slices
    done = update(
        state.model,
        state.optimisers,
        batch,
        state.step,
        now,
        course.micro_batch_rows,
        slices=len(slices),
        gradient_clip_norm=state.gradient_clip_norm,
    )
    digest = done.digest.cpu()
    state.digest = state.digest + digest
    state.step += 1
    value, size = torch.stack((done.loss, done.gradient_size)).tolist()  # one wait for the device
    by_slice = _by_slice(slices, batch, done.by_slice.tolist()) if slices else {}
    norm = None if done.gradient_norm is None else float(done.gradient_norm)
    seconds, tokens = time.perf_counter() - started, state.step * length.batch_tokens
    event = StepFinished(state.step, tokens, value, now.learning_rate, seconds, by_slice, norm, digest_hex(digest))
    if wrong := not_finite(value, size):
        error = BrokenUpdateError(
            f"the training {wrong} at step {state.step} ({tokens:,} tokens)",
            remedy="lower the learning rates or lengthen the warm-up, for every arm alike",
        )
        error.update = event
        raise error
    return event


def train(
    state: TrainState, order: Batches, length: RunLength, schedule: ScheduleConfig, micro_batch_rows: int
) -> Iterator[StepFinished | MilestoneReached]:
    """Continue `state` to the end of the run. After a step's event follows its milestone's, if it has one.

    A state that stands at a milestone reports it first: it may have been saved before it was measured.
    Raises DivergenceError when the loss or the gradient is not finite; the state then holds the diverged update.
    """
    course = Course(order, length, schedule, micro_batch_rows)
    milestones = length.milestones()

    def milestone() -> Iterator[MilestoneReached]:
        if state.step in milestones:
            final = state.step == length.steps
            yield MilestoneReached(state.step, state.step * length.batch_tokens, milestones[state.step], final)

    announce(state.model, state.step, length.steps_of_schedule(state.step))
    yield from milestone()
    while state.step < length.steps:
        yield advance(state, course)
        yield from milestone()


def _by_slice(slices: tuple[str, ...], batch: Batch, loss_sums: list[float]) -> dict[str, dict[str, int | float]]:
    """See `StepFinished.slices`."""
    counted = batch.weight > 0
    number = batch.slice[counted]
    targets = np.bincount(number, minlength=len(slices))
    known = getattr(batch, "floor_nats", None)
    floor = np.zeros(len(slices)) if known is None else np.bincount(number, known[counted], minlength=len(slices))
    return {
        name: {"targets": int(count), "loss_nats": loss / count, "floor_nats": float(least) / count}
        for name, count, loss, least in zip(slices, targets.tolist(), loss_sums, floor.tolist(), strict=True)
        if count
    }
