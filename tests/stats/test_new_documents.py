"""The interval for new documents against exact variance components, and what it covers where others do not."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats import paired
from paribus.stats.new_documents import NewDocuments, new_documents

DOCUMENTS = 150


def crossed(draw, seeds, documents, parts):
    """D_sd = a_s + b_d + c_sd around 0; `parts` are the three variances of the mean: of seeds, documents and both."""
    seed, document, both = (math.sqrt(part) for part in parts)
    return (
        seed * math.sqrt(seeds) * draw.standard_normal((seeds, 1))
        + document * math.sqrt(documents) * draw.standard_normal((1, documents))
        + both * math.sqrt(seeds * documents) * draw.standard_normal((seeds, documents))
    )


def mean_squares(values):
    """Two-way analysis of variance without replication, by loops: mean squares of seeds, documents, and the rest."""
    seeds, documents = values.shape
    grand, rows, columns = values.mean(), values.mean(1), values.mean(0)
    rest = sum((values[s, d] - rows[s] - columns[d] + grand) ** 2 for s in range(seeds) for d in range(documents))
    return (
        documents * sum((row - grand) ** 2 for row in rows) / (seeds - 1),
        seeds * sum((column - grand) ** 2 for column in columns) / (documents - 1),
        rest / ((seeds - 1) * (documents - 1)),
    )


@given(st.integers(2, 6), st.integers(2, 12), st.integers(0, 2**20))
def test_with_equal_weights_the_variances_are_those_of_a_two_way_analysis_of_variance(seeds, documents, number):
    values = generator("tests", "new documents", number).normal(0.3, 1.0, (seeds, documents))
    expected = [square / (seeds * documents) for square in mean_squares(values)]
    found = new_documents(values, np.ones(documents))
    # Sums of up to 72 terms of order 1, each rounded; the smallest mean squares are about 1e-4 of the largest.
    assert found.variance_seed == pytest.approx(expected[0], rel=1e-10)
    assert found.variance_document == pytest.approx(expected[1], rel=1e-10)
    assert found.variance_seed_document == pytest.approx(expected[2], rel=1e-10)
    variance = max(expected[0] + expected[1] - expected[2], expected[0])
    assert found.standard_error == pytest.approx(math.sqrt(variance), rel=1e-10)
    assert min(seeds, documents) - 1 <= found.degrees_of_freedom


def test_two_seeds_and_two_documents_give_the_closed_form():
    # theta_s = 1, 3; mean 2. Documents' means 1, 3: r = (-1, 1). The rest is 0: V = 1 + 1 - 0 over W = 2.
    found = new_documents([[0.0, 2.0], [2.0, 4.0]], [1.0, 1.0])
    assert found.mean == 2.0
    assert (found.variance_seed, found.variance_document, found.variance_seed_document) == (1.0, 1.0, 0.0)
    assert found.standard_error == math.sqrt(2.0)
    assert found.degrees_of_freedom == 2.0  # (1 + 1)^2/(1/1 + 1/1)
    half = paired.t_critical(2, 0.95) * math.sqrt(2.0)
    assert found.interval == (2.0 - half, 2.0 + half)
    assert found.document_share == pytest.approx(0.5, rel=1e-15)


def test_satterthwaite_by_hand_on_three_seeds():
    values = generator("tests", "new documents", "satterthwaite").normal(0.0, 1.0, (3, 7))
    values += np.linspace(-2.0, 2.0, 7) + np.array([[-1.0], [0.0], [1.0]])
    found = new_documents(values, np.full(7, 2.0), confidence=0.9)
    s, d, both = (square / 21 / 4 for square in mean_squares(values))
    freedom = (s + d - both) ** 2 / (s**2 / 2 + d**2 / 6 + both**2 / 12)
    assert found.degrees_of_freedom == pytest.approx(freedom, rel=1e-10)
    half = (found.interval[1] - found.interval[0]) / 2
    assert half == pytest.approx(paired.t_critical(freedom, 0.9) * math.sqrt(s + d - both), rel=1e-10)


@given(st.integers(2, 6), st.integers(3, 20), st.integers(0, 2**20))
def test_the_mean_and_the_seed_variance_are_the_headlines_and_the_error_is_never_smaller(seeds, documents, number):
    draw = generator("tests", "new documents", "headline", number)
    values, weights = draw.normal(0.2, 1.0, (seeds, documents)), draw.uniform(1.0, 9.0, documents)
    found = new_documents(values, weights)
    headline = paired.paired_t((values.sum(1) / weights.sum()).tolist())
    assert found.mean == pytest.approx(headline.mean, rel=1e-12, abs=1e-15)
    assert math.sqrt(found.variance_seed) == pytest.approx(headline.standard_error, rel=1e-10)
    assert found.standard_error >= math.sqrt(found.variance_seed)


def test_documents_that_all_seeds_see_alike_leave_the_error_of_one_pair_beside_that_of_seeds():
    draw = generator("tests", "new documents", "no interaction")
    weights = draw.uniform(1.0, 9.0, 40)
    # A seed shifts every document in proportion to its weight, so nothing is left between seeds and documents.
    values = weights * (draw.normal(0.0, 1.0, 40) + draw.normal(0.0, 0.1, (4, 1)))
    found = new_documents(values, weights)
    # A ratio of sums is the least-squares slope through the origin of values per root weight on root weights.
    fit = sm.OLS(values.mean(0) / np.sqrt(weights), np.sqrt(weights)).fit(cov_type="HC1")
    assert found.variance_seed_document == pytest.approx(0.0, abs=1e-28)
    assert math.sqrt(found.variance_document) == pytest.approx(float(fit.bse[0]), rel=1e-10)


def test_where_documents_add_nothing_the_interval_is_the_headlines():
    values = np.array([[1.0, -1.0, 2.0, 2.0], [2.0, 2.0, -1.0, 3.0], [1.0, 4.0, 3.0, 1.0]])
    found = new_documents(values, np.ones(4))
    assert found.variance_document < found.variance_seed_document
    assert found.degrees_of_freedom == 2.0
    assert found.interval == pytest.approx(paired.t_interval(values.mean(1).tolist()), rel=1e-13)
    assert found.document_share == pytest.approx(0.0, abs=1e-15)


def test_clusters_are_summed_before_anything_is_squared():
    draw = generator("tests", "new documents", "clusters")
    values, weights, hosts = draw.normal(size=(3, 30)), draw.uniform(1.0, 4.0, 30), draw.integers(0, 6, 30)
    summed = np.stack([values[:, hosts == host].sum(1) for host in range(6)], axis=1)
    by_hand = new_documents(summed, [weights[hosts == host].sum() for host in range(6)])
    found = new_documents(values, weights, hosts)
    assert (found.documents, found.clusters) == (30, 6)
    for name in ("standard_error", "degrees_of_freedom", "variance_document", "variance_seed_document"):
        # The same numbers added in another order.
        assert getattr(found, name) == pytest.approx(getattr(by_hand, name), rel=1e-10), name
    assert found.largest_share == pytest.approx(by_hand.largest_share, rel=1e-14)


def coverage(seeds, parts, studies=1500):
    """Shares of crossed studies whose 95 % intervals hold the true 0: new documents, documents only, seeds only."""
    draw = generator("tests", "new documents", "coverage", seeds, *map(str, parts))
    covered = np.zeros(3)
    for _ in range(studies):
        values = crossed(draw, seeds, DOCUMENTS, parts)
        low, high = new_documents(values, np.ones(DOCUMENTS)).interval
        mean_of_seeds = values.mean(0)
        error = np.std(mean_of_seeds, ddof=1) / math.sqrt(DOCUMENTS)
        documents_only = abs(mean_of_seeds.mean()) <= paired.t_critical(DOCUMENTS - 1, 0.95) * error
        seed_low, seed_high = paired.t_interval(values.mean(1).tolist())
        covered += (low <= 0 <= high, documents_only, seed_low <= 0 <= seed_high)
    return covered / studies


# Parts of the variance of the mean: seeds, documents, both.
SEEDS_DOMINATE, BALANCED, DOCUMENTS_DOMINATE = (1.0, 0.05, 0.05), (1.0, 1.0, 0.2), (0.05, 1.0, 0.2)


@pytest.mark.parametrize("parts", [SEEDS_DOMINATE, BALANCED, DOCUMENTS_DOMINATE])
@pytest.mark.parametrize("seeds", [5, 8])
def test_intervals_for_new_documents_cover_as_often_as_they_say(seeds, parts):
    new, documents_only, seeds_only = coverage(seeds, parts)
    # The target is 94 to 96 %; four binomial standard errors of 1500 studies are 2.3 points.
    assert 0.94 - 0.023 <= new <= 0.96 + 0.023
    if parts is SEEDS_DOMINATE:
        # the variance is 1.1 and documents show 0.1 of it: z beyond 1.96 x sqrt(0.1/1.1) has probability 0.56
        assert documents_only < 0.5
    if parts is DOCUMENTS_DOMINATE:
        assert seeds_only < 0.8


def test_residuals_around_the_grand_mean_would_cover_less_where_documents_dominate():
    """The reason for leaving out both margins: V_seed:doc from D_sd - theta w_d takes off 1/S of V_doc."""
    seeds, studies, draw = 3, 1500, generator("tests", "new documents", "grand mean")
    ratio = []
    for _ in range(studies):
        values = crossed(draw, seeds, DOCUMENTS, DOCUMENTS_DOMINATE)
        found = new_documents(values, np.ones(DOCUMENTS))
        naive = float(((values - found.mean) ** 2).sum()) / (seeds * DOCUMENTS) ** 2
        variance = found.variance_seed + found.variance_document - found.variance_seed_document
        ratio.append((variance, found.variance_seed + found.variance_document - naive))
    ours, grand_mean = np.mean(ratio, axis=0)
    # The truth is 1.25. The variance of V is 2 (V_doc + V_both)^2/149 + 2 (V_seed + V_both)^2/2: a standard error of
    # 0.0076 over 1500 studies, four of which are 0.03.
    assert ours == pytest.approx(1.25, abs=0.03)
    # Taken off too much: the documents' own variance over S, 1.0/3.
    assert grand_mean < 1.25 - 0.25


def test_a_study_of_eight_seeds_and_five_thousand_documents_is_answered_from_its_sums():
    draw = generator("tests", "new documents", "large")
    weights = np.exp(draw.normal(6.0, 0.8, 5000))
    values = weights * (-0.01 + crossed(draw, 8, 5000, (1e-6, 1e-6, 1e-7)))
    found = new_documents(values, weights, draw.integers(0, 400, 5000))
    assert isinstance(found, NewDocuments)
    assert (found.seeds, found.documents, found.clusters) == (8, 5000, 400)
    assert found.interval[1] < 0


@pytest.mark.parametrize(
    ("differences", "weights", "word"),
    [
        ([[1.0, 2.0]], [1.0, 1.0], "spread between seeds"),
        ([[1.0, 2.0], [1.0, 2.0]], [1.0, 1.0], "spread between seeds"),
        ([[1.0], [2.0]], [1.0], "spread over documents"),
        ([[1.0, 2.0], [1.0, math.nan]], [1.0, 1.0], "not finite"),
        ([[1.0, 2.0], [1.0, 3.0]], [1.0, 1.0, 1.0], "other documents"),
        ([[1.0, 2.0], [1.0, 3.0]], [1.0, -1.0], "not a positive number"),
    ],
)
def test_input_that_supports_no_interval_is_refused(differences, weights, word):
    with pytest.raises(ParibusError, match=word):
        new_documents(differences, weights)
