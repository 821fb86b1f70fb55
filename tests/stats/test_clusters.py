"""Contrasts over scales: whole seeds are flipped, and shared seeds are not counted twice."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats import paired
from paribus.stats.clusters import pooled_scales, seed_means


def wins_at(scale_seeds):
    """A win in every pair, of different sizes."""
    draw = generator("tests", "clusters", "wins")
    return {scale: {seed: -float(draw.uniform(0.02, 0.04)) for seed in seeds} for scale, seeds in scale_seeds.items()}


def test_ten_wins_at_two_scales_of_five_shared_seeds_are_five_clusters():
    shared = pooled_scales(wins_at({"S": range(5), "M": range(5)}), sign=-1)
    assert shared.p_sign_flip == 0.0625
    assert (shared.wins, shared.pairs, shared.seeds) == (10, 10, 5)
    assert shared.degrees_of_freedom == 4


def test_ten_wins_of_ten_independent_seeds_are_ten_clusters():
    independent = pooled_scales(wins_at({"S": range(5), "M": range(5, 10)}), sign=-1)
    assert independent.p_sign_flip == 2 / 2**10
    assert (independent.wins, independent.pairs, independent.seeds) == (10, 10, 10)
    assert independent.degrees_of_freedom == 9


@given(st.integers(2, 7), st.integers(2, 3), st.integers(0, 2**20))
def test_the_sign_flip_is_the_enumeration_of_flips_of_whole_seeds(seeds, scales, number):
    draw = generator("tests", "clusters", "enumeration", number)
    values = draw.normal(0.5, 1.0, (scales, seeds))
    by_scale = {f"scale {k}": {s: float(values[k, s]) for s in range(seeds)} for k in range(scales)}
    observed = abs(values.mean())
    # A flip that gives the same mean in real arithmetic is a tie, whatever its rounding.
    hits = [
        abs((values * np.array(signs)).mean()) >= observed * (1 - 1e-12) - 1e-15
        for signs in itertools.product((-1, 1), repeat=seeds)
    ]
    assert pooled_scales(by_scale, sign=1).p_sign_flip == np.mean(hits)


def test_the_interval_is_the_t_interval_of_the_seeds_own_means():
    draw = generator("tests", "clusters", "t")
    values = draw.normal(0.1, 1.0, (3, 6))
    by_scale = {str(k): {s: float(values[k, s]) for s in range(6)} for k in range(3)}
    found = pooled_scales(by_scale, sign=1, confidence=0.9)
    reference: Any = scipy.stats.ttest_1samp(values.mean(0), 0.0)
    assert found.mean == pytest.approx(values.mean(), rel=1e-12)
    assert found.p_t == pytest.approx(float(reference.pvalue), rel=1e-10)
    assert found.interval == pytest.approx(tuple(reference.confidence_interval(0.9)), rel=1e-10)
    assert found.confidence == 0.9


def test_a_seed_that_a_scale_lacks_is_averaged_over_the_others():
    found = pooled_scales({"S": {0: 1.0, 1: 2.0, 2: 6.0}, "M": {0: 3.0, 1: 2.0}}, sign=1)
    assert found.mean == pytest.approx((2.0 + 2.0 + 6.0) / 3, rel=1e-15)
    assert (found.seeds, found.pairs) == (3, 5)


def test_flipping_pairs_one_by_one_would_find_what_two_scales_share():
    """Eight seeds whose luck is the same at both scales, and no effect."""
    draw, pages = generator("tests", "clusters", "shared luck"), 1000
    clustered = one_by_one = 0
    for _ in range(pages):
        luck = draw.normal(0.0, 1.0, 8)
        values = luck + draw.normal(0.0, 0.3, (2, 8))
        by_scale = {str(k): {s: float(values[k, s]) for s in range(8)} for k in range(2)}
        clustered += paired.sign_flip_p(list(seed_means(by_scale).values())) <= 0.05
        flips = draw.integers(0, 2, (400, 16)) * 2 - 1
        one_by_one += np.mean(abs(flips @ values.ravel()) >= abs(values.sum())) <= 0.05
    # An exact test at 0.05; four binomial standard errors of 1000 pages are 0.028.
    assert clustered / pages <= 0.05 + 0.028
    # The variance of the mean is (1 + 0.045)/8, taken for (1 + 0.09)/16: z has variance 1.92, P(|z| > 1.96) = 0.157.
    assert one_by_one / pages > 0.1


def test_above_twenty_seeds_flips_are_drawn_from_the_named_generator():
    draw = generator("tests", "clusters", "many")
    by_scale = {scale: {s: float(draw.normal(0.2, 1.0)) for s in range(24)} for scale in ("S", "M")}
    p = [
        pooled_scales(by_scale, sign=1, generator=generator("tests", "clusters", "flips")).p_sign_flip for _ in range(2)
    ]
    assert p[0] == p[1]
    exact = paired.paired_t(list(seed_means(by_scale).values())).p_two_sided
    assert p[0] == pytest.approx(exact, abs=0.02)
    with pytest.raises(ParibusError, match="named generator"):
        pooled_scales(by_scale, sign=1)


@pytest.mark.parametrize(
    ("by_scale", "word"),
    [
        ({"S": {0: 1.0, 1: 2.0}}, "two scales"),
        ({"S": {0: 1.0, 1: 2.0}, "M": {}}, "two scales"),
        ({"S": {0: 1.0}, "M": {0: 2.0}}, "no information"),
        ({"S": {0: 1.0, 1: 1.0}, "M": {0: 1.0, 1: 1.0}}, "no information"),
        ({"S": {0: 1.0, 1: float("nan")}, "M": {0: 1.0, 1: 2.0}}, "not finite"),
    ],
)
def test_what_cannot_be_pooled_is_refused(by_scale, word):
    with pytest.raises(ParibusError, match=word):
        pooled_scales(by_scale, sign=1)
