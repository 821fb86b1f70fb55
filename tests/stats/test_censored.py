"""Descriptions of censored groups against scipy, statsmodels and a likelihood written from its definition."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.duration.survfunc import survdiff

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.censored import logrank_p, tobit

Group = list[float | None]
LIMIT = 9.0
VALUES: st.SearchStrategy[Group] = st.lists(
    st.one_of(st.none(), st.integers(40, 90).map(lambda tenths: tenths / 10)), min_size=1, max_size=10
)


def drawn(name: str, count: int, mean: float) -> Group:
    values = mean + generator("tests", "censored", count, "values", name).standard_normal(count)
    return [None if value > LIMIT else float(value) for value in values]


def scipy_data(group: Group) -> stats.CensoredData:
    values = np.array([LIMIT if value is None else value for value in group])
    return stats.CensoredData.right_censored(values, np.array([value is None for value in group]))


def negative_log_likelihood(parameters: np.ndarray, groups: list[Group]) -> float:
    *means, log_sd = parameters
    total = 0.0
    for mean, group in zip(means, groups, strict=True):
        seen = [value for value in group if value is not None]
        total -= float(np.sum(stats.norm.logpdf(seen, mean, math.exp(log_sd))))
        total -= (len(group) - len(seen)) * float(stats.norm.logsf(LIMIT, mean, math.exp(log_sd)))
    return total


@pytest.mark.parametrize("count", [5, 10])
@pytest.mark.parametrize("shift", [0.0, -0.8, 0.8])
def test_the_normal_fit_maximises_the_likelihood_and_its_error_is_the_curvature(count: int, shift: float) -> None:
    groups = [drawn("first", count, 8.7 + shift), drawn("second", count, 8.7)]
    assert None in groups[1]
    found = tobit(groups[0], groups[1], LIMIT)
    assert found is not None
    start = np.array([8.7 + shift, 8.7, 0.0])
    best = optimize.minimize(
        negative_log_likelihood, start, (groups,), "Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13}
    ).x
    # The simplex stops where the likelihood, of size 10, no longer changes: about sqrt(1e-15) in the parameters.
    assert found.difference == pytest.approx(best[0] - best[1], abs=1e-5)
    assert found.sd == pytest.approx(math.exp(best[2]), abs=1e-5)
    step = 1e-3
    hessian = np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                at = best.copy()
                at[i] += a * step
                at[j] += b * step
                hessian[i, j] += a * b * negative_log_likelihood(at, groups) / (4 * step**2)
    covariance = np.linalg.inv(hessian)
    error = math.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    # Central differences are off by step^2 times fourth derivatives.
    assert found.standard_error == pytest.approx(error, rel=1e-4)
    assert found.interval == pytest.approx((found.difference - 1.96 * error, found.difference + 1.96 * error), rel=1e-2)


def test_two_equal_groups_differ_by_0_and_have_the_sd_that_scipy_fits_to_one() -> None:
    group = drawn("one", 10, 8.7)
    found = tobit(group, group, LIMIT)
    assert found is not None
    assert found.difference == pytest.approx(0, abs=1e-9)
    # scipy's simplex stops at 1e-4 of its parameters.
    assert found.sd == pytest.approx(stats.norm.fit(scipy_data(group))[1], rel=1e-3)


@given(
    st.lists(st.integers(40, 90), min_size=2, max_size=8, unique=True),
    st.lists(st.integers(40, 90), min_size=1, max_size=8),
)
@settings(max_examples=50, deadline=None)
def test_without_censoring_the_fit_is_the_means_and_the_pooled_spread(first: list[int], second: list[int]) -> None:
    one, other = np.array(first) / 10, np.array(second) / 10
    found = tobit(one.tolist(), other.tolist(), LIMIT)
    assert found is not None
    squares = ((one - one.mean()) ** 2).sum() + ((other - other.mean()) ** 2).sum()
    sd = math.sqrt(squares / (len(one) + len(other)))
    assert found.difference == pytest.approx(one.mean() - other.mean(), abs=1e-8)
    assert found.sd == pytest.approx(sd, rel=1e-8)
    assert found.standard_error == pytest.approx(sd * math.sqrt(1 / len(one) + 1 / len(other)), rel=1e-8)


def test_there_is_no_fit_without_a_maximum() -> None:
    assert tobit([None, None], [5.0, 6.0], LIMIT) is None
    assert tobit([5.0, 6.0], [], LIMIT) is None
    assert tobit([5.0, 5.0], [6.0], LIMIT) is None
    assert tobit([LIMIT, None], [6.0, 6.0], LIMIT) is None
    # A censored value far from equal ones that were seen keeps the sd from shrinking to 0.
    assert tobit([5.0, 5.0, None], [6.0], LIMIT) is not None


def test_equal_values_beside_censored_ones_have_a_fit() -> None:
    groups: list[Group] = [[None, 5.2], [None, 5.2, 5.2]]
    found = tobit(groups[0], groups[1], LIMIT)
    assert found is not None
    start = np.array([8.0, 7.0, 1.0])
    options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 4000, "maxfev": 4000}
    best = optimize.minimize(negative_log_likelihood, start, (groups,), "Nelder-Mead", options=options).x
    assert found.difference == pytest.approx(best[0] - best[1], abs=1e-5)
    assert found.sd == pytest.approx(math.exp(best[2]), abs=1e-5)


@given(VALUES, VALUES)
@settings(max_examples=200, deadline=None)
def test_every_fit_that_exists_is_found_and_is_finite(first: Group, second: Group) -> None:
    found = tobit(first, second, LIMIT)
    if found is not None:
        assert found.sd > 0
        assert found.interval[0] < found.difference < found.interval[1]
        assert all(math.isfinite(bound) for bound in found.interval)


@given(VALUES, VALUES)
@settings(max_examples=200, deadline=None)
def test_the_log_rank_p_equals_scipy_and_statsmodels(first: Group, second: Group) -> None:
    p = logrank_p(first, second, LIMIT)
    times = [LIMIT if value is None else value for value in (*first, *second)]
    seen = [int(value is not None) for value in (*first, *second)]
    if p is None:
        # At every event one group had nothing at risk, or all values left at once: neither group can be told.
        for time in {value for value in (*first, *second) if value is not None}:
            left = [sum(value is None or value >= time for value in group) for group in (first, second)]
            assert 0 in left or sum(value == time for value in (*first, *second)) == sum(left)
        return
    reference = stats.logrank(scipy_data(first), scipy_data(second))
    assert p == pytest.approx(reference.pvalue, rel=1e-9, abs=1e-12)
    _, p_chi_square = survdiff(times, seen, [0] * len(first) + [1] * len(second))
    assert p == pytest.approx(p_chi_square, rel=1e-9, abs=1e-12)


def test_a_value_beyond_the_limit_or_not_finite_is_refused() -> None:
    for function in (tobit, logrank_p):
        for wrong in (9.5, math.nan, -math.inf):
            with pytest.raises(ParibusError, match="does not fit its censoring limit"):
                function([5.0, wrong], [6.0], LIMIT)
