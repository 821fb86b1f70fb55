import tracemalloc
from dataclasses import asdict
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paribus.data.order import Order
from paribus.data.packing import PACKINGS, BestFitRows, Packing, StreamRows, Waste, best_fit, lay_out, shuffled, waste
from paribus.errors import CorpusError
from paribus.seeds import generator
from tests.data.test_order import BOS, FIRST, corpus, some_lengths

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=60)


def in_order(lengths: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.array(lengths, dtype=np.int64), np.arange(len(lengths))


def naive_best_fit(slots: list[int], row_slots: int, buffer_documents: int) -> list[list[tuple[int, int]]]:
    """The slow twin: rows of (document, slots), by looking through the whole buffer for every document."""
    coming = list(enumerate(slots))
    buffer: list[tuple[int, int]] = []
    rows: list[list[tuple[int, int]]] = []
    row: list[tuple[int, int]] = []
    while coming or buffer:
        while coming and len(buffer) < buffer_documents:
            buffer.append(coming.pop(0))
        room = row_slots - sum(size for _, size in row)
        fitting = [entry for entry in buffer if entry[1] <= room]
        # `max` and `min` return the first of several, which is the one that came first.
        chosen = max(fitting, key=lambda entry: entry[1]) if fitting else min(buffer, key=lambda entry: entry[1])
        buffer.remove(chosen)
        row.append((chosen[0], min(chosen[1], room)))
        if sum(size for _, size in row) == row_slots:
            rows.append(row)
            row = []
    return rows


@settings(deadline=None, max_examples=150)
@given(LENGTHS, st.integers(1, 30), st.integers(1, 12))
def test_best_fit_takes_what_a_search_through_the_buffer_takes(
    lengths: list[int], context_length: int, buffer_documents: int
):
    expected = naive_best_fit([length + 1 for length in lengths], context_length + 1, buffer_documents)
    rows = BestFitRows(*in_order(lengths), context_length, buffer_documents)
    assert rows.count == len(expected)
    for asked in ([], list(range(rows.count)), list(range(rows.count))[::-2]):
        pieces = rows.pieces(np.array(asked, dtype=np.uint32))
        assert pieces.per_row.tolist() == [len(expected[row]) for row in asked]
        flat = [piece for row in asked for piece in expected[row]]
        assert list(zip(pieces.document.tolist(), pieces.slots.tolist(), strict=True)) == flat
        assert (pieces.first == 0).all()


def test_best_fit_of_a_small_buffer_is_what_one_finds_by_hand():
    # Rows of 10 slots, a buffer of 3 documents with, BOS included, 4 6 12 | 3 7 5 2 slots.
    rows = BestFitRows(*in_order([3, 5, 11, 2, 6, 4, 1]), context_length=9, buffer_documents=3)
    pieces = rows.pieces(np.arange(rows.count))
    # 6 and 4 fill a row. Of 12 3 7: 7 and 3. Of 12 5 2: 5, 2, and the 12 is cropped to 3.
    assert pieces.document.tolist() == [1, 0, 4, 3, 5, 6, 2]
    assert pieces.slots.tolist() == [6, 4, 7, 3, 5, 2, 3]
    assert pieces.per_row.tolist() == [2, 2, 3]
    found = rows.waste()
    assert (found.rows, found.cropped_tokens, found.cropped_documents) == (3, 9 / 32, 1 / 7)
    assert (found.rest_tokens, found.rows_mid_document, found.bos) == (0, 0, 7 / 27)


def test_documents_are_cropped_the_shortest_first_where_none_fits():
    pieces = BestFitRows(*in_order([30, 20, 25]), context_length=9, buffer_documents=3).pieces(np.arange(3))
    assert pieces.document.tolist() == [1, 2, 0]
    assert pieces.slots.tolist() == [10, 10, 10]


@settings(deadline=None, max_examples=100)
@given(LENGTHS, st.integers(1, 30))
def test_stream_rows_cover_the_stream_end_to_end_and_share_one_slot(lengths: list[int], context_length: int):
    rows = StreamRows(*in_order(lengths), context_length)
    stream = [(document, slot) for document, length in enumerate(lengths) for slot in range(length + 1)]
    assert rows.count == max(len(stream) - 1, 0) // context_length
    pieces = rows.pieces(np.arange(rows.count))
    flat = [
        (document, slot)
        for document, first, slots in zip(pieces.document, pieces.first, pieces.slots, strict=True)
        for slot in range(first, first + slots)
    ]
    begins = range(0, rows.count * context_length, context_length)
    assert flat == [entry for begin in begins for entry in stream[begin : begin + context_length + 1]]
    assert (pieces.slots >= 1).all()


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 30), st.sampled_from(PACKINGS))
def test_measured_waste_is_what_the_batches_show(lengths: list[int], context_length: int, packing: Packing):
    order = Order(corpus(lengths), context_length, 1, study="study", scale="S", seed=3, packing=packing)
    batches = [order.batch(step) for step in range(order.batches)]
    found, tokens, inputs = order.waste(), sum(lengths), order.batches * context_length
    assert found.rows == order.batches
    if not batches:
        assert found == Waste(packing, context_length, 0, 0.0, 0.0, 1.0, 0.0, 0.0)
        return
    scored = np.concatenate([batch.targets[batch.weight > 0] for batch in batches]) - FIRST
    assert len(scored) == len(np.unique(scored))
    assert found.cropped_tokens + found.rest_tokens == pytest.approx(1 - len(scored) / tokens, abs=1e-12)
    assert found.bos == sum(int((batch.tokens == BOS).sum()) for batch in batches) / inputs
    assert found.rows_mid_document == sum(int(batch.tokens[0, 0] != BOS) for batch in batches) / len(batches)
    if packing == "stream":
        assert found.cropped_tokens == found.cropped_documents == 0
        assert found.rest_tokens * tokens < context_length
        return
    assert found.rows_mid_document == 0
    # A document whose first tokens were read and whose last was not; or it is a bare BOS, which no input shows.
    document_of = np.repeat(np.arange(len(lengths)), lengths)
    read = np.bincount(document_of[scored], minlength=len(lengths))
    bare = int(sum((batch.targets[:, -1] == BOS).sum() for batch in batches))
    # The mark in a last slot alone belongs to a document of which nothing was read.
    bare += int(sum(((batch.tokens[:, 1:] == BOS) & (batch.tokens[:, :-1] == BOS)).sum() for batch in batches))
    cut = int(((read > 0) & (read < lengths)).sum())
    assert found.cropped_documents == (cut + bare) / len(lengths)


@pytest.mark.parametrize("packing", PACKINGS)
def test_waste_measured_for_a_corpus_is_that_of_an_order_of_its_documents(packing: Packing):
    lengths = some_lengths(4000)
    found = waste(lengths, 128, packing)
    of_a_run = Order(corpus(lengths), 128, 1, study="study", scale="S", seed=3, packing=packing).waste()
    assert found == waste(lengths, 128, packing)
    for name, value in asdict(found).items():
        if isinstance(value, float):
            # Another order crops other documents; of 4,000 that moves no share by more than a few hundredths.
            assert value == pytest.approx(getattr(of_a_run, name), abs=0.03), name


def test_a_larger_buffer_crops_less():
    lengths, permuted = some_lengths(4000), np.arange(4000)
    cropped = [
        lay_out("best-fit", lengths, permuted, 512, buffer_documents=size).waste().cropped_tokens
        for size in (1, 16, 1024)
    ]
    assert cropped[0] > 2 * cropped[1]
    assert cropped[1] > 1.5 * cropped[2]


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_shuffled_numbers_are_the_generators_permutation(count: int):
    np.testing.assert_array_equal(
        shuffled(count, generator("tests", "shuffle")), generator("tests", "shuffle").permutation(count)
    )


@pytest.mark.parametrize("packing", PACKINGS)
def test_an_order_keeps_no_more_memory_than_it_says(packing: Packing):
    lengths = np.tile(some_lengths(1000), 20)
    frozen = corpus(lengths)
    tracemalloc.start()
    try:
        order = Order(frozen, 16, 1, study="study", scale="S", seed=3, packing=packing, epochs=4)
        one_epoch, _ = tracemalloc.get_traced_memory()
        rows = order.waste().rows
        order.batch(order.batches - 1)
        all_epochs, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The corpus' own 18 bytes a document were there before.
    per_document, per_row = {"stream": (12, 4), "best-fit": (4, 8)}[packing]
    said = per_document * len(lengths) + per_row * rows
    assert one_epoch < said + 20_000
    assert all_epochs < 2 * said + 40_000


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_corpus_without_documents_has_no_rows_and_wastes_nothing(packing: Packing):
    rows = lay_out(packing, *in_order([]), 8)
    assert rows.count == 0
    assert rows.waste() == Waste(packing, 8, 0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_an_unknown_packing_is_refused_with_the_nearest_name():
    with pytest.raises(CorpusError, match="unknown packing") as error:
        lay_out(cast("Any", "bestfit"), *in_order([1]), 8)
    assert error.value.remedy == "did you mean 'best-fit'?"


def test_more_documents_than_best_fit_can_number_are_refused():
    endless = iter([np.broadcast_to(np.int64(1), (2**32,))])
    with pytest.raises(CorpusError, match="too many documents"):
        best_fit(endless, 9, 4)
