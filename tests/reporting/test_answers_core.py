"""CORE and ChatCORE of one model: the mean of centred accuracies of complete tasks, or what keeps it from that."""

from collections.abc import Mapping

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from paribus.reporting.answers_core import scored
from tests.reading.conftest import Asking, Given

TASKS = {"arc_easy": (0.25, 0.25), "boolq": (0.62, 0.5), "squad": (0.0, 0.0)}
"""chance under v1 and v2"""
WHOLE = {"complete": True, "missing": "", "core_tasks": list(TASKS), "baselines_v1_digest": "1"}


def answers(asking: Asking, changes: Mapping[str, Mapping] | None = None, skip: tuple[str, ...] = ()) -> dict:
    for task, (first, second) in TASKS.items():
        record = {**WHOLE, "chance_v2": second, "baselines_v2_digest": "2", **(changes or {}).get(task, {})}
        if task not in skip:
            asking.give("a", 0, Given(task=task, items=100, chance=first, record=record))
    return {asked.task: found for asked, found in asking.read("a", 0)[0].held.items()}


def test_a_score_is_the_mean_of_centred_accuracies_under_each_table(asking: Asking) -> None:
    held = answers(asking)
    found = scored(held)
    assert (found.tasks, found.of_tasks, found.reason) == (3, 3, "")
    for version, value in enumerate((found.v1, found.v2)):
        chances = {task: both[version] for task, both in TASKS.items()}
        parts = [(held[t].correct.mean() - r) / (1 - r) for t, r in chances.items()]
        assert value == pytest.approx(sum(parts) / 3, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"boolq": {"complete": False, "missing": "3 of 3270 rows are missing"}}, "boolq (3 of 3270 rows are missing)"),
        ({"boolq": {"complete": "yes"}}, "not complete: boolq (its record does not say"),
        ({"boolq": {"core_tasks": [*TASKS, "copa"]}}, "different lists"),
        ({task: {"core_tasks": [*TASKS, "copa"]} for task in TASKS}, "not asked: copa"),
        ({task: {"core_tasks": []} for task in TASKS}, "no record says which tasks"),
        ({"boolq": {"core_tasks": []}}, "no record says which tasks"),
        ({"boolq": {"baselines_v1_digest": "other"}}, "different tables of random baselines"),
    ],
)
def test_no_score_is_made_of_an_incomplete_set(asking: Asking, changes: dict, said: str) -> None:
    found = scored(answers(asking, changes))
    assert (found.v1, found.v2) == (None, None)
    assert said in found.reason


@pytest.mark.parametrize("missing", [{"chance_v2": None}, {"baselines_v2_digest": "another"}, {"chance_v2": 62.0}])
def test_without_the_corrected_table_for_every_task_a_score_stands_under_the_first_alone(
    asking: Asking, missing: dict
) -> None:
    found = scored(answers(asking, {"boolq": missing}))
    assert found.v1 is not None
    assert found.v2 is None
    assert found.reason == ""


def test_what_is_missing_is_named_and_the_rest_counted(asking: Asking) -> None:
    many = {task: {"core_tasks": [*TASKS, "p", "q", "r", "s"]} for task in TASKS}
    found = scored(answers(asking, many, skip=("squad",)))
    assert (found.tasks, found.of_tasks) == (2, 7)
    assert found.reason == "not asked: squad, p, q and 2 more"


@settings(max_examples=12, deadline=None)
@drawn(st.sets(st.sampled_from(sorted(TASKS)), min_size=1), st.sets(st.sampled_from(sorted(TASKS))))
def test_a_score_is_there_exactly_where_every_task_is_there_and_complete(
    tmp_path_factory: pytest.TempPathFactory, there: set[str], incomplete: set[str]
) -> None:
    asking = Asking(tmp_path_factory.mktemp("property"))
    changes = {task: {"complete": False, "missing": "rows"} for task in incomplete}
    found = scored(answers(asking, changes, skip=tuple(set(TASKS) - there)))
    assert (found.v1 is not None) == (there == set(TASKS) and not incomplete)
    assert (found.reason == "") == (found.v1 is not None)
