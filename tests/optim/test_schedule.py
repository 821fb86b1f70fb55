from itertools import pairwise

import pytest

from paribus.optim.config import ScheduleConfig
from paribus.optim.schedule import multiplier

SCHEDULE = ScheduleConfig(warmup=0.1, decay=0.5, final=0.2)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.05),  # place 0.005 of a warm-up that ends at 0.1
        (9, 0.95),
        (10, 1.0),
        (49, 1.0),
        (50, 0.2 + 0.8 * 0.495 / 0.5),
        (99, 0.2 + 0.8 * 0.005 / 0.5),
    ],
)
def test_the_multiplier_at_the_edges_of_a_hundred_steps(step: int, expected: float):
    assert multiplier(step, 100, SCHEDULE) == pytest.approx(expected, rel=1e-12)


def test_runs_of_any_length_have_the_same_multiplier_at_the_same_share():
    for step in range(50):
        assert multiplier(3 * step + 1, 150, SCHEDULE) == pytest.approx(multiplier(step, 50, SCHEDULE), rel=1e-12)


@pytest.mark.parametrize(
    "schedule",
    [SCHEDULE, ScheduleConfig(), ScheduleConfig(warmup=0.6, decay=0.7), ScheduleConfig(warmup=1.0, decay=1.0)],
)
def test_the_multiplier_is_continuous_positive_and_at_most_one(schedule: ScheduleConfig):
    steps = 1000
    values = [multiplier(step, steps, schedule) for step in range(steps)]
    steepest = max(1 / schedule.warmup, (1 - schedule.final) / schedule.decay) / steps
    assert all(0 < value <= 1 for value in values)
    assert all(abs(b - a) <= steepest * (1 + 1e-9) for a, b in pairwise(values))


def test_without_warmup_and_decay_the_multiplier_is_one():
    flat = ScheduleConfig(warmup=0.0, decay=0.0)
    assert {multiplier(step, 7, flat) for step in range(7)} == {1.0}


def test_a_run_of_one_step_has_a_rate():
    assert multiplier(0, 1, ScheduleConfig()) == 1.0
