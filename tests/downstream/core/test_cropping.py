"""Prompts longer than the context lose whole examples first, oldest first, then tokens; and it is counted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.data.tokenizer import Tokenizer
from paribus.downstream.core.bundle import CoreTask
from paribus.downstream.core.cropping import ShotSearch, crop_tokens
from paribus.downstream.core.items import core_items
from paribus.downstream.core.settings import CoreSettings
from paribus.downstream.core.spans import SpanError
from paribus.downstream.items import Item

KINDS = ["multiple_choice", "schema", "language_modeling"]
SHOTS = 5


def numbered(items: Any) -> dict[int, Item]:
    return {item.item: item for item in items}


def text_of(tokenizer: Tokenizer, item: Item) -> list[str]:
    return [tokenizer.decode(row.tokens) for row in item.rows]


@pytest.mark.parametrize("kind", KINDS)
def test_the_fewest_oldest_examples_are_left_out_with_which_all_rows_fit(
    one_task: Callable[..., CoreTask], tokenizer: Tokenizer, rows_of: Any, kind: str
):
    task = one_task(kind, rows_of[kind], shots=SHOTS)
    full = numbered(core_items(task, tokenizer, context_length=1 << 20))
    blocks = {number: [text.split("\n\n") for text in text_of(tokenizer, item)] for number, item in full.items()}
    lengths = {
        number: [
            max(1 + len(tokenizer.encode_batch(["\n\n".join(of_row[left:])])[0]) for of_row in of_item)
            for left in range(SHOTS + 1)
        ]
        for number, of_item in blocks.items()
    }
    seen = set()
    for context_length in (16, 20, 30, 45, 60, 80, 100, 120, 150, 200):
        found = numbered(core_items(task, tokenizer, context_length=context_length))
        assert set(found) == set(full)
        for number, item in found.items():
            fitting = (left for left in range(SHOTS + 1) if lengths[number][left] <= context_length)
            left_out = next(fitting, SHOTS)
            assert item.cropped_shots == left_out
            assert item.cropped_tokens == max(0, lengths[number][left_out] - context_length)
            assert item.prompt_digest == full[number].prompt_digest
            if not item.cropped_tokens:
                kept = ["\n\n".join(of_row[left_out:]) for of_row in blocks[number]]
                assert text_of(tokenizer, item) == kept
            for row, whole in zip(item.rows, full[number].rows, strict=True):
                assert len(row.tokens) <= context_length
                assert row.tokens[0] == tokenizer.bos_id
                assert row.start >= 1
                assert row.tokens[row.start :].tolist() == whole.tokens[whole.start :].tolist()
                assert row.bytes == whole.bytes
            seen.add((left_out, item.cropped_tokens > 0))
    assert {(0, False), (2, False), (4, False), (SHOTS, False), (SHOTS, True)} <= seen


@pytest.mark.parametrize("kind", KINDS)
def test_long_prompts_may_be_kept(one_task: Callable[..., CoreTask], tokenizer: Tokenizer, rows_of: Any, kind: str):
    task = one_task(kind, rows_of[kind], shots=SHOTS)
    full = numbered(core_items(task, tokenizer, context_length=1 << 20))
    kept = numbered(core_items(task, tokenizer, context_length=20, settings=CoreSettings(too_long="keep")))
    for number, item in kept.items():
        assert (item.cropped_shots, item.cropped_tokens, item.problem) == (0, 0, "")
        assert [row.tokens.tolist() for row in item.rows] == [row.tokens.tolist() for row in full[number].rows]
        assert max(len(row.tokens) for row in item.rows) > 20


def test_an_answer_that_does_not_fit_marks_its_item_and_no_other(
    one_task: Callable[..., CoreTask], tokenizer: Tokenizer, rows_of: Any
):
    long = {"query": "Which?", "choices": ["none", "so " * 60], "gold": 0}
    task = one_task("multiple_choice", [*rows_of["multiple_choice"], long], shots=2)
    found = numbered(core_items(task, tokenizer, context_length=40))
    assert {number for number, item in found.items() if item.problem} == {16}
    assert "the context 40" in found[16].problem
    assert (found[16].labels, found[16].gold) == (("A", "B"), 0)


@given(
    lengths=st.lists(st.integers(1, 50), max_size=12),
    base=st.integers(1, 60),
    context_length=st.integers(1, 400),
    characters=st.integers(1, 6),
    uneven=st.booleans(),
)
def test_the_search_finds_what_leaving_out_one_by_one_finds(
    lengths: list[int], base: int, context_length: int, characters: int, uneven: bool
):
    """Lengths are tokens; each token has so many characters, and a prompt some more where that is uneven."""
    shots = len(lengths)

    def tokens(kept: int) -> int:
        return base + sum(lengths[shots - kept :])

    def letters(kept: int) -> int:
        return tokens(kept) * characters + uneven * kept

    search = ShotSearch(shots, context_length, [length * characters for length in lengths])
    kept, tried = shots, 0
    while True:
        tried += 1
        search.told(kept, tokens(kept))
        if search.found:
            break
        kept = search.guess(kept, tokens(kept), letters(kept))
        assert search.most < kept < search.fewest
    # All of them, as many as fit by the characters, and one more; where tokens are not even in them, some others.
    assert tried <= (shots + 1 if uneven else 4)
    fitting = [kept for kept in range(shots + 1) if tokens(kept) <= context_length]
    assert search.most == max(fitting, default=-1)


ROWS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 5)), min_size=1, max_size=4)


@given(ROWS, st.integers(2, 20))
def test_cropped_rows_fit_keep_their_first_token_and_their_span_and_lose_the_same(
    sizes: list[tuple[int, int]], context_length: int
):
    """Rows of (start, scored tokens), each token another number."""
    rows = [
        np.arange(100 * place, 100 * place + start + span, dtype=np.int32) for place, (start, span) in enumerate(sizes)
    ]
    starts = [start for start, _ in sizes]
    if max(span for _, span in sizes) > context_length - 1:
        if max(map(len, rows)) > context_length:
            with pytest.raises(SpanError):
                crop_tokens(rows, starts, context_length)
        return
    cropped, new, cut = crop_tokens(rows, starts, context_length)
    assert cut == max(0, max(map(len, rows)) - context_length)
    for row, start, before, was in zip(cropped, new, rows, starts, strict=True):
        assert len(row) <= context_length
        assert row[0] == before[0]
        assert row[start:].tolist() == before[was:].tolist()
        assert start >= 1
        assert len(before) - len(row) == min(cut, was - 1)
        assert row[1:].tolist() == before[len(before) - len(row) + 1 :].tolist()
