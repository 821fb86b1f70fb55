"""The threshold of a slice lies below every other way to a lower loss than the floor."""

import pytest

from paribus.data.tasks.contract import Levels
from paribus.reading.learning import threshold_of


@pytest.mark.parametrize(
    ("shortcuts", "threshold"),
    [
        ({}, 1.5),
        ({"a part": 2.0}, 1.5),
        ({"a part": 2.0, "worse than chance": 3.0}, 1.5),
        ({"a part": 1.51}, 1.5),
        # A shortcut at or below half-way would pass for the task.
        ({"a part": 1.5}, 1.25),
        ({"a part": 1.4, "another": 2.0}, 1.2),
        ({"a part": 1.4, "another": 1.2}, 1.1),
        # One at the floor solves the slice.
        ({"solves it": 1.0}, 1.5),
        ({"solves it": 1.0, "a part": 1.4}, 1.2),
        ({"solves it, as a simulation knows it": 1.01}, 1.5),
    ],
)
def test_the_threshold_is_half_way_to_chance_and_below_every_shortcut(
    shortcuts: dict[str, float], threshold: float
) -> None:
    assert Levels(2.0, 1.0, shortcuts).threshold == pytest.approx(threshold, abs=1e-12)


def test_where_chance_is_the_floor_the_threshold_is_both() -> None:
    assert Levels(2.0, 2.0, {"anything": 2.0}).threshold == 2.0


def test_what_lies_above_the_floor_by_a_rounding_teaches_nothing() -> None:
    assert not Levels(2.0, 2.0, {}).teaches
    assert not Levels(2.0 + 4.5e-16, 2.0, {}).teaches
    assert Levels(2.1, 2.0, {}).teaches
    metrics = [{"slices": {"a": {"targets": 3}, "b": {"targets": 1}}}]
    assert threshold_of(metrics, "a", {"a": 2e-16}) is None
    assert threshold_of(metrics, "all", {"a": 2e-16, "b": 1.0}) == pytest.approx(0.25)
    assert threshold_of(metrics, "all", {"a": 2e-16, "b": 0.0}) is None
    assert threshold_of(metrics, "b", {"a": 2e-16, "b": 1.0}) == 1.0
