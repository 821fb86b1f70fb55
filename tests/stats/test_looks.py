"""Levels of planned looks: against simulation, against themselves, and what they are not allowed to be."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats import looks as module
from paribus.stats.looks import (
    DEFAULT_LOOKS,
    check_looks,
    futile,
    nominal_levels,
    rejection_probability,
    repeated_p,
    solve_constant,
)

STUDIES = 200_000


def p_values(differences: np.ndarray, pairs: int) -> np.ndarray:
    """Two-sided p of the t test of the first `pairs` of [... seed]."""
    first = differences[..., :pairs]
    t = first.mean(-1) / (first.std(-1, ddof=1) / math.sqrt(pairs))
    return 2 * scipy.special.stdtr(pairs - 1, -np.abs(t))


def simulated(looks: Sequence[int], levels: Sequence[float]) -> float:
    differences = generator("tests", "normal", 0, "looks", str(looks)).standard_normal((STUDIES, looks[-1]))
    return float(np.any([p_values(differences, n) <= a for n, a in zip(looks, levels, strict=True)], axis=0).mean())


def agrees(share: float, expected: float) -> bool:
    """Within four binomial standard errors."""
    return abs(share - expected) <= 4 * math.sqrt(expected * (1 - expected) / STUDIES)


@pytest.mark.parametrize(
    ("looks", "levels"),
    [
        ((5, 8), (0.02, 0.04)),
        ((3, 5, 8), (0.01, 0.02, 0.03)),
        ((5, 6), (0.05, 0.05)),
        ((4, 6), (0.05, 0.05)),
        ((3, 4, 5, 6, 7), (0.01, 0.01, 0.02, 0.03, 0.03)),
        ((5, 10, 20), (0.001, 0.02, 0.04)),
    ],
)
def test_the_chance_of_any_rejection_equals_simulation(looks: tuple[int, ...], levels: tuple[float, ...]) -> None:
    assert agrees(simulated(looks, levels), rejection_probability(looks, levels))


def test_one_look_rejects_at_its_level() -> None:
    assert rejection_probability((5, 8), (0.0, 0.03)) == pytest.approx(0.03, abs=1e-12)
    assert rejection_probability((5, 8), (0.02, 0.0)) == pytest.approx(0.02, abs=1e-12)
    assert rejection_probability((5, 8), (0.0, 0.0)) == 0.0


def test_finer_cells_and_nodes_move_no_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(looks, nominal_levels(looks, 0.05)) for looks in ((5, 8), (5, 6), (5, 7, 9))]
    before = [rejection_probability(*case) for case in cases]
    monkeypatch.setattr(module, "_CELLS", 2 * module._CELLS)
    monkeypatch.setattr(module, "_RATIO_NODES", 3 * module._RATIO_NODES)
    module._ratio_nodes.cache_clear()
    after = [rejection_probability(*case) for case in cases]
    module._ratio_nodes.cache_clear()
    # A gap of one pair has steps in R, which the nodes resolve to about their spacing.
    assert after == pytest.approx(before, abs=1e-4)


def test_the_constant_that_is_shipped_for_the_default_is_the_one_solved_for() -> None:
    assert module._CALIBRATED[DEFAULT_LOOKS, 0.05] == pytest.approx(solve_constant(DEFAULT_LOOKS, 0.05), abs=2e-6)
    assert nominal_levels(DEFAULT_LOOKS, 0.05) == pytest.approx((0.0107, 0.0436), abs=5e-5)


@pytest.mark.parametrize("looks", [(5, 8), (3, 5, 8), (5, 6, 7, 8), (5, 8, 12), (8,), (3, 8), (3, 4)])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 3, 0.1])
def test_all_looks_together_reject_in_alpha_of_null_studies(looks: tuple[int, ...], alpha: float) -> None:
    levels = nominal_levels(looks, alpha)
    assert rejection_probability(looks, levels) == pytest.approx(alpha, abs=5e-5)  # gaps of one pair have small steps
    assert all(earlier < later for earlier, later in itertools.pairwise(levels))
    assert all((level == 0) == (n < 5 and n != looks[-1]) for n, level in zip(looks, levels, strict=True))


def test_the_default_looks_keep_five_percent_by_simulation() -> None:
    assert agrees(simulated(DEFAULT_LOOKS, nominal_levels(DEFAULT_LOOKS, 0.05)), 0.05)


def test_z_bounds_put_on_t_err_as_often_as_the_rules_of_evidence_say() -> None:
    z = [1.9985 * math.sqrt(8 / n) for n in (3, 5, 8)]  # O'Brien and Fleming's shape, 5 % for normal scores
    levels = [2 * float(scipy.special.stdtr(n - 1, -bound)) for n, bound in zip((3, 5, 8), z, strict=True)]
    # The rules of evidence say 17.6 % (simulated); the last digit depends on how the three bounds are rounded.
    assert rejection_probability((3, 5, 8), levels) == pytest.approx(0.176, abs=0.004)


@pytest.mark.parametrize("looks", [(5, 8), (5, 6), (5, 8, 12), (5, 6, 7, 8), (5, 20)])
def test_one_sided_tests_at_the_same_levels_err_in_at_most_alpha(looks: tuple[int, ...]) -> None:
    """One-sided at a_k is half of two-sided at 2 a_k: rejecting on both sides in one study only lowers that."""
    for alpha in (0.1, 0.05, 0.025, 0.05 / 3, 0.005):
        doubled = [2 * level for level in nominal_levels(looks, alpha)]
        assert rejection_probability(looks, doubled) / 2 <= alpha


def test_levels_of_holm_steps_are_calibrated_anew_since_divided_levels_err_more_often() -> None:
    for hypotheses in (2, 3):
        divided = [level / hypotheses for level in nominal_levels((5, 8), 0.05)]
        assert rejection_probability((5, 8), divided) > 1.01 * 0.05 / hypotheses
        assert nominal_levels((5, 8), 0.05 / hypotheses)[0] < divided[0]


@given(st.sampled_from([(5, 8), (3, 5, 8), (5, 7, 9)]), st.integers(0, 2), st.floats(1e-6, 0.999))
@settings(max_examples=40, deadline=None)
def test_the_repeated_p_value_is_within_alpha_exactly_where_the_look_rejects(
    looks: tuple[int, ...], look: int, p: float
) -> None:
    look = min(look, len(looks) - 1)
    repeated = repeated_p(looks, look, p)
    assert p <= repeated <= 1
    for alpha in (0.05, 0.025):
        level = nominal_levels(looks, alpha)[look]
        if abs(p / max(level, 1e-12) - 1) > 1e-3:
            assert (repeated <= alpha) == (p <= level)


def test_repeated_p_values_at_the_ends() -> None:
    assert repeated_p((3, 5, 8), 0, 1e-9) == 1.0
    assert repeated_p((5, 8), 0, 0.0) == 0.0
    assert repeated_p((5, 8), 1, 1.0) == 1.0


@pytest.mark.parametrize("hypotheses", [2, 3])
@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_holm_over_all_looks_keeps_the_family_behind_an_open_gate(hypotheses: int, shared: float) -> None:
    """All secondaries null, the gate open at every look, treatments sharing a baseline or not."""
    differences = null_family(hypotheses, shared)
    wrong = np.zeros(len(differences), np.bool_)
    for look, pairs in enumerate((5, 8)):
        # Any rejection of Holm's under the global null needs the smallest p value at the first step.
        level = nominal_levels((5, 8), 0.05 / hypotheses)[look]
        wrong |= p_values(differences, pairs).min(axis=1) <= level
    share = float(wrong.mean())
    assert share <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / len(differences))
    assert share > 0.04


@pytest.mark.parametrize("at", [1.0, 2.0])
def test_equivalence_over_the_looks_is_false_in_at_most_five_percent(at: float) -> None:
    draws = generator("tests", "normal", 0, "looks", f"equivalence {at}").standard_normal((100_000, 8)) + at
    wrong = np.zeros(len(draws), np.bool_)
    for pairs, level in zip((5, 8), nominal_levels((5, 8), 0.05), strict=True):
        first = draws[:, :pairs]
        error = first.std(axis=1, ddof=1) / math.sqrt(pairs)
        wrong |= scipy.special.stdtr(pairs - 1, (np.abs(first.mean(axis=1)) - at) / error) <= level
    share = float(wrong.mean())
    assert share <= 0.05
    assert share > 0.03


def test_futility_needs_an_estimate_that_leads_nowhere() -> None:
    assert futile((3, 5, 8), mean_sd=0.1, margin_sd=0.2, alpha=0.05)
    assert not futile((3, 5, 8), mean_sd=1.5, margin_sd=0.2, alpha=0.05), "better is likely"
    assert not futile((3, 5, 8), mean_sd=0.1, margin_sd=2.0, alpha=0.05), "equivalence is likely"
    assert not futile((3, 5, 8), mean_sd=0.6, margin_sd=0.2, alpha=0.05), (
        "a word comes in more than a quarter of studies"
    )
    assert not futile((3, 5, 8), mean_sd=-1.5, margin_sd=0.2, alpha=0.05), "worse is likely"


@pytest.mark.parametrize(
    ("looks", "planned", "what"),
    [
        ((5, 5, 8), 8, "increase"),
        ((8, 5), 5, "increase"),
        ((2, 5, 8), 8, "at least 3 pairs"),
        ((5, 8), 9, "last look"),
        ((5, 6, 7, 8, 9, 10), 10, "too many"),
    ],
)
def test_looks_that_cannot_be_are_refused(looks: tuple[int, ...], planned: int, what: str) -> None:
    with pytest.raises(ParibusError, match=what) as error:
        check_looks(looks, planned)
    assert error.value.expected
    assert error.value.received
    assert error.value.remedy
    check_looks((), planned)
    check_looks((5, 8), 8)


def null_family(hypotheses: int, shared: float) -> np.ndarray:
    """Null differences [page hypothesis seed] with pairwise correlation `shared`, as a common baseline gives."""
    rng = generator("tests", "normal", 0, "looks", f"family {hypotheses} {shared}")
    own = rng.standard_normal((50_000, hypotheses, 8))
    common = rng.standard_normal((50_000, 1, 8))
    return math.sqrt(1 - shared) * own + math.sqrt(shared) * common
