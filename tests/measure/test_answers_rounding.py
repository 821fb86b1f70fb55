"""Likelihoods are within the stated bound of their values in float64, whatever the batch."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from paribus.downstream.items import Item, Row
from paribus.measure.answers import answer
from paribus.measure.answers_reference import naive_answer
from paribus.measure.answers_rounding import measured_rounding
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.backbone import Backbone
from paribus.model.build import build_model
from paribus.model.config import ModelConfig, NanochatConfig, PrenormConfig
from paribus.seeds import generator

VOCABULARY = 61
SIZE: Mapping[str, int] = {"layers": 2, "head_width": 8, "mlp_width": 32, "vocabulary_size": VOCABULARY}
PRENORM = PrenormConfig(width=24, context_length=32, **SIZE)  # pyright: ignore[reportArgumentType]
MODELS: Mapping[str, tuple[ModelConfig, dict[Seam, dict[str, Any]]]] = {
    "plain": (PRENORM, {}),
    "xsa": (PRENORM, {Seam.OUTPUT_MAP: {"name": "xsa"}}),
    "attention residuals": (PRENORM, {Seam.ROUTING: {"name": "block-attnres", "blocks": "full"}}),
    "bfloat16": (PRENORM.model_copy(update={"compute": "bfloat16"}), {}),
    "nanochat": (
        NanochatConfig(width=24, context_length=32, **SIZE),  # pyright: ignore[reportArgumentType]
        {},
    ),
    "nanochat with tables in bfloat16": (
        NanochatConfig(width=24, context_length=32, table_storage="bfloat16", **SIZE),  # pyright: ignore[reportArgumentType]
        {},
    ),
}


def model_of(name: str) -> Backbone:
    config, tables = MODELS[name]
    model = build_model(config, {seam: resolve(seam, tables.get(seam), seam) for seam in Seam}, ("tests", name))
    draw = generator("tests", "answers rounding", name)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.from_numpy(draw.normal(0.0, 0.3, tuple(parameter.shape)))
            parameter.add_(noise.to(parameter.dtype))
    return model


def items_of(count: int) -> list[Item]:
    """Choices of 3 rows behind a shared context."""
    draw = generator("tests", "answers rounding", "items")

    def ids(low: int, high: int) -> NDArray[np.int32]:
        return draw.integers(0, VOCABULARY, draw.integers(low, high + 1)).astype(np.int32)

    found = []
    for number in range(count):
        context = ids(2, 24)
        rows = tuple(Row(np.concatenate([context, ids(1, 6)]), len(context), 1) for _ in range(3))
        found.append(Item(number, "choices", rows, 0, ("A", "B", "C"), ""))
    return found


def decode(ids: Sequence[int]) -> str:
    return str(ids)


def in_float64(model: Backbone) -> Backbone:
    """The same numbers, and nothing rounded to fewer bits on the way."""
    config = model.config.model_copy(update={"compute": "float32"})
    wide = copy.deepcopy(model).double()
    for module in wide.modules():
        if hasattr(module, "config"):
            module.config = config
    return wide


@pytest.mark.parametrize("name", MODELS)
def test_every_likelihood_is_within_the_bound_and_batches_differ_by_no_more_than_two(name: str):
    model, asked = model_of(name), items_of(30)
    rounding = measured_rounding(model, [row.tokens for item in asked for row in item.rows])
    exact = [naive_answer(in_float64(model), item, decode) for item in asked]
    by_batch = [list(answer(model, asked, decode, batch_tokens=size)) for size in (1, 8192)]
    for found in by_batch:
        for one, other in zip(found, exact, strict=True):
            for nats, true, tokens in zip(one.nats, other.nats, one.tokens, strict=True):
                assert abs(nats - true) <= rounding * tokens
            assert one.near_tie or one.prediction == other.prediction
    # A bound that says something: of float32 four digits are certain, of bfloat16 the order of magnitude.
    assert rounding < (3.0 if "bfloat16" in name else 1e-3)
    assert any(one.nats != other.nats for one, other in zip(by_batch[0], exact, strict=True))


def test_the_bound_grows_with_what_the_weights_amplify():
    model, rows = model_of("plain"), [row.tokens for item in items_of(20) for row in item.rows]
    before = measured_rounding(model, rows)
    with torch.no_grad():
        model.get_parameter("output_norm.gain").mul_(50.0)
    assert measured_rounding(model, rows) > 10 * before


def test_a_model_in_float64_is_off_by_units_of_float64():
    model = model_of("plain").double()
    found = measured_rounding(model, [row.tokens for item in items_of(5) for row in item.rows])
    assert 0.0 < found < 1e-12


def test_rows_are_looked_at_from_the_first_to_the_last_and_not_all(monkeypatch: pytest.MonkeyPatch):
    model, seen = model_of("plain"), []
    logits = model.logits

    def counted(rows: Any, tap: Any) -> torch.Tensor:
        seen.append(rows.tokens[0].tolist())
        return logits(rows, tap)

    monkeypatch.setattr(model, "logits", counted)
    rows = [np.full(32, n % VOCABULARY, dtype=np.int32) for n in range(640)]
    measured_rounding(model, rows)
    # 1024 tokens of rows of 32 are 32 rows, each once as it is and once in float64.
    assert len(seen) == 2 * 32
    assert (seen[0], seen[-1]) == (rows[0].tolist(), rows[-1].tolist())
