"""The jackknife over documents against its definition, and what its intervals cover."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.seeds import generator
from paribus.stats import documents

EPS = 2.0**-52


def textbook(sums: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The ratio and its jackknife, by leaving out each document in turn."""
    without = [np.delete(sums, j).sum() / np.delete(weights, j).sum() for j in range(len(sums))]
    n = len(sums)
    return sums.sum() / weights.sum(), math.sqrt((n - 1) / n * sum((w - np.mean(without)) ** 2 for w in without))


@given(st.integers(2, 40), st.integers(0, 2**20))
def test_the_closed_form_is_the_textbook_jackknife(count: int, number: int) -> None:
    draw = generator("tests", "documents", number)
    sums, weights = draw.normal(3.0, 2.0, count), draw.integers(1, 900, count).astype(float)
    value, error = textbook(sums * weights, weights)
    found = documents.ratio(sums * weights, weights)
    assert float(found.value) == value
    # Each textbook ratio is rounded by about `count` eps of sums up to 10 times their result; the errors are as small
    # as 1e-3 of it.
    assert float(found.standard_error) == pytest.approx(error, rel=1e6 * EPS, abs=1e4 * EPS)
    assert int(found.documents) == count
    again = documents.standard_error(documents.means_without_one(sums * weights, weights))
    assert float(again) == pytest.approx(error, rel=1e6 * EPS, abs=1e4 * EPS)


def test_equal_documents_of_equal_length_have_the_classical_standard_error_of_a_mean() -> None:
    values = generator("tests", "documents", "equal").normal(0.0, 1.0, 25)
    found = documents.ratio(values * 7.0, np.full(25, 7.0))
    assert float(found.standard_error) == pytest.approx(np.std(values, ddof=1) / 5, rel=1e-12)


def test_a_document_without_weight_counts_for_nothing() -> None:
    sums, weights = np.array([2.0, 6.0, 5.0]), np.array([1.0, 2.0, 4.0])
    with_empty = documents.ratio(np.append(sums, 0.0), np.append(weights, 0.0))
    bare = documents.ratio(sums, weights)
    assert (with_empty.value, with_empty.standard_error, with_empty.documents) == (
        bare.value,
        bare.standard_error,
        bare.documents,
    )


def test_columns_are_independent_of_each_other() -> None:
    draw = generator("tests", "documents", "columns")
    sums, weights = draw.normal(size=(9, 4, 3)), draw.integers(0, 3, (9, 4, 3)).astype(float)
    whole = documents.ratio(sums * weights, weights)
    for place in np.ndindex(4, 3):
        own = documents.ratio((sums * weights)[(slice(None), *place)], weights[(slice(None), *place)])
        assert own.documents == whole.documents[place]
        # Nine terms added in another order.
        assert own.standard_error == pytest.approx(whole.standard_error[place], rel=1e-12, nan_ok=True)


def test_one_document_has_a_value_and_no_standard_error_and_none_has_neither() -> None:
    found = documents.ratio(np.array([[3.0, 0.0], [0.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 0.0]]))
    assert found.value[0] == 1.5
    assert np.isnan(found.value[1])
    assert np.isnan(found.standard_error).all()
    assert found.documents.tolist() == [1, 0]


def test_a_mean_that_rests_on_one_document_is_not_a_number_without_it() -> None:
    without = documents.means_without_one(np.array([[0.3, 1.0], [0.0, 2.0]]), np.array([[0.1, 1.0], [0.0, 1.0]]))
    assert np.isnan(without[0, 0])
    assert without[:, 1].tolist() == [2.0, 1.0]


def test_a_constant_has_a_standard_error_of_zero() -> None:
    weights = np.array([3.0, 5.0, 8.0])
    assert documents.ratio(0.5 * weights, weights).standard_error == 0.0


def test_intervals_over_documents_cover_a_ratio_as_often_as_they_say() -> None:
    """Lengths are log-normal and the value rises with the length, so the ratio is not the mean of documents."""
    studies, count, middle, width = 2000, 200, 5.0, 0.6
    draw = generator("tests", "documents", "coverage")
    log_length = draw.normal(middle, width, (count, studies))
    length = np.exp(log_length)
    value = 0.3 + 0.05 * log_length + draw.normal(0.0, 0.2, (count, studies))
    truth = 0.3 + 0.05 * (middle + width**2)  # E[w ln w] / E[w] of a log-normal length w
    found = documents.ratio(value * length, length)
    covered = np.mean(np.abs(found.value - truth) <= 1.96 * found.standard_error)
    # Four binomial standard errors of 2000 studies: 0.019. A t quantile and the bias of a ratio at 200 documents cost
    # less than 0.005.
    assert covered == pytest.approx(0.95, abs=0.019 + 0.005)
    as_mean = value.mean(0)
    assert np.mean(np.abs(as_mean - truth) <= 1.96 * value.std(0, ddof=1) / math.sqrt(count)) < 0.9
