from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from paribus.mechanisms.contract import Reads, Site, Tap
from paribus.model.config import ModelConfig
from paribus.model.prenorm import Prenorm

Build = Callable[..., Prenorm]
U32, U64 = 2.0**-24, 2.0**-53


def rms(x: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


def rotated(x: Tensor, position: int, base: float) -> Tensor:
    """Pairs (i, i + half) as complex numbers, turned by position / base^(2 i / head_width)."""
    half = x.shape[-1] // 2
    angle = position / base ** (torch.arange(half, dtype=torch.float64) / half)
    # The model keeps its phases in float32.
    phase = torch.complex(angle.cos().float().double(), angle.sin().float().double())
    turned = torch.complex(x[..., :half], x[..., half:]) * phase
    return torch.cat((turned.real, turned.imag), dim=-1)


def reference_logits(model: Prenorm, row: Tensor, document: Tensor | None = None) -> Tensor:
    """[time vocab] of one row of token ids by explicit loops in float64, from the description of the backbone."""
    c = model.config
    w = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    x = rms(w["embedding"][row], c.norm_eps)
    for n in range(c.layers):
        p = f"layers.{n}"
        h = rms(x, c.norm_eps) * w[f"{p}.attention_norm.gain"]
        mixed = torch.zeros(len(row), c.heads * c.head_width, dtype=torch.float64)
        for head in range(c.heads):
            own = slice(head * c.head_width, (head + 1) * c.head_width)
            q, k, v = (h @ w[f"{p}.attention.{name}"][own].T for name in ("query", "key", "value"))
            if c.qk_norm:
                q, k = rms(q, c.norm_eps), rms(k, c.norm_eps)
            q, k = (torch.stack([rotated(t[i], i, c.rotary_base) for i in range(len(row))]) for t in (q, k))
            for i in range(len(row)):
                seen = [j for j in range(i + 1) if document is None or document[j] == document[i]]
                weights = torch.softmax(torch.stack([q[i] @ k[j] for j in seen]) / c.head_width**0.5, dim=0)
                mixed[i, own] = sum((a * v[j] for a, j in zip(weights, seen, strict=True)), torch.zeros(c.head_width))
        x = x + mixed @ w[f"{p}.attention.output"].T
        h = rms(x, c.norm_eps) * w[f"{p}.mlp_norm.gain"]
        gate = h @ w[f"{p}.mlp.gate"].T
        x = x + (gate / (1 + torch.exp(-gate)) * (h @ w[f"{p}.mlp.up"].T)) @ w[f"{p}.mlp.down"].T
    return (rms(x, c.norm_eps) * w["output_norm.gain"]) @ w["embedding"].T


def with_gains(model: Prenorm) -> Prenorm:
    """Gains away from 1, so that each is seen to act on its own features."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("gain"):
                parameter.add_(torch.linspace(-0.3, 0.3, len(parameter)))
    return model


@pytest.mark.parametrize("qk_norm", [True, False])
@pytest.mark.parametrize(("dtype", "unit"), [(torch.float64, U64), (torch.float32, U32)])
@pytest.mark.parametrize("masked", [False, True])
def test_logits_equal_a_forward_pass_by_explicit_loops(
    build: Build, config: ModelConfig, tokens: Tensor, qk_norm: bool, dtype: torch.dtype, unit: float, masked: bool
):
    own = config.model_copy(update={"qk_norm": qk_norm, "rotary_base": 100.0})
    model = with_gains(build({"mask": {"name": "document"}} if masked else {}, dtype, config=own))
    document = torch.tensor([[0] * 6 + [1] * 10, [0] * 16])
    with torch.no_grad():
        logits = model(tokens, document)
    expected = torch.stack([reference_logits(model, tokens[b], document[b] if masked else None) for b in (0, 1)])
    # 6 sublayers and a head, each a chain of at most three sums of up to 40 products; relative to the largest logit.
    assert (logits - expected).abs().max() <= 7 * 3 * 40 * unit * expected.abs().max()


class _Watch:
    """Sees the stream at every read."""

    def __init__(self, model: Prenorm) -> None:
        self.streams: list[Tensor] = []
        self.opened: list[Tensor] = []
        read, opening = model.routing.read, model.routing.open
        assert callable(read)
        assert callable(opening)

        def watched_read(memory: Tensor, layer: int, site: Site, tap: Tap | None) -> Reads:
            reads = read(memory, layer, site, tap)
            self.streams.append(reads.q)
            return reads

        def watched_open(x0: Tensor) -> object:
            self.opened.append(x0)
            return opening(x0)

        vars(model.routing).update(read=watched_read, open=watched_open)


def test_the_stream_starts_at_unit_rms(build: Build, config: ModelConfig, tokens: Tensor):
    model = build({})
    watch = _Watch(model)
    model(tokens, torch.zeros_like(tokens))
    mean_square = watch.opened[0].double().square().mean(-1)
    # eps / (0.02^2) is what normalisation leaves undone, for a row of width 24 whose mean square may be half of that.
    assert ((mean_square - 1).abs() <= 4 * config.norm_eps / config.embedding_std**2).all()


@pytest.mark.parametrize("arm", [{}, {"routing": {"name": "role-decoupled", "blocks": 3}}], ids=["serial", "decoupled"])
def test_every_read_of_the_stream_is_float32_when_sublayers_compute_in_bfloat16(
    build: Build, config: ModelConfig, tokens: Tensor, arm: dict[str, dict[str, object]]
):
    model = build(arm)
    watch = _Watch(model)
    with torch.autocast("cpu", torch.bfloat16):
        model(tokens, torch.zeros_like(tokens))
    assert len(watch.streams) == 2 * config.layers
    assert {stream.dtype for stream in watch.streams} == {torch.float32}


def test_a_document_mask_equals_separate_runs_of_the_documents(build: Build, tokens: Tensor):
    masked, plain = build({"mask": {"name": "document"}}, torch.float64), build({}, torch.float64)
    row, cut = tokens[:1], 6
    document = (torch.arange(row.shape[1]) >= cut).long()[None]
    with torch.no_grad():
        together = masked(row, document)
        apart = torch.cat([plain(part, torch.zeros_like(part)) for part in (row[:, :cut], row[:, cut:])], dim=1)
    # Rotary phases are relative in exact arithmetic. They are kept in float32, so a shift by `cut` positions moves each
    # attention logit (at most sqrt(head_width) in size) by some roundings, and 6 sublayers pass that on.
    assert (together - apart)[:, :cut].abs().max() <= 7 * 3 * 40 * U64
    assert (together - apart).abs().max() <= 6 * 4 * 8**0.5 * U32
    assert (together - plain(row, document))[:, cut:].abs().max() > 1e-3


def test_query_key_and_value_share_one_norm_of_a_shared_read(build: Build, tokens: Tensor):
    """The standard arm normalises each read once: one tensor enters all three projections."""
    model = build({})
    seen: list[Reads] = []
    model.get_submodule("layers.0.attention").register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(tokens, torch.zeros_like(tokens))
    assert seen[0].q is seen[0].k is seen[0].v


def test_the_first_layers_value_reaches_the_value_map_of_later_layers(build: Build, tokens: Tensor):
    model = build({})
    first: list[Tensor] = []

    class Spy(torch.nn.Module):
        def forward(self, own: Tensor, first_value: Tensor, _: Tensor) -> Tensor:
            first.append(first_value)
            return own

    for layer in range(3):
        model.set_submodule(f"layers.{layer}.attention.value_map", Spy())
    model(tokens, torch.zeros_like(tokens))
    assert first[0] is first[1] is first[2]
    stream = functional.rms_norm(model.get_parameter("embedding")[tokens], (24,), None, 1e-6)
    value = model.get_parameter("layers.0.attention.value")
    expected = functional.linear(functional.rms_norm(stream, (24,), None, 1e-6), value)
    assert torch.allclose(first[0].flatten(-2), expected, atol=24 * U32)


@pytest.mark.parametrize(("field", "value"), [("width", 25), ("head_width", 7), ("layers", 0), ("norm_eps", 1e-5)])
def test_a_geometry_that_the_backbone_cannot_have_is_refused(config: ModelConfig, field: str, value: float):
    with pytest.raises(ValueError, match=field):
        ModelConfig.model_validate(config.model_dump() | {field: value})
