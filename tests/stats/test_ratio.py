"""Weights and clusters of documents: bits per byte, sums by host, and what is refused."""

import math

import numpy as np
import pytest

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.new_documents import new_documents
from paribus.stats.ratio import byte_weights, checked, cluster_indices, cluster_sums

EPS = 2.0**-52


def test_byte_weights_turn_nats_into_bits_per_byte():
    nats, sizes = np.array([3.0, 5.0, 9.0]), np.array([10, 20, 30])
    bits = nats / math.log(2.0)
    assert nats.sum() / byte_weights(sizes).sum() == pytest.approx(bits.sum() / sizes.sum(), rel=8 * EPS)


def test_values_of_one_host_are_summed_whatever_the_hosts_are_called():
    values = np.array([[1.0, 2.0, 4.0, 8.0], [1.0, 1.0, 1.0, 1.0]])
    for codes in (["b", "a", "b", "a"], [7, -3, 7, -3]):
        groups = cluster_indices(codes, 4)
        assert cluster_sums(values, groups).tolist() == [[10.0, 5.0], [2.0, 2.0]]


def test_without_codes_every_document_is_its_own_cluster():
    values = np.array([[3.0, 1.0, 2.0]])
    assert cluster_sums(values, cluster_indices(None, 3)).tolist() == values.tolist()


def test_the_order_of_documents_and_the_names_of_clusters_do_not_matter():
    draw = generator("tests", "ratio", "order")
    values, weights, hosts = draw.normal(size=(3, 50)), draw.uniform(1.0, 3.0, 50), draw.integers(0, 9, 50)
    order = draw.permutation(50)
    names = np.array([f"host {9 - code}" for code in hosts])
    one, other = new_documents(values, weights, hosts), new_documents(values[:, order], weights[order], names[order])
    # Fifty terms added in another order.
    assert other.standard_error == pytest.approx(one.standard_error, rel=1e-12)
    assert other.mean == pytest.approx(one.mean, rel=1e-12)


@pytest.mark.parametrize(
    ("differences", "weights", "word"),
    [
        ([1.0, 2.0], [1.0], "other documents"),
        ([1.0, float("nan")], [1.0, 1.0], "not finite"),
        ([1.0, 2.0], [1.0, 0.0], "not a positive number"),
        ([1.0, 2.0], [1.0, float("inf")], "not a positive number"),
    ],
)
def test_differences_and_weights_that_give_no_ratio_are_refused(differences, weights, word):
    with pytest.raises(ParibusError, match=word):
        checked(np.array([differences]), weights)


@pytest.mark.parametrize(
    ("documents", "clusters", "word"),
    [
        (1, None, "no spread over documents"),
        (2, ["a", "a"], "no spread over documents"),
        (2, ["a", "b", "c"], "cluster codes"),
    ],
)
def test_clusters_that_give_no_error_over_documents_are_refused(documents, clusters, word):
    with pytest.raises(ParibusError, match=word):
        cluster_indices(clusters, documents)
