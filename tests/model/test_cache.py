"""Rows that are continued say what whole rows say, for every mechanism of the registry on every backbone.

The bound. Two computations of one logit differ in the order of their sums. A model of L layers is a chain of 2 L
sublayers and a head; each holds at most three sums of up to n products one behind the other (the longest: features of
the MLP, or positions), whose rounded value is off by at most n units of the largest term; both sides are off. So
2 * (2 L + 1) * 3 * n * unit, relative to the largest logit: 3e-13 in float64 and 1.5e-4 in float32 on this bench.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from paribus.errors import GateError, ParibusError
from paribus.mechanisms import mechanisms
from paribus.mechanisms.contract import BACKBONES, Seam, Values
from paribus.mechanisms.exclusion.prefix import earlier_value, shifted
from paribus.model import tables
from paribus.model.backbone import Backbone
from paribus.model.cache import Cache
from paribus.model.lawbench import LawBench
from paribus.seeds import generator

Arm = Mapping[str, Mapping[str, Any]]
TIME = 24
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
EVERY_SEAM: Arm = {
    "output_map": {"name": "xsa", "strength": "learned"},
    "value_map": {"name": "value-embedding", "layers": "alternating"},
    "mask": {"name": "diagonal-mask", "within_document": True},
    "routing": {"name": "role-decoupled", "blocks": 3, "routes": "q|k|v"},
}
NAMED: Mapping[str, Arm] = {
    "xsa with the current token's value": {"output_map": {"name": "xsa", "strength": 1.0}},
    "xsa of the projected value": {
        "output_map": {"name": "xsa", "value": "projected"},
        "value_map": {"name": "value-embedding"},
    },
    "attention residuals of every sublayer": {"routing": {"name": "block-attnres", "blocks": "full"}},
    "a far token": {"output_map": {"name": "xsa-wrong-token", "offset": 13}},
    "the common mode of embedded values": {
        "output_map": {"name": "xsa-common-mode"},
        "value_map": {"name": "value-embedding"},
    },
    "every seam": EVERY_SEAM,
    "every seam, looking back": EVERY_SEAM | {"output_map": {"name": "xsa-common-mode"}},
}


def arms() -> Iterator[tuple[str, str, Arm]]:
    for backbone in BACKBONES:
        for seam in Seam:
            for name, config in mechanisms(seam).items():
                if backbone in config.backbones:
                    yield backbone, name, {seam: {"name": name, **config.example}}
        for name, arm in NAMED.items():
            yield backbone, name, arm


ARMS = list(arms())
every_arm = pytest.mark.parametrize(
    ("backbone", "arm"), [(b, a) for b, _, a in ARMS], ids=[f"{b}: {n}" for b, n, _ in ARMS]
)
every_backbone = pytest.mark.parametrize("backbone", BACKBONES)


@cache
def bench_of(backbone: str, group: int, compute: str = "float32") -> LawBench:
    """Windows of nanochat's short layers reach 8 of the 24 positions back."""
    bench = LawBench(backbone, query_heads_per_kv_head=group, time=TIME)
    bench.config = type(bench.config).model_validate(bench.config.model_dump() | {"compute": compute})
    return bench


def model_of(
    backbone: str, arm: Arm, dtype: torch.dtype = torch.float64, group: int = 2, compute: str = "float32"
) -> Backbone:
    """A model whose every parameter moves it: grouped queries, and of nanochat alternating value embeddings."""
    bench = bench_of(backbone, group, compute)
    model = bench.model(arm, double=dtype == torch.float64)
    with suppress(GateError):  # the arm has no parameters of its own
        bench.disturb(model, "")
    return model


def whole(model: Backbone, row: Tensor) -> Tensor:
    """[time vocab] of one row by itself, all of it in one pass."""
    with torch.no_grad():
        return model(row[None], torch.zeros_like(row[None]))[0]


def tokens_of(rows: int, time: int = TIME, name: str = "rows") -> Tensor:
    return torch.from_numpy(generator("cache", name).integers(0, 31, (rows, time)))


def bound(model: Backbone, like: Tensor, time: int = TIME) -> float:
    terms = max(time, model.config.mlp_width, model.config.width)
    unit = UNIT[next(model.parameters()).dtype]
    return 2 * (2 * model.config.layers + 1) * 3 * terms * unit * float(like.abs().max())


def in_pieces(
    model: Backbone, tokens: Tensor, pieces: Sequence[Sequence[int]], capacity: int = TIME, padding: int = 0
) -> list[Tensor]:
    """[time vocab] of each row; pieces[call][row] tokens are appended in each call, behind them `padding` ids."""
    cached = Cache.empty(model, len(tokens), capacity)
    found: list[list[Tensor]] = [[] for _ in tokens]
    at = [0] * len(tokens)
    for counts in pieces:
        given_ = torch.full((len(tokens), max(*counts, 1)), padding)
        for row, count in enumerate(counts):
            given_[row, :count] = tokens[row, at[row] : at[row] + count]
        logits = model.extend(given_, cached, torch.tensor(counts))
        for row, count in enumerate(counts):
            found[row].append(logits[row, :count])
            at[row] += count
        assert cached.lengths.tolist() == at
    return [torch.cat(row) for row in found]


def require_whole(model: Backbone, tokens: Tensor, found: Sequence[Tensor]) -> None:
    for row, logits in zip(tokens, found, strict=True):
        expected = whole(model, row[: len(logits)])
        assert (logits - expected).abs().max() <= bound(model, expected)


def split_at_random(rows: int, calls: int, *name: str | int) -> list[list[int]]:
    """Counts [call][row]; some are 0, and no row has more than TIME in all."""
    draw = generator("cache", "pieces", *name)
    cuts = np.sort(draw.integers(0, TIME + 1, (rows, calls)), axis=1)
    return np.diff(cuts, axis=1, prepend=0).T.tolist()


@every_arm
@pytest.mark.parametrize("dtype", UNIT, ids=["float32", "float64"])
def test_a_prompt_and_then_token_by_token_is_the_whole_row(backbone: str, arm: Arm, dtype: torch.dtype):
    """Rows of equal lengths: positions are slices, and one query reads every key."""
    model, tokens = model_of(backbone, arm, dtype), tokens_of(2)
    require_whole(model, tokens, in_pieces(model, tokens, [[15, 15], *[[1, 1]] * (TIME - 15)]))


@every_arm
def test_rows_of_unequal_lengths_in_any_pieces_are_their_whole_rows(backbone: str, arm: Arm):
    model, tokens = model_of(backbone, arm), tokens_of(3)
    require_whole(model, tokens, in_pieces(model, tokens, split_at_random(3, 7, backbone)))


@every_arm
def test_repeated_and_selected_rows_go_on_from_their_prefix(backbone: str, arm: Arm):
    """Two prefixes of unequal length; three continuations of the first and one of the second, two of which stay."""
    model, prefixes, ends = model_of(backbone, arm), tokens_of(2), tokens_of(4, 9, "continuations")
    cached = Cache.empty(model, 2, TIME)
    model.extend(prefixes[:, :10], cached, torch.tensor([10, 6]))
    copies = cached.repeated(torch.tensor([3, 1]))
    model.extend(ends[:, :4], copies)
    model.extend(ends[:, 4:5], cached.repeated(2))  # what is done to other copies changes nothing
    chosen = copies.selected(torch.tensor([3, 1]))
    logits = model.extend(ends[[3, 1], 4:], chosen)
    assert (cached.lengths.tolist(), copies.lengths.tolist(), chosen.lengths.tolist()) == (
        [10, 6],
        [14, 14, 14, 10],
        [15, 19],
    )
    for found, prefix, end in ((logits[0], prefixes[1, :6], ends[3]), (logits[1], prefixes[0, :10], ends[1])):
        expected = whole(model, torch.cat((prefix, end)))
        assert (found - expected[-5:]).abs().max() <= bound(model, expected)


@every_backbone
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_split_of_any_rows_is_the_whole_rows(backbone: str, data: st.DataObject):
    model = cached_model(backbone)
    rows = data.draw(st.integers(1, 3))
    counts = data.draw(
        st.lists(st.lists(st.integers(0, 6), min_size=rows, max_size=rows), min_size=1, max_size=5).filter(
            lambda calls: all(0 < sum(call[row] for call in calls) <= TIME for row in range(rows))
        )
    )
    tokens = tokens_of(rows)
    require_whole(model, tokens, in_pieces(model, tokens, counts))


@cache
def cached_model(backbone: str) -> Backbone:
    return model_of(backbone, NAMED["every seam, looking back"])


@pytest.mark.parametrize("pattern", ["S", "SL"])
def test_a_sliding_window_moves_with_the_row(pattern: str):
    """Windows of four and of one earlier position; of one row alone, keys beyond them are not even read."""
    backbone = "nanochat"
    bench = bench_of(backbone, 1)
    for multiple, divisor in ((4, 8), (1, 24)):
        config = bench.config.model_copy(
            update={"window_pattern": pattern, "short_window_multiple": multiple, "short_window_divisor": divisor}
        )
        other = LawBench(backbone, time=TIME)
        other.config = type(bench.config).model_validate(config.model_dump())
        model, tokens = other.model({}, double=True), tokens_of(2)
        for pieces in ([[9, 9], *[[1, 1]] * 15], [[9, 9], [11, 11], [4, 4]], split_at_random(2, 6, "window")):
            require_whole(model, tokens, in_pieces(model, tokens, pieces))


@every_backbone
def test_rows_that_take_nothing_in_at_first_begin_when_they_do(backbone: str):
    model, tokens = cached_model(backbone), tokens_of(2)
    require_whole(model, tokens, in_pieces(model, tokens, [[0, 0], [0, 3], [0, 0], [4, 0]]))


@every_backbone
def test_rows_longer_than_the_context_go_on_turning(backbone: str):
    model, tokens = model_of(backbone, {}), tokens_of(2, TIME + 9)
    found = in_pieces(model, tokens, [[TIME - 2, TIME - 2], *[[1, 1]] * 11], capacity=TIME + 9)
    require_whole(model, tokens, found)


@every_arm
def test_one_call_from_the_beginning_is_forward_itself(backbone: str, arm: Arm):
    """Bit for bit where attention is the same kernel's: plain causal attention, in every layer."""
    model, tokens = model_of(backbone, arm, torch.float32), tokens_of(2)
    logits = model.extend(tokens, Cache.empty(model, 2, TIME))
    expected = torch.stack([whole(model, row) for row in tokens])
    with torch.no_grad():
        together = model(tokens, torch.zeros_like(tokens))
    if "mask" not in arm:
        assert torch.equal(logits, together)
    assert (logits - expected).abs().max() <= bound(model, expected)


@every_backbone
def test_the_last_logits_alone_are_those_of_each_rows_last_token(backbone: str):
    model, tokens = cached_model(backbone), tokens_of(3)
    for counts in ([5, 5, 5], [5, 1, 3]):
        together, alone = Cache.empty(model, 3, TIME), Cache.empty(model, 3, TIME)
        logits = model.extend(tokens[:, :5], together, torch.tensor(counts))
        last = model.extend(tokens[:, :5], alone, torch.tensor(counts), last_only=True)
        expected = torch.stack([row[count - 1] for row, count in zip(logits, counts, strict=True)])
        assert last.shape == (3, 31)
        assert (last - expected).abs().max() <= bound(model, expected)
        assert not torch.equal(logits[:, 4], logits[:, 0])


@every_backbone
def test_padding_and_spare_capacity_change_no_bit(backbone: str):
    model, tokens = cached_model(backbone), tokens_of(3)
    pieces = split_at_random(3, 5, "padding")
    found = in_pieces(model, tokens, pieces)
    for other in (in_pieces(model, tokens, pieces, padding=17), in_pieces(model, tokens, pieces, capacity=1000)):
        assert all(torch.equal(a, b) for a, b in zip(found, other, strict=True))


@every_backbone
def test_under_bfloat16_the_difference_is_that_of_bfloat16(backbone: str):
    """No derived bound says anything here (units of 2^-9 times a hundred terms), so the yardstick is measured: how far
    rounded products take the whole row from float32. Two such results part by the sum of both distances, and the
    largest of some hundred distances may well be twice another's, hence four. The first call is the same arithmetic,
    bit for bit."""
    for arm in ({}, NAMED["xsa of the projected value"], NAMED["the common mode of embedded values"], EVERY_SEAM):
        exact = model_of(backbone, arm, torch.float32)
        rounded = model_of(backbone, arm, torch.float32, compute="bfloat16")
        tokens = tokens_of(2)
        cached = Cache.empty(rounded, 2, TIME)
        first = rounded.extend(tokens[:, :11], cached)
        rest = [rounded.extend(tokens[:, at : at + 1], cached) for at in range(11, TIME)]
        with torch.no_grad():
            document = torch.zeros_like(tokens)
            of_float32, of_bfloat16 = exact(tokens, document), rounded(tokens, document)
            short = rounded(tokens[:, :11], document[:, :11])
        noise = (of_bfloat16 - of_float32).abs().max()
        assert noise > 0
        # On a processor without products of bfloat16 the two may be equal.
        assert (torch.cat((first, *rest), dim=1) - of_bfloat16).abs().max() <= 4 * noise
        if "mask" not in arm:
            assert torch.equal(first, short)
        assert {kept.dtype for (_, what), kept in cached._kept.items() if what == "key"} == {torch.bfloat16}


class _LooksBack(nn.Module):
    """A user's own map that says nothing about where it looks: at y and at the value of earlier tokens."""

    def forward(self, y: Tensor, values: Values, document: Tensor) -> Tensor:
        return y + 0.5 * shifted(y, 2) + 0.25 * earlier_value(values.projected, document, 3)


class _Claims(_LooksBack):
    position_local = True


class _Near(nn.Module):
    """A user's own mask: the three latest tokens of the row."""

    def forward(self, document: Tensor) -> Tensor:
        at = torch.arange(document.shape[1])
        behind = at[:, None] - at
        return ((behind >= 0) & (behind < 3)).expand(len(document), -1, -1)


@every_backbone
def test_a_map_of_ones_own_that_looks_back_needs_no_cached_form(backbone: str):
    tokens = tokens_of(3)
    model = model_of(backbone, {})
    bench_of(backbone, 2).wrap_output_maps(model, lambda _: _LooksBack())
    pieces = split_at_random(3, 6, "own")
    require_whole(model, tokens, in_pieces(model, tokens, pieces))
    bench_of(backbone, 2).wrap_output_maps(model, lambda _: _Claims())  # one that claims to look nowhere is believed
    with pytest.raises(AssertionError):
        require_whole(model, tokens, in_pieces(model, tokens, pieces))


@every_backbone
def test_a_mask_of_ones_own_needs_no_cached_form(backbone: str):
    model, tokens = model_of(backbone, {}), tokens_of(3)
    before = whole(model, tokens[0])
    for layer in cast(Sequence[Any], model.layers):
        layer.attention.mask = _Near()
    assert not torch.allclose(whole(model, tokens[0]), before)
    require_whole(model, tokens, in_pieces(model, tokens, split_at_random(3, 6, "mask")))
    require_whole(model, tokens, in_pieces(model, tokens, [[5] * 3, *[[1] * 3] * (TIME - 5)]))


def test_layers_of_one_mask_share_its_pairs():
    model = model_of("nanochat", {"mask": {"name": "document"}})
    cached = Cache.empty(model, 1, TIME)
    model.extend(tokens_of(1), cached)
    found = [cached.pairs(layer, nn.Module()) for layer in range(4)]
    assert found[0] is not None
    assert all(pairs is found[0] for pairs in found)


@every_backbone
def test_what_was_made_while_a_text_was_written_serves_a_training_step(backbone: str):
    """Tables are kept for a process, and tensors of inference mode cannot be saved for a backward pass."""
    tables.forget()
    bench = bench_of(backbone, 1)
    model = bench.model({})
    tokens = tokens_of(1, 16)
    with torch.inference_mode():
        model.extend(tokens, Cache.empty(model, 1, 16))
        model(tokens, torch.zeros_like(tokens))
    model(tokens, torch.zeros_like(tokens)).square().sum().backward()
    assert model.get_parameter("layers.0.attention.query").grad is not None


@every_backbone
def test_nothing_is_kept_for_a_backward_pass(backbone: str):
    model = cached_model(backbone)
    cached = Cache.empty(model, 1, TIME)
    assert not model.extend(tokens_of(1)[:, :4], cached).requires_grad
    assert not any(kept.requires_grad for kept in cached._kept.values())


Spoil = Callable[[Backbone, Cache], Tensor]
REFUSED: Mapping[str, tuple[Spoil, str, str]] = {
    "too long": (
        lambda model, c: model.extend(tokens_of(2)[:, :9], c, torch.tensor([1, 9])),
        "at most 12 tokens",
        "13",
    ),
    "other rows": (lambda model, c: model.extend(tokens_of(3)[:, :1], c), "2 rows", "tokens [3, 1], 3 lengths"),
    "other lengths": (
        lambda model, c: model.extend(tokens_of(2)[:, :1], c, torch.tensor([1])),
        "a length for each row",
        "tokens [2, 1], 1 lengths",
    ),
    "nothing": (lambda model, c: model.extend(tokens_of(2)[:, :0], c), "one token or more", "tokens [2, 0]"),
    "less than none": (
        lambda model, c: model.extend(tokens_of(2)[:, :3], c, torch.tensor([-1, 3])),
        "0 to 3",
        "-1 to 3",
    ),
    "more than given": (
        lambda model, c: model.extend(tokens_of(2)[:, :3], c, torch.tensor([0, 4])),
        "0 to 3",
        "0 to 4",
    ),
    "no rows": (lambda model, _: cast(Tensor, Cache.empty(model, 0, 4)), "rows >= 1", "rows = 0, capacity = 4"),
}


@pytest.mark.parametrize(("spoil", "expected", "received"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_the_cache_is_refused_and_leaves_it_as_it_was(spoil: Spoil, expected: str, received: str):
    model, tokens = cached_model("nanochat"), tokens_of(2)
    cached = Cache.empty(model, 2, 12)
    first = model.extend(tokens[:, :4], cached)
    with pytest.raises(ParibusError) as caught:
        spoil(model, cached)
    assert expected in caught.value.expected
    assert received in caught.value.received
    rest = model.extend(tokens[:, 4:12], cached)
    require_whole(model, tokens, list(torch.cat((first, rest), dim=1)))
