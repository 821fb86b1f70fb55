"""What the verdict says at planned looks and in the stages of a declared extension, and which pairs it counts."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.errors import ParibusError
from paribus.stats.extension import combination_interval, combined_z, final_level, whole_p
from paribus.stats.looks import nominal_levels, repeated_p
from paribus.stats.paired import PairedDifferences, equivalence_p, interaction_differences, paired_t, t_interval
from paribus.stats.power import seeds_to_settle
from paribus.stats.procedure import at_look
from paribus.stats.rule import Comparison, Rule, Verdict, Word
from paribus.stats.verdict import decide

Compare = Callable[..., Comparison]
LOOKS: dict[str, Any] = {"planned_seeds": 8, "looks": (5, 8), "lower_is_better": False}
THREE: dict[str, Any] = {**LOOKS, "looks": (3, 5, 8)}
STAGES: dict[str, Any] = {"stage_1_seeds": 5, "stage_1_alpha": 0.01, "lower_is_better": False}
STEPS = (-0.2, -0.1, 0.0, 0.1, 0.2)
EIGHT = (*STEPS, -0.15, 0.05, 0.12)


def around(mean: float, step: float = 1.0, steps: tuple[float, ...] = STEPS) -> tuple[float, ...]:
    return tuple(mean + step * part for part in steps)


def one(comparison: Comparison) -> Verdict:
    (verdict,) = decide([comparison])
    return verdict


def with_seeds(comparison: Comparison, seeds: tuple[int, ...]) -> Comparison:
    return dataclasses.replace(comparison, differences=dataclasses.replace(comparison.differences, seeds=seeds))


def test_an_early_win_is_said_with_the_repeated_interval(compare: Compare) -> None:
    verdict = one(compare(around(1.5), **LOOKS))
    level = nominal_levels((5, 8), 0.05)[0]
    assert verdict.word is Word.BETTER_BY_SMALLEST_EFFECT
    assert (verdict.look, verdict.looks, verdict.early) == (1, (5, 8), True)
    assert verdict.interval == t_interval(around(1.5), round(1 - level, 12))
    assert verdict.interval_confidence == round(1 - level, 12)
    assert verdict.p_t == repeated_p((5, 8), 0, paired_t(around(1.5)).p_two_sided)
    assert "At look 1 of 2 (5 of 8 pairs). Stopped early: the interval is the repeated one" in verdict.sentence
    assert "98.93 % interval" in verdict.sentence
    assert any("looks were planned at 5, 8 pairs, together at 5 %" in note for note in verdict.notes)


def test_an_early_look_asks_for_more_than_the_last(compare: Compare) -> None:
    # t = 1.2 / (0.55 sqrt(0.5)) = 3.1, p = 0.036: enough at one look of five pairs, too much at the first of two.
    gains = around(1.2, step=5.5)
    assert one(compare(gains, lower_is_better=False)).word is Word.BETTER
    early = one(compare(gains, **LOOKS))
    assert early.word is Word.INCONCLUSIVE
    assert early.p_t is not None
    assert early.p_t > 0.05
    assert "Not settled at this point: the next look is at 8 pairs." in early.sentence
    assert "Stopped early" not in early.sentence


def test_the_last_look_is_tested_at_its_own_level(compare: Compare) -> None:
    gains = around(1.5, steps=EIGHT)
    verdict = one(compare(gains, **LOOKS, seen=(5,)))
    assert verdict.word is Word.BETTER_BY_SMALLEST_EFFECT
    assert verdict.interval == t_interval(gains, round(1 - nominal_levels((5, 8), 0.05)[1], 12))
    assert (verdict.look, verdict.early) == (2, False)
    assert "At look 2 of 2 (8 of 8 pairs)." in verdict.sentence
    assert any("words were shown before at 5 pairs" in note for note in verdict.notes)
    assert not any("added after words were seen" in note for note in verdict.notes)


def test_equivalence_at_a_look_uses_the_same_levels(compare: Compare) -> None:
    verdict = one(compare(around(0.05), **LOOKS))
    level = nominal_levels((5, 8), 0.05)[0]
    assert verdict.word is Word.EQUIVALENT
    assert verdict.equivalence_interval == t_interval(around(0.05), round(1 - 2 * level, 12))
    assert verdict.p_equivalence == repeated_p((5, 8), 0, equivalence_p(around(0.05), 1.0))
    assert "Stopped early" in verdict.sentence


def test_secondaries_at_a_look_take_the_levels_of_their_step_of_holm(compare: Compare) -> None:
    page = [
        compare(around(5.0), **LOOKS),
        compare(around(3.0), name="strong", primary=False, **LOOKS),
        compare(around(1.3, step=5.0), name="weak", primary=False, **LOOKS),
    ]
    _, strong, weak = decide(page)
    assert strong.word.better
    assert strong.interval_confidence == pytest.approx(1 - nominal_levels((5, 8), 0.025)[0], abs=1e-12)
    assert weak.interval_confidence == pytest.approx(1 - nominal_levels((5, 8), 0.05)[0], abs=1e-12)
    assert strong.p_holm == pytest.approx(2 * (strong.p_t or 0))


@given(
    steps=st.lists(st.integers(-64, 64), min_size=5, max_size=5).filter(lambda steps: len(set(steps)) > 1),
    shift=st.integers(-3, 3),
    declared=st.sampled_from(["looks", "stage 1"]),
)
@settings(max_examples=40, deadline=None)
def test_intervals_agree_with_p_values_at_every_stop(
    compare: Compare, steps: list[int], shift: int, declared: str
) -> None:
    rule = LOOKS if declared == "looks" else {**STAGES, "planned_seeds": 5}
    verdict = one(compare(tuple(shift + step / 64 for step in steps), **rule))
    assert verdict.interval is not None
    assert verdict.equivalence_interval is not None
    assert verdict.p_t is not None
    assert verdict.p_equivalence is not None
    low, high = verdict.interval
    if abs(verdict.p_t - 0.05) > 1e-4:
        assert (low > 0 or high < 0) == (verdict.p_t < 0.05)
    low, high = verdict.equivalence_interval
    if abs(verdict.p_equivalence - 0.05) > 1e-4:
        assert (low > -1 and high < 1) == (verdict.p_equivalence < 0.05)


def test_before_the_first_look_and_between_looks_there_is_no_number(compare: Compare) -> None:
    for count, awaited in (
        (4, "4 of 5 pairs are there for look 1 of 2"),
        (6, "6 of 8 pairs are there for look 2 of 2"),
    ):
        verdict = one(compare(around(5.0, steps=EIGHT[:count]), **LOOKS))
        assert verdict.word is Word.WAITING
        assert verdict.mean is verdict.p_t is verdict.interval is verdict.wins is verdict.look is None
        assert awaited in verdict.sentence
        assert verdict.notes == ()


def test_a_look_below_what_was_shown_already_waits(compare: Compare) -> None:
    assert one(compare(around(5.0), **LOOKS, seen=(5, 8))).word is Word.WAITING


def test_a_look_below_five_pairs_serves_futility_only(compare: Compare) -> None:
    strong = one(compare((5.0, 5.1, 5.2), **THREE))
    assert strong.word is Word.WAITING
    assert strong.mean is strong.p_t is strong.interval is None
    assert "no word is due before 5" in strong.sentence
    assert one(compare((0.0, 0.01, -0.01), **THREE)).word is Word.WAITING, "no equivalence either"
    futile = one(compare((-10.0, 0.5, 10.0), **THREE))
    assert futile.word is Word.FUTILE
    assert not futile.word.settled
    assert futile.interval is futile.equivalence_interval is futile.p_t is futile.p_sign_flip is None
    assert futile.mean == pytest.approx(1 / 6)
    assert "At look 1 of 3 (3 of 8 pairs)." in futile.sentence
    assert "More seeds will not settle this" in futile.sentence
    assert "no win and no equivalence" in futile.sentence


def test_at_a_futility_look_the_rest_of_the_page_waits(compare: Compare) -> None:
    page = [compare((-10.0, 0.5, 10.0), **THREE), compare(around(5.0), name="b", primary=False, **THREE)]
    first, second = decide(page)
    assert (first.word, second.word) == (Word.FUTILE, Word.WAITING)
    assert second.mean is None
    futile_too = compare((-10.0, 0.5, 10.0), name="b", primary=False, **THREE)
    assert decide([page[0], futile_too])[1].word is Word.WAITING, "futility is said of the primary only"
    for diverged in (((7,), ()), ((), (7,))):
        assert one(compare((-10.0, 10.0), diverged=diverged, **THREE)).word is Word.WAITING
    assert one(compare((1.0, 1.0, 1.0), **THREE)).word is Word.WAITING


def test_a_look_counts_the_first_planned_seeds_and_no_others(compare: Compare) -> None:
    there = with_seeds(compare(around(5.0, steps=EIGHT), **LOOKS), (0, 1, 2, 3, 4, 5, 6, 9))
    looked = at_look(there, range(8))
    assert looked.differences.seeds == (0, 1, 2, 3, 4)
    assert looked.differences.differences == there.differences.differences[:5]
    assert looked.treatment_values == there.treatment_values[:5]
    assert looked.uncounted_seeds == (5, 6, 9)
    verdict = one(looked)
    assert verdict.look == 1
    assert any("3 further pairs (seed 5, 6, 9) there and not counted here" in note for note in verdict.notes)


def test_five_pairs_are_no_look_while_one_of_the_first_five_is_missing(compare: Compare) -> None:
    there = with_seeds(compare(around(5.0), **LOOKS), (0, 1, 2, 4, 5))
    looked = at_look(there, range(8))
    assert looked.differences.seeds == (0, 1, 2)
    verdict = one(looked)
    assert verdict.word is Word.WAITING
    assert "3 of 5 pairs are there for look 1 of 2" in verdict.sentence
    assert "2 further pairs cannot count" in verdict.sentence
    nothing = at_look(with_seeds(there, (1, 2, 3, 4, 5)), range(8))
    assert nothing.differences.pairs == 0
    assert one(nothing).word is Word.WAITING


def test_the_order_of_the_planned_seeds_decides_not_their_numbers(compare: Compare) -> None:
    there = with_seeds(compare(around(5.0, steps=EIGHT[:6]), **LOOKS), (10, 11, 12, 13, 14, 15))
    assert at_look(there, range(10, 18)).differences.seeds == (10, 11, 12, 13, 14)


def test_a_diverged_pair_is_there_at_its_look(compare: Compare) -> None:
    there = compare(around(5.0), diverged=((13,), (16,)), **LOOKS)
    renumbered = PairedDifferences((0, 1, 2, 4, 5), there.differences.differences, (3,), (6,))
    there = dataclasses.replace(there, differences=renumbered)
    looked = at_look(there, range(8))
    assert looked.differences.seeds == (0, 1, 2, 4)
    assert looked.differences.diverged == (3,)
    verdict = one(looked)
    assert verdict.word is Word.DIVERGENCE
    assert (verdict.look, verdict.seeds) == (1, 5)
    assert verdict.uncounted_seeds == (5, 6)


def test_without_looks_every_pair_counts(compare: Compare) -> None:
    comparison = compare(around(5.0), planned_seeds=8)
    assert at_look(comparison, range(8)) is comparison


def test_the_four_arms_of_an_interaction_are_restricted_together(compare: Compare) -> None:
    cells: list[dict[int, float | None]] = [{s: float(a * s * s + a) for s in range(7)} for a in range(1, 5)]
    pairs = interaction_differences(*cells)
    t, b, mt, mb = (tuple(float(cell[s] or 0) for s in pairs.seeds) for cell in cells)
    comparison = dataclasses.replace(
        compare((0.0,) * 7, **LOOKS),
        differences=pairs,
        minus_treatment="c",
        minus_baseline="d",
        treatment_values=t,
        baseline_values=b,
        minus_treatment_values=mt,
        minus_baseline_values=mb,
    )
    looked = at_look(comparison, range(8))
    assert [len(values) for values in looked.values] == [5] * 4
    assert looked.differences.differences == pairs.differences[:5]


def test_stage_1_is_tested_at_its_own_level(compare: Compare) -> None:
    verdict = one(compare(around(1.5), **STAGES, planned_seeds=5))
    assert verdict.word is Word.BETTER_BY_SMALLEST_EFFECT
    assert verdict.interval == t_interval(around(1.5), 0.99)
    assert verdict.p_t == pytest.approx(5 * paired_t(around(1.5)).p_two_sided)
    assert "Stage 1 of a declared extension (5 pairs)." in verdict.sentence
    assert any("stage 1 of 5 pairs at 1 %, both stages together at 5 %" in note for note in verdict.notes)
    open_ = one(compare(around(1.3, step=5.5), **STAGES, planned_seeds=5))
    assert open_.word is Word.INCONCLUSIVE
    assert "in the extension that was declared beforehand" in open_.sentence


def test_the_end_of_an_extension_is_the_combination_of_both_stages(compare: Compare) -> None:
    one_, two = around(1.3, step=5.5), (0.9, 1.4, 2.0, 1.6)
    verdict = one(compare((*one_, *two), **STAGES, planned_seeds=9, seen=(5,)))
    level = final_level(0.01, 0.05)
    assert verdict.word is Word.BETTER
    assert verdict.interval == combination_interval(one_, two, level)
    assert verdict.interval_confidence == round(1 - level, 12)
    assert verdict.p_t == whole_p(float(combined_z(one_, two)), 0.01, 0.05)
    assert verdict.equivalence_interval == combination_interval(one_, two, 2 * level)
    assert (verdict.look, verdict.looks, verdict.seeds) == (2, (5, 9), 9)
    assert "Both stages of the declared extension (5 and 4 pairs) together." in verdict.sentence
    assert not any("added after words were seen" in note for note in verdict.notes)


def test_what_stage_1_settled_stands(compare: Compare) -> None:
    further = (-9.0, -8.0, -10.0)
    for gains, word in ((around(1.5), Word.BETTER_BY_SMALLEST_EFFECT), (around(0.05), Word.EQUIVALENT)):
        at_first = one(compare(gains, **STAGES, planned_seeds=5))
        assert at_first.word is word
        verdict = one(compare((*gains, *further), **STAGES, planned_seeds=8, seen=(5,)))
        assert verdict.word is word
        assert (verdict.mean, verdict.interval, verdict.seeds) == (at_first.mean, at_first.interval, 5)
        assert verdict.uncounted_seeds == (5, 6, 7)
        assert "It was settled there and stands" in verdict.sentence
    diverged = one(compare((*around(1.5), 1.4, 1.6), diverged=((9,), ()), **STAGES, planned_seeds=8))
    assert diverged.word is Word.DIVERGENCE, "a diverged cell is never hidden behind stage 1"


def test_while_stage_2_is_incomplete_stage_1_is_shown(compare: Compare) -> None:
    there = compare(around(1.3, step=5.5, steps=EIGHT[:7]), **STAGES, planned_seeds=9, seen=(5,))
    verdict = one(at_look(there, range(9)))
    assert verdict.word is Word.INCONCLUSIVE
    assert (verdict.look, verdict.seeds, verdict.uncounted_seeds) == (1, 5, (5, 6))
    assert "stage 2 ends at 9 pairs" in verdict.sentence
    assert one(at_look(dataclasses.replace(there, verdict_seen_at=(5, 8)), range(9))).word is Word.WAITING


ALLOW = "allow for all of them"


def test_only_where_a_test_was_made_numbers_are_said_to_allow_for_all_looks(compare: Compare) -> None:
    def note(*page: Comparison) -> str:
        """The note about looks of the page's last contrast."""
        return next(note for note in decide(list(page))[-1].notes if note.startswith("looks were planned at "))

    eight = around(5.0, steps=EIGHT)
    for gains in (eight, around(0.0, steps=EIGHT), around(0.3, step=40, steps=EIGHT)):
        assert f"together at 5 %: p values and intervals {ALLOW}" in note(compare(gains, **LOOKS))
    changed = dataclasses.replace(compare(eight, **LOOKS), rule_changed_after_words=True)
    late = compare((*eight, 5.0), **LOOKS, seen=(8,))
    for comparison, word in ((changed, Word.RULE_CHANGED), (late, Word.EXPLORATORY_EXTENSION)):
        verdict = one(comparison)
        assert verdict.word is word
        assert verdict.interval == t_interval(comparison.differences.differences, 0.95)  # the plain one
        assert "together at 5 %: nothing was tested, and the interval allows for none of them" in note(comparison)
    futile = compare((-10.0, 0.5, 10.0), **THREE)
    diverged = compare(eight[:7], diverged=((9,), ()), **LOOKS)
    for comparison, word in ((futile, Word.FUTILE), (diverged, Word.DIVERGENCE)):
        verdict = one(comparison)
        assert verdict.word is word
        assert verdict.interval is None
        assert "allow" not in note(comparison)
    gated = compare(eight, name="b", primary=False, **LOOKS)
    closed = note(compare(around(0.3, step=40, steps=EIGHT), **LOOKS), gated)
    assert closed.endswith("together at 5 %: the interval, which only describes, allows for all of them")


def test_an_extension_is_offered_at_no_fewer_pairs_than_its_stage_needs(compare: Compare) -> None:
    # Nearly settled: one or two more pairs would do, which no second stage can have.
    near = around(1.45, step=4.6)
    alone = one(compare(near, **STAGES, planned_seeds=5))
    assert alone.word is Word.INCONCLUSIVE
    assert "about 3 more seeds would settle this, in the extension that was declared beforehand" in alone.sentence
    fewer = seeds_to_settle(
        5, (alone.mean or 0) / (alone.sd or 1), 1 / (alone.sd or 1), confidence=0.99, equivalence_confidence=0.98
    )
    assert fewer is not None
    assert fewer - 5 < 3


def test_a_second_extension_was_not_declared(compare: Compare) -> None:
    verdict = one(compare(around(5.0, steps=(*EIGHT, 0.3, 0.2, 0.1)), **STAGES, planned_seeds=11, seen=(5, 8)))
    assert verdict.word is Word.EXPLORATORY_EXTENSION
    late = one(compare(around(5.0, steps=(*EIGHT, 0.3)), **LOOKS, seen=(5, 8)))
    assert late.word is Word.EXPLORATORY_EXTENSION


def test_a_stage_without_spread_is_no_information(compare: Compare) -> None:
    assert one(compare((*around(1.3), 1.0, 1.0, 1.0), **STAGES, planned_seeds=8)).word is Word.NO_INFORMATION
    assert one(compare((*(1.0,) * 5, *around(1.3)), **STAGES, planned_seeds=10)).word is Word.NO_INFORMATION


def test_two_stages_that_part_company_claim_nothing(compare: Compare) -> None:
    """With a strict stage 1 the weights can outvote the mean of all pairs; then no word is said for either."""
    rule = {**STAGES, "stage_1_alpha": 0.001, "planned_seeds": 13}
    down = (-20.0, -20.1, -19.9, -20.2, -19.8, -20.0, -20.3, 100.0)
    opposed = one(compare((*around(0.1, step=0.177), *down), **rule, smallest_effect=0.05, design_effect=0.1))
    assert opposed.interval is not None
    assert opposed.mean is not None
    assert opposed.interval[0] > 0 > opposed.mean
    assert opposed.word is Word.INCONCLUSIVE
    outside = one(compare((*around(0.0, step=2.0), *(-value for value in down)), **rule))
    assert outside.equivalence_interval is not None
    assert outside.mean is not None
    assert -1 < outside.equivalence_interval[0] < outside.equivalence_interval[1] < 1 < outside.mean
    assert outside.word is Word.INCONCLUSIVE


def test_secondaries_of_an_extension_share_alpha_by_holm(compare: Compare) -> None:
    one_, two = around(1.3, step=5.5), (0.9, 1.4, 2.0, 1.6)
    page = [
        compare((*around(5.0), *two), **STAGES, planned_seeds=9),
        compare((*one_, *two), name="a", primary=False, **STAGES, planned_seeds=9),
        compare((*around(0.1, step=20), -2.0, 1.0, 3.0, 0.5), name="b", primary=False, **STAGES, planned_seeds=9),
    ]
    primary, a, _ = decide(page)
    assert primary.look == 1, "settled at stage 1"
    assert a.p_t == whole_p(float(combined_z(one_, two)), 0.01, 0.05)
    assert a.p_holm == pytest.approx(2 * (a.p_t or 0))
    assert a.interval == combination_interval(one_, two, final_level(0.005, 0.025))


def test_a_rule_refuses_looks_and_stages_that_cannot_be() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"looks": (5, 7)}, "last look"),
        ({"looks": (5, 8), "stage_1_seeds": 5, "stage_1_alpha": 0.01}, "exclude"),
        ({"stage_1_seeds": 5}, "both"),
        ({"stage_1_seeds": 6, "stage_1_alpha": 0.01}, "neither stage 1 nor"),
    ]
    for change, what in cases:
        with pytest.raises(ParibusError, match=what):
            Rule(1.0, 2.0, planned_seeds=8, **change)


ANY_RULE: list[dict[str, Any]] = [
    {"planned_seeds": 1},
    {"planned_seeds": 2},
    {"planned_seeds": 3},
    {"planned_seeds": 5},
    LOOKS,
    THREE,
    {**STAGES, "planned_seeds": 5},
    {**STAGES, "planned_seeds": 8},
]
CELL = st.sampled_from([-2.0, -0.1, 0.0, 0.1, 0.5, 3.0, "treatment", "baseline", "both", "missing"])


@st.composite
def any_comparison(draw: st.DrawFn) -> Comparison:
    """Whatever can be there: no pair, one pair, all diverged, one side diverged, identical, words seen or not."""
    cells = draw(st.lists(CELL, max_size=10))
    found = [(seed, cell) for seed, cell in enumerate(cells) if isinstance(cell, float)]
    pairs = PairedDifferences(
        tuple(seed for seed, _ in found),
        tuple(value for _, value in found),
        tuple(seed for seed, cell in enumerate(cells) if cell in ("treatment", "both")),
        tuple(seed for seed, cell in enumerate(cells) if cell in ("baseline", "both")),
    )
    comparison = Comparison(
        name=draw(st.sampled_from(["a", "b", "c", "d"])),
        treatment="rd",
        baseline="parent",
        scale="S",
        metric="test.nll",
        unit="nats",
        primary=False,
        rule=Rule(1.0, 2.0, **draw(st.sampled_from(ANY_RULE))),
        differences=pairs,
        treatment_values=pairs.differences,
        baseline_values=(0.0,) * len(pairs.differences),
        rule_changed_after_words=draw(st.booleans()),
        verdict_seen_at=draw(st.sampled_from([(), (), (3,), (5,), (5, 8)])),
    )
    return at_look(comparison, range(comparison.rule.planned_seeds)) if draw(st.booleans()) else comparison


@given(st.lists(any_comparison(), min_size=1, max_size=4, unique_by=lambda comparison: comparison.name))
@settings(max_examples=150, deadline=None)
def test_whatever_is_there_every_contrast_gets_one_word_and_one_sentence(page: list[Comparison]) -> None:
    page[0] = dataclasses.replace(page[0], primary=True)
    for comparison, verdict in zip(page, decide(page), strict=True):
        assert verdict.sentence.startswith("rd against parent at S on test.nll: ")
        assert verdict.sentence.endswith(".")
        assert "None" not in verdict.sentence
        assert "nan" not in verdict.sentence.lower().replace("no information about chance", "")
        assert verdict.to_dict()["word"] == verdict.word.value
        if verdict.word is Word.WAITING:
            assert verdict.mean is verdict.wins is verdict.p_t is None
        if verdict.word.settled:
            assert not comparison.differences.diverged
            assert not comparison.rule_changed_after_words
            assert max(comparison.verdict_seen_at, default=0) <= comparison.differences.pairs
            assert verdict.seeds >= 3
        if comparison.differences.diverged and verdict.word is not Word.WAITING:
            assert verdict.mean is None
