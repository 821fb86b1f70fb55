"""Examples are nanochat's, and do not depend on how many items are asked unless that is wanted."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.data.tokenizer import Tokenizer
from paribus.downstream.core.bundle import CoreTask
from paribus.downstream.core.errors import CoreBundleError
from paribus.downstream.core.items import core_items
from paribus.downstream.core.settings import CoreSettings
from paribus.downstream.core.shots import draw, shuffled
from paribus.downstream.items import Item

Asked = Callable[..., dict[int, Item]]


def original_draw(position: int, count: int, shots: int) -> list[int]:
    """As the original does it: a list of all positions but one's own, sampled."""
    return random.Random(1234 + position).sample([place for place in range(count) if place != position], shots)


@given(count=st.integers(2, 400), position=st.integers(0, 399), shots=st.integers(0, 12))
def test_examples_are_those_that_sampling_from_a_list_of_all_others_gives(count: int, position: int, shots: int):
    position, shots = position % count, min(shots, count - 1)
    assert draw(position, range(count), shots) == original_draw(position, count, shots)


@given(st.data())
def test_examples_are_usable_positions_each_once_and_never_ones_own(data: st.DataObject):
    usable = sorted(data.draw(st.sets(st.integers(0, 60), min_size=2, max_size=40)))
    position = data.draw(st.integers(0, 60))
    others = [place for place in usable if place != position]
    found = draw(position, usable, data.draw(st.integers(0, len(others))))
    assert set(found) <= set(others)
    assert len(set(found)) == len(found)


def test_the_order_is_a_permutation_that_starts_as_published():
    assert sorted(shuffled(1172)) == list(range(1172))
    # What Python's generator makes of this seed, for ever: the reproducibility of `shuffle` is promised.
    expected = list(range(20))
    random.Random(1337).shuffle(expected)
    assert shuffled(20) == expected


@pytest.fixture
def asked(one_task: Callable[..., CoreTask], tokenizer: Tokenizer, rows_of: dict[str, Sequence[Any]]) -> Asked:
    """Items by line number, of a task with four examples a question."""
    task = one_task("multiple_choice", rows_of["multiple_choice"], shots=4)

    def ask(**settings: Any) -> dict[int, Item]:
        items = core_items(task, tokenizer, context_length=4096, settings=CoreSettings(**settings))
        return {item.item: item for item in items}

    return ask


@pytest.mark.parametrize("limit", [1, 6, 15, 16, 100])
def test_an_items_prompt_is_the_same_under_every_limit(asked: Asked, limit: int):
    all_items, some = asked(), asked(max_items=limit)
    assert list(some) == shuffled(16)[:limit]
    assert {number: item.prompt_digest for number, item in some.items()} == {
        number: all_items[number].prompt_digest for number in some
    }


def test_the_truncated_drawing_changes_prompts_with_the_limit_and_not_without_one(asked: Asked):
    plain = {number: item.prompt_digest for number, item in asked().items()}
    whole = {number: item.prompt_digest for number, item in asked(shots_from="truncated").items()}
    some = {number: item.prompt_digest for number, item in asked(shots_from="truncated", max_items=8).items()}
    assert whole == plain
    assert any(some[number] != plain[number] for number in some)


def test_the_truncated_drawing_takes_examples_from_what_the_limit_left(
    one_task: Callable[..., CoreTask], tokenizer: Tokenizer, rows_of: dict[str, Sequence[Any]]
):
    rows = rows_of["language_modeling"]
    task = one_task("language_modeling", rows, shots=3)
    order = shuffled(len(rows))
    settings = CoreSettings(shots_from="truncated", max_items=5)
    for position, item in enumerate(core_items(task, tokenizer, context_length=4096, settings=settings)):
        words = tokenizer.decode(item.rows[0].tokens)
        drawn = [order[place] for place in original_draw(position, 5, 3)]
        blocks = [f"{rows[number]['context'].strip()} {rows[number]['continuation']}" for number in (*drawn, item.item)]
        assert words == "\n\n".join(blocks)


def test_too_small_a_limit_for_truncated_drawing_is_refused(asked: Asked):
    assert len(asked(shots_from="truncated", max_items=5)) == 5
    with pytest.raises(CoreBundleError, match="examples cannot be drawn from 4 items"):
        asked(shots_from="truncated", max_items=4)
    with pytest.raises(CoreBundleError, match="no item would be asked"):
        CoreSettings(max_items=0)


def test_a_line_that_cannot_be_read_is_never_an_example(
    one_task: Callable[..., CoreTask], tokenizer: Tokenizer, rows_of: dict[str, Sequence[Any]]
):
    rows = [*rows_of["language_modeling"][:5], *[b"broken"] * 6]
    task = one_task("language_modeling", rows, shots=4)
    items = list(core_items(task, tokenizer, context_length=4096))
    assert sum(bool(item.problem) for item in items) == 6
    assert all(len(tokenizer.decode(item.rows[0].tokens).split("\n\n")) == 5 for item in items if not item.problem)
    fewer = one_task("language_modeling", [*rows_of["language_modeling"][:4], *[b"broken"] * 6], shots=4, name="fewer")
    problems = [item.problem for item in core_items(fewer, tokenizer, context_length=4096)]
    assert problems.count("3 other items can be read, too few for 4 examples") == 4


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, ""),
        ({"max_items": 500}, "first-500"),
        ({"shots_from": "truncated", "too_long": "keep"}, "nanochat"),
        ({"max_items": 500, "shots_from": "truncated", "too_long": "keep"}, "first-500+nanochat"),
        ({"shots_from": "truncated"}, "nanochat-shots"),
        ({"too_long": "keep", "counterfactual": True}, "keep-long+counterfactual"),
    ],
)
def test_a_variant_names_what_differs_from_the_plain_way(settings: dict[str, Any], name: str):
    assert CoreSettings(**settings).variant == name
    assert CoreSettings(**CoreSettings(**settings).as_json()) == CoreSettings(**settings)
