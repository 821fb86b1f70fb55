"""The compute multiplier against exact laws, brute-force test inversion, scipy and simulated coverage."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.fieller import fieller
from paribus.stats.forms import Array
from paribus.stats.multiplier import baseline_and_gap, clearly_falls, compute_multiplier
from paribus.stats.multiplier_interaction import multiplier_interaction
from paribus.stats.rule import Word

BUDGETS = np.array([1e8, 2e8, 4e8, 8e8])
FLOOR_NAME, LOG_NAME = "c_inf + c B^-g", "a + b ln B"


def noise(name: str, shape: tuple[int, ...], sd: float = 1.0) -> Array:
    return sd * generator("tests", "multiplier", 0, "noise", name).standard_normal(shape)


def t_test_p(values: Array) -> Array:
    """Over the first axis."""
    return np.asarray(stats.ttest_1samp(values, 0)[1])


def losses(
    name: str, seeds: int, sd: float, *, slope: float = -0.2, gain: float = 0.03, budgets: Array = BUDGETS
) -> tuple[Array, Array]:
    """Baseline and treatment [seed budget] under a + b ln B, with a seed effect that both share."""
    shared, base, treat = noise(name, (3, seeds, len(budgets)), sd)
    baseline = 3 + slope * np.log(budgets / 1e8) + 3 * shared[:, :1] + base
    return baseline, baseline - gain + treat


def unlogged(bound: float | None) -> float | None:
    return None if bound is None else math.exp(bound)


def test_on_a_law_without_noise_every_seed_gives_the_multiplier_that_made_its_treatment() -> None:
    draws = generator("tests", "multiplier", 0, "parameters", "exact")
    floor, c, g = draws.uniform(1, 2, 6), draws.uniform(1, 2, 6), draws.uniform(0.1, 0.4, 6)
    m = draws.uniform(0.8, 2.0, 6)

    def law(budgets: Array) -> Array:
        return floor[:, None] + c[:, None] * (budgets / 1e8) ** -g[:, None]

    treatment = np.diag(law(8e8 * m))[:, None] * np.array([np.nan, np.nan, np.nan, 1.0])
    found = compute_multiplier(BUDGETS, law(BUDGETS), treatment)
    form = next(form for form in found.by_form if form.form == FLOOR_NAME)
    np.testing.assert_allclose(form.by_seed, np.log(m), rtol=1e-6)
    # The mean gap against the mean of the curves, by bisection
    target, low, high = np.diag(law(8e8 * m)).mean(), -3.0, 1.3
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if law(np.array([8e8 * math.exp(middle)])).mean() > target else (low, middle)
    assert form.log_multiplier == pytest.approx(low, abs=1e-7)


def test_fieller_is_the_set_that_a_paired_t_test_does_not_reject() -> None:
    numerators, denominators = noise("brute", (2, 6)) * 0.3 + np.array([[-0.5], [-1.0]])
    found = fieller(numerators, denominators)
    assert found.kind == "bounded"
    assert found.estimate == pytest.approx(numerators.mean() / denominators.mean())
    for bound in (found.low, found.high):
        assert bound is not None
        assert t_test_p(numerators - bound * denominators) == pytest.approx(0.05, abs=1e-9)
    grid = np.linspace(-5, 5, 2001)
    kept = t_test_p(numerators[:, None] - grid * denominators[:, None]) >= 0.05
    assert found.low is not None
    assert found.high is not None
    np.testing.assert_array_equal(kept, (grid >= found.low) & (grid <= found.high))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 100_000), st.integers(3, 9), st.floats(0, 3), st.floats(0, 3))
def test_fieller_names_the_shape_of_the_set(seed: int, seeds: int, numerator: float, denominator: float) -> None:
    n, d = generator("tests", "multiplier", seed, "noise", "shape").standard_normal((2, seeds))
    n, d = n + numerator, d + denominator
    found = fieller(n, d)
    # theta = tan(angle) covers the whole line, its ends included
    angles = np.linspace(-np.pi / 2, np.pi / 2, 4001)
    kept = t_test_p(n[:, None] * np.cos(angles) - d[:, None] * np.sin(angles)) >= 0.05
    if found.kind == "everything":
        assert kept.all()
    else:
        assert bool(kept[0]) is (found.kind == "complement")
        assert bool(kept[-1]) is (found.kind == "complement")
    bounded = t_test_p(d) < 0.05
    assert (found.kind == "bounded") is bool(bounded)
    assert (found.low is None) is (found.high is None) is not bounded


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.9])
@pytest.mark.parametrize(("denominator_sd", "least_bounded", "most_bounded"), [(0.2, 0.999, 1.0), (2.0, 0.0, 0.3)])
def test_fieller_covers_95_percent_and_is_unbounded_where_the_slope_has_no_power(
    correlation: float, denominator_sd: float, least_bounded: float, most_bounded: float
) -> None:
    studies, ratio = 4000, 0.15
    draws = generator("tests", "multiplier", 0, "noise", f"coverage {correlation}").standard_normal((studies, 2, 5))
    d = -1 + denominator_sd * draws[:, 0]
    n = -ratio + 0.1 * (correlation * draws[:, 0] + math.sqrt(1 - correlation**2) * draws[:, 1])
    covered = bounded = 0
    for one, other in zip(n, d, strict=True):
        found = fieller(one, other)
        bounded += found.kind == "bounded"
        # A set that is not bounded is reported as the whole line.
        covered += found.low is None or found.high is None or found.low <= ratio <= found.high
    assert least_bounded <= bounded / studies <= most_bounded
    if least_bounded:
        assert 0.94 <= covered / studies <= 0.96  # three standard errors of 4,000 studies
    else:
        assert covered / studies >= 0.94


def test_under_a_logarithmic_curve_the_inverted_test_is_fieller_in_closed_form() -> None:
    baseline, treatment = losses("closed", 5, 0.005)
    form = compute_multiplier(BUDGETS, baseline, treatment).by_form[-1]
    slopes = np.polynomial.polynomial.polyfit(np.log(BUDGETS), baseline.T, 1)[1]
    reference = fieller((treatment - baseline)[:, -1], slopes)
    assert form.form == LOG_NAME
    assert form.log_multiplier == pytest.approx(reference.estimate, rel=1e-9)
    assert form.log_interval == pytest.approx((reference.low, reference.high), rel=1e-9)
    assert form.local.low == pytest.approx(reference.low, rel=1e-9)


def test_under_the_other_forms_it_is_what_a_t_test_on_their_curves_does_not_reject() -> None:
    baseline, treatment = losses("inverted", 5, 0.01)
    pair = baseline_and_gap(BUDGETS, baseline, treatment, None, None)
    found = compute_multiplier(BUDGETS, baseline, treatment)
    for fit, form in zip(pair.curves.usable, found.by_form, strict=True):
        thetas = np.linspace(-1.3, 1.3, 5201)
        moved = fit.at(8e8 * np.exp(thetas)) - fit.at(8e8)
        kept = thetas[t_test_p((treatment - baseline)[:, -1:] - moved) >= 0.05]
        assert form.log_interval == pytest.approx((kept[0], kept[-1]), abs=0.001)  # two steps of the scan


def test_the_interval_is_the_envelope_of_the_forms_and_the_estimate_lies_among_theirs() -> None:
    found = compute_multiplier(BUDGETS, *losses("envelope", 5, 0.01))
    assert len(found.by_form) == 3
    lows, highs = zip(*(form.log_interval for form in found.by_form), strict=True)
    assert found.log_interval == (min(lows), max(highs))
    points = [form.log_multiplier for form in found.by_form if form.log_multiplier is not None]
    assert found.log_multiplier == pytest.approx((min(points) + max(points)) / 2)
    assert found.multiplier == pytest.approx(math.exp(found.log_multiplier or math.nan))
    assert found.interval == tuple(unlogged(bound) for bound in found.log_interval)
    assert f"{found.multiplier:.3g}x the budget (95 % interval" in found.sentence


def test_the_truth_is_covered_with_moderate_noise() -> None:
    covered, studies = 0, 250
    errors = generator("tests", "multiplier", 0, "noise", "studies").standard_normal((studies, 3, 5, 4))
    truth = 0.03 / 0.2
    for shared, base, treat in 0.01 * errors:
        baseline = 3 - 0.2 * np.log(BUDGETS / 1e8) + shared[:, :1] + base
        found = compute_multiplier(BUDGETS, baseline, baseline - 0.03 + treat)
        low, high = found.log_interval
        covered += (low is None or low <= truth) and (high is None or truth <= high)
    assert covered >= 0.92 * studies  # two standard errors below 95 % of 250


def test_a_slope_that_is_not_clearly_below_0_leaves_the_multiplier_unbounded_on_both_sides() -> None:
    found = compute_multiplier(BUDGETS, *losses("flat", 5, 0.2, slope=-0.02))
    assert not found.refusal
    assert found.log_interval == found.interval == (None, None)
    assert found.multiplier is None
    assert "do not bound" in found.sentence
    assert "not bounded on either side" in found.sentence


def test_a_loss_that_rises_with_the_budget_has_no_multiplier() -> None:
    found = compute_multiplier(BUDGETS, *losses("rising", 5, 0.002, slope=0.2))
    assert found.log_interval == (None, None)
    assert found.multiplier is None
    assert all(np.isnan(form.by_seed).all() for form in found.by_form)


def test_beyond_four_times_the_largest_budget_only_a_bound_is_given() -> None:
    gain = compute_multiplier(BUDGETS, *losses("far", 5, 0.002, gain=0.5))
    assert gain.multiplier is None
    assert gain.interval[0] == pytest.approx(4.0)
    assert gain.interval[1] is None
    assert "more than 4x the budget" in gain.sentence
    assert "at least 4x, not bounded above" in gain.sentence
    harm = compute_multiplier(BUDGETS, *losses("far", 5, 0.002, gain=-0.8))
    assert "less than 0.0312x the budget" in harm.sentence  # a quarter of the smallest: 1/32 of the largest
    assert harm.interval == (None, pytest.approx(1 / 32))


def test_where_one_form_leads_beyond_the_range_and_another_does_not_there_is_no_estimate() -> None:
    found = compute_multiplier(BUDGETS, *losses("some form", 5, 0.002, gain=0.275))  # e^(0.275 / 0.2) = 3.95
    assert {form.form: form.beyond for form in found.by_form} == {FLOOR_NAME: 1, LOG_NAME: 0}
    assert next(form for form in found.by_form if form.form == LOG_NAME).log_multiplier is not None
    assert found.log_multiplier is None
    assert found.multiplier is None
    assert "a multiple of the budget that some form puts outside 0.0312x to 4x" in found.sentence


def test_a_bound_beyond_the_range_is_open_on_its_side_alone() -> None:
    found = compute_multiplier(BUDGETS, *losses("one side", 4, 0.02, gain=0.2))
    assert found.multiplier is not None
    low, high = found.interval
    assert low is not None
    assert 1 < low < found.multiplier
    assert high is None
    assert f"at least {low:.3g}x, not bounded above" in found.sentence
    # At the smallest budget the curve may be used down to a quarter of it.
    harm = compute_multiplier(BUDGETS, *losses("one side", 4, 0.02, gain=-0.24), at_tokens=1e8)
    assert harm.multiplier is not None
    low, high = harm.interval
    assert low is None
    assert high is not None
    assert harm.multiplier < high < 1
    assert f"at most {high:.3g}x, not bounded below" in harm.sentence


def test_a_loss_below_the_floor_of_a_seed_is_never_reached_by_it() -> None:
    floor = np.array([2.0, 2.01, 2.02, 2.03])[:, None]
    baseline = floor + 0.5 * (BUDGETS / 1e8) ** -1.0
    treatment = baseline - np.array([0.1, 0.09, 0.08, 0.07])[:, None]
    form = compute_multiplier(BUDGETS, baseline, treatment).by_form[0]
    assert form.form == FLOOR_NAME  # the others are refuted
    assert np.isposinf(form.by_seed).all()
    assert form.beyond == 1


def test_curves_clearly_fall_where_every_slope_lies_three_sd_below_0() -> None:
    assert clearly_falls(np.array([-1.0, -1.1, -1.2]))
    assert not clearly_falls(np.array([-1.0, -1.1, -3.0]))  # sd 1.1
    assert not clearly_falls(np.array([0.1, -1.1, -1.2]))


def test_only_the_treatment_at_that_budget_is_needed_and_a_seed_without_it_is_left_out() -> None:
    baseline, treatment = losses("left out", 6, 0.005)
    sparse = np.full_like(treatment, np.nan)
    sparse[:, 2] = treatment[:, 2]
    sparse[4, 2] = np.nan
    found = compute_multiplier(BUDGETS, baseline, sparse, at_tokens=4e8, seeds=range(20, 26))
    assert found.seeds == (20, 21, 22, 23, 25)
    assert any("seed 24 left out: no gap at 400,000,000 tokens" in note for note in found.notes)
    kept = [0, 1, 2, 3, 5]
    alone = compute_multiplier(BUDGETS, baseline[kept], treatment[kept], at_tokens=4e8)
    assert found.log_interval == alone.log_interval


@pytest.mark.parametrize(("seeds", "budgets", "why"), [(5, 2, "at least 3 budgets"), (2, 4, "at least 3 seeds")])
def test_too_little_is_a_refusal_with_a_sentence(seeds: int, budgets: int, why: str) -> None:
    found = compute_multiplier(BUDGETS[:budgets], *losses("few", seeds, 0.01, budgets=BUDGETS[:budgets]))
    assert why in found.refusal
    assert found.sentence.startswith("No compute multiplier: ")
    assert found.multiplier is None


def test_gaps_that_are_all_the_same_carry_no_information() -> None:
    baseline, _ = losses("same", 5, 0.01)
    assert "no information" in compute_multiplier(BUDGETS, baseline, baseline - 0.125).refusal


def test_budgets_are_written_in_full() -> None:
    budgets = BUDGETS / 2e4  # 5,000 to 40,000 tokens
    found = compute_multiplier(budgets, *losses("small", 5, 0.005, budgets=BUDGETS))
    assert found.sentence.startswith("To reach the treatment's loss at 40,000 tokens the baseline needs")
    interaction = multiplier_interaction(budgets, *four_cells(0.05, -0.2))
    assert interaction.sentence.startswith("At 40,000 tokens the interaction is")


def test_a_budget_that_was_not_run_is_an_error() -> None:
    with pytest.raises(ParibusError, match="no cells finished their schedule at 300,000,000 tokens"):
        compute_multiplier(BUDGETS, *losses("unknown", 5, 0.01), at_tokens=3e8)


def test_dependence_is_carried_and_said() -> None:
    found = compute_multiplier(BUDGETS, *losses("trunk", 5, 0.01), dependent=True)
    assert found.dependent
    assert any("one trunk" in note for note in found.notes)


def four_cells(gain_in_company: float, slope_in_company: float) -> tuple[Array, Array, Array, Array]:
    neither, only_first = losses("alone", 5, 0.001)
    only_second, both = losses("company", 5, 0.001, slope=slope_in_company, gain=gain_in_company)
    return both, only_second, only_first, neither


def test_an_interaction_in_log_multiplier_is_the_difference_by_seed() -> None:
    both, only_second, only_first, neither = four_cells(0.05, -0.2)
    found = multiplier_interaction(BUDGETS, both, only_second, only_first, neither)
    np.testing.assert_allclose(found.differences, ((both - only_second) - (only_first - neither))[:, -1])

    def log_multiplier(treatment: Array, baseline: Array) -> Array:
        return (treatment - baseline)[:, -1] / np.polynomial.polynomial.polyfit(np.log(BUDGETS), baseline.T, 1)[1]

    by_seed = log_multiplier(both, only_second) - log_multiplier(only_first, neither)
    assert dict(found.by_form)[LOG_NAME] == pytest.approx(by_seed.mean(), rel=1e-9)
    reference = stats.ttest_1samp(by_seed, 0).confidence_interval(0.95)
    assert found.log_interval is not None
    assert found.log_interval[0] <= reference.low + 1e-9
    assert found.log_interval[1] >= reference.high - 1e-9
    assert found.signs_agree is True  # 0.02 nats more in company, at the same slope
    assert "the signs agree" in found.sentence


def test_a_smaller_gain_in_nats_that_is_worth_more_compute_is_no_interaction() -> None:
    found = multiplier_interaction(BUDGETS, *four_cells(0.025, -0.1))
    assert found.differences.mean() > 0  # 0.005 nats less in company
    assert all(mean > 0 for _, mean in found.by_form)  # yet 0.25 against 0.15 in ln m
    assert found.signs_agree is False
    assert "no interaction is concluded" in found.sentence


def test_an_interaction_over_a_flat_baseline_is_not_measured_in_compute() -> None:
    both, only_second, only_first, neither = four_cells(0.05, 0.0)
    found = multiplier_interaction(BUDGETS, both, only_second, only_first, neither)
    assert found.signs_agree is None
    assert found.log_interval is None
    assert "not measured" in found.sentence


@pytest.mark.parametrize("alone_is_unclear", [False, True])
def test_one_baseline_that_does_not_clearly_fall_is_enough_for_no_interaction_in_compute(
    alone_is_unclear: bool,
) -> None:
    clear = losses("clear", 5, 0.001)
    baseline, treatment = losses("unclear", 5, 0.001)
    # All slopes are negative, so that every seed has a finite ln m, but the flattest lies 2.2 sd below 0.
    slopes = np.array([-0.21, -0.24, -0.17, -0.12, -0.25])[:, None]
    log_budgets = np.log(BUDGETS / 1e8)
    tilt = (slopes + 0.2) * (log_budgets - log_budgets.mean())
    unclear = baseline + tilt, treatment + tilt
    pair = baseline_and_gap(BUDGETS, *unclear, None, None)
    assert all(np.isfinite(pair.log_multipliers(fit)).all() for fit in pair.curves.usable)
    (second, both), (neither, first) = (clear, unclear) if alone_is_unclear else (unclear, clear)
    found = multiplier_interaction(BUDGETS, both, second, first, neither)
    assert found.by_form
    assert found.log_interval is None
    assert found.signs_agree is None
    assert "a baseline's curve does not clearly fall" in found.sentence


def test_a_seed_that_lacks_one_of_four_cells_is_left_out_of_the_interaction() -> None:
    cells = [cell.copy() for cell in four_cells(0.05, -0.2)]
    cells[2][1, -1] = np.nan
    found = multiplier_interaction(BUDGETS, *cells)
    assert found.seeds == (0, 2, 3, 4)
    assert any("seed 1 left out" in note for note in found.notes)
    cells[0][3:, -1] = np.nan
    assert multiplier_interaction(BUDGETS, *cells).refusal


def test_no_sentence_uses_a_verdict_word() -> None:
    found = [
        compute_multiplier(BUDGETS, *losses(name, 5, sd, slope=slope, gain=gain)).sentence
        for name, sd, slope, gain in (("a", 0.01, -0.2, 0.03), ("b", 0.2, -0.02, 0.03), ("c", 0.002, -0.2, 0.5))
    ]
    found.append(multiplier_interaction(BUDGETS, *four_cells(0.05, -0.2)).sentence)
    for word in Word:
        assert not any(word.value in sentence.split() for sentence in found)
