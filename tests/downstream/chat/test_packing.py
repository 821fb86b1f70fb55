"""Packing: every conversation whole and once, against a naive best fit, and what of a batch is learnt."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from paribus.downstream.chat.dataset import ChatData, PartFacts
from paribus.downstream.chat.packing import ChatBatches, lay_out
from paribus.errors import ParibusError
from paribus.seeds import generator

BOS = 299
CAPACITY = 17
lengths = st.lists(st.integers(2, CAPACITY), min_size=1, max_size=60)


def data_of(sizes: list[int], seed: int = 0) -> ChatData:
    """Conversations of these lengths whose tokens are all different, each with a learnt last token."""
    draw = generator("tests", "packing", seed)
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    learnt = draw.random(start[-1]) < 0.4
    learnt[start[:-1]], learnt[start[1:] - 1] = False, True
    count = len(sizes)
    facts = PartFacts("talk", count, count, 0, 0, 0, 0, 0, 0, ())
    return ChatData(
        tokens=np.arange(1000, 1000 + start[-1], dtype=np.uint16),
        learnt=learnt,
        start=start,
        part=np.zeros(count, np.int16),
        place=np.arange(count),
        digest=np.arange(count, dtype=np.uint64),
        held_out=np.zeros(count, np.bool_),
        facts=(facts,),
    )


def batches_of(data: ChatData, order: NDArray[np.int64], **changes: Any) -> ChatBatches:
    settings = {"bos": BOS, "context_length": CAPACITY - 1, "rows_per_batch": 3, "buffer": 5} | changes
    return ChatBatches(data, order, **settings)


def naive_best_fit(sizes: list[int], capacity: int, buffer: int) -> list[list[int]]:
    """Written from the rule: look at all that wait, take the longest that fits, the first of equals."""
    coming, waiting, rows = list(enumerate(sizes)), [], []
    while coming or waiting:
        row, left = [], capacity
        while True:
            while coming and len(waiting) < buffer:
                waiting.append(coming.pop(0))
            fitting = [entry for entry in waiting if entry[1] <= left]
            if not fitting:
                break
            best = max(fitting, key=lambda entry: entry[1])
            waiting.remove(best)
            row.append(best[0])
            left -= best[1]
        rows.append(row)
    return rows


@given(sizes=lengths, buffer=st.integers(1, 12))
def test_rows_are_those_of_a_naive_best_fit(sizes: list[int], buffer: int):
    found = lay_out(np.array(sizes), CAPACITY, buffer)
    rows = [found.entries[a:b].tolist() for a, b in zip(found.start, found.start[1:], strict=False)]
    assert rows == naive_best_fit(sizes, CAPACITY, buffer)
    assert found.padding == len(rows) * CAPACITY - sum(sizes)


@given(sizes=lengths, buffer=st.integers(1, 12), repeats=st.integers(1, 3), rows=st.integers(1, 5))
def test_every_entry_is_whole_and_as_often_as_the_order_has_it(sizes: list[int], buffer: int, repeats: int, rows: int):
    data = data_of(sizes)
    order = generator("tests", "order").permutation(np.repeat(np.arange(len(sizes)), repeats))
    batches = batches_of(data, order, rows_per_batch=rows, buffer=buffer)
    seen = dict.fromkeys(range(len(sizes)), 0)
    for step in range(batches.steps):
        batch = batches.batch(step)
        row_tokens = np.concatenate([batch.tokens, batch.targets[:, -1:]], axis=1)
        for row in row_tokens.tolist():
            place = 0
            while place < CAPACITY and row[place] != BOS:
                number = int(np.searchsorted(data.start, row[place] - 1000, side="right")) - 1
                ids, _ = data.conversation(number)
                assert row[place : place + len(ids)] == ids.tolist(), "whole, and in its order"
                seen[number] += 1
                place += len(ids)
            assert set(row[place:]) <= {BOS}, "behind the first padding nothing else comes"
    assert set(seen.values()) == {repeats}


@given(sizes=lengths, seed=st.integers(0, 5))
def test_only_learnt_tokens_are_targets_and_each_of_them_is_one(sizes: list[int], seed: int):
    data = data_of(sizes, seed)
    batches = batches_of(data, np.arange(len(sizes)))
    targets: list[int] = []
    for step in range(batches.steps):
        batch = batches.batch(step)
        assert set(np.unique(batch.weight)) <= {0.0, 1.0}
        targets += batch.targets[batch.weight > 0].tolist()
        inside = batch.weight > 0
        # A target is of the conversation that its input is of: the token before it in the flat data.
        np.testing.assert_array_equal(batch.tokens[inside] + 1, batch.targets[inside])
    assert sorted(targets) == data.tokens[data.learnt].tolist()


def test_documents_are_numbered_within_the_row_and_padding_is_one_of_its_own():
    data = data_of([5, 4, 9, 3])
    batch = batches_of(data, np.arange(4), rows_per_batch=2, buffer=100).batch(0)
    # Capacity 17: 9 + 5 + 3 fill the first row exactly, 4 is left for the second.
    assert batch.document[0].tolist() == [0] * 9 + [1] * 5 + [2] * 2
    assert batch.document[1].tolist() == [0] * 4 + [1] * 12
    assert not batch.weight[1, 3:].any()


def test_a_batch_that_lacks_rows_is_filled_with_rows_without_targets():
    data = data_of([CAPACITY] * 4)
    batches = batches_of(data, np.arange(4))
    assert (batches.steps, len(batches.layout)) == (2, 4)
    last = batches.batch(1)
    assert last.tokens.shape == (3, CAPACITY - 1)
    assert not last.weight[1:].any()
    assert set(np.unique(last.tokens[1:])) == {BOS}


def test_a_batch_is_a_pure_function_of_its_number():
    data = data_of([3, 9, 4, 12, 5, 6, 7, 2] * 4)
    order = generator("tests", "order").permutation(32)
    one, other = batches_of(data, order), batches_of(data, order)
    later = one.batch(2)
    for step in (0, 1, 2):
        for a, b in zip(vars(one.batch(step)).values(), vars(other.batch(step)).values(), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(later.tokens, one.batch(2).tokens)


@pytest.mark.parametrize("size", [0, CAPACITY + 1])
def test_what_fits_no_row_is_an_error(size: int):
    with pytest.raises(ParibusError, match="does not fit"):
        lay_out(np.array([3, size]), CAPACITY, 5)
