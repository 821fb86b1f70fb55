"""What a model writes: the same as by whole passes, whatever is beside it, and from the stated distribution."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

from paribus.errors import GateError, ParibusError
from paribus.mechanisms.contract import BACKBONES
from paribus.model.backbone import Backbone
from paribus.model.generate import Generated, choose, generate
from paribus.model.lawbench import LawBench
from paribus.seeds import generator

CONTEXT, VOCABULARY = 24, 31
every_backbone = pytest.mark.parametrize("backbone", BACKBONES)


@cache
def model_of(backbone: str) -> Backbone:
    """In float64, with logits so far apart that a likeliest token has no rival within rounding."""
    bench = LawBench(backbone, time=CONTEXT)
    model = bench.model(
        {"routing": {"name": "block-attnres", "blocks": 2}, "output_map": {"name": "xsa-common-mode"}}, double=True
    )
    with suppress(GateError):
        bench.disturb(model, "")
    with torch.no_grad():
        if backbone == "nanochat":
            model.get_parameter("head").mul_(40.0)
        else:
            model.get_parameter("embedding").mul_(8.0)
    return model


def prompts_of(*lengths: int) -> list[NDArray[np.int32]]:
    draw = generator("generate", "prompts")
    return [draw.integers(1, VOCABULARY, length).astype(np.int32) for length in lengths]


def logits_of(model: Backbone, row: Sequence[int]) -> NDArray[np.float64]:
    """Behind the last token, by a pass over the whole row."""
    tokens = torch.tensor([row])
    with torch.no_grad():
        return model(tokens, torch.zeros_like(tokens))[0, -1].double().numpy()


def by_whole_passes(
    model: Backbone, prompt: NDArray[np.int32], new_tokens: int, pick: Callable[[NDArray[np.float64]], int]
) -> list[int]:
    row = prompt.tolist()
    for _ in range(new_tokens):
        row.append(pick(logits_of(model, row)))
    return row[len(prompt) :]


def texts(found: Sequence[Generated]) -> list[list[int]]:
    return [one.tokens.tolist() for one in found]


SEED = ("study", "S", 0)


@every_backbone
@pytest.mark.parametrize("batch_rows", [2, 16])
def test_without_a_temperature_the_text_is_that_of_whole_passes(backbone: str, batch_rows: int):
    model, prompts = model_of(backbone), prompts_of(5, 1, 9, 5)
    found = generate(model, prompts, new_tokens=8, stop=(), seed=SEED, batch_rows=batch_rows)
    expected = [by_whole_passes(model, prompt, 8, lambda logits: int(logits.argmax())) for prompt in prompts]
    assert texts(found) == expected
    assert len({tuple(text) for text in expected}) > 1
    assert all(not one.stopped and not one.context_full for one in found)


@every_backbone
def test_a_rows_text_does_not_depend_on_the_rows_beside_it_nor_on_the_size_of_the_batch(backbone: str):
    model, prompts = model_of(backbone), prompts_of(5, 1, 9)

    def write(prompts: Sequence[NDArray[np.int32]], batch_rows: int, seed: Any = SEED) -> list[list[int]]:
        return texts(
            generate(model, prompts, new_tokens=6, stop=(), temperature=1.5, top_k=20, seed=seed, batch_rows=batch_rows)
        )

    together = write(prompts, 16)
    assert write(prompts, 1) == write(prompts, 2) == together
    assert write(prompts[:2], 16) == together[:2]
    assert write(prompts, 16, ("study", "S", 1)) != together
    same = write([prompts[0]] * 3, 16)  # row i has numbers of its own
    assert len({tuple(text) for text in same}) == 3


@every_backbone
def test_each_token_is_the_one_that_its_rows_next_number_points_to(backbone: str):
    """The stated rule, written out: cumulative probabilities over the likeliest in order of ids."""
    model, prompts = model_of(backbone), prompts_of(4, 7)
    found = generate(model, prompts, new_tokens=9, stop=(), temperature=2.0, top_k=5, seed=SEED)
    for index, prompt in enumerate(prompts):
        draw = generator(*SEED, "generate", index)

        def pick(logits: NDArray[np.float64], draw: np.random.Generator = draw) -> int:
            allowed = sorted(sorted(range(VOCABULARY), key=lambda token: (-logits[token], token))[:5])
            weights = [np.exp(logits[token] / 2.0) for token in allowed]
            number, total = draw.random() * sum(weights), 0.0
            for token, weight in zip(allowed, weights, strict=True):
                total += weight
                if number < total:
                    return token
            raise AssertionError("a number below the sum")

        assert found[index].tokens.tolist() == by_whole_passes(model, prompt, 9, pick)


def test_tokens_are_drawn_with_the_probabilities_of_softmax():
    logits = np.array([0.3, -1.0, 2.0, 0.3, 1.1, -3.0])
    draw = generator("generate", "choose")
    for temperature, top_k in ((1.0, None), (0.5, 4), (3.0, 3)):
        kept = np.isin(np.arange(6), np.argsort(-logits, kind="stable")[:top_k])
        p = np.where(kept, np.exp(logits / temperature), 0.0)
        counts = np.bincount([choose(logits, temperature, top_k, draw.random()) for _ in range(4000)], minlength=6)
        assert not counts[~kept].any()
        assert chisquare(counts[kept], 4000 * p[kept] / p.sum()).pvalue > 1e-3


@settings(max_examples=60, deadline=None)
@given(
    logits=st.lists(st.floats(-1e4, 1e4) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=40),
    temperature=st.sampled_from([1e-320, 1e-3, 1.0, 1e6]),
    top_k=st.none() | st.integers(1, 50),
    number=st.sampled_from([0.0, 0.5, 1 - 2.0**-53]),
)
def test_a_token_of_probability_zero_is_never_written(
    logits: list[float], temperature: float, top_k: int | None, number: float
):
    values = np.array(logits)
    token = choose(values, temperature, top_k, number)
    assert (values > values[token]).sum() < (top_k or len(values))
    with np.errstate(over="ignore"):
        assert np.exp((values[token] - values.max()) / temperature) > 0
    if top_k == 1:
        assert token == choose(values, 0.0, None, number) == logits.index(max(logits))


@every_backbone
def test_a_row_ends_before_a_stop_token_and_leaves_the_others_as_they_were(backbone: str):
    model, prompts = model_of(backbone), prompts_of(5, 1, 9, 5)
    free = texts(generate(model, prompts, new_tokens=12, stop=(), temperature=1.5, seed=SEED))
    stop = {free[0][4], free[2][7]}
    found = generate(model, prompts, new_tokens=12, stop=stop, temperature=1.5, seed=SEED)
    for one, text in zip(found, free, strict=True):
        until = next((place for place, token in enumerate(text) if token in stop), None)
        assert one.tokens.tolist() == text[:until]
        assert one.stopped is (until is not None)
    assert {one.stopped for one in found} == {True, False} or all(one.stopped for one in found)


@every_backbone
def test_a_row_ends_where_the_context_is_full(backbone: str):
    model, prompts = model_of(backbone), prompts_of(CONTEXT - 3, 4)
    found = generate(model, prompts, new_tokens=6, stop=(), seed=SEED)
    assert [(len(one.tokens), one.stopped, one.context_full) for one in found] == [(3, False, True), (6, False, False)]
    alone = generate(model, prompts_of(CONTEXT - 3)[:1], new_tokens=3, stop=(), seed=SEED)
    assert texts(alone) == texts(found)[:1]
    assert not alone[0].context_full


@every_backbone
def test_tools_write_what_they_say_and_the_model_goes_on_behind_it(backbone: str):
    """Asked about drawn tokens only, each once; a forced token takes no random number and ends no row."""
    model, prompts = model_of(backbone), prompts_of(3, 6)
    free = texts(generate(model, prompts, new_tokens=8, stop=(), temperature=1.5, seed=SEED))
    asked: list[list[int]] = []

    def tools(row: Sequence[int]) -> list[int] | None:
        asked.append(list(row))
        return [29, 30] if len(row) == 5 else None

    found = generate(model, prompts, new_tokens=8, stop={29}, temperature=1.5, seed=SEED, tools=tools)
    first = found[0].tokens.tolist()
    assert first[:4] == [*free[0][:2], 29, 30]
    assert texts(found)[1] == free[1][: len(found[1].tokens)]
    draw, row = generator(*SEED, "generate", 0), [*prompts[0].tolist(), *free[0][:2]]
    assert [draw.random(), draw.random()]
    row += [29, 30]
    for token in first[4:]:
        assert token == choose(logits_of(model, row), 1.5, None, draw.random())
        row.append(token)
    of_first = [row for row in asked if row[:3] == prompts[0].tolist()]
    assert [len(row) for row in of_first] == [4, 5, *range(8, 3 + len(first) + 1)]


@every_backbone
def test_progress_counts_finished_prompts_and_each_token_is_told_as_it_comes(backbone: str):
    model, prompts = model_of(backbone), prompts_of(5, 1, CONTEXT - 2)
    finished: list[int] = []
    told: dict[int, list[int]] = {0: [], 1: [], 2: []}
    found = generate(
        model,
        prompts,
        new_tokens=4,
        stop=(),
        seed=SEED,
        batch_rows=2,
        progress=finished.append,
        written=lambda row, token: told[row].append(token),
    )
    assert finished == [2, 1]
    assert [told[row] for row in range(3)] == texts(found)


def test_tokens_that_the_tokenizer_does_not_have_are_never_written():
    model, prompts = model_of("prenorm"), prompts_of(5, 3)

    def tokens(limit: int | None) -> list[int]:
        found = generate(model, prompts, new_tokens=9, stop=(), temperature=9.0, seed=SEED, vocabulary_size=limit)
        return [token for text in texts(found) for token in text]

    assert max(tokens(8)) < 8
    assert sum(token >= 8 for token in tokens(None)) > 9


def test_no_prompts_no_texts():
    assert generate(model_of("prenorm"), [], new_tokens=3, stop=(), seed=SEED) == []


REFUSED: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "an empty prompt": ({"prompts": prompts_of(3, 0)}, "prompt 2 has no token", "0 tokens"),
    "a prompt that fills the context": (
        {"prompts": prompts_of(CONTEXT)},
        "prompt 1 is longer than the model can continue",
        "24 tokens",
    ),
    "a negative temperature": ({"temperature": -0.1}, "temperature", "-0.1"),
    "no temperature": ({"temperature": float("nan")}, "temperature", "nan"),
    "an infinite temperature": ({"temperature": float("inf")}, "temperature", "inf"),
    "top-k 0": ({"top_k": 0}, "top_k is out of range", "0"),
    "no tokens": ({"new_tokens": 0}, "new_tokens is out of range", "0"),
    "no rows": ({"batch_rows": 0}, "batch_rows is out of range", "0"),
}


@pytest.mark.parametrize(("changed", "what", "received"), REFUSED.values(), ids=REFUSED.keys())
def test_what_means_nothing_is_refused_with_one_error(changed: dict[str, Any], what: str, received: str):
    arguments: dict[str, Any] = {"prompts": prompts_of(3), "new_tokens": 4, "stop": (), "seed": SEED} | changed
    with pytest.raises(ParibusError) as caught:
        generate(model_of("prenorm"), **arguments)
    assert what in caught.value.what
    assert received in caught.value.received


def test_logits_that_are_no_numbers_are_refused():
    model = LawBench("prenorm", time=CONTEXT).model({})
    with torch.no_grad():
        model.get_parameter("output_norm.gain").fill_(torch.nan)
    with pytest.raises(ParibusError, match="logits are not finite behind 5 tokens of prompt 1"):
        generate(model, prompts_of(5), new_tokens=4, stop=(), seed=SEED)
