"""Downstream tasks from the rows of two arms: what is compared, what is refused, what no score is made of."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from paribus.experiment.spec import STUDY, Key
from paribus.reading.answers import CHATS
from paribus.report.content import ReportContent, TaskRow
from paribus.runs.folder import CellFolder
from paribus.stats.rule import Word

ARMS = ("standard", "xsa")
END, MIDDLE = 20, 10
TASKS = ("arc_easy", "boolq", "copa")
"""what the scores of these tests are made of"""
WHOLE = {"complete": True, "missing": "", "core_tasks": list(TASKS), "baselines_v1_digest": "1"}


def loss_of(key: Key) -> float:
    return 3.0 + 0.02 * key[2] - (0.05 + 0.003 * (key[2] % 3)) * (key[1] == "xsa")


def folders(filled) -> dict[tuple[str, int], CellFolder]:
    """Of the study's own cells, by arm and seed."""
    return {(c.arm, c.seed): filled.study.cell_folder(c) for c in filled.study.cells if c.key[3] == STUDY}


def only(content: ReportContent, **wanted: object) -> TaskRow:
    (row,) = (r for r in content.tasks if all(getattr(r, name) == value for name, value in wanted.items()))
    return row


def test_tasks_are_paired_by_item_and_never_pooled_over_seeds(fill: Callable, given: Callable, put: Callable) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=3)
    told = {
        key: put(
            cell.path, given(accuracy=0.5 + 0.1 * (key[0] == "xsa"), gold_bits=1.5 - 0.1 * (key[0] == "xsa")), END, *key
        )
        for key, cell in folders(filled).items()
    }
    content, _ = filled.content()
    row = only(content, task="arc_easy")
    right = {key: np.array(columns["correct"]) for key, columns in told.items()}
    by_seed = [right["xsa", s].mean() - right["standard", s].mean() for s in range(3)]
    t = stats.ttest_1samp(by_seed, 0)
    assert row.accuracy_difference == pytest.approx(np.mean(by_seed))
    assert row.accuracy_interval == pytest.approx(t.confidence_interval(0.95))
    assert row.centred_difference == pytest.approx(np.mean(by_seed) / 0.75)
    assert row.centred_baseline == pytest.approx(
        (np.mean([right["standard", s].mean() for s in range(3)]) - 0.25) / 0.75
    )
    assert (row.seeds, row.items, row.mid_schedule, row.admitted) == ((0, 1, 2), 400, False, True)
    bits = {
        key: np.array(columns["gold_nats"]) / (math.log(2) * np.array(columns["gold_bytes"]))
        for key, columns in told.items()
    }
    differences = [bits["xsa", s] - bits["standard", s] for s in range(3)]
    assert row.gold_bits_difference == pytest.approx(np.mean([d.mean() for d in differences]), rel=1e-9)
    assert len(content.task_pairs) == 3
    for seed, pair in enumerate(content.task_pairs):
        b, c = (int((right[x, seed] & ~right[y, seed]).sum()) for x, y in (ARMS[::-1], ARMS))
        assert (pair.seed, pair.only_treatment, pair.only_baseline) == (seed, b, c)
        assert pair.mcnemar_p == pytest.approx(stats.binomtest(b, b + c).pvalue)
        over_items = stats.ttest_1samp(differences[seed], 0)
        assert pair.gold_bits_difference == pytest.approx(differences[seed].mean(), rel=1e-9)
        assert pair.gold_bits_interval == pytest.approx(over_items.confidence_interval(0.95), rel=1e-9)
        assert (pair.near_ties_treatment, pair.near_ties_baseline, pair.cropped) == (4, 4, 2)


def test_the_end_and_earlier_milestones_are_told_apart(fill: Callable, given: Callable, put: Callable) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=3)
    for (arm, seed), cell in folders(filled).items():
        for step in (MIDDLE, END):
            if (arm, seed, step) != ("xsa", 2, MIDDLE):
                put(cell.path, given(), step, arm, seed, step)
    content, _ = filled.content()
    assert [(row.step, row.mid_schedule, row.seeds) for row in content.tasks] == [
        (END, False, (0, 1, 2)),
        (MIDDLE, True, (0, 1)),
    ]
    assert "seed 2: not answered by both arms" in content.tasks[1].note
    assert content.tasks[1].accuracy_interval is None, "two seeds have no interval"


def test_whether_a_task_is_admitted_hangs_on_the_baseline_alone(fill: Callable, given: Callable, put: Callable) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=3)
    for (arm, seed), cell in folders(filled).items():
        put(cell.path, given(accuracy=0.25 if arm == "standard" else 0.9), END, arm, seed)
        put(cell.path, given(task="boolq", accuracy=0.9 if arm == "standard" else 0.25), END, arm, seed)
    content, _ = filled.content()
    assert {row.task: row.admitted for row in content.tasks} == {"arc_easy": False, "boolq": True}
    row = only(content, task="arc_easy")
    assert "does not clear chance" in row.admission
    assert (row.not_admitted, row.note) == ("at chance", "")


def test_a_kind_without_likelihoods_has_accuracies_and_no_bits(fill: Callable, given: Callable, put: Callable) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=3)
    for (arm, seed), cell in folders(filled).items():
        put(cell.path, given(suite="chatcore-5", task="mmlu", kind="letters"), END, arm, seed)
    (row,) = filled.content()[0].tasks
    assert (row.gold_bits_difference, row.gold_bits_baseline) == (None, None)
    assert row.accuracy_difference is not None
    assert row.margin_difference is not None


def test_items_that_could_not_be_asked_count_as_wrong_and_are_counted(
    fill: Callable, given: Callable, put: Callable
) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=3)
    for (arm, seed), cell in folders(filled).items():
        put(cell.path, given(accuracy=1.0, problems=40), END, arm, seed)
    content, _ = filled.content()
    assert only(content).accuracy_baseline == pytest.approx(0.9)
    assert {(p.problems_treatment, p.problems_baseline, p.gold_items) for p in content.task_pairs} == {(40, 40, 360)}
    told = " ".join(content.caveats)
    assert "count as wrong: arc_easy 40 of 400 (longer than the context)." in told
    assert "lost whole examples, the same in every arm: arc_easy 2 of 400." in told
    assert "tokens at their beginning" not in told


def test_before_the_planned_seeds_no_difference_of_answers_is_there(
    fill: Callable, given: Callable, put: Callable
) -> None:
    filled = fill(loss_of, skip=(("tiny", "xsa", 2, STUDY),), arms=ARMS, seeds=3)
    for (arm, seed), cell in folders(filled).items():
        if cell.path.exists():
            put(cell.path, given(record=WHOLE), END, arm, seed)
    content, verdicts = filled.content()
    assert verdicts[0].word is Word.WAITING
    assert (content.tasks, content.task_pairs, content.core_differences, content.core_shares) == ((), (), (), ())


def scored(filled, given: Callable, put: Callable, suite: str = "core", **changes: dict) -> None:
    """Every task of the score for every cell; `changes` are of a task's record."""
    for (arm, seed), cell in folders(filled).items():
        for number, task in enumerate(TASKS):
            record = {
                **WHOLE,
                "chance_v2": (0.25, 0.5, 0.5)[number],
                "baselines_v2_digest": "2",
                **changes.get(task, {}),
            }
            accuracy = 0.5 + 0.06 * number + (0.05 if arm == "xsa" else 0.0)
            chance = (0.25, 0.62, 0.5)[number]
            put(
                cell.path,
                given(suite=suite, task=task, accuracy=accuracy, chance=chance, record=record),
                END,
                arm,
                seed,
            )


def test_core_is_the_mean_of_centred_accuracies_under_each_table(
    fill: Callable, given: Callable, put: Callable
) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=3)
    scored(filled, given, put)
    content, _ = filled.content()
    assert len(content.core) == 6
    accuracy = {(row.task, row.seed): row for row in content.task_pairs}
    for version, chances in (("v1", (0.25, 0.62, 0.5)), ("v2", (0.25, 0.5, 0.5))):
        by_seed = []
        for seed in range(3):
            parts = [accuracy[t, seed].accuracy_difference / (1 - r) for t, r in zip(TASKS, chances, strict=True)]
            of = {row.arm: getattr(row, version) for row in content.core if row.seed == seed}
            assert of["xsa"] - of["standard"] == pytest.approx(np.mean(parts))
            by_seed.append(np.mean(parts))
        (difference,) = content.core_differences
        assert getattr(difference, f"{version}_difference") == pytest.approx(np.mean(by_seed))
        assert sum(getattr(row, f"{version}_contribution") for row in content.core_shares) == pytest.approx(
            np.mean(by_seed)
        )
        assert sum(getattr(row, f"{version}_share") for row in content.core_shares) == pytest.approx(1.0)
    baseline = [value for t in TASKS if (value := only(content, task=t).centred_baseline) is not None]
    scores = [row.v1 for row in content.core if row.arm == "standard" and row.v1 is not None]
    assert np.mean(scores) == pytest.approx(np.mean(baseline))


def test_two_definitions_of_chatcore_are_never_mixed(fill: Callable, given: Callable, put: Callable) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=3)
    for (arm, seed), cell in folders(filled).items():
        for task in CHATS["chatcore-5"]:
            put(cell.path, given(suite="chatcore-5", task=task, items=60, record=WHOLE), END, arm, seed)
        put(cell.path, given(suite="chatcore-6", task="spelling_bee", items=60, record=WHOLE), END, arm, seed)
    content, _ = filled.content()
    by_suite = {row.suite: row for row in content.core}
    assert by_suite["chatcore-5"].v1 is not None
    assert by_suite["chatcore-6"].reason == "not asked: arc_easy, arc_challenge, mmlu and 2 more"
    assert [row.suite for row in content.core_differences] == ["chatcore-5"]


def test_a_score_of_a_seed_with_a_refused_task_is_not_compared(fill: Callable, given: Callable, put: Callable) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=4)
    scored(filled, given, put)
    cell = folders(filled)["xsa", 1]
    put(cell.path, given(task="boolq", chance=0.62, prompts="x", record={**WHOLE}), END, "xsa", 1)
    (difference,) = filled.content()[0].core_differences
    assert difference.seeds == (0, 2, 3)
    assert difference.note == "no score of both arms at seed 1"


def test_a_model_of_one_letter_is_told_seed_by_seed(fill: Callable, given: Callable, put: Callable) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=3)
    for (arm, seed), cell in folders(filled).items():
        put(cell.path, given(says="B" if (arm, seed) == ("xsa", 1) else "", problems=4), END, arm, seed)
    rows = {(row.arm, row.seed): row for row in filled.content()[0].letters}
    one = rows["xsa", 1]
    assert (one.letters, one.predicted, one.unanswered) == (("A", "B", "C", "D"), (0, 396, 0, 0), 4)
    assert one.favourite == ("B", 1.0)
    assert sum(one.gold) == 400
    assert rows["xsa", 0].favourite[1] < 0.5


def test_swapped_questions_stand_beside_plain_ones_and_are_marked_above_chance(
    fill: Callable, given: Callable, put: Callable
) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=3)
    for (arm, seed), cell in folders(filled).items():
        put(cell.path, given(accuracy=0.6), END, arm, seed)
        swapped = 0.4 if arm == "xsa" else 0.25
        put(cell.path, given(accuracy=swapped, variant="counterfactual"), END, arm, seed, "swapped")
        put(cell.path, given(accuracy=0.25, variant="first-500+counterfactual"), END, arm, seed, "swapped")
    content, _ = filled.content()
    found = {(row.arm, row.variant): row for row in content.counterfactuals}
    assert found.keys() == {(arm, variant) for arm in ARMS for variant in ("", "first-500")}
    assert (found["standard", ""].above_chance, found["xsa", ""].above_chance) == (False, True)
    assert found["xsa", ""].plain == pytest.approx(only(content, task="arc_easy").accuracy_treatment)
    assert found["xsa", "first-500"].plain is None, "not asked in the plain way"
    assert [row.variant for row in content.tasks] == [""], "a control is no task"
    assert {row.variant for row in content.core} == {""}


def test_after_the_same_fine_tuning_models_are_compared_under_its_name(
    fill: Callable, given: Callable, put: Callable, tune: Callable
) -> None:
    filled = fill(loss_of, arms=ARMS, seeds=3)
    for (arm, seed), cell in folders(filled).items():
        put(cell.path, given(accuracy=0.3), END, arm, seed)
        put(tune(cell, "chat"), given(accuracy=0.6), 6, arm, seed, "chat")
        put(tune(cell, "other", digest=f"{arm}"), given(accuracy=0.6), 6, arm, seed, "other")
    content, _ = filled.content()
    assert [(row.after, row.step, row.mid_schedule) for row in content.tasks] == [
        ("", END, False),
        ("chat", 6, False),
        ("other", 6, False),
    ]
    assert only(content, after="chat").accuracy_baseline == pytest.approx(0.6, abs=0.05)
    assert only(content, after="other").seeds == ()
    assert "fine-tuned in another way" in only(content, after="other").note
