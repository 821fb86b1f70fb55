"""Power against published check values, scipy, statsmodels and simulation."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from paribus.seeds import generator
from paribus.stats import power
from paribus.stats.design import SIMULATED_STUDIES, design_power, two_stage_power
from paribus.stats.paired import paired_t


@pytest.mark.parametrize(
    ("seeds", "effect_sd"), [(3, 3.26), (4, 2.13), (5, 1.68), (6, 1.43), (8, 1.16), (10, 1.00), (16, 0.75), (20, 0.66)]
)
def test_minimum_detectable_effect_has_the_tabulated_value(seeds: int, effect_sd: float) -> None:
    assert power.minimum_detectable_effect_sd(seeds) == pytest.approx(effect_sd, abs=0.005)  # tabulated to 2 decimals


@pytest.mark.parametrize("seeds", [3, 5, 8, 20])
@pytest.mark.parametrize("effect_sd", [0.1, 0.7, 1.5])
def test_t_power_equals_statsmodels_and_does_not_depend_on_the_sign(seeds: int, effect_sd: float) -> None:
    reference = TTestPower().power(effect_sd, seeds, 0.05, alternative="two-sided")
    assert power.t_power(seeds, effect_sd) == pytest.approx(reference, rel=1e-8)
    assert power.t_power(seeds, -effect_sd) == power.t_power(seeds, effect_sd)


@pytest.mark.parametrize("seeds", [2, 3, 5, 40, 400])
def test_without_a_margin_the_rule_is_the_non_central_t(seeds: int) -> None:
    critical = stats.t.ppf(0.975, seeds - 1)
    for effect_sd in (0.1, 1.0, 3.0):
        reference = stats.nct.sf(critical, seeds - 1, effect_sd * math.sqrt(seeds))
        assert power.rule_power(seeds, effect_sd, 1e-12) == pytest.approx(reference, rel=1e-9)


def test_the_rule_at_the_margin_never_exceeds_one_half() -> None:
    for seeds in (3, 5, 8, 30, 300):
        for margin_sd in (0.1, 1.0, 2.0, 10.0):
            assert power.rule_power(seeds, margin_sd, margin_sd) <= 0.5 + 1e-12  # the integral's own error


@pytest.mark.parametrize(
    ("ratio", "margin_sd", "expected"), [(1.0, 1.0, 0.33), (1.0, 2.0, 0.49), (1.5, 1.0, 0.68), (1.5, 2.0, 0.99)]
)
def test_power_of_the_rule_has_the_values_of_the_rules(ratio: float, margin_sd: float, expected: float) -> None:
    # The rules give simulated values to one percent.
    assert power.rule_power(5, ratio * margin_sd, margin_sd) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(("margin_sd", "expected"), [(0.5, 0.02), (1.0, 0.30), (1.5, 0.74), (2.0, 0.95)])
def test_power_of_equivalence_has_the_values_of_the_rules(margin_sd: float, expected: float) -> None:
    assert power.equivalence_power(5, margin_sd) == pytest.approx(expected, abs=0.0075)


def test_power_of_each_word_agrees_with_simulation() -> None:
    seeds, effect_sd, margin_sd, studies = 5, 0.8, 1.1, 40_000
    differences = effect_sd + generator("tests", "power", seeds, "differences", "words").standard_normal(
        (studies, seeds)
    )
    mean, error = differences.mean(1), differences.std(1, ddof=1) / math.sqrt(seeds)
    not_zero = np.abs(mean) > stats.t.ppf(0.975, seeds - 1) * error
    equivalent = np.abs(mean) + stats.t.ppf(0.95, seeds - 1) * error < margin_sd
    for found, expected in (
        (not_zero & (mean >= margin_sd), power.rule_power(seeds, effect_sd, margin_sd)),
        (not_zero & (np.abs(mean) < margin_sd), power.below_margin_power(seeds, effect_sd, margin_sd)),
        (equivalent, power.equivalence_power(seeds, margin_sd, effect_sd)),
    ):
        # Four binomial standard errors.
        assert found.mean() == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / studies))


@pytest.mark.parametrize("effect_sd", [0.0, 0.3, 1.2])
def test_words_that_claim_no_direction_do_not_depend_on_the_sign(effect_sd: float) -> None:
    below = [power.below_margin_power(5, sign * effect_sd, 1.5) for sign in (1, -1)]
    equivalent = [power.equivalence_power(5, 1.5, sign * effect_sd) for sign in (1, -1)]
    assert below[0] == pytest.approx(below[1], rel=1e-9)
    assert equivalent[0] == pytest.approx(equivalent[1], rel=1e-9)
    if effect_sd == 0:  # every rejection under the null, less the few beyond the margin
        beyond = 2 * power.rule_power(5, 0.0, 1.5)
        assert below[0] == pytest.approx(0.05 - beyond, rel=1e-9)


@pytest.mark.parametrize("seeds", [3, 4, 5, 6, 7, 8, 9, 10])
def test_up_to_eight_seeds_no_rejected_mean_has_a_median_of_the_other_sign(seeds: int) -> None:
    # t is largest where all that the median leaves free is equal and far above 0, and the rest just below it.
    free = (seeds - 1) // 2
    largest = paired_t((1.0,) * free + (-1e-9,) * (seeds - free)).t
    assert (largest < stats.t.ppf(0.975, seeds - 1)) == (seeds <= 8)


def test_seeds_needed_is_the_first_number_with_that_power() -> None:
    for effect_sd, margin_sd in ((1.5, 1.0), (1.0, 0.5), (0.4, 0.1)):
        needed = power.seeds_needed(effect_sd, margin_sd)
        assert needed is not None
        assert (
            power.rule_power(needed, effect_sd, margin_sd) >= 0.8 > power.rule_power(needed - 1, effect_sd, margin_sd)
        )
    needed = power.seeds_needed_for_equivalence(1.0)
    assert needed is not None
    assert power.equivalence_power(needed, 1.0) >= 0.8 > power.equivalence_power(needed - 1, 1.0)
    assert power.seeds_needed(1.0, 1.0) is None
    assert power.seeds_needed_for_equivalence(0.001, max_seeds=100) is None


def test_the_equivalence_margin_has_the_power_asked_for() -> None:
    for seeds in (3, 5, 8):
        assert power.equivalence_power(seeds, power.equivalence_margin_sd(seeds)) == pytest.approx(0.8, abs=1e-9)


def test_seeds_to_settle_asks_for_the_word_that_the_estimate_points_to() -> None:
    above = power.seeds_to_settle(5, -1.0, 0.5)
    assert above == power.seeds_needed(1.0, 0.5)
    inside = power.seeds_to_settle(5, 0.0, 1.0)
    assert inside == power.seeds_needed_for_equivalence(1.0)
    real = power.seeds_to_settle(5, 1.2, 2.0)
    assert real is not None
    assert power.below_margin_power(real, 1.2, 2.0) >= 0.8 > power.below_margin_power(real - 1, 1.2, 2.0)
    assert power.seeds_to_settle(5, 1.0, 1.0) is None
    assert power.seeds_to_settle(100, 5.0, 1.0) is None
    # A narrower level asks for more seeds.
    strict = power.seeds_to_settle(5, 0.0, 1.0, equivalence_confidence=0.95)
    assert inside is not None
    assert strict is not None
    assert strict > inside


def test_the_three_sds_are_the_estimate_its_upper_bound_and_its_double() -> None:
    three = power.sd_scenarios(0.01, 5)
    assert three.estimate == 0.01
    assert three.upper_80 == pytest.approx(0.01 * math.sqrt(4 / stats.chi2.ppf(0.2, 4)))
    assert three.upper_80 == pytest.approx(0.0156, abs=0.00005)
    assert three.doubled == 0.02


def test_a_plan_of_two_seeds_is_exploratory_only() -> None:
    for seeds in (1, 2):
        sentences = power.cannot_conclude(seeds, 0.003, 0.01, 0.001)
        assert len(sentences) == 1
        assert "exploratory" in sentences[0]


def test_a_plan_without_an_sd_says_how_small_it_must_be() -> None:
    text = " ".join(power.cannot_conclude(5, 0.003, 0.01))
    assert "at most 50 %" in text
    assert "at least 1.60 sd of the paired difference: an sd of at most 0.00187" in text
    largest_sd = 0.00594
    assert f"at most {largest_sd}" in text
    assert power.rule_power(5, 0.01 / largest_sd, 0.003 / largest_sd) == pytest.approx(0.8, abs=0.001)  # 3 digits
    assert "0.0625" in text


def test_a_plan_with_an_sd_names_power_and_the_seeds_that_it_needs() -> None:
    estimated = power.cannot_conclude(5, 0.003, 0.01, 0.008, sd_seeds=5)
    assert any(
        "the estimated sd 0.008 (from 5 pairs)" in s and "56 % of studies" in s and "8 seeds" in s for s in estimated
    )
    assert any("80 % upper bound of the sd (0.0125)" in s for s in estimated)
    assert any("twice the estimated sd (0.016)" in s for s in estimated)
    assert any("cannot conclude equivalence at 5 seeds" in s and "80 % needs 63 seeds" in s for s in estimated)
    assert any("an assumed sd of 0.008" in s for s in power.cannot_conclude(5, 0.003, 0.01, 0.008))
    assert any("no practical number" in s for s in power.cannot_conclude(5, 0.003, 0.01, 1.0))


def test_a_plan_with_power_to_spare_names_only_the_limit_at_the_margin() -> None:
    sentences = power.cannot_conclude(8, 0.003, 0.01, 0.0005, sd_seeds=8)
    assert len(sentences) == 1
    assert "at most 50 %" in sentences[0]


@pytest.mark.parametrize("seeds", [3, 5, 8])
@pytest.mark.parametrize("margin_sd", [1e-9, 0.5, 2.0])
def test_the_effect_seen_has_the_power_asked_for_and_lies_above_the_margin(seeds: int, margin_sd: float) -> None:
    seen = power.seen_effect_sd(seeds, margin_sd)
    assert power.rule_power(seeds, seen, margin_sd) == pytest.approx(0.8, abs=1e-9)
    assert seen > margin_sd
    if margin_sd < 1e-6:  # then only a rejection in the wrong direction tells it from the t test
        assert seen == pytest.approx(power.minimum_detectable_effect_sd(seeds), rel=1e-3)


def test_a_stricter_level_lowers_every_power_and_asks_for_more_seeds() -> None:
    usual, strict = (design_power(5, 0.01, 0.03, 0.014, confidence) for confidence in (0.95, 0.99))
    assert strict.at_design_effect < usual.at_design_effect
    assert strict.equivalence < usual.equivalence
    assert strict.seen_effect > usual.seen_effect
    assert usual.seeds_for_design_effect is not None
    assert strict.seeds_for_design_effect is not None
    assert strict.seeds_for_design_effect > usual.seeds_for_design_effect
    sentences = [power.cannot_conclude(5, 0.01, 0.03, confidence=confidence) for confidence in (0.95, 0.99)]
    assert sentences[0] != sentences[1]
    assert power.cannot_conclude(5, 0.01, 0.03) == sentences[0]


def test_a_design_does_not_depend_on_the_unit() -> None:
    nats, millinats = design_power(5, 0.01, 0.03, 0.014), design_power(5, 10, 30, 14)
    assert millinats.seen_effect == pytest.approx(1000 * nats.seen_effect)
    assert millinats.seen_effect_sd == pytest.approx(nats.seen_effect_sd)
    assert millinats.at_design_effect == pytest.approx(nats.at_design_effect)
    assert millinats.seeds_for_equivalence == nats.seeds_for_equivalence


@pytest.mark.parametrize("effect_sd", [0.5, 1.5])
def test_two_stages_find_what_their_combined_p_value_finds(effect_sd: float) -> None:
    """Studies drawn and tested one by one, each stage's t and its normal score by scipy."""
    rng, studies, found = generator("tests", "power", 8, "two stages", f"{effect_sd}"), 2_000, 0
    for gains in rng.standard_normal((studies, 8)) + effect_sd:
        t = [part.mean() / stats.sem(part) for part in (gains[:5], gains[5:])]
        p = [float(stats.t.sf(t[0], 4)), float(stats.t.sf(t[1], 2))]
        stage_1 = p[0] < 0.005 and gains[:5].mean() >= 0.4
        z = (stats.norm.isf(p[0]) + stats.norm.isf(p[1])) / math.sqrt(2)
        found += bool(stage_1 or (z > 2.005 and gains.mean() >= 0.4))
    share = two_stage_power(5, 8, effect_sd, 0.4, 0.01)
    error = math.sqrt(share * (1 - share) * (1 / studies + 1 / SIMULATED_STUDIES))
    assert found / studies == pytest.approx(share, abs=4 * error)
    assert share > power.rule_power(5, effect_sd, 0.4, 0.99)
