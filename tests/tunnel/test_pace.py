"""The time that the rest of a set takes: by operations, at the pace that was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.tunnel.pace import Trained, left_in_words, seconds_left

AMOUNT = st.floats(1e3, 1e15)


def test_the_rest_takes_as_long_for_its_operations_as_what_was_trained():
    # 60 s for 3 units, so 20 s each.
    assert seconds_left([Trained(2e9, 30.0), Trained(1e9, 30.0)], [4e9, 1e9]) == pytest.approx(100.0)
    assert left_in_words([Trained(1e9, 60.0)], [3e9, 2e9]) == (
        "2 tasks to go, about 5.0 min by their floating-point operations"
    )


def test_before_anything_was_measured_no_time_is_told():
    assert seconds_left([], [1e9]) is None
    assert left_in_words([], [1e9]) == "1 task to go"
    assert left_in_words([Trained(1e9, 0.0)], [1e9]) == "1 task to go"


@given(flops=AMOUNT, seconds=st.floats(1e-3, 1e6), updates=st.integers(1, 1000), dear=st.floats(1.0, 100.0))
def test_a_task_whose_updates_are_dearer_is_given_as_much_more_time(
    flops: float, seconds: float, updates: int, dear: float
):
    trained = [Trained(flops, seconds)]
    cheap, costly = (seconds_left(trained, [updates * each * flops]) for each in (1.0, dear))
    assert cheap is not None
    assert costly == pytest.approx(dear * cheap)
