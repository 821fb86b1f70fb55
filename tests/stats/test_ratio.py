"""The linearised standard error over documents against closed forms, the jackknife, and the trap it warns of."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.ratio import byte_weights, linearised_document_se, linearised_ratio

EPS = 2.0**-52


def test_three_documents_give_the_closed_form():
    # delta = 6/12 = 1/2, r = (1 - 1, 1 - 2, 4 - 3) = (0, -1, 1), se = sqrt(3/2 x 2)/12
    found = linearised_ratio([1.0, 1.0, 4.0], [2.0, 4.0, 6.0])
    assert found.value == 0.5
    assert found.residuals.tolist() == [0.0, -1.0, 1.0]
    assert found.standard_error == pytest.approx(math.sqrt(3.0) / 12, rel=4 * EPS)
    assert (found.documents, found.clusters) == (3, 3)


def test_three_documents_of_two_hosts_give_the_closed_form():
    # the sums of r by host are (1, -1): se = sqrt(2/1 x 2)/12
    found = linearised_ratio([1.0, 1.0, 4.0], [2.0, 4.0, 6.0], ["b", "a", "b"])
    assert found.standard_error == pytest.approx(2.0 / 12, rel=4 * EPS)
    assert (found.documents, found.clusters) == (3, 2)


def test_byte_weights_turn_nats_into_bits_per_byte():
    nats, sizes = np.array([3.0, 5.0, 9.0]), np.array([10, 20, 30])
    bits = nats / math.log(2.0)
    assert linearised_ratio(nats, byte_weights(sizes)).value == pytest.approx(bits.sum() / sizes.sum(), rel=8 * EPS)


@given(st.integers(2, 30), st.integers(0, 2**20))
def test_equal_weights_give_the_classical_standard_error_of_a_mean(count: int, number: int):
    values = generator("tests", "ratio", number).normal(0.0, 1.0, count)
    found = linearised_document_se(values, np.ones(count))
    assert found == pytest.approx(np.std(values, ddof=1) / math.sqrt(count), rel=1e4 * EPS)


def test_the_error_is_close_to_a_jackknife_that_leaves_out_every_cluster_in_turn():
    draw = generator("tests", "ratio", "jackknife")
    weights = np.exp(draw.normal(5.0, 0.6, 2000))
    hosts = draw.integers(0, 300, 2000)
    values = weights * (draw.normal(0.0, 0.05, 300)[hosts] + draw.normal(0.0, 0.1, 2000))
    for clusters in (np.arange(2000), hosts):
        codes = np.unique(clusters)
        without = np.array([values[clusters != c].sum() / weights[clusters != c].sum() for c in codes])
        jackknife = math.sqrt((len(codes) - 1) / len(codes) * ((without - without.mean()) ** 2).sum())
        # They differ by a factor of 1 + O(share of the weight in one cluster), which is at most 0.008 here.
        assert linearised_document_se(values, weights, clusters) == pytest.approx(jackknife, rel=0.02)
    assert linearised_document_se(values, weights, hosts) > 1.2 * linearised_document_se(values, weights)


def test_the_error_is_the_cluster_robust_one_of_a_least_squares_slope_through_the_origin():
    draw = generator("tests", "ratio", "statsmodels")
    weights, hosts = draw.uniform(1.0, 9.0, 60), np.repeat(np.arange(12), 5)
    values = weights * (draw.normal(0.0, 1.0, 12)[hosts] + draw.normal(0.0, 1.0, 60))
    # Values per root weight on root weights: the slope is the ratio of sums.
    fit = sm.OLS(values / np.sqrt(weights), np.sqrt(weights)).fit(
        cov_type="cluster", cov_kwds={"groups": hosts, "use_correction": True}
    )
    assert linearised_ratio(values, weights).value == pytest.approx(float(fit.params[0]), rel=1e-10)
    # The regression's correction is G/(G - 1) (n - 1)/(n - 1): the same one.
    assert linearised_document_se(values, weights, hosts) == pytest.approx(float(fit.bse[0]), rel=1e-10)


def test_the_order_of_documents_and_the_names_of_clusters_do_not_matter():
    draw = generator("tests", "ratio", "order")
    values, weights, hosts = draw.normal(size=50), draw.uniform(1.0, 3.0, 50), draw.integers(0, 9, 50)
    order = draw.permutation(50)
    names = np.array([f"host {9 - code}" for code in hosts])
    one = linearised_document_se(values, weights, hosts)
    # Fifty terms added in another order.
    assert linearised_document_se(values[order], weights[order], names[order]) == pytest.approx(one, rel=1e-13)


def test_a_document_test_on_one_pair_finds_differences_that_are_seed_noise():
    """The trap that the module warns of, with the seed noise of a public repeat and an error of 0.0001 over documents:
    a pair of two seeds of one recipe differs by N(0, 2 x 0.00023^2), so z beyond 1.96 is no rarity."""
    draw, documents, pairs = generator("tests", "ratio", "trap"), 400, 1000
    seed_noise = draw.normal(0.0, math.sqrt(2.0) * 0.00023, pairs)
    values = seed_noise[:, None] + draw.normal(0.0, 0.0001 * math.sqrt(documents), (pairs, documents))
    fits = [linearised_ratio(row, np.ones(documents)) for row in values]
    false = np.mean([abs(fit.value) > 1.96 * fit.standard_error for fit in fits])
    # z is N(0, 1 + 2 x 2.3^2): P(|z| > 1.96) = 0.56; four binomial standard errors of 1000 are 0.063.
    assert false == pytest.approx(0.56, abs=0.063)


@pytest.mark.parametrize(
    ("differences", "weights", "clusters", "word"),
    [
        ([1.0, 2.0], [1.0], None, "other documents"),
        ([1.0, float("nan")], [1.0, 1.0], None, "not finite"),
        ([1.0, 2.0], [1.0, 0.0], None, "not a positive number"),
        ([1.0, 2.0], [1.0, float("inf")], None, "not a positive number"),
        ([1.0], [1.0], None, "no spread over documents"),
        ([1.0, 2.0], [1.0, 1.0], ["a", "a"], "no spread over documents"),
        ([1.0, 2.0], [1.0, 1.0], ["a", "b", "c"], "cluster codes"),
    ],
)
def test_input_that_gives_no_error_over_documents_is_refused(differences, weights, clusters, word):
    with pytest.raises(ParibusError, match=word):
        linearised_ratio(differences, weights, clusters)
