"""Whether a trained arm is at chance where nothing can be learned: the leak detector (rules of evidence, section 8).

On a slice whose chance is its floor the inputs say nothing of the targets. Whatever a model has learned, its expected
loss on fresh inputs is chance plus a Kullback-Leibler divergence, which is what its guesses cost: it may end above
chance, never below but by luck. An arm that does has read its targets.

Of one trained model, on n held-out inputs with nats x_i over t_i targets:

    loss = sum x_i / sum t_i                              se = sqrt(n / (n - 1) * sum (x_i - loss t_i)^2) / sum t_i

the linearised error of a ratio (Cochran, Sampling Techniques, 1977, section 6.3), with inputs as the independent units.
The S models of an arm are given and each has inputs of its own, so that their errors are independent:

    mean = sum_s loss_s / S                               se = sqrt(sum_s se_s^2) / S

How far models differ is no part of this error: each of them is at chance or above it in expectation, and so is their
mean, whatever their spread.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from paribus.errors import ParibusError

STANDARD_ERRORS = 3.0
"""within which an arm is at chance; below by luck in 1 of 740 arms"""
ROUNDING_NATS = 1e-6
"""of a loss of a few nats that was computed in float32: a model without any preference has no other error"""
AT, BELOW, ABOVE = "at chance", "below chance", "above chance"


@dataclass(frozen=True)
class HeldOutLoss:
    """The loss of one trained model on held-out inputs, nats per target."""

    mean: float
    standard_error: float
    """over the inputs"""
    inputs: int


@dataclass(frozen=True)
class AgainstChance:
    """The loss of an arm beside chance, nats per target."""

    chance: float
    mean: float
    """over seeds, each with the same weight"""
    standard_error: float
    """of `mean`, over held-out inputs, with the trained models given"""

    @property
    def where(self) -> str:
        """`AT` within STANDARD_ERRORS on either side, else `BELOW` or `ABOVE`."""
        slack = STANDARD_ERRORS * self.standard_error + ROUNDING_NATS
        if abs(self.mean - self.chance) <= slack:
            return AT
        return BELOW if self.mean < self.chance else ABOVE


def held_out_loss(nats: ArrayLike, targets: ArrayLike) -> HeldOutLoss:
    """Loss and standard error from `nats` and `targets`, both `[input]` sums over the targets of each input.

    ParibusError below two inputs, for an input without a target, and for nats that are not finite.
    """
    values, counts = np.asarray(nats, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    fine = values.ndim == 1 and values.shape == counts.shape and len(values) > 1
    if not fine or not np.isfinite(values).all() or not (counts > 0).all():
        raise ParibusError(
            "a held-out loss has no standard error",
            expected="at least 2 inputs, each with finite nats and at least 1 target",
            received=f"{values.size} inputs, {int((counts > 0).sum())} with targets",
            remedy="score more inputs (base.evaluation test_tokens)",
        )
    mean = float(values.sum() / counts.sum())
    squares = float(((values - mean * counts) ** 2).sum())
    inputs = len(values)
    return HeldOutLoss(mean, math.sqrt(inputs / (inputs - 1) * squares) / float(counts.sum()), inputs)


def against_chance(losses: Sequence[HeldOutLoss], chance: float) -> AgainstChance:
    """An arm's seeds together beside `chance`, nats per target. ParibusError without a seed."""
    if not losses:
        raise ParibusError(
            "no seed to hold against chance",
            expected="the held-out loss of at least one trained model",
            received="none",
            remedy="train the arm first",
        )
    mean = math.fsum(loss.mean for loss in losses) / len(losses)
    error = math.sqrt(math.fsum(loss.standard_error**2 for loss in losses)) / len(losses)
    return AgainstChance(chance, mean, error)
