"""The divergence of routes in numpy, and what counts as one route in two seeds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.seeds import generator
from paribus.stats.divergence import NATS_PER_BIT, between_seeds, js_divergence


def by_loops(p: np.ndarray, q: np.ndarray) -> float:
    total = 0.0
    for a, b in zip(p, q, strict=True):
        m = (a + b) / 2
        total += 0.5 * (a * math.log(a / m) if a else 0.0) + 0.5 * (b * math.log(b / m) if b else 0.0)
    return total


@given(st.integers(2, 9), st.integers(0, 2**20))
def test_it_is_the_sum_of_the_definition(sources: int, number: int) -> None:
    draw = generator("tests", "divergence", number)
    p, q = draw.dirichlet(np.full(sources, 0.3), size=(2, 5))
    p[0] = np.eye(sources)[0]
    found = js_divergence(p, q)
    # Terms of at most ln 2, each rounded a few times.
    assert found == pytest.approx([by_loops(a, b) for a, b in zip(p, q, strict=True)], abs=20 * sources * 2.0**-52)
    assert (found > -1e-15).all()
    assert (found <= NATS_PER_BIT + 1e-15).all()


def test_disjoint_routes_are_one_bit_apart_and_equal_ones_none() -> None:
    p = np.array([[1.0, 0.0], [0.25, 0.75]])
    assert js_divergence(p, p).tolist() == [0.0, 0.0]
    assert js_divergence(p[:1], p[:1, ::-1]) / NATS_PER_BIT == pytest.approx([1.0], rel=1e-15)


def test_every_pair_of_seeds_is_compared_and_reads_of_one_source_are_not() -> None:
    draw = generator("tests", "divergence", "seeds")
    key, single = ("attention depth read", 1, "query"), ("attention depth read", 0, "query")
    routes = {
        seed: {
            key: draw.dirichlet(np.ones(3), size=4),
            single: np.ones((4, 1)),
            ("mlp", seed, "query"): np.ones((4, 2)),
        }
        for seed in (3, 1, 2)
    }
    found = between_seeds(routes)
    assert [(one.seeds, one.layer, one.positions) for one in found] == [((1, 2), 1, 4), ((1, 3), 1, 4), ((2, 3), 1, 4)]
    assert found[0].nats == pytest.approx(np.mean(js_divergence(routes[1][key], routes[2][key])), rel=1e-15)
    assert between_seeds({1: routes[1]}) == between_seeds({1: {}, 2: {}}) == []
