"""Paired items against scipy and statsmodels, the admission of tasks, and the parts of a CORE difference."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.items import (
    above_chance,
    accuracy_by_seed,
    admitted,
    core_mean,
    core_shares,
    items_interval,
    over_seeds,
    paired_accuracy,
    paired_gold_bits,
    paired_mean,
)
from paribus.stats.paired import paired_t

answers = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=80)


@given(answers)
def test_mcnemar_is_the_exact_binomial_test_of_scipy_and_statsmodels(pairs):
    t, b = (list(column) for column in zip(*pairs, strict=True))
    found = paired_accuracy(t, b, chance=0.25)
    table = [[sum(x == i and y == j for x, y in pairs) for j in (True, False)] for i in (True, False)]
    assert (found.only_treatment, found.only_baseline) == (table[0][1], table[1][0])
    discordant = found.only_treatment + found.only_baseline
    if discordant:
        reference = scipy.stats.binomtest(found.only_treatment, discordant, 0.5).pvalue
        # Sums of at most 80 binomial terms.
        assert found.p_mcnemar == pytest.approx(reference, rel=1e-12)
        other: Any = mcnemar(np.array(table), exact=True)
        assert found.p_mcnemar == pytest.approx(float(other.pvalue), rel=1e-12)
    else:
        assert found.p_mcnemar == 1.0


@given(answers, st.sampled_from([0.0, 0.25, 0.5, 0.62]))
def test_the_difference_and_its_error_are_those_of_paired_values(pairs, chance):
    t, b = (np.array(column, float) for column in zip(*pairs, strict=True))
    found = paired_accuracy(t.astype(bool), b.astype(bool), chance=chance)
    n, only_t, only_b = len(pairs), found.only_treatment, found.only_baseline
    assert found.difference == pytest.approx(found.treatment - found.baseline, abs=1e-15)
    # Agresti's variance of a paired difference of shares, with n - 1 in place of n.
    variance = ((only_t + only_b) / n - ((only_t - only_b) / n) ** 2) / (n - 1)
    assert found.standard_error == pytest.approx(math.sqrt(variance), rel=1e-9, abs=1e-12)
    centred = [(share - chance) / (1 - chance) for share in (found.treatment, found.baseline)]
    assert found.centred_difference == pytest.approx(centred[0] - centred[1], rel=1e-12, abs=1e-14)
    assert found.centred_standard_error == pytest.approx(found.standard_error / (1 - chance), rel=1e-15)


def test_pairing_makes_the_error_smaller_than_that_of_two_samples_where_items_differ_in_difficulty():
    draw = generator("tests", "items", "difficulty")
    easy = draw.uniform(size=2000)
    t, b = draw.uniform(size=2000) < easy, draw.uniform(size=2000) < easy
    found = paired_accuracy(t, b, chance=0.0)
    unpaired = math.sqrt((np.var(t, ddof=1) + np.var(b, ddof=1)) / 2000)
    # Var(difference) of an item is 2 E[p(1 - p)] = 1/3 paired and 2 x 1/4 unpaired: a ratio of errors of 0.816.
    assert found.standard_error / unpaired == pytest.approx(math.sqrt(2 / 3), abs=0.03)


def test_seeds_give_one_result_each_and_only_their_differences_enter_the_estimate_over_seeds():
    draw = generator("tests", "items", "seeds")
    t = {seed: draw.uniform(size=300) < 0.60 for seed in (3, 1, 2)}
    b = {seed: draw.uniform(size=300) < 0.55 for seed in (1, 2, 3, 7)}
    found = accuracy_by_seed(t, b, chance=0.25)
    assert list(found) == [1, 2, 3]
    assert all(found[seed] == paired_accuracy(t[seed], b[seed], chance=0.25) for seed in found)
    estimate = over_seeds(found)
    reference = scipy.stats.ttest_rel([t[s].mean() for s in found], [b[s].mean() for s in found])
    assert estimate.degrees_of_freedom == 2
    assert estimate.p_two_sided == pytest.approx(float(reference.pvalue), rel=1e-10)


def test_items_pooled_over_seeds_would_find_what_is_seed_noise():
    """A seed moves every item's chance of a right answer: five seeds of 1000 items, and no effect of the arm."""
    draw, pages = generator("tests", "items", "pooled"), 300
    pooled, over = 0, 0
    for _ in range(pages):
        shares = 0.5 + draw.normal(0.0, 0.03, (2, 5))
        t, b = ({seed: draw.uniform(size=1000) < shares[arm, seed] for seed in range(5)} for arm in (0, 1))
        over += over_seeds(accuracy_by_seed(t, b, chance=0.25)).p_two_sided < 0.05
        pooled += paired_accuracy(
            np.concatenate([*t.values()]), np.concatenate([*b.values()]), chance=0.0
        ).p_mcnemar < (0.05)
    # 5 % with four binomial standard errors of 300 pages, 0.05; pooled: z has variance 1 + 2 x 0.03^2 x 1000/0.5 = 4.6.
    assert over / pages < 0.1
    assert pooled / pages > 0.25


def test_gold_bits_per_byte_are_the_mean_of_each_items_own():
    t, b, sizes = np.array([1.0, 4.0, 2.0]), np.array([2.0, 3.0, 2.0]), np.array([1, 2, 4])
    found = paired_gold_bits(t, b, sizes)
    by_item = np.array([-1.0, 0.5, 0.0]) / math.log(2.0)
    assert found.difference == pytest.approx(by_item.mean(), rel=1e-15)
    assert found.standard_error == pytest.approx(scipy.stats.sem(by_item), rel=1e-14)
    assert found.items == 3


def test_gold_bits_of_one_item_have_no_standard_error():
    assert math.isnan(paired_gold_bits([1.0], [2.0], [3]).standard_error)


def test_the_mean_over_items_is_the_paired_t_of_scipy():
    draw = generator("tests", "items", "mean")
    t, b = draw.normal(size=40), draw.normal(size=40)
    found, reference = paired_mean(t, b), scipy.stats.ttest_rel(t, b)
    assert found.difference / found.standard_error == pytest.approx(float(reference.statistic), rel=1e-12)
    assert paired_t((t - b).tolist()).mean == pytest.approx(found.difference, rel=1e-12)


def test_the_interval_over_items_is_the_paired_t_interval_of_scipy():
    draw = generator("tests", "items", "interval")
    t, b = draw.normal(size=30), draw.normal(size=30)
    for level in (0.9, 0.95):
        reference = scipy.stats.ttest_rel(t, b).confidence_interval(level)
        assert items_interval(paired_mean(t, b), level) == pytest.approx((reference.low, reference.high), rel=1e-10)


@pytest.mark.parametrize("pair", [([1.0], [0.0]), ([1.0, 2.0], [0.0, 1.0])])
def test_without_a_spread_over_items_there_is_no_interval(pair):
    assert items_interval(paired_mean(*pair)) is None


def test_a_control_at_chance_clears_it_as_seldom_as_two_standard_errors_say():
    draw = generator("tests", "items", "control")
    for chance, seeds in ((0.25, 1), (0.25, 5), (0.5, 3)):
        found = [
            above_chance((draw.binomial(400, chance, seeds) / 400).tolist(), chance, items=400) for _ in range(2000)
        ]
        # One-sided beyond 2 standard errors 2.3 % for one seed, less for the mean of independent ones; 2000 draws have
        # a standard error of 0.33 points, and four of them are allowed.
        assert np.mean([one.clears for one in found]) < 0.023 + 4 * 0.0033
    assert above_chance([0.31, 0.3, 0.32], 0.25, items=2000).clears


def test_seeds_of_one_score_do_not_make_a_lucky_share_of_letters_clear_chance():
    lucky = above_chance([0.28] * 5, 0.25, items=400)
    assert lucky.standard_error == pytest.approx(math.sqrt(0.28 * 0.72 / 400), rel=1e-12)
    assert not lucky.clears
    assert above_chance([0.28] * 5, 0.25, items=4000).clears


def test_where_chance_is_nothing_a_few_hits_are_no_skill():
    assert not above_chance([3 / 500], 0.0, items=500).clears  # 2 sqrt(p (1 - p)/n) = p near p = 4/n
    assert above_chance([6 / 500], 0.0, items=500).clears
    assert not above_chance([0.0], 0.0, items=500).clears


def test_a_spread_over_seeds_larger_than_that_over_items_counts():
    found = above_chance([0.2, 0.5, 0.35], 0.25, items=4000)
    assert found.standard_error == pytest.approx(0.15 / math.sqrt(3), rel=1e-12)
    assert not found.clears


def test_a_task_is_admitted_when_the_baseline_clears_chance_by_two_standard_errors():
    means = [0.30, 0.32, 0.34]  # mean 0.32, standard error 0.02/sqrt(3) = 0.01155
    error = 0.02 / math.sqrt(3)
    yes, no = admitted(means, 0.32 - 2.01 * error), admitted(means, 0.32 - 1.99 * error)
    assert yes.admitted
    assert not no.admitted
    assert (yes.word, no.word) == ("", "at chance")
    assert "does not clear chance" in no.reason
    assert yes.standard_error == pytest.approx(error, rel=1e-12)


@pytest.mark.parametrize(
    ("means", "chance", "items", "word"),
    [
        ([0.979, 0.983, 0.985], 0.25, None, "saturated"),
        ([0.9], 0.25, None, "one seed"),
        ([0.9], 0.25, 1000, "one seed"),
        ([0.4, 0.4, 0.4], 0.25, None, "one accuracy"),
        ([0.28, 0.28, 0.28], 0.25, 100, "does not clear chance"),
        ([0.1, 0.11, 0.1], 0.25, None, "does not clear chance"),
    ],
)
def test_a_task_that_says_nothing_is_left_out_with_its_reason(means, chance, items, word):
    found = admitted(means, chance, items=items)
    assert not found.admitted
    assert word in found.reason
    assert found.word in ("saturated", "one seed", "no noise known", "at chance")


def test_one_letter_for_every_item_is_not_admitted_by_a_lucky_share_of_that_letter():
    assert not admitted([0.27, 0.27, 0.27], 0.25, items=500).admitted
    assert admitted([0.27, 0.27, 0.27], 0.25, items=5000).admitted  # 0.25 + 2 x 0.0061 < 0.27
    assert admitted([0.97, 0.975, 0.98], 0.25, items=500).admitted


def test_contributions_add_up_to_the_difference_of_the_core_scores():
    chances_v1 = {"cloze": 0.0, "choice": 0.25, "yes": 0.62}
    chances_v2 = {"cloze": 0.0, "choice": 0.25, "yes": 0.5}
    t, b = {"cloze": 0.40, "choice": 0.50, "yes": 0.70}, {"cloze": 0.38, "choice": 0.53, "yes": 0.60}

    def core(scores, chances):
        return sum((scores[k] - chances[k]) / (1 - chances[k]) for k in scores) / len(scores)

    found = core_shares({k: t[k] - b[k] for k in t}, chances_v1, chances_v2)
    assert found.difference_v1 == pytest.approx(core(t, chances_v1) - core(b, chances_v1), rel=1e-12)
    assert found.difference_v2 == pytest.approx(core(t, chances_v2) - core(b, chances_v2), rel=1e-12)
    assert [task.task for task in found.tasks] == ["yes", "choice", "cloze"]
    yes = found.tasks[0]
    assert yes.contribution_v1 == pytest.approx(0.1 / 0.38 / 3, rel=1e-12)
    assert yes.contribution_v2 == pytest.approx(0.1 / 0.50 / 3, rel=1e-12)
    for shares in ([task.share_v1 for task in found.tasks], [task.share_v2 for task in found.tasks]):
        assert sum(share for share in shares if share is not None) == pytest.approx(1.0, rel=1e-12)


shares = st.floats(0, 1, allow_subnormal=False)
chances = st.sampled_from([0.0, 0.091, 0.2, 0.25, 0.5, 0.62])


@given(st.lists(st.tuples(shares, shares, chances), min_size=1, max_size=22))
def test_the_difference_of_two_core_means_is_the_sum_of_the_shares(tasks):
    names = [f"task {number}" for number in range(len(tasks))]
    t, b, r = ({name: entry[place] for name, entry in zip(names, tasks, strict=True)} for place in range(3))
    found = core_shares({name: t[name] - b[name] for name in names}, r)
    # Means of at most 22 terms below 2.7.
    assert found.difference_v1 == pytest.approx(core_mean(t, r) - core_mean(b, r), abs=1e-13)
    assert found.difference_v2 is None
    assert {(task.contribution_v2, task.share_v2) for task in found.tasks} == {(None, None)}
    assert core_mean(r, r) == pytest.approx(0.0, abs=1e-15)
    assert core_mean(dict.fromkeys(names, 1.0), r) == pytest.approx(1.0, rel=1e-12)


def test_shares_of_no_difference_are_not_given():
    found = core_shares({"a": 0.1, "b": -0.1}, {"a": 0.25, "b": 0.25}, {"a": 0.25, "b": 0.25})
    assert found.difference_v1 == 0.0
    assert {task.share_v1 for task in found.tasks} == {None}


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: paired_accuracy([True], [True, False], chance=0.25), "same items"),
        (lambda: paired_accuracy([], [], chance=0.25), "same items"),
        (lambda: paired_accuracy(np.array([0.5]), np.array([1.0]), chance=0.25), "neither right nor wrong"),
        (lambda: paired_accuracy([True], [True], chance=25.0), "share below 1"),
        (lambda: paired_mean([math.nan], [1.0]), "not finite"),
        (lambda: paired_gold_bits([1.0], [1.0], [0]), "length of every answer"),
        (lambda: paired_gold_bits([1.0], [1.0], [3, 4]), "length of every answer"),
        (lambda: admitted([], 0.25), "not accuracies"),
        (lambda: admitted([62.0], 0.25), "not accuracies"),
        (lambda: core_shares({"boolq": 0.1}, {"boolQ": 0.6}, {"boolq": 0.6}), "did you mean 'boolQ'"),
        (lambda: core_shares({"boolq": 0.1}, {"boolq": 62.0}, {"boolq": 0.6}), "divide percentages"),
        (lambda: core_shares({}, {}, {}), "each task"),
        (lambda: core_mean({}, {}), "not accuracies"),
        (lambda: core_mean({"boolq": 62.0}, {"boolq": 0.6}), "not accuracies"),
        (lambda: core_mean({"boolq": 0.6}, {"boolQ": 0.6}), "did you mean 'boolQ'"),
        (lambda: core_mean({"boolq": 0.6}, {"boolq": 62.0}), "divide percentages"),
        (lambda: above_chance([], 0.25, items=5), "not accuracies"),
        (lambda: above_chance([0.3], 25.0, items=5), "share below 1"),
        (lambda: over_seeds({0: paired_mean([1.0], [0.0])}), "no information"),
    ],
)
def test_input_that_cannot_be_paired_is_refused(call, word):
    with pytest.raises(ParibusError, match=word):
        call()
