"""What holds for every page: symmetry, units, intervals that agree with tests."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.stats.verdict import Comparison, Verdict, Word, decide

Compare = Callable[..., Comparison]

# Gains in steps of 1/64 around a common shift: exact in floating point, so swapping and scaling by powers of 2 are too.
STEPS = st.lists(st.integers(-64, 64), min_size=5, max_size=5).filter(lambda steps: len(set(steps)) > 1)
CONTRAST = st.tuples(STEPS, st.integers(-3, 3)).map(lambda drawn: tuple(step / 64 + drawn[1] for step in drawn[0]))
SECONDARIES = st.lists(CONTRAST, min_size=1, max_size=4)
FLIPPED = {
    Word.BETTER: Word.WORSE,
    Word.WORSE: Word.BETTER,
    Word.BETTER_BY_SMALLEST_EFFECT: Word.WORSE_BY_SMALLEST_EFFECT,
    Word.WORSE_BY_SMALLEST_EFFECT: Word.BETTER_BY_SMALLEST_EFFECT,
}
INTEREST = settings(max_examples=60, deadline=None)


def page(
    compare: Compare, primary: tuple[float, ...], secondaries: list[tuple[float, ...]], factor: float = 1.0
) -> tuple[Verdict, ...]:
    rule = {"smallest_effect": abs(factor), "design_effect": 2 * abs(factor)}
    contrasts = [primary, *secondaries]
    return decide(
        [
            compare(tuple(factor * gain for gain in gains), name=f"c{index}", primary=index == 0, **rule)
            for index, gains in enumerate(contrasts)
        ]
    )


@given(primary=CONTRAST, secondaries=SECONDARIES)
@INTEREST
def test_swapping_treatment_and_baseline_swaps_better_and_worse(
    compare: Compare, primary: tuple[float, ...], secondaries: list[tuple[float, ...]]
) -> None:
    before, after = page(compare, primary, secondaries), page(compare, primary, secondaries, factor=-1.0)
    for one, other in zip(before, after, strict=True):
        assert other.word is FLIPPED.get(one.word, one.word)
        assert (other.p_t, other.p_sign_flip, other.p_holm) == (one.p_t, one.p_sign_flip, one.p_holm)


@given(primary=CONTRAST, secondaries=SECONDARIES, power_of_two=st.integers(-12, 12))
@INTEREST
def test_words_and_p_values_do_not_depend_on_the_unit(
    compare: Compare, primary: tuple[float, ...], secondaries: list[tuple[float, ...]], power_of_two: int
) -> None:
    before, after = page(compare, primary, secondaries), page(compare, primary, secondaries, factor=2.0**power_of_two)
    for one, other in zip(before, after, strict=True):
        assert other.word is one.word
        assert (other.p_t, other.p_equivalence, other.p_sign_flip) == (one.p_t, one.p_equivalence, one.p_sign_flip)
        assert other.mean == 2.0**power_of_two * (one.mean or 0)


@given(primary=CONTRAST, secondaries=SECONDARIES)
@INTEREST
def test_the_interval_excludes_zero_exactly_where_the_adjusted_p_is_below_the_level(
    compare: Compare, primary: tuple[float, ...], secondaries: list[tuple[float, ...]]
) -> None:
    for verdict in page(compare, primary, secondaries):
        p, p_equivalence = verdict.p_t, verdict.p_equivalence
        if not verdict.primary:
            p, p_equivalence = verdict.p_holm, verdict.p_equivalence_holm
        if p is None or p_equivalence is None:
            continue
        assert verdict.interval is not None
        assert verdict.equivalence_interval is not None
        if abs(p - 0.05) > 1e-9:
            assert (verdict.interval[0] > 0 or verdict.interval[1] < 0) == (p < 0.05)
        if abs(p_equivalence - 0.05) > 1e-9:
            low, high = verdict.equivalence_interval
            assert (low > -1 and high < 1) == (p_equivalence < 0.05)


@given(primary=CONTRAST, secondaries=SECONDARIES)
@INTEREST
def test_no_secondary_has_a_tested_word_unless_the_primary_is_not_zero(
    compare: Compare, primary: tuple[float, ...], secondaries: list[tuple[float, ...]]
) -> None:
    first, *others = page(compare, primary, secondaries)
    assert all((other.word is Word.NOT_TESTED) != first.word.not_zero for other in others)


@given(primary=CONTRAST, secondaries=SECONDARIES)
@INTEREST
def test_another_order_of_the_page_changes_no_verdict(
    compare: Compare, primary: tuple[float, ...], secondaries: list[tuple[float, ...]]
) -> None:
    contrasts = [
        compare(gains, name=f"c{index}", primary=index == 0) for index, gains in enumerate([primary, *secondaries])
    ]
    # Equal p values share Holm's levels by position, so words agree where they are distinct.
    p_values = [verdict.p_t for verdict in decide(contrasts)]
    if len(set(p_values)) == len(p_values):
        assert set(decide(contrasts)) == set(decide(contrasts[::-1]))


@given(gains=CONTRAST)
@INTEREST
def test_a_win_is_at_least_the_smallest_effect_and_agrees_with_the_mean(
    compare: Compare, gains: tuple[float, ...]
) -> None:
    (verdict,) = decide([compare(gains, lower_is_better=False)])
    assert verdict.mean == pytest.approx(sum(gains) / len(gains))
    if verdict.word.better or verdict.word.worse:
        assert abs(verdict.mean or 0) >= 1
        assert ((verdict.mean or 0) > 0) == verdict.word.better
    if verdict.word in (Word.EQUIVALENT, Word.EQUIVALENT_NOT_ZERO, Word.BELOW_SMALLEST_EFFECT):
        assert abs(verdict.mean or 0) < 1
