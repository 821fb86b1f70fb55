"""A slice on which chance is the floor has no threshold that anything could be acquired at."""

import pytest

from paribus.data.tasks.contract import Levels
from paribus.reading.learning import threshold_of


def test_what_lies_above_the_floor_by_a_rounding_teaches_nothing() -> None:
    assert not Levels(2.0, 2.0, {}).teaches
    assert not Levels(2.0 + 4.5e-16, 2.0, {}).teaches
    assert Levels(2.1, 2.0, {}).teaches
    metrics = [{"slices": {"a": {"targets": 3}, "b": {"targets": 1}}}]
    assert threshold_of(metrics, "a", {"a": 2e-16}) is None
    assert threshold_of(metrics, "all", {"a": 2e-16, "b": 1.0}) == pytest.approx(0.25)
    assert threshold_of(metrics, "all", {"a": 2e-16, "b": 0.0}) is None
    assert threshold_of(metrics, "b", {"a": 2e-16, "b": 1.0}) == 1.0
