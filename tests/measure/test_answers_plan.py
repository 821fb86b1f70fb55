"""What is computed once, and what is computed together."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.downstream.items import Item, Row
from paribus.measure.answers_plan import (
    FULL_ENOUGH,
    WASTE,
    WASTE_BEHIND,
    WORTH_A_CALL,
    Unit,
    batches_of,
    inputs,
    parts_of,
    units_of,
)


def item_of(rows: Sequence[tuple[Sequence[int], int]]) -> Item:
    made = tuple(Row(np.array(tokens, dtype=np.int32), start, 1) for tokens, start in rows)
    return Item(0, "choices", made, 0, tuple("ABCDEFGH"[: len(made)]), "")


@st.composite
def any_item(draw: st.DrawFn) -> Item:
    ids = st.lists(st.integers(0, 2), max_size=6)
    shared = draw(ids)
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        tokens = [*shared, *draw(ids), 0, *draw(ids), 1]
        rows.append((tokens, draw(st.integers(1, len(tokens) - 1))))
    return item_of(rows)


@given(any_item())
def test_a_units_rows_begin_alike_up_to_where_the_first_span_begins(item: Item):
    units = list(units_of(7, item))
    assert sorted(row for unit in units for row in unit.rows) == list(range(len(item.rows)))
    for unit in units:
        rows = [item.rows[row] for row in unit.rows]
        assert unit.item == 7
        assert 1 <= unit.prefix <= min(row.start for row in rows)
        assert len({tuple(row.tokens[: unit.prefix].tolist()) for row in rows}) == 1
        read = [inputs(row) for row in rows]
        assert (unit.longest, read) == (read[0], sorted(read, reverse=True))
        assert unit.tokens == unit.prefix + sum(size - unit.prefix for size in read)
    assert sum(unit.tokens for unit in units) <= sum(inputs(row) for row in item.rows)


@pytest.mark.parametrize(
    ("rows", "prefixes", "tokens"),
    [
        # One context and several answers: the context once, of each answer all but its last token.
        ([([1, 2, 3, 4, 5, 6], 4), ([1, 2, 3, 4, 7], 4)], [4], 5),
        # Answers that begin alike: the prefix ends where the span begins all the same.
        ([([1, 2, 8, 5], 2), ([1, 2, 8, 6], 2)], [2], 4),
        # One answer in other contexts: each by itself, so that contexts pass by the head.
        ([([1, 2, 3, 4, 9, 9], 4), ([1, 5, 6, 7, 9, 9], 4)], [4, 4], 10),
        # The same with much in common.
        ([([1, 1, 1, 1, 1, 1, 1, 2, 9, 9], 8), ([1, 1, 1, 1, 1, 1, 1, 3, 9, 9], 8)], [7], 11),
        # Nothing in common.
        ([([1, 2, 9], 2), ([2, 2, 9], 2)], [2, 2], 4),
        ([([1, 2, 3, 4, 5], 2)], [2], 4),
        ([([1, 2, 3, 4, 5], 4)], [4], 4),
    ],
)
def test_sharing_by_hand(rows: list[tuple[list[int], int]], prefixes: list[int], tokens: int):
    units = list(units_of(0, item_of(rows)))
    assert [unit.prefix for unit in units] == prefixes
    assert sum(unit.tokens for unit in units) == tokens


def test_of_letters_every_token_is_read_and_of_a_span_all_but_the_last():
    tokens = np.array([1, 2, 3, 4], dtype=np.int32)
    assert inputs(Row(tokens, 4, 0)) == 4
    assert inputs(Row(tokens, 3, 1)) == inputs(Row(tokens, 1, 3)) == 3


sizes = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20)), max_size=60)


@given(sizes, st.integers(1, 300), st.integers(1, 20))
def test_batches_hold_every_unit_once_within_their_bounds(units: list[tuple[int, int]], batch_tokens: int, most: int):
    made = [Unit(place, (0,), prefix, prefix + behind, 0) for place, (prefix, behind) in enumerate(units)]
    batches = list(batches_of(made, batch_tokens, most))
    assert sorted(unit.item for batch in batches for unit in batch) == list(range(len(made)))
    for batch in batches:
        longest = max(unit.longest for unit in batch)
        assert len(batch) == 1 or longest * len(batch) <= batch_tokens
        assert len(batch) <= most
        prefixes = [unit.prefix for unit in batch]
        padded = max(prefixes) * len(prefixes)
        assert padded - sum(prefixes) <= WASTE * padded
    order = [batch[0].prefix for batch in batches]
    assert order == sorted(order, reverse=True)


def test_a_batch_that_is_full_enough_ends_with_its_length():
    made = [Unit(n, (0,), prefix, prefix, 0) for n, prefix in enumerate([20] * 3 + [19] * 3)]
    # 60 of 240 tokens are a quarter: the shorter ones begin another batch; of 1000 they fill this one up.
    assert FULL_ENOUGH == 1 / 4
    assert [len(batch) for batch in batches_of(made, 240, 100)] == [3, 3]
    assert [len(batch) for batch in batches_of(made, 1000, 100)] == [6]


@given(st.lists(st.integers(1, 200), max_size=40), st.integers(1, 2000), st.integers(1, 16))
def test_parts_hold_every_continuation_once_within_their_bounds(lengths: list[int], most_tokens: int, most: int):
    ordered = sorted(lengths, reverse=True)
    parts = [ordered[part] for part in parts_of(ordered, most_tokens, most)]
    assert [length for part in parts for length in part] == ordered
    for part in parts:
        padded = part[0] * len(part)
        assert len(part) == 1 or (padded <= most_tokens and len(part) <= most)
        assert padded - sum(part) <= max(WASTE_BEHIND * padded, WORTH_A_CALL)


def test_few_parts_are_made_where_little_is_wasted():
    assert [part.stop for part in parts_of([10, 9, 9, 8], 1000, 16)] == [4]
    assert [part.stop for part in parts_of([200, 20, 10], 1000, 16)] == [1, 3]
    assert list(parts_of([], 10, 1)) == []
