"""Paired statistics against scipy, statsmodels and brute force."""

import itertools
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar

from paribus import seeds
from paribus.errors import ParibusError
from paribus.stats import paired
from paribus.stats.paired import PairedDifferences, paired_differences

# Values of a metric in steps of 1/1000, so that ties and zeros occur.
VALUES = st.lists(st.integers(-2000, 2000).map(lambda step: step / 1000), min_size=3, max_size=12)
VARIED = VALUES.filter(lambda values: max(values) - min(values) > 1e-3)


def arms(count: int, name: str) -> tuple[list[float], list[float]]:
    rng = seeds.generator("tests", "paired", count, "arms", name)
    baseline = 3 + rng.standard_normal(count)
    treatment = baseline + 0.3 + 0.5 * rng.standard_normal(count)
    return treatment.tolist(), baseline.tolist()


@pytest.mark.parametrize("count", [2, 3, 5, 8, 20])
def test_paired_t_and_interval_equal_scipy(count: int) -> None:
    treatment, baseline = arms(count, "t")
    differences = [t - b for t, b in zip(treatment, baseline, strict=True)]
    test = paired.paired_t(differences)
    reference = stats.ttest_rel(treatment, baseline)
    # Both are a few float64 operations; the p value goes through two implementations of the t distribution.
    assert test.t == pytest.approx(reference.statistic, rel=1e-12)
    assert test.p_two_sided == pytest.approx(reference.pvalue, rel=1e-9)
    assert test.degrees_of_freedom == reference.df
    for confidence in (0.9, 0.95, 0.99):
        low, high = paired.t_interval(differences, confidence)
        expected = reference.confidence_interval(confidence)
        assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-9)


@given(VARIED, st.sampled_from([0.9, 0.95, 0.975]))
@settings(max_examples=100, deadline=None)
def test_the_interval_excludes_zero_exactly_where_p_is_below_its_level(
    differences: list[float], confidence: float
) -> None:
    low, high = paired.t_interval(differences, confidence)
    p = paired.paired_t(differences).p_two_sided
    if abs(p - (1 - confidence)) > 1e-9:
        assert (low > 0 or high < 0) == (p < 1 - confidence)


@given(VARIED, st.floats(0.01, 3))
@settings(max_examples=100, deadline=None)
def test_equivalence_p_equals_two_one_sided_tests_and_the_90_percent_interval(
    differences: list[float], margin: float
) -> None:
    p = paired.equivalence_p(differences, margin)
    above: Any = stats.ttest_1samp(differences, -margin, alternative="greater")
    below: Any = stats.ttest_1samp(differences, margin, alternative="less")
    assert p == pytest.approx(max(above.pvalue, below.pvalue), rel=1e-9, abs=1e-15)
    low, high = paired.t_interval(differences, 0.9)
    if abs(p - 0.05) > 1e-9:
        assert (-margin < low and high < margin) == (p < 0.05)


def test_identical_differences_have_no_p_value() -> None:
    for differences in ((0.0, 0.0, 0.0), (0.1, 0.1, 0.1), (0.3,)):
        with pytest.raises(ParibusError, match="no information") as error:
            paired.paired_t(differences)
        assert "received" in str(error.value)
        assert "remedy" in str(error.value)


def test_differences_that_differ_by_rounding_only_are_constant() -> None:
    baseline = (3.1, 2.3, 1.7, 4.9)
    differences = tuple((value + 0.1) - value for value in baseline)
    assert len(set(differences)) > 1
    assert paired.constant(differences, magnitude=5.0)
    assert not paired.constant((0.1, 0.1 + 1e-12), magnitude=5.0)


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_sign_flip_p_equals_brute_force_in_integers(differences: list[float]) -> None:
    steps = [round(1000 * difference) for difference in differences]
    flips = [
        sum(s * d for s, d in zip(signs, steps, strict=True)) for signs in itertools.product((1, -1), repeat=len(steps))
    ]
    expected = sum(abs(flip) >= abs(sum(steps)) for flip in flips) / len(flips)
    assert paired.sign_flip_p(differences) == expected
    assert expected >= 2 / 2 ** len(differences)


def test_sign_flip_p_has_its_floor_where_every_seed_agrees() -> None:
    for count in (1, 2, 5, 8, 20):
        differences = [1.0 + index / 7 for index in range(count)]
        assert paired.sign_flip_p(differences) == 2 / 2**count
    assert paired.sign_flip_p([]) == 1.0


def test_sign_flip_above_twenty_seeds_draws_from_the_named_generator() -> None:
    rng = seeds.generator("tests", "paired", 0, "differences", "monte carlo")
    differences = tuple(0.3 + rng.standard_normal(21))
    with pytest.raises(ParibusError, match="generator"):
        paired.sign_flip_p(differences)
    drawn = [paired.sign_flip_p(differences, seeds.generator("tests", "flips")) for _ in range(2)]
    assert drawn[0] == drawn[1]
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    exact = float(np.mean(np.abs(sums) >= abs(sum(differences)) - 1e-12))
    # Four standard errors of a share of 99,999 draws.
    assert drawn[0] == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / paired.SIGN_FLIP_DRAWS))
    assert paired.sign_flip_p((1.0,) * 40, seeds.generator("tests", "flips")) >= 1 / 100_000


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 1), (0, 5), (1, 6), (7, 3), (12, 2)])
def test_mcnemar_equals_statsmodels(first: int, second: int) -> None:
    reference: Any = mcnemar([[10, first], [second, 3]], exact=True)
    assert paired.mcnemar_exact_p(first, second) == pytest.approx(reference.pvalue, rel=1e-12)


def test_mcnemar_without_discordant_pairs_is_one() -> None:
    assert paired.mcnemar_exact_p(0, 0) == 1.0


def test_wins_follow_the_direction_of_the_metric_and_ties_are_no_wins() -> None:
    pairs = PairedDifferences((1, 2, 3, 4), (-0.2, -0.1, 0.0, 0.3))
    assert paired.wins(pairs, -1) == 2
    assert paired.wins(pairs, +1) == 1


def test_pairing_by_seed_keeps_diverged_cells() -> None:
    pairs = paired_differences({3: 2.0, 1: 1.5, 2: None, 5: None, 9: 1.0}, {1: 1.0, 2: 1.0, 3: 2.5, 5: None})
    assert pairs.seeds == (1, 3)
    assert pairs.differences == (0.5, -0.5)
    assert pairs.treatment_diverged == (2, 5)
    assert pairs.baseline_diverged == (5,)
    assert pairs.diverged == (2, 5)
    assert pairs.pairs == 4


def test_a_diverged_cell_is_a_loss_for_its_arm_and_both_diverged_is_a_tie() -> None:
    pairs = PairedDifferences((1, 2), (-0.2, -0.5), treatment_diverged=(3, 5), baseline_diverged=(4, 5))
    assert sorted(paired.scored(pairs, -1)) == [-0.5, -0.5, -0.2, 0.0, 0.5]
    assert sorted(paired.scored(pairs, +1)) == [-0.5, -0.5, -0.2, 0.0, 0.5]
    assert paired.wins(pairs, -1) == 3
    assert paired.wins(PairedDifferences((1,), (-0.2,), treatment_diverged=(2, 3)), -1) == 1
    assert paired.wins(PairedDifferences((), (), baseline_diverged=(2, 3)), -1) == 2


def test_the_median_ranks_lost_seeds_last_and_leaves_out_ties() -> None:
    lost_one = PairedDifferences((1, 2, 4), (-0.2, -0.5, -0.1), treatment_diverged=(3,))
    assert paired.median_difference(lost_one, -1) == pytest.approx(-0.15)
    won_one = PairedDifferences((1, 2, 4), (-0.2, -0.5, -0.1), baseline_diverged=(3,))
    assert paired.median_difference(won_one, -1) == pytest.approx(-0.35)
    both = PairedDifferences((1, 2, 4), (-0.2, -0.5, -0.1), treatment_diverged=(3,), baseline_diverged=(3,))
    assert paired.median_difference(both, -1) == -0.2
    mostly_lost = PairedDifferences((1,), (-0.2,), treatment_diverged=(2, 3))
    assert paired.median_difference(mostly_lost, -1) is None
    assert paired.median_difference(PairedDifferences((), ()), -1) is None


def test_the_worst_seed_is_a_lost_one_or_the_largest_loss() -> None:
    assert paired.worst_seed(PairedDifferences((1, 2, 3), (-0.2, 0.4, 0.1)), -1) == (2, 0.4)
    assert paired.worst_seed(PairedDifferences((1, 2, 3), (-0.2, 0.4, 0.1)), +1) == (1, -0.2)
    assert paired.worst_seed(PairedDifferences((1,), (0.4,), treatment_diverged=(7, 5)), -1) == (5, None)
    assert paired.worst_seed(PairedDifferences((), (), (1,), (1,)), -1) is None


def test_correlation_and_unpaired_error_equal_their_formulas() -> None:
    treatment, baseline = arms(8, "correlation")
    assert paired.pair_correlation(treatment, baseline) == pytest.approx(stats.pearsonr(treatment, baseline)[0])
    unpaired: Any = stats.ttest_ind(treatment, baseline, equal_var=False)
    expected = (np.mean(treatment) - np.mean(baseline)) / unpaired.statistic
    assert paired.unpaired_standard_error(treatment, baseline) == pytest.approx(expected, rel=1e-12)
    assert paired.pair_correlation((1.0, 2.0), (1.0, 2.0)) is None
    assert paired.pair_correlation((1.0, 2.0, 3.0), (1.0, 1.0, 1.0)) is None
    assert paired.unpaired_standard_error((1.0,), (2.0,)) is None


@pytest.mark.parametrize(
    "build",
    [
        lambda: PairedDifferences((1, 2), (0.1,)),
        lambda: PairedDifferences((1, 1), (0.1, 0.2)),
        lambda: PairedDifferences((1, 2), (0.1, 0.2), treatment_diverged=(2,)),
        lambda: PairedDifferences((1,), (0.1,), baseline_diverged=(2, 2)),
        lambda: PairedDifferences((1, 2), (0.1, math.nan)),
        lambda: PairedDifferences((1, 2), (0.1, math.inf)),
        lambda: paired_differences({1: math.nan}, {1: 1.0}),
    ],
)
def test_pairs_that_cannot_be_are_refused_with_a_remedy(build: object) -> None:
    assert callable(build)
    with pytest.raises(ParibusError) as error:
        build()
    assert error.value.expected
    assert error.value.received
    assert error.value.remedy


def test_importing_the_statistics_loads_neither_torch_nor_scipy_special() -> None:
    code = "import sys, paribus.stats.verdict; print({'torch', 'scipy.special', 'statsmodels'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
