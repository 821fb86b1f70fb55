"""Every word reached by an example made by hand, the order of precedence, and what each sentence says."""

import dataclasses
import json
import math
from collections.abc import Callable

import pytest

from paribus.stats.paired import paired_differences, t_interval
from paribus.stats.verdict import Comparison, Verdict, Word, decide

Compare = Callable[..., Comparison]

# Gains (positive is good) with d = 1. s = 0.1 * sqrt(2.5) = 0.158 for the step of 0.1, half-widths 0.196 and 0.151.
STEPS = (-0.2, -0.1, 0.0, 0.1, 0.2)


def around(mean: float, step: float = 1.0) -> tuple[float, ...]:
    return tuple(mean + step * part for part in STEPS)


EXAMPLES = [
    (around(1.5), Word.BETTER_BY_SMALLEST_EFFECT),
    (around(1.1), Word.BETTER),
    (around(-1.5), Word.WORSE_BY_SMALLEST_EFFECT),
    (around(-1.1), Word.WORSE),
    (around(0.9), Word.BELOW_SMALLEST_EFFECT),
    (around(-0.9), Word.BELOW_SMALLEST_EFFECT),
    (around(0.5), Word.EQUIVALENT_NOT_ZERO),
    (around(0.05), Word.EQUIVALENT),
    (around(0.3, step=10), Word.INCONCLUSIVE),
    (around(1.3, step=10), Word.INCONCLUSIVE),
    ((-1.0, -1.1, -1.2, 4.0, 5.0), Word.SKEWED),
    ((0.5,) * 5, Word.NO_INFORMATION),
    ((0.0,) * 5, Word.NO_INFORMATION),
    ((3.0, 3.1), Word.EXPLORATORY),
    ((3.0,), Word.EXPLORATORY),
]


def one(comparison: Comparison) -> Verdict:
    (verdict,) = decide([comparison])
    return verdict


@pytest.mark.parametrize(("gains", "word"), EXAMPLES)
def test_each_example_gets_its_word_in_both_directions_of_the_metric(
    compare: Compare, gains: tuple[float, ...], word: Word
) -> None:
    higher = one(compare(gains, lower_is_better=False))
    lower = one(compare(tuple(-gain for gain in gains), lower_is_better=True))
    assert higher.word is word
    assert lower.word is word
    assert higher.wins == lower.wins == sum(gain > 0 for gain in gains)


def test_the_words_are_those_of_the_rules() -> None:
    assert [word.value for word in Word] == [
        "better by at least the smallest effect",
        "better",
        "worse by at least the smallest effect",
        "worse",
        "real but below the smallest effect",
        "equivalent and not zero",
        "equivalent",
        "inconclusive",
        "inconclusive, skewed",
        "exploratory",
        "exploratory extension",
        "exploratory: rule changed",
        "no information",
        "not informative",
        "withheld: divergence",
        "waiting for the planned seeds",
        "stop for futility",
        "not tested: primary not rejected",
    ]


def test_a_win_row_carries_every_number(compare: Compare) -> None:
    verdict = one(compare(around(1.1), lower_is_better=False))
    assert verdict.mean == pytest.approx(1.1)
    assert verdict.median == pytest.approx(1.1)
    assert verdict.sd == pytest.approx(0.1 * math.sqrt(2.5))
    assert verdict.standard_error == pytest.approx(0.1 * math.sqrt(0.5))
    assert verdict.interval == t_interval(around(1.1), 0.95)
    assert verdict.interval_confidence == 0.95
    assert verdict.equivalence_interval == t_interval(around(1.1), 0.90)
    assert verdict.equivalence_confidence == 0.90
    assert verdict.p_t is not None
    assert verdict.p_t < 0.05
    assert verdict.p_holm is None
    assert verdict.p_sign_flip == 0.0625
    assert (verdict.wins, verdict.seeds, verdict.planned_seeds) == (5, 5, 5)
    assert (verdict.worst_seed, verdict.worst_difference) == (0, pytest.approx(0.9))
    assert verdict.p_divergence is None


def test_before_the_planned_seeds_nothing_is_shown_but_the_number_of_pairs(compare: Compare) -> None:
    verdict = one(compare(around(5.0)[:4], planned_seeds=5))
    assert verdict.word is Word.WAITING
    assert verdict.seeds == 4
    shown = {field.name for field in dataclasses.fields(verdict) if getattr(verdict, field.name) is not None}
    fixed = {field.name for field in dataclasses.fields(Comparison)}
    assert shown - fixed == {
        "lower_is_better",
        "smallest_effect",
        "design_effect",
        "seeds",
        "planned_seeds",
        "word",
        "looks",
        "extension",
        "futile",
        "sentence",
        "notes",
        "arms",
    }
    assert "4 of 5 pairs" in verdict.sentence
    assert verdict.notes == ()


def test_while_the_primary_waits_the_whole_page_waits(compare: Compare) -> None:
    page = [
        compare(around(5.0)[:4], planned_seeds=5),
        compare(around(5.0), name="other", primary=False),
        compare((1.0, 1.1), name="small", primary=False),
    ]
    verdicts = decide(page)
    assert {verdict.word for verdict in verdicts} == {Word.WAITING}
    assert all(verdict.mean is None and verdict.interval is None and verdict.p_t is None for verdict in verdicts)
    assert "waiting for the planned seeds of the primary" in verdicts[1].sentence


def test_two_planned_seeds_stay_exploratory_however_many_came(compare: Compare) -> None:
    verdict = one(compare(around(5.0), planned_seeds=2, lower_is_better=False))
    assert verdict.word is Word.EXPLORATORY
    assert verdict.p_t is None
    assert verdict.p_sign_flip is None
    assert "not a win" in verdict.sentence


def test_seeds_added_after_a_verdict_was_seen_win_nothing(compare: Compare) -> None:
    gains = (*around(5.0), 5.1)
    verdict = one(compare(gains, planned_seeds=5, seen=(5,), lower_is_better=False))
    assert verdict.word is Word.EXPLORATORY_EXTENSION
    assert any("1 seed added after words were seen at 5" in note for note in verdict.notes)
    # The same pairs shown again at the same number are no extension, and more pairs unseen are only noted.
    assert one(compare(gains, planned_seeds=6, seen=(6,), lower_is_better=False)).word.better
    unseen = one(compare(gains, planned_seeds=5, lower_is_better=False))
    assert unseen.word.better
    assert any("6 pairs where 5 were planned" in note for note in unseen.notes)


def test_a_diverged_cell_withholds_the_t_verdict_and_counts_as_a_loss(compare: Compare) -> None:
    verdict = one(compare(around(-5.0)[:4], diverged=((7,), ())))
    assert verdict.word is Word.DIVERGENCE
    assert (verdict.wins, verdict.seeds) == (4, 5)
    assert verdict.mean is verdict.sd is verdict.interval is verdict.p_t is None
    assert verdict.p_sign_flip == 12 / 32  # of 5.2 5.2 5.1 5.0 4.9, all of one sign (2) or all but one (10) reach 15
    assert verdict.p_divergence == 1.0
    assert verdict.median == pytest.approx(-5.0)
    assert (verdict.worst_seed, verdict.worst_difference) == (7, None)
    assert "withheld" in verdict.sentence
    assert "rd 1, parent 0 of 5" in verdict.sentence
    assert any("rd diverged at seed 7" in note for note in verdict.notes)


def test_differences_that_differ_by_the_rounding_of_their_values_are_no_information(compare: Compare) -> None:
    baseline = {0: 3.1, 1: 2.3, 2: 1.7, 3: 4.9}
    treatment = {seed: value + 0.1 for seed, value in baseline.items()}
    pairs = paired_differences(treatment, baseline)
    assert len(set(pairs.differences)) > 1
    comparison = dataclasses.replace(
        compare(pairs.differences),
        differences=pairs,
        treatment_values=tuple(treatment.values()),
        baseline_values=tuple(baseline.values()),
    )
    verdict = one(comparison)
    assert verdict.word is Word.NO_INFORMATION
    assert verdict.sd == 0.0
    assert verdict.p_t is verdict.p_sign_flip is verdict.interval is None


def test_an_arm_that_diverged_is_named_under_words_that_are_not_about_divergence_too(compare: Compare) -> None:
    few = one(compare((3.0,), diverged=((), (7,))))
    assert few.word is Word.EXPLORATORY
    assert "Diverged: rd 0, parent 1 of 2. " in few.sentence
    changed = dataclasses.replace(compare(around(-5.0), diverged=((7,), ())), rule_changed_after_words=True)
    assert one(changed).word is Word.RULE_CHANGED
    assert "Diverged: rd 1, parent 0 of 6. " in one(changed).sentence
    assert "Diverged" not in one(compare((3.0, 3.1))).sentence


def test_divergence_rates_are_compared_even_where_no_pair_is_left(compare: Compare) -> None:
    verdict = one(compare((), diverged=(tuple(range(6)), ())))
    assert verdict.word is Word.DIVERGENCE
    assert verdict.p_divergence == pytest.approx(2 / 2**6)
    assert (verdict.wins, verdict.seeds) == (0, 6)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        # Each line would also fulfil the conditions of the lines below it.
        ({"planned_seeds": 9, "seen": (5,), "diverged": ((7,), ())}, Word.WAITING),
        ({"planned_seeds": 2, "seen": (5,), "diverged": ((7,), ())}, Word.EXPLORATORY),
        ({"planned_seeds": 5, "seen": (5,), "diverged": ((7,), ())}, Word.EXPLORATORY_EXTENSION),
        ({"planned_seeds": 6, "diverged": ((7,), ())}, Word.DIVERGENCE),
        ({"planned_seeds": 5}, Word.NO_INFORMATION),
    ],
)
def test_the_order_of_the_words_that_come_before_any_test(
    compare: Compare, options: dict[str, object], word: Word
) -> None:
    assert one(compare((-0.5,) * 5, **options)).word is word
    # As a secondary behind a closed gate, the same: facts about the cells come before "not tested".
    closed = compare(around(0.05))
    assert decide([closed, compare((-0.5,) * 5, name="other", primary=False, **options)])[1].word is word


@pytest.mark.parametrize("differences", [around(-1.0), around(0.0), (-1.0, -1.1, -0.9, -1.0, 0.2)])
def test_a_task_whose_arms_sit_on_one_plateau_is_neither_a_difference_nor_a_tie(
    compare: Compare, differences: tuple[float, ...]
) -> None:
    told = compare(differences)
    verdict = one(dataclasses.replace(told, not_informative="both sit on chance (2.08 nats)"))
    assert one(told).word is not Word.NOT_INFORMATIVE
    assert verdict.word is Word.NOT_INFORMATIVE
    assert (verdict.p_t, verdict.p_equivalence, verdict.p_sign_flip) == (None, None, None)
    assert "could not tell the arms apart" in verdict.sentence
    assert "a longer budget or easier knobs may (`paribus calibrate`)" in verdict.sentence
    assert "would settle this" not in verdict.sentence
    assert "not informative: both sit on chance (2.08 nats)" in verdict.notes
    # It opens no gate, and keeps its place in the family.
    blind = dataclasses.replace(told, not_informative="both sit on chance (2.08 nats)")
    behind = decide([blind, compare(around(-1.0), name="other", primary=False)])[1]
    assert behind.word is Word.NOT_TESTED


def test_pairs_that_do_not_differ_are_not_counted_as_lost(compare: Compare) -> None:
    why = "no cell acquired it within 300 updates"
    verdict = one(dataclasses.replace(compare((0.0,) * 4), not_informative=why))
    assert verdict.word is Word.NOT_INFORMATIVE
    assert (verdict.mean, verdict.wins, verdict.median, verdict.interval) == (None, None, None, None)
    assert "No pair differs." in verdict.sentence
    assert "0 of 4" not in verdict.sentence
    assert "better in" not in verdict.sentence
    assert "surviving" not in verdict.sentence
    assert f"not informative: {why}" in verdict.notes


def test_skew_withdraws_a_difference_but_not_equivalence(compare: Compare) -> None:
    # Ten seeds: six just below 0, four far above. t = 2.4 rejects, mean and median disagree.
    skewed = (-0.01,) * 5 + (-0.02,) + (4.0, 4.0, 4.0, 4.01)
    large = one(compare(skewed, lower_is_better=False))
    assert large.p_t is not None
    assert large.p_t < 0.05
    assert large.word is Word.SKEWED
    assert "Mean and median disagree in sign" in large.sentence
    assert "More seeds will not settle this" in large.sentence
    # Within a wide margin the same shape is equivalent, and "not zero" is not claimed.
    assert one(compare(skewed, smallest_effect=100.0, design_effect=200.0)).word is Word.EQUIVALENT


def test_secondaries_behind_an_undecided_primary_are_not_tested(compare: Compare) -> None:
    strong = compare(around(5.0), name="strong", primary=False, lower_is_better=False)
    weak = compare(around(4.0), name="weak", primary=False, lower_is_better=False)
    for primary in (around(0.05), around(0.3, step=10), (0.5,) * 5):
        _, first, second = decide([compare(primary), strong, weak])
        for verdict in (first, second):
            assert verdict.word is Word.NOT_TESTED
            assert verdict.p_t is verdict.p_holm is verdict.p_sign_flip is verdict.p_equivalence is None
            assert verdict.interval_confidence == 0.975  # a description at Holm's first level
            assert "not tested" in verdict.sentence


@pytest.mark.parametrize(
    ("primary", "said"),
    [
        (around(0.05), "The primary is equivalent, so its null of no difference stands"),
        (around(0.3, step=10), "The primary is undecided, so its null of no difference stands"),
        ((-1.0, -1.1, -1.2, 4.0, 5.0), "The primary is undecided, so its null of no difference stands"),
        ((0.5,) * 5, "The primary has no test (its word is: no information)"),
    ],
)
def test_a_closed_gate_says_what_the_primary_is(compare: Compare, primary: tuple[float, ...], said: str) -> None:
    first, second = decide([compare(primary), compare(around(5.0), name="other", primary=False)])
    assert second.word is Word.NOT_TESTED
    assert second.primary_word is first.word
    assert said in second.sentence


def test_a_rule_that_was_chosen_after_words_wins_nothing(compare: Compare) -> None:
    for gains, _ in EXAMPLES[:8]:
        changed = dataclasses.replace(compare(gains, lower_is_better=False), rule_changed_after_words=True)
        verdict = one(changed)
        assert verdict.word is Word.RULE_CHANGED
        assert not verdict.word.not_zero
        assert verdict.p_t is verdict.p_sign_flip is verdict.p_equivalence is verdict.equivalence_interval is None
        assert verdict.mean == pytest.approx(sum(gains) / 5)
        assert verdict.interval == t_interval(gains, 0.95)
        assert "chosen after words had been seen" in verdict.sentence
        assert "not the rule that was fixed before the run" in verdict.notes[0]
    # Seeds added late is the more exact word, and a primary without a test opens no gate.
    late = dataclasses.replace(compare((*around(5.0), 5.1), planned_seeds=6, seen=(5,)), rule_changed_after_words=True)
    assert one(late).word is Word.EXPLORATORY_EXTENSION
    page = [dataclasses.replace(compare(around(5.0)), rule_changed_after_words=True)]
    assert decide([*page, compare(around(5.0), name="b", primary=False)])[1].word is Word.NOT_TESTED


@pytest.mark.parametrize("gains", [around(5.0), around(0.05), around(0.3, step=10)])
def test_pairs_lost_after_words_were_seen_win_nothing_and_the_change_is_said(
    compare: Compare, gains: tuple[float, ...]
) -> None:
    for seen in ((6,), (6, 8)):
        verdict = one(compare(gains, planned_seeds=5, seen=seen, lower_is_better=False))
        assert verdict.word is Word.RULE_CHANGED
        assert verdict.p_t is verdict.p_sign_flip is verdict.p_equivalence is verdict.equivalence_interval is None
        assert verdict.mean == pytest.approx(sum(gains) / 5)
        assert f"words were seen at {seen[-1]} pairs where 5 count now" in verdict.notes[0]
        assert "set seeds.count back or restore the cells" in verdict.notes[0]
    # The rest of the page is produced; behind a primary without a test nothing is tested.
    page = [compare(gains, planned_seeds=5, seen=(6,)), compare(around(5.0), name="b", primary=False)]
    assert [verdict.word for verdict in decide(page)] == [Word.RULE_CHANGED, Word.NOT_TESTED]
    # A diverged or identical pair is still the less exact word, and too few pairs the more exact one.
    assert one(compare((0.5,) * 5, planned_seeds=5, seen=(6,))).word is Word.RULE_CHANGED
    assert one(compare((5.0, 5.1), planned_seeds=2, seen=(6,))).word is Word.EXPLORATORY


def test_before_the_planned_seeds_lost_pairs_wait_and_are_said_without_a_number(compare: Compare) -> None:
    verdict = one(compare(around(5.0)[:4], planned_seeds=5, seen=(5,)))
    assert verdict.word is Word.WAITING
    assert verdict.mean is verdict.median is verdict.interval is verdict.wins is None
    assert ["words were seen at 5 pairs where 4 count now" in note for note in verdict.notes] == [True]


def test_sentences_round_to_two_digits_of_the_standard_error_as_the_table_does(compare: Compare) -> None:
    gains = tuple(0.00123456 + 0.0001 * part for part in STEPS)
    verdict = one(compare(gains, lower_is_better=False, smallest_effect=0.003, design_effect=0.006))
    assert verdict.standard_error == pytest.approx(7.07e-6, rel=1e-3)
    assert "Mean difference +0.0012346 nats, 95 % interval +0.0012149 to +0.0012542." in verdict.sentence
    assert "the smallest effect (0.003 nats)" in verdict.sentence
    wide = one(compare(around(0.3, step=10)))
    assert "Mean difference +0.30 nats, 95 % interval \N{MINUS SIGN}1.66 to +2.26." in wide.sentence


@pytest.mark.parametrize("gains", [around(1.1), around(-1.1), around(0.9), around(0.5)])
def test_secondaries_are_tested_once_the_primary_is_not_zero(compare: Compare, gains: tuple[float, ...]) -> None:
    verdicts = decide([compare(gains), compare(around(5.0), name="strong", primary=False, lower_is_better=False)])
    assert verdicts[1].word is Word.BETTER_BY_SMALLEST_EFFECT
    assert verdicts[1].p_holm == verdicts[1].p_t
    assert verdicts[1].p_equivalence_holm == verdicts[1].p_equivalence


def test_a_secondary_that_fails_under_holm_is_no_win_though_its_own_interval_excludes_zero(compare: Compare) -> None:
    # t = 1.3 / (0.6 sqrt(0.5)) = 3.06, p = 0.038: enough alone, too large for 0.05 / 3.
    gains = around(1.3, step=6.0)
    alone = decide([compare(around(5.0)), compare(gains, name="a", primary=False, lower_is_better=False)])
    assert alone[1].word is Word.BETTER
    page = [
        compare(around(5.0)),
        compare(gains, name="a", primary=False, lower_is_better=False),
        compare(tuple(gain + 1e-3 for gain in gains), name="b", primary=False, lower_is_better=False),
        compare((0.5,) * 5, name="nothing", primary=False),
    ]
    for verdict in decide(page)[1:3]:
        assert verdict.p_t is not None
        assert verdict.p_t < 0.05
        assert verdict.interval_confidence == pytest.approx(1 - 0.05 / 3)
        assert verdict.interval is not None
        assert verdict.interval[0] < 0
        assert verdict.word is Word.INCONCLUSIVE


def test_equivalence_of_secondaries_is_corrected_too(compare: Compare) -> None:
    gains = around(0.05, step=5.5)
    assert one(compare(gains)).word is Word.EQUIVALENT
    page = [compare(around(5.0)), *(compare(gains, name=name, primary=False) for name in ("a", "b"))]
    for verdict in decide(page)[1:]:
        assert verdict.equivalence_confidence == 0.95
        assert verdict.word is Word.INCONCLUSIVE
        assert verdict.p_equivalence is not None
        assert verdict.p_equivalence < 0.05 < (verdict.p_equivalence_holm or 0)


def test_exploratory_secondaries_are_not_in_the_family(compare: Compare) -> None:
    small = compare((1.0, 1.1), name="small", primary=False)
    _, tested, exploratory = decide([compare(around(5.0)), compare(around(5.0), name="a", primary=False), small])
    assert tested.interval_confidence == 0.95
    assert exploratory.word is Word.EXPLORATORY


def test_more_seeds_are_offered_only_where_the_present_estimate_makes_a_word_reachable(compare: Compare) -> None:
    reachable = one(compare(around(3.0, step=20), lower_is_better=False))
    assert reachable.word is Word.INCONCLUSIVE
    # 3 / sqrt(10) = 0.95 sd: the smallest detectable effect is 1.00 sd at 10 seeds and less from 11 on.
    assert "about 6 more seeds would settle this" in reachable.sentence
    unreachable = one(compare(around(1.0, step=10), lower_is_better=False))
    assert unreachable.word is Word.INCONCLUSIVE
    assert "More seeds will not settle this" in unreachable.sentence


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        (around(1.5), "whole interval lies beyond the smallest effect (1 nats)"),
        (around(1.1), "Not found: that the true difference does"),
        (around(0.9), "Not found: a mean difference as large as the smallest effect (1 nats), nor equivalence"),
        (around(0.5), "Not found: a difference that matters"),
        (around(0.05), "Not found: a difference from 0"),
        (around(0.3, step=10), "Not found: a difference from 0, nor equivalence"),
        ((0.5,) * 5, "no information about chance"),
    ],
)
def test_the_sentence_says_what_was_not_found(compare: Compare, gains: tuple[float, ...], said: str) -> None:
    verdict = one(compare(gains, lower_is_better=False))
    assert said in verdict.sentence
    assert f": {verdict.word.value}." in verdict.sentence
    assert verdict.sentence.startswith("rd against parent at S on test.nll")


def test_more_than_twenty_seeds_draw_their_sign_flips_and_say_so(compare: Compare) -> None:
    gains = tuple(1.5 + (index % 7) / 10 for index in range(21))
    first, second = (one(compare(gains)) for _ in range(2))
    assert first == second
    assert any("99,999 drawn flips" in note for note in first.notes)


@pytest.mark.parametrize("gains", [gains for gains, _ in EXAMPLES])
def test_a_verdict_goes_through_strict_json(compare: Compare, gains: tuple[float, ...]) -> None:
    verdict = one(compare(gains))
    back = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert back["word"] == verdict.word.value
    assert back["mean"] == verdict.mean
    assert back["interval"] == (None if verdict.interval is None else list(verdict.interval))
    assert set(back) == {field.name for field in dataclasses.fields(Verdict)}


def test_numbers_that_are_not_finite_become_none_in_json(compare: Compare) -> None:
    verdict = dataclasses.replace(one(compare(around(1.5))), p_t=math.nan, interval=(-math.inf, 1.0))
    assert verdict.to_dict()["p_t"] is None
    assert verdict.to_dict()["interval"] == [None, 1.0]
