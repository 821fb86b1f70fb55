"""Which answers of two arms are compared: equal questions, asked alike; of everything else it is said what differs."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from paribus.disk import sealed, unsealed
from paribus.reading.answer_pairs import Matched, differing, matched

ARMS = ("t", "b")


def match(asking, seeds: int = 3) -> list[Matched]:
    groups = {seed: tuple(asking.read(arm, seed) for arm in ARMS) for seed in range(seeds)}
    return list(matched(groups))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"settings": {"shots": 5, "tokenizer": "abc"}}, "asked in another way, settings.shots (5 and 10) differs"),
        ({"settings": {"shots": 10}}, 'settings.tokenizer (null and "abc")'),
        ({"settings": {"shots": True, "tokenizer": "abc"}}, "settings.shots (true and 10)"),
        ({"chance": 0.5}, "chance (0.5 and 0.25)"),
        ({"kind": "letters"}, 'kind ("letters" and "choices")'),
        ({"prompts": "x"}, "asked other prompts"),
        ({"items": 399}, "asked other items"),
        ({"letters": "ABDC"}, "asked other right answers"),
        ({"problems": 1}, "asked other lengths of the right answers"),
    ],
)
def test_arms_that_were_asked_otherwise_are_refused_and_what_differs_is_said(
    asking, given: Callable, other: dict, said: str
) -> None:
    for seed in range(3):
        asking.give("t", seed, given(**other) if seed == 1 else given())
        asking.give("b", seed, given())
    (found,) = match(asking)
    assert list(found.pairs) == [0, 2]
    assert said in found.refused[1]


def test_a_seed_whose_arms_agree_and_were_asked_unlike_most_is_refused(asking, given: Callable) -> None:
    for seed in range(5):
        for arm in ARMS:
            asking.give(arm, seed, given(settings={"shots": 0 if seed == 0 else 10}))
    (found,) = match(asking, seeds=5)
    assert list(found.pairs) == [1, 2, 3, 4]
    assert found.refused == {0: "asked in another way, settings.shots (10 and 0) differs from most seeds"}


def test_the_end_of_the_schedule_is_one_moment_and_comes_before_earlier_ones(asking, given: Callable) -> None:
    for seed in range(2):
        for arm in ARMS:
            for step in (5, 10, 20):
                asking.give(arm, seed, given(), step)
    asking.give("t", 0, given(task="boolq"))
    found = match(asking, seeds=2)
    assert [(one.moment.step, one.asked.step, one.asked.task) for one in found] == [
        (None, 20, "arc_easy"),
        (10, 10, "arc_easy"),
        (5, 5, "arc_easy"),
    ], "what one arm alone answered is no comparison"


def test_after_a_fine_tuning_of_one_name_its_settings_must_be_equal(
    asking, given: Callable, put: Callable, tune: Callable
) -> None:
    for seed in range(2):
        for arm in ARMS:
            folder = tune(asking.cell(arm, seed), "chat")
            put(folder, given(), 6)
            record = unsealed((folder / "finetune.json").read_bytes())[0]
            rate = 0.02 if (arm, seed) == ("t", 1) else 0.01
            settings = {"recipe": {"rate": rate}, "base": record.pop("base")}
            (folder / "finetune.json").write_bytes(sealed(record | {"settings": settings}))
    (found,) = match(asking, seeds=2)
    assert (found.moment.after, list(found.pairs)) == ("chat", [0])
    assert found.refused == {1: "fine-tuned in another way, recipe.rate (0.02 and 0.01) differs"}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.25, 0.5]) | st.text("ab", max_size=50),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)
records = st.dictionaries(st.sampled_from("pqr"), values, max_size=3)


def without_nulls(value: object) -> object:
    """A field that is null says as little as one that is not there."""
    if isinstance(value, dict):
        return {name: without_nulls(entry) for name, entry in value.items() if entry is not None}
    return value


@drawn(records, records)
def test_records_differ_exactly_where_their_json_does(one: dict, other: dict) -> None:
    texts = [json.dumps(without_nulls(record), sort_keys=True) for record in (one, other)]
    found = differing(one, other)
    # An empty record in the place of none is another record.
    if texts[0] != texts[1]:
        assert found
    elif found:
        assert "null" in found
        assert "{" in found
    assert not differing(one, one)
