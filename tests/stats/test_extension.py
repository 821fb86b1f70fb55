"""The two stages of a declared extension: their levels, their p values and intervals, whatever size is chosen."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.extension import (
    check_extension,
    combination_bound,
    combination_interval,
    combined_z,
    final_level,
    normal_score,
    one_sided_equivalence_score,
    whole_p,
)

STUDIES = 100_000
STAGES = st.tuples(
    st.lists(st.integers(-40, 40), min_size=3, max_size=6).filter(lambda x: len(set(x)) > 1),
    st.lists(st.integers(-40, 40), min_size=3, max_size=6).filter(lambda x: len(set(x)) > 1),
)


@pytest.mark.parametrize(("stage_1_alpha", "alpha"), [(0.01, 0.05), (0.001, 0.05), (0.04, 0.05), (0.005, 0.025)])
def test_both_stages_together_spend_alpha_by_the_bivariate_normal(stage_1_alpha: float, alpha: float) -> None:
    z, c = -scipy.stats.norm.ppf(stage_1_alpha / 2), combination_bound(stage_1_alpha, alpha)
    pair = scipy.stats.multivariate_normal([0, 0], [[1, math.sqrt(0.5)], [math.sqrt(0.5), 1]])
    assert 1 - pair.cdf([z, c], lower_limit=[-z, -c]) == pytest.approx(alpha, abs=1e-9)


def test_the_bound_at_one_percent_is_that_of_the_rules_of_evidence() -> None:
    assert combination_bound(0.01, 0.05) == pytest.approx(2.005, abs=0.003)
    assert final_level(0.01, 0.05) == pytest.approx(0.0452, abs=1e-4)


@pytest.mark.parametrize("stage_1_alpha", [0.001, 0.01, 0.02, 0.03, 0.045])
@pytest.mark.parametrize("step", [1.0, 1 / 2, 1 / 3, 1 / 8])
def test_one_sided_tests_at_the_same_levels_err_in_at_most_alpha(stage_1_alpha: float, step: float) -> None:
    first, alpha = step * stage_1_alpha, step * 0.05
    bounds = [-scipy.stats.norm.ppf(level) for level in (first, final_level(first, alpha))]
    pair = scipy.stats.multivariate_normal([0, 0], [[1, math.sqrt(0.5)], [math.sqrt(0.5), 1]])
    assert 1 - pair.cdf(bounds) <= alpha


def test_the_normal_score_keeps_the_tail_of_t() -> None:
    t = np.array([-400.0, -3.0, -0.5, 0.0, 0.5, 3.0, 400.0])
    assert scipy.stats.norm.sf(normal_score(t, 4)) == pytest.approx(scipy.stats.t.sf(t, 4), rel=1e-9)
    assert np.isfinite(normal_score(np.array([-1e300, 1e300]), 7)).all()


@given(st.floats(0, 8), st.sampled_from([0.05, 0.025, 0.01]))
@settings(max_examples=60, deadline=None)
def test_the_p_value_of_the_whole_is_within_alpha_exactly_beyond_the_bound(z: float, alpha: float) -> None:
    bound = combination_bound(0.2 * alpha, alpha)
    if abs(z - bound) > 1e-6:
        assert (whole_p(z, 0.01, 0.05) <= alpha) == (z > bound)
    assert whole_p(-z, 0.01, 0.05) == whole_p(z, 0.01, 0.05)
    assert 0 < whole_p(z, 0.01, 0.05) <= 1


@given(STAGES, st.sampled_from([0.045, 0.3]))
@settings(max_examples=60, deadline=None)
def test_the_interval_holds_the_means_that_the_final_test_does_not_reject(
    stages: tuple[list[int], list[int]], level: float
) -> None:
    one, two = stages
    low, high = combination_interval(one, two, level)
    bound = -scipy.stats.norm.ppf(level / 2)
    assert float(combined_z(one, two, low)) == pytest.approx(bound, abs=1e-6)
    assert float(combined_z(one, two, high)) == pytest.approx(-bound, abs=1e-6)
    thetas = np.linspace(low - (high - low), high + (high - low), 41)
    z = np.array([float(combined_z(one, two, theta)) for theta in thetas])
    assert (np.diff(z) <= 1e-12).all(), "Z falls as the mean that it is about rises"
    clear = np.abs(np.abs(z) - bound) > 1e-6
    assert ((np.abs(z) < bound) == ((thetas > low) & (thetas < high)))[clear].all()


@given(STAGES, st.floats(0.5, 60))
@settings(max_examples=60, deadline=None)
def test_equivalence_holds_exactly_where_its_interval_lies_within_the_margin(
    stages: tuple[list[int], list[int]], margin: float
) -> None:
    one, two = stages
    level = final_level(0.01, 0.05)
    score = one_sided_equivalence_score(one, two, margin)
    low, high = combination_interval(one, two, 2 * level)
    if abs(score + scipy.stats.norm.ppf(level)) > 1e-6:
        assert (score > -scipy.stats.norm.ppf(level)) == (-margin < low and high < margin)


def test_stages_are_weighted_equally_and_rows_are_independent() -> None:
    rng = generator("tests", "normal", 0, "extension", "rows")
    one, two = rng.standard_normal((4, 5)), rng.standard_normal((4, 9))
    z = combined_z(one, two)
    for row in range(4):
        scores = [
            scipy.stats.norm.isf(scipy.stats.ttest_1samp(x[row], 0, alternative="greater").pvalue) for x in (one, two)
        ]
        assert z[row] == pytest.approx(sum(scores) / math.sqrt(2), rel=1e-9)
    assert combined_z(two, one) == pytest.approx(z)


def large_where_hopeless(p: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Few seeds where stage 1 looks good, many where it does not."""
    return np.select([p < 0.05, p < 0.3], [8, 10], 16)


def large_where_promising(p: np.ndarray, _: np.ndarray) -> np.ndarray:
    """The other way round."""
    return np.select([p < 0.05, p < 0.3], [16, 10], 8)


def by_sign(_: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """By the direction of stage 1."""
    return np.where(mean > 0, 8, 16)


@pytest.mark.parametrize("choose", [large_where_hopeless, large_where_promising, by_sign])
def test_whatever_size_is_chosen_after_stage_1_the_whole_errs_in_five_percent(
    choose: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> None:
    x = generator("tests", "normal", 0, "extension", "size").standard_normal((STUDIES, 16))
    wrong = study_rejects(x, choose)
    assert float(wrong.mean()) == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / STUDIES))


def test_testing_again_without_a_declared_extension_errs_far_more_often() -> None:
    x = generator("tests", "normal", 0, "extension", "naive").standard_normal((STUDIES, 16))
    wrong = np.any([p_of(x[:, :n]) <= 0.05 for n in (5, 16)], axis=0)
    assert float(wrong.mean()) > 0.08


@pytest.mark.parametrize(
    ("first", "level", "planned", "looks", "what"),
    [
        (5, None, 5, (), "both stage_1_seeds and stage_1_alpha"),
        (None, 0.01, 5, (), "both stage_1_seeds and stage_1_alpha"),
        (5, 0.01, 8, (5, 8), "exclude each other"),
        (2, 0.01, 8, (), "too small"),
        (5, 0.05, 8, (), "smaller than the alpha"),
        (5, 0.0, 8, (), "smaller than the alpha"),
        (5, math.nan, 8, (), "smaller than the alpha"),
        (5, 0.01, 7, (), "fit neither"),
        (5, 0.01, 4, (), "fit neither"),
    ],
)
def test_an_extension_that_cannot_be_is_refused(
    first: int | None, level: float | None, planned: int, looks: tuple[int, ...], what: str
) -> None:
    with pytest.raises(ParibusError, match=what) as error:
        check_extension(first, level, planned, 0.05, looks)
    assert error.value.expected
    assert error.value.received
    assert error.value.remedy
    for fine in (5, 8, 30):
        check_extension(5, 0.01, fine, 0.05, ())
    check_extension(None, None, 5, 0.05, (3, 5))


def p_of(differences: np.ndarray) -> np.ndarray:
    count = differences.shape[1]
    t = differences.mean(axis=1) / (differences.std(axis=1, ddof=1) / math.sqrt(count))
    return 2 * scipy.special.stdtr(count - 1, -np.abs(t))


def study_rejects(x: np.ndarray, choose: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """Whether each study of [study seed] rejects at stage 1 or at the end, its size chosen after stage 1."""
    p_1 = p_of(x[:, :5])
    size, wrong = choose(p_1, x[:, :5].mean(axis=1)), p_1 <= 0.01
    for n in np.unique(size):
        wrong |= (size == n) & (np.abs(combined_z(x[:, :5], x[:, 5:n])) > combination_bound(0.01, 0.05))
    return wrong
