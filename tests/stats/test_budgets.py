"""Curves and gaps over budgets against noiseless laws, scipy's curve_fit, brute force and simulation."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.budgets import gap_over_budget
from paribus.stats.curves import fit_curves
from paribus.stats.forms import FLOOR, FORMS, LOG, POWER, Array, Form

BUDGETS = np.array([1e8, 2e8, 4e8, 8e8])
LAWS: dict[Form, Callable[..., Array]] = {
    POWER: lambda b, c, g: c * (b / 1e8) ** -g,
    FLOOR: lambda b, c, g, floor: floor + c * (b / 1e8) ** -g,
    LOG: lambda b, c, a: a + c * np.log(b / 1e8),
}


def drawn(form: Form, seed: int, seeds: int = 5) -> list[tuple[float, ...]]:
    """Parameters of a law for each seed, in the order of `LAWS`."""
    draws = generator("tests", "budgets", seed, "parameters", form.name)
    last = {POWER: [], FLOOR: [draws.uniform(1, 2, seeds)], LOG: [draws.uniform(2, 4, seeds)]}[form]
    if form is LOG:
        return list(zip(-draws.uniform(0.1, 0.3, seeds), *last, strict=True))
    return list(zip(draws.uniform(1, 2, seeds), draws.uniform(0.05, 0.5, seeds), *last, strict=True))


def noise(name: str, shape: tuple[int, ...], sd: float) -> Array:
    return sd * generator("tests", "budgets", 0, "noise", name).standard_normal(shape)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("budgets", [BUDGETS[:3], BUDGETS, np.array([1e3, 2e4, 5e6, 7e8, 1e9])], ids=len)
def test_a_law_without_noise_is_recovered_and_carried_on_exactly(form: Form, budgets: Array) -> None:
    parameters = drawn(form, 1)
    values = np.array([LAWS[form](budgets, *seed) for seed in parameters])
    fit = next(fit for fit in fit_curves(budgets, values).fits if fit.form is form)
    beyond = np.array([budgets[0] / 4, budgets[-1] * 4])
    expected = np.array([LAWS[form](beyond, *seed) for seed in parameters])
    # g is located to (1/20)^8 of a range of 3, about 1e-10, and enters times ln(B ratio), at most 15.
    np.testing.assert_allclose(fit.at(beyond), expected, rtol=1e-8)
    if form is not LOG:
        np.testing.assert_allclose(fit.exponent, [seed[1] for seed in parameters], rtol=1e-6)
    if form is FLOOR:
        floors = fit.level + fit.slope / fit.exponent
        np.testing.assert_allclose(floors, [seed[2] for seed in parameters], rtol=1e-6)
    assert not fit.unusable


def test_a_gap_may_grow_with_the_budget_but_not_faster_than_it() -> None:
    sizes = np.array([0.01, 0.012, 0.011])[:, None]
    assert fit_curves(BUDGETS, -sizes * (BUDGETS / 1e8) ** 0.5).fits[0].exponent == pytest.approx([-0.5] * 3, rel=1e-6)
    faster = fit_curves(BUDGETS, -sizes * (BUDGETS / 1e8) ** 1.5)
    assert faster.fits[0].exponent == pytest.approx([-1.0] * 3)
    assert any("g lies at the end of its range (-1.0, 2.0) in 3 of 3 seeds" in note for note in faster.notes)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_slope_and_the_inverse_of_a_curve_are_its_derivative_and_its_inverse(form: Form) -> None:
    parameters = drawn(form, 2)
    values = np.array([LAWS[form](BUDGETS, *seed) for seed in parameters])
    fit = next(fit for fit in fit_curves(BUDGETS, values).fits if fit.form is form)
    step = 1e-5
    up, down = (np.diag(fit.at(3e8 * math.exp(sign * step) * np.ones(5))) for sign in (1, -1))
    # A central difference is off by step^2 / 6 of the third derivative and by eps * value / step, both below 1e-9.
    np.testing.assert_allclose(fit.slope_at(3e8), (up - down) / (2 * step), rtol=1e-6)
    targets = fit.at(3e8 * math.exp(0.7))[:, 0]
    np.testing.assert_allclose(fit.log_ratio_to(targets, 3e8), 0.7, rtol=1e-9)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_fits_of_noisy_losses_agree_with_curve_fit(form: Form) -> None:
    parameters = drawn(form, 3)
    budgets = 1e8 * 3.0 ** np.arange(6)  # a wide range, so that curve_fit converges from the true parameters
    values = np.array([LAWS[form](budgets, *seed) for seed in parameters]) + noise(form.name, (5, 6), 0.003)
    fit = next(fit for fit in fit_curves(budgets, values).fits if fit.form is form)
    for row, start in enumerate(parameters):
        found, _ = optimize.curve_fit(LAWS[form], budgets, values[row], p0=start, xtol=1e-12, ftol=1e-12, gtol=1e-12)
        # curve_fit's squares are flat to 1e-12 around its optimum, so its parameters are good to about 1e-6.
        np.testing.assert_allclose(fit.at(budgets)[row], LAWS[form](budgets, *found), rtol=2e-6)


@pytest.mark.parametrize("form", [POWER, FLOOR], ids=lambda form: form.name)
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_no_exponent_of_a_dense_grid_fits_better(form: Form, seed: int) -> None:
    gaps = generator("tests", "budgets", seed, "noise", "grid").standard_normal((3, 4))
    fit = next(fit for fit in fit_curves(BUDGETS, gaps).fits if fit.form is form)
    x = np.log(BUDGETS / 1e8)
    for row in range(3):
        least = math.inf
        for g in np.linspace(max(form.exponents[0], -1.0), form.exponents[1], 601):
            if form is FLOOR and g == 0:
                continue
            basis = np.exp(-g * x)[:, None] if form is POWER else np.stack([np.ones(4), np.exp(-g * x)], 1)
            solved = np.linalg.lstsq(basis, gaps[row], rcond=None)[0]
            least = min(least, float(((gaps[row] - basis @ solved) ** 2).sum()))
        assert float((fit.residuals[row] ** 2).sum()) <= least * (1 + 1e-9) + 1e-12


def test_estimates_are_t_intervals_over_the_predictions_of_the_seeds_and_the_envelope_is_their_hull() -> None:
    baseline = 3 - 0.2 * np.log(BUDGETS / 1e8) + noise("baseline", (5, 4), 0.01)
    treatment = baseline - 0.03 + noise("treatment", (5, 4), 0.004)
    found = gap_over_budget(BUDGETS, baseline, treatment, [3.2e9])
    (estimate,) = found.estimates
    assert estimate.extrapolated
    assert not estimate.refusal
    for fit, form in zip(found.curves.usable, estimate.by_form, strict=True):
        reference = stats.ttest_1samp(fit.at(3.2e9)[:, 0], 0.0).confidence_interval(0.95)
        assert form.interval == pytest.approx(tuple(reference), rel=1e-12)
    # a + b ln B by ordinary least squares, which needs no search
    slopes, levels = np.polynomial.polynomial.polyfit(np.log(BUDGETS), (treatment - baseline).T, 1)[::-1]
    assert estimate.by_form[-1].mean == pytest.approx(float((levels + slopes * math.log(3.2e9)).mean()), rel=1e-9)
    lows, highs = zip(*(form.interval for form in estimate.by_form if form.interval), strict=True)
    assert estimate.envelope == (min(lows), max(highs))


def test_the_measured_gap_is_the_paired_t_interval_of_each_budget() -> None:
    baseline, treatment = noise("measured", (2, 6, 4), 1.0)
    for index, measured in enumerate(gap_over_budget(BUDGETS, baseline, treatment, []).measured):
        reference = stats.ttest_rel(treatment[:, index], baseline[:, index]).confidence_interval(0.95)
        assert measured.interval == pytest.approx(tuple(reference), rel=1e-12)
        assert measured.seeds == 6


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.floats(0.01, 100.0), st.floats(1e-3, 1e3), st.permutations(range(4)))
def test_units_and_the_order_of_seeds_change_nothing(seed: int, unit: float, token: float, order: list[int]) -> None:
    base, treat = generator("tests", "budgets", seed, "noise", "units").standard_normal((2, 4, 4))
    treat -= 3.0
    (one,) = gap_over_budget(BUDGETS, base, treat, [1.6e9]).estimates
    (other,) = gap_over_budget(
        BUDGETS * token, base[order] * unit, treat[order] * unit, [1.6e9 * token], seeds=order
    ).estimates
    for mine, theirs in zip(one.by_form, other.by_form, strict=True):
        assert mine.interval is not None
        # The squares are flat around the best g: two searches may differ by the root of a rounding.
        assert theirs.interval == pytest.approx([bound * unit for bound in mine.interval], rel=1e-5, abs=1e-5 * unit)


def test_with_three_budgets_the_form_of_three_parameters_passes_through_them_and_says_so() -> None:
    gaps = np.array([[-1.0, -0.6, -0.4], [-1.1, -0.7, -0.5], [-0.9, -0.6, -0.5]])
    found = gap_over_budget(BUDGETS[:3], np.zeros((3, 3)), gaps, [])
    floor = found.curves.fits[1]
    np.testing.assert_allclose(floor.residuals, 0.0, atol=1e-9)
    assert "c_inf + c B^-g: 3 parameters on 3 budgets leave nothing to check the form by" in found.notes
    assert not any("leave nothing" in note for note in found.notes if not note.startswith("c_inf"))


@pytest.mark.parametrize(("factor", "refused"), [(4.0, False), (4.01, True), (1 / 32, False), (1 / 33, True)])
def test_nothing_is_said_beyond_four_times_the_largest_or_below_a_quarter_of_the_smallest(
    factor: float, refused: bool
) -> None:
    gaps = noise("limits", (4, 4), 1.0) - 5
    (estimate,) = gap_over_budget(BUDGETS, np.zeros((4, 4)), gaps, [factor * BUDGETS[-1]]).estimates
    assert bool(estimate.refusal) is refused
    assert (estimate.envelope is None) is refused
    assert ("nothing is extrapolated that far" in estimate.refusal) is refused


def test_the_limit_is_set_by_the_budgets_that_every_seed_has() -> None:
    gaps = noise("short", (4, 4), 1.0) - 5
    gaps[2, 3] = np.nan
    gaps[1, 0] = np.nan
    above, below = gap_over_budget(BUDGETS, np.zeros((4, 4)), gaps, [3.2e9, 4e7]).estimates
    assert "4x the largest budget (1,600,000,000)" in above.refusal
    assert "a quarter of the smallest (50,000,000)" in below.refusal


@pytest.mark.parametrize(("seeds", "budgets", "why"), [(5, 2, "at least 3 budgets"), (2, 4, "at least 3 seeds")])
def test_too_few_budgets_or_seeds_are_a_refusal_with_a_sentence(seeds: int, budgets: int, why: str) -> None:
    table = noise("few", (seeds, budgets), 1.0)
    found = gap_over_budget(BUDGETS[:budgets], table, table - 1 + noise("f2", table.shape, 0.1), [1e9])
    assert why in found.refusal
    assert found.estimates[0].refusal == found.refusal
    assert len(found.measured) == budgets  # what was measured is still shown


def test_no_cells_at_all_are_a_refusal() -> None:
    assert "at least 3 seeds" in gap_over_budget(BUDGETS, [], [], [1e9]).refusal
    assert "at least 3 budgets" in gap_over_budget([], [], [], [1e9]).refusal


def test_a_missing_cell_is_left_out_and_named_and_its_seed_stays_where_three_budgets_do() -> None:
    baseline = noise("missing", (5, 4), 0.1).tolist()
    treatment = (np.array(baseline) - 1 + noise("missing 2", (5, 4), 0.1)).tolist()
    treatment[1][2] = None
    baseline[4][0] = math.nan
    treatment[4][3] = math.inf
    found = gap_over_budget(BUDGETS, baseline, treatment, [1e9], seeds=[10, 11, 12, 13, 14])
    assert found.curves.seeds == (10, 11, 12, 13)
    assert any("seed 11 at 400,000,000 tokens" in note for note in found.notes)
    assert any("seed 14 left out" in note for note in found.notes)
    assert [measured.seeds for measured in found.measured] == [4, 5, 4, 4]
    complete = [0, 2, 3]
    alone = gap_over_budget(BUDGETS, np.array(baseline)[complete], np.array(treatment, float)[complete], [1e9])
    for fit, reference in zip(found.curves.fits, alone.curves.fits, strict=True):
        np.testing.assert_allclose(fit.at(1e9)[complete, 0], reference.at(1e9)[:, 0], rtol=1e-9)


FAVOURS = "favours an arm that diverges"


def test_a_mean_of_what_is_left_is_warned_of_where_some_seeds_are_dropped_and_others_kept() -> None:
    gaps = noise("selected", (5, 4), 0.01) - 1
    gaps[3, 1:3] = np.nan
    dropped, *rest = fit_curves(BUDGETS, gaps, quantity="gap").notes
    assert dropped.startswith("seed 3 left out: a finite gap at fewer than 3 budgets")
    assert FAVOURS in dropped
    assert not any(FAVOURS in note for note in rest)


def test_two_budgets_without_a_missing_cell_leave_no_seed_out() -> None:
    found = fit_curves(BUDGETS[:2], noise("two budgets", (5, 2), 0.01) - 1, quantity="gap")
    assert "at least 3 budgets" in found.refusal
    assert found.notes == ()


def test_at_two_budgets_only_the_cell_that_is_missing_is_named() -> None:
    gaps = noise("two budgets", (5, 2), 0.01) - 1
    gaps[1, 1] = np.nan
    (note,) = fit_curves([10_000, 40_000], gaps, quantity="gap").notes
    assert note.startswith("no finite gap, so left out: seed 1 at 40,000 tokens.")
    assert FAVOURS in note


def test_where_no_seed_is_left_no_mean_is_warned_of() -> None:
    gaps = noise("none left", (4, 4), 0.01) - 1
    gaps[:, 1:3] = np.nan
    (note,) = fit_curves(BUDGETS, gaps, quantity="gap").notes
    assert note == "seed 0, 1, 2, 3 left out: a finite gap at fewer than 3 budgets"
    whole_column = noise("none left", (4, 4), 0.01) - 1
    whole_column[:, 1] = np.nan
    assert not any(FAVOURS in note for note in fit_curves(BUDGETS, whole_column, quantity="gap").notes)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_seed_with_a_missing_cell_is_fitted_to_the_budgets_it_has(form: Form) -> None:
    values = np.array([LAWS[form](BUDGETS, *seed) for seed in drawn(form, 4)]) + noise("partial", (5, 4), 0.01)
    values[1, 2] = np.nan
    kept = [0, 1, 3]
    partial, alone = (
        next(fit for fit in fit_curves(budgets, table).fits if fit.form is form)
        for budgets, table in ((BUDGETS, values), (BUDGETS[kept], values[:, kept]))
    )
    # Two searches for g may differ by the root of a rounding of the squares.
    np.testing.assert_allclose(partial.at(1e9)[1], alone.at(1e9)[1], rtol=1e-6)


def test_a_gap_that_changes_sign_is_not_described_by_a_pure_power_law_and_the_envelope_says_so() -> None:
    gaps = np.array([0.03, 0.01, -0.01, -0.03]) + noise("sign", (5, 4), 0.001)
    found = gap_over_budget(BUDGETS, np.zeros((5, 4)), gaps, [3.2e9])
    assert [form.form for form in found.estimates[0].by_form] == ["c_inf + c B^-g", "a + b ln B"]
    assert any(note.startswith("c B^-g is left out: the sign changes") for note in found.notes)
    assert found.estimates[0].envelope is not None


def test_signs_that_differ_by_noise_alone_leave_every_form_in() -> None:
    gaps = noise("both signs", (5, 4), 0.01)
    assert (gaps > 0).any()
    assert (gaps < 0).any()
    assert len(gap_over_budget(BUDGETS, np.zeros((5, 4)), gaps, [3.2e9]).estimates[0].by_form) == 3


def test_a_form_that_the_seeds_refute_is_left_out_by_name() -> None:
    losses = 2 + 1.5 * (BUDGETS / 1e8) ** -0.5 + noise("curved", (5, 4), 0.001)
    curves = fit_curves(BUDGETS, losses)
    assert [fit.form.name for fit in curves.usable] == ["c_inf + c B^-g"]
    assert any(note.startswith("a + b ln B is left out: it misses") for note in curves.notes)


def test_where_no_form_fits_there_is_a_refusal() -> None:
    losses = np.array([1.0, 2.0, 1.0, 2.0]) + noise("zigzag", (5, 4), 0.001)
    assert "none of the three forms" in fit_curves(BUDGETS, losses).refusal


def test_a_true_form_is_refuted_in_about_one_percent_of_studies() -> None:
    errors = generator("tests", "budgets", 0, "noise", "level").standard_normal((1000, 5, 4))
    refuted = sum(bool(fit_curves(BUDGETS, 3 - 0.2 * np.log(BUDGETS) + 0.01 * e).fits[2].unusable) for e in errors)
    assert 0 < refuted <= 20  # at most 1 % by Bonferroni: 10 of 1,000, with a standard deviation of 3.2


def test_dependent_budgets_are_carried_and_said() -> None:
    gaps = noise("trunk", (3, 4), 1.0) - 5
    branches = gap_over_budget(BUDGETS, np.zeros((3, 4)), gaps, [1e9], dependent=True)
    separate = gap_over_budget(BUDGETS, np.zeros((3, 4)), gaps, [1e9])
    assert branches.dependent
    assert any("cool-down branches of one trunk" in note for note in branches.notes)
    assert not any("trunk" in note for note in separate.notes)
    assert branches.estimates == separate.estimates


def test_gaps_without_spread_have_no_interval() -> None:
    gaps = np.full((4, 4), -0.5)
    found = gap_over_budget(BUDGETS, np.zeros((4, 4)), gaps, [1e9])
    assert found.estimates[0].envelope is None
    assert all(measured.interval is None for measured in found.measured)


@pytest.mark.parametrize(
    ("budgets", "shape", "what"),
    [
        ([1e8, 1e8, 2e8], (3, 3), "increasing"),
        ([-1.0, 1.0, 2.0], (3, 3), "increasing"),
        ([1.0, 2.0, 3.0], (3, 4), "axes"),
    ],
)
def test_malformed_arrays_are_one_clear_error(budgets: list[float], shape: tuple[int, int], what: str) -> None:
    with pytest.raises(ParibusError, match=what):
        gap_over_budget(budgets, np.zeros(shape), np.zeros(shape), [1.0])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_envelope_at_four_times_the_largest_budget_covers_the_truth(form: Form) -> None:
    gap = {POWER: (-0.03, 0.3), FLOOR: (-0.02, 0.3, -0.03), LOG: (0.004, -0.03)}[form]
    errors = generator("tests", "budgets", 0, "noise", form.name).standard_normal((400, 5, 4))
    covered, studies = 0, 0
    for error in errors:
        gaps = LAWS[form](BUDGETS, *gap) + 0.004 * error
        (estimate,) = gap_over_budget(BUDGETS, np.zeros((5, 4)), gaps, [3.2e9]).estimates
        if estimate.envelope is not None:
            studies += 1
            truth = float(LAWS[form](np.array([3.2e9]), *gap)[0])
            covered += estimate.envelope[0] <= truth <= estimate.envelope[1]
    assert studies > 380
    assert covered >= 0.93 * studies  # two standard deviations below 95 % of 400
