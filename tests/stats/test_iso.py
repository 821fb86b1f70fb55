"""Iso-step, iso-FLOP and iso-time against closed forms, scipy and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.forms import Array
from paribus.stats.iso import IsoComparison, iso_comparison
from paribus.stats.multiplier import baseline_and_gap, compute_multiplier
from paribus.stats.rule import Word
from paribus.stats.step_ratio import StepRatio, step_ratio

BUDGETS = np.array([1e8, 2e8, 4e8, 8e8])


def noise(name: str, shape: tuple[int, ...], sd: float = 1.0) -> Array:
    return sd * generator("tests", "iso", 0, "noise", name).standard_normal(shape)


def losses(name: str, seeds: int = 5, sd: float = 0.002, gain: float = 0.03) -> tuple[Array, Array]:
    """a + b ln B with b = -0.2 and a seed effect that both arms share."""
    shared, base, treat = noise(name, (3, seeds, 4), sd)
    baseline = 3 - 0.2 * np.log(BUDGETS / 1e8) + 3 * shared[:, :1] + base
    return baseline, baseline - gain + treat


def measured(ratio: float, se_log_ratio: float = 0.0) -> StepRatio:
    log = math.log(ratio)
    return StepRatio(20, log, se_log_ratio, (log - 2 * se_log_ratio, log + 2 * se_log_ratio))


def logarithmic_slopes(baseline: Array) -> Array:
    return np.polynomial.polynomial.polyfit(np.log(BUDGETS), baseline.T, 1)[1]


def test_each_view_is_the_gap_by_seed_plus_what_the_baseline_gains_over_the_ratio() -> None:
    baseline, treatment = losses("by hand")
    found = iso_comparison(BUDGETS, baseline, treatment, flop_ratio=1.02, step_time=measured(1.1))
    gaps = (treatment - baseline)[:, -1]
    for view, ratio in ((found.flops, 1.02), (found.time, 1.1)):
        by_seed = gaps - logarithmic_slopes(baseline) * math.log(ratio)  # D + L(B) - L(rB) with L = a + b ln B
        reference = stats.ttest_1samp(by_seed, 0).confidence_interval(0.95)
        assert view.by_form[-1].form == "a + b ln B"
        assert view.by_form[-1].mean == pytest.approx(by_seed.mean(), rel=1e-9)
        assert view.by_form[-1].interval == pytest.approx(tuple(reference), rel=1e-9)
        lows, highs = zip(*(form.interval for form in view.by_form if form.interval), strict=True)
        assert view.interval == (min(lows), max(highs))
    reference = stats.ttest_rel(treatment[:, -1], baseline[:, -1]).confidence_interval(0.95)
    assert found.steps.interval == pytest.approx(tuple(reference), rel=1e-9)


def test_at_a_ratio_of_one_every_view_is_iso_step() -> None:
    found = iso_comparison(BUDGETS, *losses("one"), flop_ratio=1.0, step_time=measured(1.0))
    for view in (found.flops, found.time):
        assert view.mean == pytest.approx(found.steps.mean, abs=1e-15)
        assert view.interval == pytest.approx(found.steps.interval, abs=1e-15)


def test_the_variance_of_the_measured_ratio_is_added_by_the_delta_method() -> None:
    baseline, treatment = losses("delta")
    se = 0.02
    exact = iso_comparison(BUDGETS, baseline, treatment, step_time=measured(1.1)).time.by_form[-1]
    noisy = iso_comparison(BUDGETS, baseline, treatment, step_time=measured(1.1, se)).time.by_form[-1]
    slopes = logarithmic_slopes(baseline)
    by_seed = (treatment - baseline)[:, -1] - slopes * math.log(1.1)
    variance = by_seed.var(ddof=1) / 5 + (slopes.mean() * se) ** 2
    half = stats.t.ppf(0.975, 4) * math.sqrt(variance)
    assert noisy.interval == pytest.approx((by_seed.mean() - half, by_seed.mean() + half), rel=1e-9)
    assert noisy.mean == exact.mean


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(-5, 5), st.floats(0.8, 1.5))
def test_what_both_arms_of_a_seed_share_cancels(seed: int, shift: float, ratio: float) -> None:
    baseline, treatment = losses(f"shared {seed}")
    offset = shift * generator("tests", "iso", seed, "noise", "offset").standard_normal((5, 1))
    one, other = (baseline_and_gap(BUDGETS, baseline + moved, treatment + moved, None, None) for moved in (0.0, offset))
    log_ratio = np.array([math.log(ratio)])
    # a + b ln B, the last form, is linear: what is left is the rounding of losses below 30.
    expected = one.excess(one.curves.fits[-1], log_ratio)
    np.testing.assert_allclose(other.excess(other.curves.fits[-1], log_ratio), expected, atol=1e-12)


def test_the_break_even_overhead_is_the_multiplier_and_there_the_gain_is_gone() -> None:
    baseline, treatment = losses("break-even", sd=0.005)
    found = iso_comparison(BUDGETS, baseline, treatment)
    multiplier = compute_multiplier(BUDGETS, baseline, treatment)
    assert found.break_even.log_multiplier == multiplier.log_multiplier
    assert found.break_even.log_interval == multiplier.log_interval
    for index, form in enumerate(multiplier.by_form):
        assert form.log_multiplier is not None
        gone = iso_comparison(BUDGETS, baseline, treatment, flop_ratio=math.exp(form.log_multiplier)).flops
        assert gone.by_form[index].mean == pytest.approx(0, abs=1e-11)  # brentq stops within 2e-12 of the root
        for bound, side in zip(form.log_interval, (1, 0), strict=True):
            assert bound is not None
            edge = iso_comparison(BUDGETS, baseline, treatment, flop_ratio=math.exp(bound)).flops.by_form[index]
            assert edge.interval is not None
            # At the ends of Fieller's interval the iso interval touches 0.
            assert edge.interval[side] == pytest.approx(0, abs=1e-11)


def test_a_mechanism_that_wins_per_step_and_loses_per_second_is_reported_as_both() -> None:
    found = iso_comparison(BUDGETS, *losses("both"), flop_ratio=1.001, step_time=measured(1.4, 0.005))
    assert (found.steps.side, found.flops.side, found.time.side) == (-1, -1, 1)
    assert "The interval lies below 0 at equal steps and lies above 0 at equal time: both stand." in found.sentence
    assert found.sentence.count("both stand") == 1  # FLOPs agree with steps
    steps, flops, time = found.sentence.split("Equal ")[1:]
    assert "; the interval lies below 0." in steps
    assert "; the interval lies below 0." in flops
    assert "; the interval lies above 0." in time
    assert "Equal steps: \N{MINUS SIGN}0.03" in found.sentence
    assert "Equal time (1.4x per step): +0.03" in found.sentence
    assert "Break-even: the difference vanishes where a step costs +1" in found.sentence  # e^0.15 = 1.16


def test_a_mechanism_that_loses_per_step_and_wins_per_second_is_reported_as_both() -> None:
    found = iso_comparison(BUDGETS, *losses("cheap", gain=-0.03), step_time=measured(0.7, 0.005))
    assert (found.steps.side, found.time.side) == (1, -1)
    assert "The interval lies above 0 at equal steps and lies below 0 at equal time: both stand." in found.sentence
    assert found.break_even.multiplier is not None
    assert found.break_even.multiplier < 1


def test_of_an_interval_that_holds_0_just_that_is_said() -> None:
    found = iso_comparison(BUDGETS, *losses("unclear", sd=0.02), step_time=measured(1.16))
    assert found.time.side == 0
    assert "; the interval holds 0." in found.sentence
    assert "both stand" not in found.sentence


def test_without_budget_cells_iso_step_stands_and_the_rest_is_refused() -> None:
    baseline, treatment = (table[:, -1:] for table in losses("no budgets"))
    found = iso_comparison([8e8], baseline, treatment, flop_ratio=1.02, step_time=measured(1.1))
    assert "need a baseline at 3 budgets or more whose cells each finished their own schedule" in found.refusal
    assert found.flops.refusal == found.time.refusal == found.break_even.refusal == found.refusal
    reference = stats.ttest_rel(treatment[:, 0], baseline[:, 0]).confidence_interval(0.95)
    assert found.steps.interval == pytest.approx(tuple(reference), rel=1e-9)
    assert found.sentence.startswith("Equal steps: ")
    assert found.sentence.endswith("iso-step still stands.")


def test_iso_step_keeps_the_seeds_whose_baseline_has_no_curve() -> None:
    baseline, treatment = losses("more seeds", seeds=8)
    baseline[5:, :3] = np.nan
    found = iso_comparison(BUDGETS, baseline, treatment, step_time=measured(1.1))
    assert (found.steps.seeds, found.time.seeds) == (8, 5)
    assert found.steps.mean == pytest.approx((treatment - baseline)[:, -1].mean())
    assert any("seed 5, 6, 7 left out" in note for note in found.notes)


def test_a_ratio_that_leads_beyond_the_budgets_is_refused_alone() -> None:
    found = iso_comparison(BUDGETS, *losses("far"), flop_ratio=1.02, step_time=measured(4.5))
    assert "nothing is extrapolated that far" in found.time.refusal
    assert found.time.mean is None
    assert found.flops.mean is not None
    assert "Equal time: not known (3,600,000,000 tokens lie beyond" in found.sentence


def test_a_ratio_that_was_not_measured_is_said() -> None:
    found = iso_comparison(BUDGETS, *losses("unmeasured"))
    assert "not measured in mirrored blocks" in found.time.refusal
    assert "were not given" in found.flops.refusal
    assert found.break_even.multiplier is not None
    refused = step_ratio(np.ones((4, 2)), 0, 1)
    assert iso_comparison(BUDGETS, *losses("unmeasured"), step_time=refused).time.refusal == refused.refusal


def test_a_ratio_of_flops_that_is_not_positive_is_an_error() -> None:
    with pytest.raises(ParibusError, match="not a positive number"):
        iso_comparison(BUDGETS, *losses("bad"), flop_ratio=0.0)


def test_the_local_curve_is_the_one_of_the_seeds_that_have_the_gap() -> None:
    baseline, treatment = losses("same seeds", seeds=6)
    treatment[2, -1] = np.nan
    pair = baseline_and_gap(BUDGETS, baseline, treatment, None, None)
    assert pair.curves.seeds == (0, 1, 3, 4, 5)
    np.testing.assert_array_equal(pair.gaps, (treatment - baseline)[[0, 1, 3, 4, 5], -1])


def test_no_sentence_uses_a_verdict_word() -> None:
    found: list[IsoComparison] = [
        iso_comparison(BUDGETS, *losses("a"), flop_ratio=1.02, step_time=measured(1.4)),
        iso_comparison(BUDGETS, *losses("c", gain=-0.03), step_time=measured(0.7)),
        iso_comparison(BUDGETS, *losses("b", sd=0.1)),
        iso_comparison([8e8], np.array([[1.0], [2.0]]), np.array([[1.5], [2.0]])),
    ]
    for word in (*(word.value for word in Word), "gain", "loss", "lose", "win"):
        assert not any(word in comparison.sentence for comparison in found)


def test_iso_time_covers_the_truth_with_a_measured_ratio() -> None:
    studies, covered = 200, 0
    draws = generator("tests", "iso", 0, "noise", "coverage")
    truth = -0.03 + 0.2 * math.log(1.1)
    for _ in range(studies):
        shared, base, treat = 0.005 * draws.standard_normal((3, 5, 4))
        baseline = 3 - 0.2 * np.log(BUDGETS / 1e8) + shared[:, :1] + base
        ratio = 1.1 * math.exp(0.005 * draws.standard_normal())
        view = iso_comparison(BUDGETS, baseline, baseline - 0.03 + treat, step_time=measured(ratio, 0.005)).time
        assert view.interval is not None
        covered += view.interval[0] <= truth <= view.interval[1]
    assert covered >= 0.92 * studies  # two standard errors below 95 % of 200
