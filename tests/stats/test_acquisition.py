"""Updates until a slice is acquired, against loops, scipy and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.acquisition import AcquisitionContrast, acquired_at, acquisition_contrast, restricted_log2

NAN = float("nan")
BUDGET = 1024
# Updates of one seed in both arms: powers of two, so that logarithms are exact, or None.
OUTCOME = st.one_of(st.none(), st.integers(0, 9).map(lambda power: 2**power))
PAIRS = st.lists(st.tuples(OUTCOME, OUTCOME), min_size=2, max_size=8)


def contrast(pairs: list[tuple[int | None, int | None]], budget: int = BUDGET) -> AcquisitionContrast:
    treatment, baseline = zip(*pairs, strict=True)
    return acquisition_contrast(dict(enumerate(treatment)), dict(enumerate(baseline)), budget)


def first_of_two(excess: list[float], targets: list[int], threshold: float, length: int) -> int | None:
    """By the definition, one window at a time."""
    below = []
    for start in range(0, len(excess), length):
        inside = [(e, n) for e, n in zip(excess, targets, strict=True)][start : start + length]
        total = sum(n for _, n in inside)
        if total:
            mean = math.fsum(e * n for e, n in inside if n) / total
            below.append((min(start + length, len(excess)), mean < threshold))
    for (end, one), (_, other) in itertools.pairwise(below):
        if one and other:
            return end
    return None


@given(
    st.lists(st.tuples(st.integers(0, 64), st.integers(0, 3)), min_size=1, max_size=60).filter(
        lambda curve: any(n for _, n in curve)
    ),
    st.integers(1, 70),
    st.integers(0, 65),
)
@settings(max_examples=200, deadline=None)
def test_acquisition_is_the_end_of_the_first_of_two_consecutive_windows_below_the_threshold(
    curve: list[tuple[int, int]], count: int, threshold: int
) -> None:
    targets = [n for _, n in curve]
    # Means of at most 180 targets are multiples of 1/(64 n) >= 8e-5: none equals a threshold up to rounding.
    excess = [e / 64 if n else NAN for e, n in curve]
    limit = threshold / 64 + 1e-5
    expected = first_of_two(excess, targets, limit, math.ceil(len(curve) / count))
    assert acquired_at(excess, targets, limit, count) == expected


def test_one_window_below_the_threshold_is_not_enough_and_neither_is_one_at_it() -> None:
    ones = np.ones(6, int)
    assert acquired_at([3, 3, 0, 3, 0, 0], ones, 1.0) == 5
    assert acquired_at([3, 3, 0, 3, 3, 0], ones, 1.0) is None
    assert acquired_at([3, 1, 1, 1, 0, 1], ones, 1.0) is None
    assert acquired_at([0.0], [1], 1.0) is None
    assert acquired_at([0, 0], [1, 1], 1.0) == 1


def test_a_window_without_targets_neither_breaks_nor_confirms_an_acquisition() -> None:
    assert acquired_at([3, 0, NAN, NAN, 0, 3], [1, 1, 0, 0, 1, 1], 1.0) == 2
    assert acquired_at([3, 0, NAN, NAN, 3, 3], [1, 1, 0, 0, 1, 1], 1.0) is None


@given(st.lists(st.integers(0, 64), min_size=1, max_size=60), st.integers(1, 64), st.integers(1, 64))
@settings(max_examples=100, deadline=None)
def test_a_lower_threshold_is_never_acquired_sooner(losses: list[int], one: int, other: int) -> None:
    targets = [1] * len(losses)
    easy, hard = (acquired_at(losses, targets, threshold) for threshold in (max(one, other), min(one, other)))
    assert hard is None or (easy is not None and easy <= hard)


def test_the_restricted_logarithm_stops_at_the_budget() -> None:
    assert [restricted_log2(updates, 512) for updates in (1, 64, 512, 600, None)] == [0, 6, 9, 9, 9]
    for updates, budget in ((0, 512), (-3, 512), (5, 0), (None, 0)):
        with pytest.raises(ParibusError, match="no positive number"):
            restricted_log2(updates, budget)


def test_a_threshold_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ParibusError, match="not finite"):
        acquired_at([1.0, 1.0], [1, 1], NAN)


def enumerated_p(differences: list[float]) -> float:
    flips = itertools.product((1, -1), repeat=len(differences))
    means = [abs(sum(s * d for s, d in zip(signs, differences, strict=True))) for signs in flips]
    return float(np.mean([mean >= abs(sum(differences)) for mean in means]))


@given(PAIRS)
@settings(max_examples=100, deadline=None)
def test_the_contrast_is_a_paired_t_and_an_exact_sign_flip_of_restricted_logarithms(
    pairs: list[tuple[int | None, int | None]],
) -> None:
    found = contrast(pairs)
    logs = [[math.log2(updates or BUDGET) for updates in arm] for arm in zip(*pairs, strict=True)]
    differences = [t - b for t, b in zip(*logs, strict=True)]
    assert found.differences.differences == tuple(differences)
    assert found.mean_log2 == pytest.approx(sum(differences) / len(pairs), abs=1e-12)
    assert found.p_sign_flip == enumerated_p(differences)
    assert found.treatment_fewer == sum(d < 0 for d in differences)
    assert found.treatment_censored == tuple(seed for seed, (t, _) in enumerate(pairs) if t is None)
    assert found.baseline_censored == tuple(seed for seed, (_, b) in enumerate(pairs) if b is None)
    if len(set(differences)) == 1:
        assert found.interval_log2 is None
        assert found.p_t is None
    else:
        reference = stats.ttest_rel(logs[0], logs[1])
        interval = reference.confidence_interval(0.95)
        assert found.p_t == pytest.approx(reference.pvalue, rel=1e-9)
        assert found.interval_log2 == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-12)


@given(PAIRS)
@settings(max_examples=100, deadline=None)
def test_exchanging_the_arms_turns_every_sign_and_inverts_the_ratio(pairs: list[tuple[int | None, int | None]]) -> None:
    one, other = contrast(pairs), contrast([(b, t) for t, b in pairs])
    assert one.ratio is not None
    assert other.ratio is not None
    assert one.ratio * other.ratio == pytest.approx(1, rel=1e-12)
    assert one.p_t == other.p_t
    assert one.p_sign_flip == other.p_sign_flip
    assert {one.bound, other.bound} in ({""}, {"none"}, {"at least", "at most"})
    assert one.p_logrank == (None if other.p_logrank is None else pytest.approx(other.p_logrank, rel=1e-9))
    if one.tobit is None:
        assert other.tobit is None
    else:
        assert other.tobit is not None
        assert one.tobit.difference == pytest.approx(-other.tobit.difference, abs=1e-6)


@given(PAIRS, st.lists(st.integers(11, 20), min_size=16, max_size=16))
@settings(max_examples=100, deadline=None)
def test_the_restricted_ratio_bounds_the_ratio_that_a_longer_run_would_show(
    pairs: list[tuple[int | None, int | None]], powers: list[int]
) -> None:
    found = contrast(pairs)
    later = iter(powers)
    true = contrast([(t or 2 ** next(later), b or 2 ** next(later)) for t, b in pairs], 2**20)
    assert found.mean_log2 is not None
    assert true.mean_log2 is not None
    assert true.bound == ""
    match found.bound:
        case "":
            assert true.mean_log2 == found.mean_log2
        case "at least":
            assert true.mean_log2 >= found.mean_log2
        case "at most":
            assert true.mean_log2 <= found.mean_log2
        case _:
            assert found.bound == "none"
            assert found.ratio_bounds == (None, None)


def test_where_one_arm_never_leaves_the_ratio_is_said_to_be_a_bound() -> None:
    found = contrast([(None, 128), (None, 256), (None, 256), (None, 512)])
    assert found.mean_log2 == 2
    assert found.ratio_interval is not None
    assert found.ratio_bounds == (found.ratio_interval[0], None)
    assert found.ratio_interval[0] == pytest.approx(2 ** (2 - 3.182446305 * math.sqrt(2 / 3) / 2), rel=1e-6)
    assert found.sentence == (
        "at least 4 times the baseline's updates (95 % interval 1.63 to 9.84), restricted to 1024 updates, within "
        "which 4 of 4 cells of the treatment and 0 of 4 of the baseline did not acquire it"
    )
    other = contrast([(128, None), (256, None), (256, None), (512, None)])
    assert other.ratio_bounds == (None, pytest.approx(1 / found.ratio_interval[0], rel=1e-12))
    assert other.sentence.startswith("at most 0.25 times the baseline's updates (95 % interval 0.102 to 0.615)")


def test_a_ratio_without_censored_cells_is_told_without_the_budget() -> None:
    found = contrast([(128, 256), (128, 512), (64, 128)])
    assert found.ratio_bounds == found.ratio_interval
    assert found.sentence == "0.397 times the baseline's updates (95 % interval 0.147 to 1.07)"
    assert contrast([(128, 256), (64, 128)]).sentence == "0.5 times the baseline's updates (no interval)"


def test_where_both_arms_have_censored_cells_the_ratio_is_not_bounded() -> None:
    found = contrast([(None, 512), (256, None), (256, 512)])
    assert found.bound == "none"
    assert found.sentence.endswith("the ratio without the restriction is not bounded")


def test_where_no_cell_acquires_the_slice_there_is_no_ratio_to_tell() -> None:
    found = contrast([(None, None), (None, None)])
    assert (found.interval_log2, found.p_t, found.tobit, found.p_logrank) == (None, None, None, None)
    assert found.p_sign_flip == 1
    assert found.sentence == "no ratio of updates: no cell of either arm acquired it within 1024 updates"


def test_updates_beyond_the_budget_count_as_censored() -> None:
    assert contrast([(2048, 512), (256, 512)]) == contrast([(None, 512), (256, 512)])


def test_a_diverged_cell_is_lost_by_its_arm_and_nothing_is_estimated_from_the_others() -> None:
    found = acquisition_contrast({0: 128, 1: 128, 2: 64}, {1: 256, 2: 512, 0: 256, 3: 99}, 1024, treatment_diverged=[3])
    assert found.differences.treatment_diverged == (3,)
    assert (found.mean_log2, found.ratio, found.interval_log2, found.tobit, found.p_logrank) == (None,) * 5
    assert found.treatment_fewer == 3
    assert found.p_sign_flip == enumerated_p([-1, -1, -3, 3])
    assert found.sentence == "no ratio of updates: a cell diverged at seed 3"
    with pytest.raises(ParibusError, match="has an outcome and diverged"):
        acquisition_contrast({0: 128}, {0: 128}, 1024, baseline_diverged=[0])


def test_only_seeds_of_both_arms_make_pairs_and_one_pair_has_no_interval() -> None:
    found = acquisition_contrast({0: 128, 1: None}, {0: 256, 2: None}, 1024)
    assert found.differences.seeds == (0,)
    assert (found.bound, found.ratio, found.interval_log2) == ("", 0.5, None)
    none = acquisition_contrast({0: 128}, {1: 128}, 1024)
    assert none.p_sign_flip is None
    assert none.sentence == "no ratio of updates: no seed has both cells"


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("seeds", [5, 10])
def test_with_40_percent_censored_the_paired_t_wins_falsely_in_at_most_5_percent(
    seeds: int, correlation: float
) -> None:
    studies, window = 40_000, 8
    rng = generator("tests", "acquisition", seeds, "false wins", str(correlation))
    shared, own = rng.standard_normal((1, studies, seeds)), rng.standard_normal((2, studies, seeds))
    log2 = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
    raw = BUDGET * 2 ** (log2 - stats.norm.ppf(0.6))  # both arms alike: 40 % lie beyond the budget
    updates = np.ceil(raw / window).astype(int) * window
    assert np.mean(updates > BUDGET) == pytest.approx(0.4, abs=0.005)
    treatment, baseline = np.log2(np.minimum(updates, BUDGET))
    differences = treatment - baseline
    spread = differences.std(1, ddof=1) / math.sqrt(seeds)
    critical = stats.t.ppf(0.975, seeds - 1)
    wins = np.abs(differences.mean(1)) > np.where(spread > 1e-12, critical * spread, np.inf)
    # Three binomial standard errors of a rate of 5 %. Ties of two censored cells make it smaller, never larger.
    assert wins.mean() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
    assert wins.mean() > (0.02 if seeds == 5 else 0.04)
    for study in range(100):
        found = contrast([(int(t), int(b)) for t, b in updates[:, study].T])
        assert wins[study] == (found.p_t is not None and found.p_t < 0.05)
