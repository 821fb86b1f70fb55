"""The numbers of a learning curve against loops written from their definitions."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.errors import ParibusError
from paribus.stats import learning
from paribus.stats.learning import RateDifference, depends_on_rate

NAN = float("nan")
# Excess losses in steps of 1/64, exact in float64, with the number of targets of each update.
CURVES = st.lists(st.tuples(st.integers(-8, 256), st.integers(0, 5)), min_size=1, max_size=200).filter(
    lambda curve: any(targets for _, targets in curve)
)
Curve = list[tuple[int, int]]


def arrays(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    targets = np.array([count for _, count in curve])
    return np.where(targets > 0, np.array([value for value, _ in curve]) / 64, NAN), targets


def pooled(curve: Curve) -> float | None:
    """The loss of all targets together, in exact arithmetic."""
    total = sum(count for _, count in curve)
    return float(Fraction(sum(value * count for value, count in curve), 64 * total)) if total else None


@given(CURVES)
@settings(max_examples=100, deadline=None)
def test_the_area_is_the_mean_of_the_updates_that_have_targets(curve: Curve) -> None:
    values = [Fraction(value, 64) for value, count in curve if count]
    # A sum of at most 200 exact values: rounding stays far below 1e-12 nats.
    assert learning.area(*arrays(curve)) == pytest.approx(float(sum(values) / len(values)), abs=1e-12)


def test_the_area_counts_every_update_equally_and_a_window_counts_every_target_equally() -> None:
    excess, targets = [1.0, 2.0, NAN, 4.0], [1, 1, 0, 6]
    assert learning.area(excess, targets) == pytest.approx(7 / 3, abs=1e-15)
    assert learning.windows(excess, targets, count=1).excess.tolist() == [27 / 8]


@given(CURVES, st.integers(1, 90))
@settings(max_examples=150, deadline=None)
def test_windows_partition_the_run_and_pool_their_targets(curve: Curve, count: int) -> None:
    found = learning.windows(*arrays(curve), count)
    ends = [0, *found.ends.tolist()]
    lengths = [after - before for before, after in pairwise(ends)]
    assert ends[-1] == len(curve)
    assert len(lengths) <= count
    assert len(set(lengths[:-1])) <= 1
    assert 0 < lengths[-1] <= lengths[0]
    for (before, after), value, targets in zip(pairwise(ends), found.excess, found.targets, strict=True):
        expected = pooled(curve[before:after])
        assert targets == sum(number for _, number in curve[before:after])
        assert math.isnan(value) if expected is None else value == pytest.approx(expected, abs=1e-12)


def test_a_run_of_few_updates_has_one_update_a_window() -> None:
    excess = np.arange(80.0)
    found = learning.windows(excess, np.ones(80, int))
    assert found.ends.tolist() == list(range(1, 81))
    assert found.excess.tolist() == excess.tolist()
    assert learning.windows(np.arange(81.0), np.ones(81, int)).ends.tolist() == [*range(2, 81, 2), 81]


def test_milestones_end_at_their_marks_and_average_one_24th_of_the_run() -> None:
    excess = np.arange(1.0, 241.0)  # the loss of update u is u
    found = learning.milestones(excess, np.ones(240, int))
    assert [(m.update, m.updates, m.excess) for m in found] == [(80, 10, 75.5), (160, 10, 155.5), (240, 10, 235.5)]
    tiny = learning.milestones(np.arange(1.0, 4.0), np.ones(3, int))
    assert [(m.update, m.updates, m.excess) for m in tiny] == [(1, 1, 1.0), (2, 1, 2.0), (3, 1, 3.0)]


@given(CURVES)
@settings(max_examples=100, deadline=None)
def test_a_milestone_pools_its_targets_and_has_no_value_without_any(curve: Curve) -> None:
    for mark, found in zip((1 / 3, 2 / 3, 1.0), learning.milestones(*arrays(curve)), strict=True):
        assert abs(found.update - max(1, mark * len(curve))) <= 0.5 + 1e-9
        expected = pooled(curve[found.update - found.updates : found.update])
        assert found.excess == (None if expected is None else pytest.approx(expected, abs=1e-12))


@given(CURVES, st.integers(1, 100))
@settings(max_examples=50, deadline=None)
def test_a_constant_curve_has_its_value_everywhere(curve: Curve, level: int) -> None:
    excess, targets = arrays([(level, count) for _, count in curve])
    value = pytest.approx(level / 64, abs=1e-12)
    assert learning.area(excess, targets) == value
    assert all(m.excess is None or m.excess == value for m in learning.milestones(excess, targets))


def test_a_difference_of_slices_takes_acted_minus_control_and_cancels_what_both_share() -> None:
    shared = np.linspace(2.0, 0.5, 48)
    targets, fewer = np.full(48, 4), np.where(np.arange(48) % 2, 3, 0)
    control = np.where(fewer > 0, shared, NAN)
    found = learning.difference_of_slices(shared + 0.25, targets, control, fewer)
    expected = learning.area(shared + 0.25, targets) - learning.area(control, fewer)
    assert found.area == pytest.approx(expected, abs=1e-15)
    # Both updates of a milestone's window count for the acted slice, only the second one for the control.
    step = shared[0] - shared[1]
    assert [m.update for m in found.milestones] == [16, 32, 48]
    assert [m.excess for m in found.milestones] == pytest.approx([0.25 + step / 2] * 3, abs=1e-12)
    alike = learning.difference_of_slices(shared + 0.25, targets, shared, targets)
    assert alike.area == pytest.approx(0.25, abs=1e-12)
    assert [m.excess for m in alike.milestones] == pytest.approx([0.25] * 3, abs=1e-12)


def test_a_milestone_that_one_slice_has_not_is_missing_from_their_difference() -> None:
    full, rare = np.ones(24), np.full(24, NAN)
    rare[0] = 0.5
    found = learning.difference_of_slices(full, np.ones(24, int), rare, np.isfinite(rare).astype(int))
    assert found.area == 0.5
    assert [m.excess for m in found.milestones] == [None, None, None]


@pytest.mark.parametrize(
    ("excess", "targets", "message"),
    [
        ([1.0, 2.0], [1], "other updates"),
        ([[1.0]], [[1]], "other updates"),
        ([], [], "no update has a target"),
        ([NAN, NAN], [0, 0], "no update has a target"),
        ([1.0, NAN], [1, 1], "does not fit"),
        ([1.0, math.inf], [1, 1], "does not fit"),
        ([1.0, 1.0], [1, 0], "does not fit"),
        ([1.0, NAN], [1, -1], "no count"),
        ([1.0, 1.0], [1, 0.5], "no count"),
        ([1.0, 1.0], [1, NAN], "no count"),
    ],
)
def test_malformed_curves_are_refused(excess: list[float], targets: list[float], message: str) -> None:
    for function in (learning.area, learning.milestones, learning.windows):
        with pytest.raises(ParibusError, match=message) as error:
            function(excess, targets)
        assert "received" in str(error.value)
        assert "remedy" in str(error.value)


def test_marks_windows_and_slices_that_cannot_be_are_refused() -> None:
    ones = np.ones(4)
    for mark in (0.0, 1.5, -1.0, NAN):
        with pytest.raises(ParibusError, match="outside the run"):
            learning.milestones(ones, ones, (mark,))
    with pytest.raises(ParibusError, match="no windows"):
        learning.windows(ones, ones, 0)
    with pytest.raises(ParibusError, match="not of one run"):
        learning.difference_of_slices(ones, ones, ones[:3], ones[:3])


UP, DOWN, OPEN = (0.1, 0.3), (-0.3, -0.1), (-0.1, 0.3)


@pytest.mark.parametrize(
    ("intervals", "word"),
    [
        ((UP, UP, UP), ""),
        ((DOWN, DOWN, DOWN), ""),
        ((UP, DOWN, UP), "depends on the learning rate"),
        ((UP, OPEN, DOWN), "depends on the learning rate"),
        ((OPEN, DOWN, (-0.4, 0.2)), ""),
        ((UP, None, UP), ""),
        ((UP, None, DOWN), "depends on the learning rate"),
        (((0.0, 0.2), DOWN, DOWN), ""),  # an interval that touches 0 does not exclude it
    ],
)
def test_a_contrast_depends_on_the_rate_exactly_where_resolved_signs_disagree(
    intervals: tuple[tuple[float, float] | None, ...], word: str
) -> None:
    differences = [
        RateDifference(factor, -0.5 if interval is None else sum(interval) / 2, interval)
        for factor, interval in zip((0.5, 1.0, 2.0), intervals, strict=True)
    ]
    assert depends_on_rate(differences) == word


def test_a_single_rate_a_repeated_one_and_a_mean_outside_its_interval_are_refused() -> None:
    one = RateDifference(1.0, 0.2, UP)
    for differences in ([], [one], [one, one]):
        with pytest.raises(ParibusError, match="nothing says"):
            depends_on_rate(differences)
    for wrong in (RateDifference(2.0, 0.9, UP), RateDifference(2.0, NAN, None), RateDifference(2.0, 0.2, (NAN, NAN))):
        with pytest.raises(ParibusError, match="malformed"):
            depends_on_rate([one, wrong])
