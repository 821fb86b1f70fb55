"""Ours beside a published figure: each word where the rules put it, and nothing said where nothing can be."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.paired import t_critical
from paribus.stats.replication import Replicated, replication


def compared(mean: float, se: float, theirs: float, **changes: Any):
    """Five seeds, d = 0.003, lower is better; the verdict claims the mean's sign where the interval excludes 0."""
    half = t_critical(4, 0.95) * se
    settled = abs(mean) > half
    given_by_verdict = {
        "mean": mean,
        "standard_error": se,
        "interval": (mean - half, mean + half),
        "verdict_sign": int(np.sign(mean)) if settled else 0,
        "smallest_effect": 0.003,
        "theirs": theirs,
        "theirs_standard_error": 0.002,
        "theirs_seeds": 5,
        "same_recipe": True,
        "unit": "nats per token",
    }
    return replication(**{**given_by_verdict, **changes})


CASES = [
    # mean, se, theirs, changes, word, what the sentence says
    (-0.0290, 0.002, -0.0301, {}, Replicated.REPLICATED, "the same sign"),
    (+0.0290, 0.002, +0.0301, {}, Replicated.REPLICATED, "the same sign"),
    (-0.0150, 0.001, -0.0301, {}, Replicated.SMALLER, "lies below the published difference"),
    (+0.0150, 0.001, +0.0301, {}, Replicated.SMALLER, "lies below the published difference"),
    (-0.0010, 0.001, -0.0301, {}, Replicated.CONTRADICTED, "below the smallest effect 0.003"),
    (-0.0020, 0.0002, -0.0301, {}, Replicated.CONTRADICTED, "below the smallest effect 0.003"),
    (+0.0100, 0.001, -0.0301, {}, Replicated.CONTRADICTED, "opposite sign"),
    (-0.0600, 0.002, -0.0301, {}, Replicated.NOT_SETTLED, "lies beyond the published difference"),
    (-0.0200, 0.020, -0.0301, {}, Replicated.NOT_SETTLED, "claims no direction, and our interval holds"),
    (-0.0080, 0.005, -0.0301, {}, Replicated.NOT_SETTLED, "claims no direction, and our interval excludes"),
    (+0.0300, 0.005, -0.0001, {"smallest_effect": 0.0001}, Replicated.CONTRADICTED, "opposite sign"),
    (-0.0290, 0.002, 0.0, {}, Replicated.NOT_SETTLED, "claims no direction that could be replicated"),
    (-0.0290, 0.002, -0.0301, {"same_recipe": False}, Replicated.RELATED, "recipes differ"),
    (+0.0290, 0.002, -0.0301, {"same_recipe": False}, Replicated.RELATED, "recipes differ"),
]


@pytest.mark.parametrize(("mean", "se", "theirs", "changes", "word", "says"), CASES)
def test_a_published_figure_gets_the_word_of_the_rules(mean, se, theirs, changes, word, says):
    found = compared(mean, se, theirs, **changes)
    assert found.word is word
    assert says in found.sentence
    assert found.sentence.lower().startswith(word.value)
    assert "nats per token" in found.sentence


def test_the_bound_is_1_96_of_both_standard_errors_on_either_side():
    bound = 1.96 * math.hypot(0.001, 0.002)
    inside = compared(-0.0301 + 0.999 * bound, 0.001, -0.0301)
    outside = compared(-0.0301 + 1.001 * bound, 0.001, -0.0301)
    assert inside.bound == pytest.approx(bound, rel=1e-15)
    assert inside.word is Replicated.REPLICATED
    assert outside.word is Replicated.SMALLER
    assert outside.difference == pytest.approx(1.001 * bound, rel=1e-12)


def test_a_standard_error_that_nobody_published_is_imputed_from_ours_and_said_to_be():
    found = compared(-0.0290, 0.002, -0.0301, theirs_standard_error=None, aa_sd=0.0045, theirs_seeds=5)
    assert found.imputed
    assert found.theirs_standard_error == pytest.approx(0.0045 / math.sqrt(5), rel=1e-15)
    assert "imputed from our A/A for seeds: 5" in found.sentence
    unknown = compared(-0.0290, 0.002, -0.0301, theirs_standard_error=None, aa_sd=0.0045, theirs_seeds=None)
    assert unknown.theirs_standard_error == 0.0045
    assert "one seed, since their number is not public" in unknown.sentence


def test_a_published_standard_error_is_preferred_to_ours():
    found = compared(-0.0290, 0.002, -0.0301, theirs_standard_error=0.001, aa_sd=0.0045)
    assert (found.theirs_standard_error, found.imputed) == (0.001, False)
    assert "imputed" not in found.sentence


def test_without_any_standard_error_only_what_holds_for_every_one_is_said():
    near = compared(-0.0290, 0.002, -0.0301, theirs_standard_error=None)
    assert near.word is Replicated.REPLICATED
    assert "however large the unpublished one" in near.sentence
    # A large enough error would make these compatible, so neither smaller nor contradicted is known.
    for mean, se in ((-0.015, 0.001), (-0.002, 0.0002), (0.01, 0.001)):
        far = compared(mean, se, -0.0301, theirs_standard_error=None)
        assert far.word is Replicated.NOT_SETTLED
        assert "no standard error was published" in far.sentence
        assert (far.theirs_standard_error, far.bound, far.imputed) == (None, None, False)


def test_an_a_a_without_noise_has_none_to_lend():
    found = compared(-0.015, 0.001, -0.0301, theirs_standard_error=None, aa_sd=0.0)
    assert (found.word, found.imputed) == (Replicated.NOT_SETTLED, False)


@given(
    st.floats(-0.05, 0.05), st.floats(1e-4, 0.02), st.floats(-0.05, 0.05), st.one_of(st.none(), st.floats(1e-4, 0.02))
)
def test_turning_every_sign_changes_no_word(mean, se, theirs, theirs_se):
    one = compared(mean, se, theirs, theirs_standard_error=theirs_se)
    turned = compared(-mean, se, -theirs, theirs_standard_error=theirs_se)
    assert one.word is turned.word


@given(st.floats(-0.05, 0.05), st.floats(1e-4, 0.02), st.floats(0.001, 0.05), st.floats(1e-4, 0.02))
def test_words_keep_their_conditions(mean, se, theirs, theirs_se):
    found = compared(mean, se, theirs, theirs_standard_error=theirs_se)
    low, high = found.interval
    if found.word is Replicated.REPLICATED:
        assert low > 0
        assert abs(mean - theirs) <= 1.96 * math.hypot(se, theirs_se)
    elif found.word is Replicated.SMALLER:
        assert 0 < low <= high < theirs
        assert mean >= 0.003
    elif found.word is Replicated.CONTRADICTED:
        assert not low <= theirs <= high
        assert mean < 0.003
    else:
        assert found.word is Replicated.NOT_SETTLED


def test_a_true_replication_is_found_about_as_often_as_the_bound_says():
    """Both studies of one true difference, ten standard errors from 0: |z| <= 1.96 in 95 % of them."""
    draw, studies = generator("tests", "replication"), 2000
    hits = 0
    for _ in range(studies):
        ours, theirs = -0.03 + 0.003 * draw.standard_normal(), -0.03 + 0.002 * draw.standard_normal()
        hits += compared(ours, 0.003, theirs).word is Replicated.REPLICATED
    # four binomial standard errors of 2000 are 0.0195
    assert hits / studies == pytest.approx(0.95, abs=0.0195)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"smallest_effect": math.nan}, "cannot be compared"),
        ({"standard_error": 0.0}, "cannot be compared"),
        ({"interval": (0.0, 1.0)}, "cannot be compared"),
        ({"verdict_sign": 1}, "that of the mean"),
        ({"verdict_sign": 2}, "that of the mean"),
        ({"theirs_standard_error": 0.0}, "published standard error"),
        ({"theirs_standard_error": None, "aa_sd": -0.1}, "A/A standard deviation"),
        ({"theirs_standard_error": None, "aa_sd": math.nan}, "A/A standard deviation"),
        ({"theirs_seeds": 0}, "at least one seed"),
    ],
)
def test_numbers_that_support_no_comparison_are_refused(changes, word):
    with pytest.raises(ParibusError, match=word):
        compared(-0.029, 0.002, -0.0301, **changes)
