"""A model's answers do not depend on how the work is shared: they are those of one row after the other."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paribus.downstream.items import Answer, Item, Kind, Row
from paribus.errors import DivergenceError, ParibusError
from paribus.measure import answers
from paribus.measure.answers import answer
from paribus.measure.answers_plan import inputs, units_of
from paribus.measure.answers_reference import naive_answer
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.backbone import Backbone
from paribus.model.build import build_model
from paribus.model.config import ModelConfig, NanochatConfig, PrenormConfig
from paribus.seeds import generator

VOCABULARY = 29
PRENORM = PrenormConfig(layers=2, width=16, head_width=8, mlp_width=24, vocabulary_size=VOCABULARY, context_length=24)
NANOCHAT = NanochatConfig(
    layers=2,
    width=24,
    head_width=8,
    mlp_width=32,
    vocabulary_size=VOCABULARY,
    context_length=24,
    short_window_multiple=2,
)
MODELS: dict[str, tuple[ModelConfig, dict[Seam, dict[str, object]]]] = {
    "plain": (PRENORM, {}),
    "xsa": (PRENORM.model_copy(update={"query_heads_per_kv_head": 2}), {Seam.OUTPUT_MAP: {"name": "xsa"}}),
    "attention residuals": (PRENORM, {Seam.ROUTING: {"name": "block-attnres", "blocks": "full"}}),
    "role-decoupled": (PRENORM, {Seam.ROUTING: {"name": "role-decoupled", "blocks": 2}}),
    "nanochat": (NANOCHAT, {}),
}


@cache
def model_of(name: str, dtype: torch.dtype = torch.float64) -> Backbone:
    """With noise on every parameter, so that nothing is zero."""
    config, tables = MODELS[name]
    model = build_model(config, {seam: resolve(seam, tables.get(seam), seam) for seam in Seam}, ("tests", name), dtype)
    draw = generator("tests", "answers", name)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.from_numpy(draw.normal(0.0, 0.3, tuple(parameter.shape)))
            parameter.add_(noise.to(parameter.dtype))
    return model.train()


def decode(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))


def item_of(
    number: int, kind: Kind, rows: Sequence[tuple[Sequence[int], int]], gold: int = 0, letters: tuple[int, ...] = ()
) -> Item:
    """An item of (tokens, start) rows."""
    made = tuple(Row(np.array(tokens, dtype=np.int32), start, 3 * (len(tokens) - start)) for tokens, start in rows)
    labels = tuple("ABCDEFG"[: len(letters) or len(made)])
    return Item(number, kind, made, gold, labels, f"{number:016x}", letters)


@st.composite
def items(draw: st.DrawFn) -> list[Item]:
    """Items of every kind: rows that share nothing, a beginning, or all; spans of one token and more."""
    found = []
    for number in range(draw(st.integers(0, 4))):
        random = generator("tests", "answers", draw(st.integers(0, 1000)))

        def ids(low: int, high: int, random: np.random.Generator = random) -> list[int]:
            return random.integers(0, VOCABULARY, draw(st.integers(low, high))).tolist()

        kind: Kind = draw(st.sampled_from(["choices", "exact", "letters"]))
        if kind == "letters":
            row, letters = ids(1, 12), tuple(random.permutation(VOCABULARY)[: draw(st.integers(1, 5))].tolist())
            found.append(item_of(number, kind, [(row, len(row))], draw(st.integers(0, len(letters) - 1)), letters))
            continue
        shared, rows = ids(0, 10), []
        for _ in range(1 if kind == "exact" else draw(st.integers(1, 5))):
            context = shared + ids(0 if shared else 1, draw(st.sampled_from([0 if shared else 1, 4])))
            rows.append((context + ids(1, draw(st.sampled_from([1, 6]))), len(context)))
        found.append(item_of(number, kind, rows, draw(st.integers(0, len(rows) - 1))))
    return found


def same(one: Answer, other: Answer, tolerance: float) -> None:
    assert (one.item, one.prediction, one.correct, one.tokens) == (
        other.item,
        other.prediction,
        other.correct,
        other.tokens,
    )
    assert (one.gold_bytes, one.problem, one.margin is None) == (other.gold_bytes, other.problem, other.margin is None)
    numbers = zip(
        [*one.nats, one.gold_nats or 0.0, one.margin or 0.0],
        [*other.nats, other.gold_nats or 0.0, other.margin or 0.0],
        strict=True,
    )
    for left, right in numbers:
        assert abs(left - right) <= tolerance


# 2 layers of 24 features and 24 positions are some 500 roundings; logits are below 100, spans below 7 tokens.
TOLERANCE = 500 * 2.0**-53 * 100 * 7


@pytest.mark.parametrize("name", MODELS)
@given(asked=items(), batch_tokens=st.sampled_from([1, 7, 30, 4096]))
@settings(max_examples=10, deadline=None)
def test_answers_equal_those_of_one_row_after_the_other(name: str, asked: list[Item], batch_tokens: int):
    model = model_of(name)
    found = list(answer(model, asked, decode, batch_tokens=batch_tokens))
    expected = [naive_answer(model, item, decode) for item in asked]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        same(one, other, TOLERANCE)


def test_the_reference_equals_a_loop_over_tokens_in_plain_numbers():
    model = model_of("xsa")
    item = item_of(4, "choices", [([3, 5, 7, 2, 9], 3), ([3, 5, 7, 4], 3), ([3, 5, 7, 1, 1, 8], 3)], gold=1)

    def nats(tokens: NDArray[np.int32], at: int, token: int) -> float:
        row = torch.tensor([tokens[:at].tolist()])
        with torch.no_grad():
            logits = model(row, torch.zeros_like(row))[0, -1].tolist()
        return math.log(sum(math.exp(x) for x in logits)) - logits[token]

    def total(row: Row) -> float:
        return sum(nats(row.tokens, at, int(row.tokens[at])) for at in range(row.start, len(row.tokens)))

    sums = [total(row) for row in item.rows]
    means = [sums[0] / 2, sums[1], sums[2] / 3]
    found = naive_answer(model, item, decode)
    assert found.nats == pytest.approx(sums, abs=TOLERANCE)
    assert found.prediction == "ABC"[int(np.argmin(means))]
    assert found.margin == pytest.approx(min(means[0], means[2]) - means[1], abs=TOLERANCE)
    assert (found.tokens, found.gold_bytes, found.gold_nats) == ((2, 1, 3), 3, found.nats[1])
    letters = item_of(5, "letters", [([3, 5, 7], 3)], gold=2, letters=(11, 4, 20))
    by_letter = [nats(letters.rows[0].tokens, 3, letter) for letter in letters.letters]
    found = naive_answer(model, letters, decode)
    assert found.nats == pytest.approx(by_letter, abs=TOLERANCE)
    assert found.correct == (int(np.argmin(by_letter)) == 2)
    exact = item_of(6, "exact", [([3, 5, 7, 2, 9], 2)])
    likeliest = []
    for at in (2, 3, 4):
        row = torch.tensor([exact.rows[0].tokens[:at].tolist()])
        with torch.no_grad():
            likeliest.append(int(model(row, torch.zeros_like(row))[0, -1].argmax()))
    found = naive_answer(model, exact, decode)
    assert (found.prediction, found.correct) == (decode(likeliest), likeliest == [7, 2, 9])


def test_a_span_that_greedy_decoding_writes_is_right_and_leads():
    model = model_of("plain")
    row = [3, 5]
    for _ in range(5):
        tokens = torch.tensor([row])
        with torch.no_grad():
            row.append(int(model(tokens, torch.zeros_like(tokens))[0, -1].argmax()))
    wrong = [*row[:4], (row[4] + 1) % VOCABULARY, *row[5:]]
    right, other = answer(model, [item_of(0, "exact", [(row, 2)]), item_of(1, "exact", [(wrong, 2)])], decode)
    assert (right.correct, right.prediction, other.correct) == (True, decode(row[2:]), False)
    assert right.margin is not None
    assert other.margin is not None
    assert right.margin > 0 > other.margin
    assert other.prediction.split()[:3] == [str(token) for token in row[2:5]]


@pytest.mark.parametrize("kind", ["choices", "letters", "exact"])
def test_of_equals_the_first_is_predicted_and_the_tie_is_marked(kind: Kind):
    model = copy.deepcopy(model_of("plain"))
    with torch.no_grad():
        model.get_parameter("embedding")[:] = 0.25
    tied = {
        # Of one length: rows that the reference takes one by one tie to the last bit on every processor.
        "choices": item_of(0, "choices", [([1, 2, 3, 4], 2), ([1, 2, 5, 6], 2), ([1, 2, 7, 8], 2)], gold=1),
        "letters": item_of(0, "letters", [([1, 2, 3], 3)], gold=1, letters=(9, 4, 2)),
        "exact": item_of(0, "exact", [([1, 2, 1], 2)]),
    }[kind]
    [found] = answer(model, [tied], decode)
    assert (found.near_tie, found.correct, found.margin) == (True, False, 0.0)
    assert found.prediction == ("0" if kind == "exact" else "A")
    assert naive_answer(model, tied, decode).prediction == found.prediction


def test_a_lead_beyond_rounding_is_no_near_tie_and_one_within_it_is():
    model = model_of("plain")
    [found] = answer(model, [item_of(0, "choices", [([1, 2, 3], 2), ([1, 2, 5], 2)])], decode)
    assert found.margin is not None
    assert (abs(found.margin) > 1e-6, found.near_tie) == (True, False)
    [twice] = answer(model, [item_of(0, "choices", [([1, 2, 3], 2), ([1, 2, 5], 2), ([1, 2, 5], 2)])], decode)
    assert twice.near_tie == (found.prediction == "B")
    close = copy.deepcopy(model_of("plain", torch.float32))
    with torch.no_grad():
        table = close.get_parameter("embedding")
        table[5] = table[3]
        table[5, 0] += 1e-7
    [near] = answer(close, [item_of(0, "letters", [([1, 2], 2)], letters=(3, 5))], decode)
    assert near.near_tie


def test_answers_come_in_the_order_of_the_items_whatever_their_lengths():
    draw = generator("tests", "answers", "order")
    asked = [
        item_of(int(n), "exact", [(draw.integers(0, VOCABULARY, size).tolist(), 1)])
        for n, size in zip(draw.permutation(40), draw.integers(2, 24, 40), strict=True)
    ]
    told: list[int] = []
    found = list(answer(model_of("plain"), asked, decode, batch_tokens=64, progress=told.append))
    assert [one.item for one in found] == [item.item for item in asked]
    assert (sum(told), len(told) > 3, min(told) >= 0) == (40, True, True)


def test_items_are_read_no_further_than_a_window_ahead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answers, "WINDOW_BATCHES", 2)
    read: list[int] = []

    def source() -> Iterator[Item]:
        for number in range(50):
            read.append(number)
            yield item_of(number, "exact", [([1, 2, 3, 4], 2)])

    stream = answer(model_of("plain"), source(), decode, batch_tokens=10)
    assert next(stream).item == 0
    # A window is 2 batches of 10 tokens; an item has 4 and one more that stands for itself.
    assert len(read) == 4
    assert [one.item for one in stream] == list(range(1, 50))


def test_what_rows_share_is_computed_once_and_padding_is_bounded(monkeypatch: pytest.MonkeyPatch):
    model = model_of("plain")
    draw = generator("tests", "answers", "sharing")
    asked, prefix = [], 16
    for number in range(30):
        context = draw.integers(0, VOCABULARY, prefix).tolist()
        asked.append(
            item_of(number, "choices", [(context + draw.integers(0, VOCABULARY, 3).tolist(), prefix) for _ in range(4)])
        )
    shapes: list[tuple[int, int]] = []
    extend = model.extend

    def counted(tokens: torch.Tensor, *more: object, **named: object) -> torch.Tensor:
        shapes.append((tokens.shape[0], tokens.shape[1]))
        return extend(tokens, *more, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(model, "extend", counted)
    list(answer(model, asked, decode, batch_tokens=180))
    # 18 positions of a row are inputs, so that 10 items fill a batch; each has 4 continuations of 2 tokens.
    assert shapes == [(10, 16), (10, 2), (10, 2), (10, 2), (10, 2)] * 3


def test_few_logits_at_once_change_nothing(monkeypatch: pytest.MonkeyPatch):
    draw = generator("tests", "answers", "chunks")
    asked = [
        item_of(n, "choices", [([n, 2, *draw.integers(0, VOCABULARY, size)], 2) for size in draw.integers(1, 9, 3)])
        for n in range(9)
    ]
    model = model_of("nanochat")
    plain = list(answer(model, asked, decode))
    monkeypatch.setattr(answers, "LOGITS_AT_ONCE", 3 * VOCABULARY)
    for one, other in zip(answer(model, asked, decode), plain, strict=True):
        same(one, other, TOLERANCE)


def test_the_model_keeps_its_modes_and_takes_no_gradients():
    model = copy.deepcopy(model_of("plain")).train()
    model.layers[0].eval()
    before = [module.training for module in model.modules()]
    item = item_of(0, "choices", [([1, 2, 3], 2), ([1, 2, 5], 2)])
    stream = answer(model, [item] * 3, decode)
    next(stream)
    assert [module.training for module in model.modules()] == before
    assert torch.is_grad_enabled()
    row = torch.tensor([[1, 2, 3]])
    model(row, torch.zeros_like(row)).sum().backward()
    assert model.get_parameter("embedding").grad is not None
    with torch.no_grad():
        model.get_parameter("embedding")[:] = torch.nan
    with pytest.raises(DivergenceError):
        list(answer(model, [item], decode))
    assert [module.training for module in model.modules()] == before


@pytest.mark.parametrize("kind", ["choices", "exact", "letters"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_no_numbers_end_the_asking_and_name_the_item(kind: Kind, value: float):
    model = copy.deepcopy(model_of("plain"))
    with torch.no_grad():
        model.get_parameter("layers.1.mlp.down")[0, 0] = value
    asked = item_of(17, kind, [([1, 2, 3], 3 if kind == "letters" else 2)], letters=(4, 5) if kind == "letters" else ())
    with pytest.raises(DivergenceError, match="item 17"):
        list(answer(model, [asked], decode))


def test_tokens_of_another_tokenizer_are_refused():
    for token in (VOCABULARY, -1):
        with pytest.raises(ParibusError, match="item 3 has tokens") as caught:
            list(answer(model_of("plain"), [item_of(3, "exact", [([1, 2, token], 2)])], decode))
        assert "tokenizer" in caught.value.remedy
    with pytest.raises(ParibusError, match="item 3 has tokens"):
        list(answer(model_of("plain"), [item_of(3, "letters", [([1, 2], 2)], letters=(1, VOCABULARY))], decode))


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (Item(2, "choices", (), 0, ("A",), "", problem="the line is no JSON"), "the line is no JSON"),
        (item_of(2, "choices", [([1, 2], 2), ([1, 2, 3], 2)]), "none that can be scored"),
        (item_of(2, "choices", [([1, 2], 0), ([1, 2, 3], 2)]), "none that can be scored"),
        (item_of(2, "choices", [([1, 2, 3], 2)], gold=1), "number 1 of 1"),
        (item_of(2, "choices", [([1, 2, 3], 2)], gold=-1), "number -1 of 1"),
        (item_of(2, "exact", [([1, 2, 3], 2), ([1, 2, 4], 2)]), "2 rows"),
        (item_of(2, "letters", [([1, 2, 3], 2)], letters=(4, 5)), "letters are asked at token 2 of 3"),
        (item_of(2, "letters", [([1, 2, 3], 3)]), "0"),
    ],
)
def test_an_item_that_cannot_be_asked_is_marked_and_the_others_are_answered(item: Item, said: str):
    fine = item_of(5, "choices", [([1, 2, 3], 2), ([1, 2, 4], 2)])
    told: list[int] = []
    bad, good = answer(model_of("plain"), [item, fine], decode, progress=told.append)
    assert (bad.item, bad.correct, bad.prediction, bad.nats, bad.margin) == (2, False, "", (), None)
    assert said in bad.problem
    same(good, naive_answer(model_of("plain"), fine, decode), TOLERANCE)
    assert sum(told) == 2


def test_rows_longer_than_the_context_are_answered_too():
    model = model_of("nanochat")
    row = generator("tests", "answers", "long").integers(0, VOCABULARY, 60).tolist()
    item = item_of(0, "exact", [(row, 55)])
    [found] = answer(model, [item], decode)
    same(found, naive_answer(model, item, decode), TOLERANCE)
    assert inputs(item.rows[0]) == next(units_of(0, item)).longest == 59


def test_nothing_is_answered_where_nothing_is_asked():
    no_answers: Callable[..., Iterator[Answer]] = answer
    assert list(no_answers(model_of("plain"), [], decode)) == []
