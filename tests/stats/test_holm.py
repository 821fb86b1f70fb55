"""Holm's test against statsmodels, and the levels at which it tested."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from paribus.stats.holm import holm


@pytest.mark.parametrize(
    ("p_values", "alpha"),
    [
        ([0.04], 0.05),
        ([0.01, 0.02, 0.03], 0.05),  # all fall; the last at its own level
        ([0.2, 0.001, 0.9, 0.012, 0.02], 0.05),
        ([0.02, 0.02, 0.5, 0.02], 0.2),  # ties
        ([0.0, 1.0, 0.3, 0.004, 0.0025, 0.6, 0.01, 0.05], 0.01),
    ],
)
def test_adjusted_p_values_and_rejections_equal_statsmodels(p_values: list[float], alpha: float) -> None:
    rejected, adjusted, *_ = multipletests(p_values, alpha=alpha, method="holm")
    result = holm(p_values, alpha)
    assert result.adjusted == pytest.approx(np.asarray(adjusted, dtype=np.float64))
    assert result.rejected == tuple(rejected)


@given(st.lists(st.floats(0, 0.2), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_a_p_value_is_within_its_level_exactly_where_rejected(p_values: list[float]) -> None:
    result = holm(p_values, 0.05)
    assert tuple(p <= level for p, level in zip(p_values, result.levels, strict=True)) == result.rejected


def test_behind_the_stop_the_level_is_that_of_the_stop() -> None:
    assert holm([0.04, 0.03, 0.001], 0.06).levels == pytest.approx((0.06, 0.03, 0.02))
    stopped = holm([0.04, 0.031, 0.001], 0.06)
    assert stopped.levels == pytest.approx((0.03, 0.03, 0.02))
    assert stopped.rejected == (False, False, True)


def test_an_empty_family_has_an_empty_result() -> None:
    assert holm([], 0.05).rejected == ()
