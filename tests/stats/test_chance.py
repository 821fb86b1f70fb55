"""An arm beside chance where nothing can be learned: the error of a held-out loss, its pooling, and three answers."""

import math

import numpy as np
import pytest

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.chance import ABOVE, AT, BELOW, AgainstChance, HeldOutLoss, against_chance, held_out_loss

CHANCE = math.log(16)


def test_the_standard_error_is_that_of_the_ratio_over_inputs() -> None:
    nats, targets = np.array([3.0, 5.0, 1.0, 7.5]), np.array([1, 2, 1, 3])
    found = held_out_loss(nats, targets)
    loss = 16.5 / 7
    residuals = [3.0 - loss, 5.0 - 2 * loss, 1.0 - loss, 7.5 - 3 * loss]
    assert found.mean == pytest.approx(loss, rel=1e-12)
    assert found.standard_error == pytest.approx(math.sqrt(4 / 3 * sum(r * r for r in residuals)) / 7, rel=1e-12)
    assert found.inputs == 4
    # With one target an input it is the standard error of a mean.
    plain = held_out_loss(nats, np.ones(4))
    assert plain.standard_error == pytest.approx(np.std(nats, ddof=1) / 2, rel=1e-12)


def test_seeds_are_pooled_with_one_weight_each_and_as_independent() -> None:
    found = against_chance([HeldOutLoss(2.7, 0.03, 10), HeldOutLoss(2.9, 0.04, 1000)], CHANCE)
    assert found.mean == pytest.approx(2.8)
    assert found.standard_error == pytest.approx(0.05 / 2)


@pytest.mark.parametrize(
    ("mean", "error", "where"),
    [
        (CHANCE, 0.01, AT),
        (CHANCE - 0.0299, 0.01, AT),
        (CHANCE + 0.0299, 0.01, AT),
        (CHANCE - 0.0301, 0.01, BELOW),
        (CHANCE + 0.0301, 0.01, ABOVE),
        # A model without preference in float32, and one a little further off than rounding.
        (CHANCE - 5e-7, 0.0, AT),
        (CHANCE - 5e-6, 0.0, BELOW),
    ],
)
def test_an_arm_is_at_chance_within_three_standard_errors_below_it_or_above(
    mean: float, error: float, where: str
) -> None:
    assert AgainstChance(CHANCE, mean, error).where == where


def models(leak: float, studies: int) -> list[str]:
    """Answers for arms of 3 seeds with 64 inputs of 16 targets, from models with preferences of their own; of a share
    `leak` of the targets each model is told."""
    draw = generator("tests", "chance", str(leak))
    answers = []
    for _ in range(studies):
        losses = []
        for _ in range(3):
            logits = 0.05 * draw.normal(size=(64, 16, 16))
            targets = draw.integers(0, 16, (64, 16))
            log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            nats = -np.take_along_axis(log_p, targets[..., None], -1)[..., 0]
            losses.append(held_out_loss((nats * (draw.random((64, 16)) >= leak)).sum(-1), np.full(64, 16)))
        answers.append(against_chance(losses, CHANCE).where)
    return answers


def test_a_model_that_knows_nothing_is_never_far_below_chance_and_one_that_reads_a_target_in_fifty_is() -> None:
    # A leak by luck has probability 0.00135 at most: two in 200 arms have probability 0.03, and preferences only raise
    # the loss.
    assert models(0.0, 200).count(BELOW) <= 1
    assert models(0.02, 50).count(BELOW) >= 45


@pytest.mark.parametrize(
    ("nats", "targets"), [([1.0], [1]), ([1.0, math.nan], [1, 1]), ([1.0, 2.0], [1, 0]), ([1.0, 2.0], [1])]
)
def test_what_has_no_error_is_refused(nats: list[float], targets: list[int]) -> None:
    with pytest.raises(ParibusError, match="no standard error"):
        held_out_loss(nats, targets)


def test_an_arm_without_a_seed_is_refused() -> None:
    with pytest.raises(ParibusError, match="no seed"):
        against_chance([], CHANCE)
