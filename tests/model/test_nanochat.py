"""The nanochat backbone beside a forward pass token by token, written from its equations; and its initial laws."""

from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from paribus.model.backbone import Backbone, WholeRows
from paribus.model.config import NanochatConfig
from paribus.model.lawbench import wake
from paribus.model.nanochat import Attention, Nanochat
from paribus.roles import Role, declarations

Build = Callable[..., Backbone]
U32, U64 = 2.0**-24, 2.0**-53
PAPER = NanochatConfig(layers=12, width=768, mlp_width=3072, vocabulary_size=32_768, context_length=2048)


def small(**changes: object) -> NanochatConfig:
    """Wide enough for every shortcut; a short window of four earlier positions, in rows of sixteen."""
    sizes = {"layers": 4, "width": 32, "head_width": 8, "mlp_width": 40, "vocabulary_size": 37, "context_length": 16}
    reach = {"smear_channels": 6, "value_gate_channels": 4, "short_window_multiple": 4}
    return NanochatConfig.model_validate(sizes | reach | changes)


def rms(x: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def turned_back(x: Tensor, position: int, base: float) -> Tensor:
    """Pairs (i, i + half) as complex numbers, turned by minus position / base^(2 i / head_width)."""
    half = x.shape[-1] // 2
    angle = position / base ** (torch.arange(half, dtype=torch.float64) / half)
    # The model keeps its phases in float32.
    phase = torch.complex(angle.cos().float().double(), -angle.sin().float().double())
    turned = torch.complex(x[..., :half], x[..., half:]) * phase
    return torch.cat((turned.real, turned.imag), dim=-1)


def smeared(e: Tensor, w: dict[str, Tensor], channels: int, document: Tensor | None) -> Tensor:
    x = e.clone()
    for t in range(1, len(e)):
        if document is None or document[t] == document[t - 1]:
            gate = sigmoid((w["smear_gate"][0] * e[t, :channels]).sum())
            x[t] = e[t] + w["smear_scale"] * gate * e[t - 1]
    return x


def reference_logits(model: Backbone, row: Tensor, document: Tensor | None) -> Tensor:
    """[time vocab] of one row of token ids, in float64, one token and one head at a time."""
    c = model.config
    assert isinstance(c, NanochatConfig)
    w = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    time, window = len(row), [c.context_length, 4]
    x0 = smeared(rms(w["embedding"][row], c.norm_eps), w, c.smear_channels, document)
    x, middle = x0, x0
    for n in range(c.layers):
        p = f"layers.{n}.attention"
        x = w["routing.stream_scale"][n] * x + w["routing.embedding_scale"][n] * x0
        h = rms(x, c.norm_eps)
        short = c.window_pattern[n % len(c.window_pattern)] == "S" and n != c.layers - 1
        mixed = torch.zeros(time, c.width, dtype=torch.float64)
        for head in range(c.heads):
            own = slice(head * c.head_width, (head + 1) * c.head_width)
            group = head // c.query_heads_per_kv_head
            shared = slice(group * c.head_width, (group + 1) * c.head_width)
            q = h @ w[f"{p}.query"][own].T
            k, v = (h @ w[f"{p}.{name}"][shared].T for name in ("key", "value"))
            if f"{p}.value_gate" in w:
                gate = c.value_gate_scale * sigmoid(h[:, : c.value_gate_channels] @ w[f"{p}.value_gate"][group])
                v = v + gate[:, None] * w[f"{p}.value_embedding"][row][:, shared]
            q, k = (torch.stack([turned_back(t[i], i, c.rotary_base) for i in range(time)]) for t in (q, k))
            q, k = c.qk_gain * rms(q, c.norm_eps), c.qk_gain * rms(k, c.norm_eps)
            for i in range(time):
                near = range(max(0, i - window[short]), i + 1)
                seen = [j for j in near if document is None or document[j] == document[i]]
                weights = torch.softmax(torch.stack([q[i] @ k[j] for j in seen]) / c.head_width**0.5, dim=0)
                mixed[i, own] = sum((a * v[j] for a, j in zip(weights, seen, strict=True)), torch.zeros(c.head_width))
        x = x + mixed @ w[f"{p}.output"].T
        up = rms(x, c.norm_eps) @ w[f"layers.{n}.mlp.up"].T
        x = x + torch.clamp(up, min=0) ** 2 @ w[f"layers.{n}.mlp.down"].T
        middle = x if n == c.layers // 2 else middle
    x = rms(x - w["routing.backout_scale"] * middle, c.norm_eps)
    logits = x @ w["head"][: c.vocabulary_size].T
    return c.logit_softcap * torch.tanh(logits / c.logit_softcap)


def awake(model: Backbone) -> Backbone:
    """Projections that start at zero get noise, logits a size that the softcap bends, and every scale its own value."""
    wake(model, [name for name, _ in model.named_parameters()], "nanochat")
    with torch.no_grad():
        model.get_parameter("head").mul_(4000)
        for name in ("routing.stream_scale", "routing.embedding_scale"):
            if name in dict(model.named_parameters()):
                scale = model.get_parameter(name)
                scale.add_(torch.linspace(-0.2, 0.3, len(scale)))
    return model


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float64, U64), (torch.float32, U32)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"query_heads_per_kv_head": 2},
        {"query_heads_per_kv_head": 4, "window_pattern": "SL"},
        {"window_pattern": "L", "value_embeddings": "none", "layers": 3},
        {"rotary_base": 100.0, "qk_gain": 0.7, "value_gate_scale": 1.5, "logit_softcap": 4.0},
    ],
    ids=["multi-head", "grouped", "multi-query", "plain values", "other constants"],
)
def test_logits_equal_a_forward_pass_token_by_token(
    build: Build, tokens: Tensor, dtype: torch.dtype, unit: float, masked: bool, changes: dict[str, object]
):
    model = awake(build({"mask": {"name": "document"}} if masked else {}, dtype, config=small(**changes)))
    document = torch.tensor([[0] * 6 + [1] * 10, [0] * 16])
    with torch.no_grad():
        logits = model(tokens, document)
    expected = torch.stack([reference_logits(model, tokens[b], document[b] if masked else None) for b in (0, 1)])
    assert logits.shape == (2, 16, 37)
    assert expected.abs().max() > 0.8 * small(**changes).logit_softcap
    # 8 sublayers and a head, each a chain of at most three sums of up to 40 products; relative to the largest logit.
    assert (logits - expected).abs().max() <= 9 * 3 * 40 * unit * expected.abs().max()


def test_every_parameter_moves_the_reference_as_it_moves_the_model(build: Build, tokens: Tensor):
    """None is missing from the comparison: half of its numbers changed by a hundredth shows in both alike."""
    model = awake(build({}, torch.float64, config=small()))
    row = tokens[0, :7]
    with torch.no_grad():
        before = reference_logits(model, row, None)
        for name, parameter in model.named_parameters():
            kept = parameter.clone()
            parameter.view(-1)[::2].mul_(1.01)
            changed = reference_logits(model, row, None) - before
            compared = model(row[None], torch.zeros_like(row[None]))[0] - before
            parameter.copy_(kept)
            assert changed.abs().max() > 1e-7, name
            assert (changed - compared).abs().max() <= 2 * 9 * 3 * 40 * U64 * before.abs().max(), name


def test_a_document_mask_stops_the_smear_at_the_boundary(build: Build, tokens: Tensor):
    """The first token of the second document is what it is alone; without the mask it is not."""
    plain, masked = (awake(build(arm, config=small())) for arm in ({}, {"mask": {"name": "document"}}))
    document = torch.tensor([[0] * 6 + [1] * 10, [0] * 16])
    embedded = cast(Nanochat, plain).norm(plain.get_parameter("embedding")[tokens])
    for model, joined in ((plain, True), (masked, False)):
        found = cast(Nanochat, model).smeared(WholeRows(tokens, document))
        assert torch.equal(found[:, 0], embedded[:, 0])
        assert torch.equal(found[0, 6], embedded[0, 6]) is not joined
        assert not torch.equal(found[0, 7], embedded[0, 7])


def test_windows_reach_the_earlier_positions_that_the_pattern_says():
    """In rows of 2048 a short window is 512 and oneself; the last layer sees the whole row in any case."""
    assert [PAPER.window(layer) for layer in range(4)] == [512, 512, 512, None]
    assert PAPER.window(11) is None
    only_short = PAPER.model_copy(update={"window_pattern": "S"})
    assert [only_short.window(layer) for layer in (0, 10, 11)] == [512, 512, None]
    assert PAPER.model_copy(update={"context_length": 2049}).window(0) == 640  # rounded up to a multiple of 128


def test_a_token_beyond_the_window_is_not_seen(build: Build, tokens: Tensor):
    """One layer of window 4: a token's change shows in the next four positions and the smear's one more, no further.

    The smear lets position 3 into position 4, whose value reaches 4 to 8.
    """
    model = awake(build({}, config=small(layers=2, window_pattern="S", value_embeddings="none")))
    cast(Attention, model.get_submodule("layers.1.attention")).window = 4
    changed = tokens.clone()
    changed[:, 3] = (changed[:, 3] + 1) % 37
    with torch.no_grad():
        difference = (model(tokens, torch.zeros_like(tokens)) - model(changed, torch.zeros_like(tokens))).abs()
    largest = difference.amax(dim=(0, 2))
    assert torch.equal(largest[:3], torch.zeros(3))
    assert (largest[3:13] > 0).all()  # 4 + 4 behind position 4, in two layers
    assert torch.equal(largest[13:], torch.zeros(3))


def test_the_last_layer_and_every_second_before_it_have_value_embeddings():
    assert PAPER.value_embedding_layers == frozenset({1, 3, 5, 7, 9, 11})
    with pytest.raises(ValueError, match="5 layers"):
        small(layers=5)
    assert small(layers=5, value_embeddings="none").value_embedding_layers == frozenset()


@pytest.mark.parametrize(
    ("field", "value"),
    [("smear_channels", 33), ("value_gate_channels", 33), ("window_pattern", "SX"), ("head_width", 6), ("layers", 0)],
)
def test_a_geometry_that_the_backbone_cannot_have_is_refused(field: str, value: object):
    with pytest.raises(ValueError, match=field):
        small(**{field: value})


def families(model: Backbone) -> dict[str, Tensor]:
    found: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        found.setdefault(name.rpartition(".")[2], []).append(parameter.detach().double().flatten())
    return {family: torch.cat(parts) for family, parts in found.items()}


def test_normal_families_have_their_standard_deviation_and_mean_zero(build: Build):
    found = families(build({}, config=small()))
    for family, std in {"embedding": 0.8, "head": 0.001}.items():
        values = found[family]
        n = len(values)
        assert n == 64 * 32
        # Five standard errors of n normal draws: std / sqrt(n) of the mean, std / sqrt(2 n) of the deviation.
        assert abs(float(values.mean())) < 5 * std / n**0.5
        assert abs(float(values.std()) / std - 1) < 5 / (2 * n) ** 0.5
        assert abs(float(((values / values.std()) ** 4).mean()) - 3) < 5 * (24 / n) ** 0.5  # normal, not uniform


@pytest.mark.parametrize(
    ("family", "low", "high"),
    [
        *((name, -((3 / 32) ** 0.5), (3 / 32) ** 0.5) for name in ("query", "key", "value", "value_embedding")),
        ("up", -0.4 * (3 / 32) ** 0.5, 0.4 * (3 / 32) ** 0.5),
        ("value_gate", 0.0, 0.02),
        ("smear_gate", 0.0, 0.02),
    ],
)
def test_uniform_families_fill_their_range(build: Build, family: str, low: float, high: float):
    values = families(build({}, config=small()))[family]
    n, span = len(values), high - low
    # The draws are float32 steps inside the range; rounding of the mean and of the span may add one each.
    assert float(values.min()) >= low - 2 * U32 * max(abs(low), span)
    assert float(values.max()) <= high + 2 * U32 * max(abs(high), span)
    # Of n uniform draws: the mean's standard error is span / sqrt(12 n); the extremes lie within 12 span / n of the
    # ends but for one case in exp(12).
    assert abs(float(values.mean()) - (low + high) / 2) < 5 * span / (12 * n) ** 0.5
    assert float(values.max()) - float(values.min()) > span * (1 - 24 / n)


def test_output_projections_and_the_smear_start_at_zero(build: Build):
    found = families(build({}, config=small()))
    for family in ("output", "down", "smear_scale"):
        assert torch.equal(found[family], torch.zeros_like(found[family])), family


def test_scales_fall_linearly_from_layer_to_layer(build: Build):
    """Twelve layers: 1.15 to 1.05, and 0.20 to 0.05; the share that is taken out starts at 0.2."""
    model = build({}, config=small(layers=12))
    for name, first, last in (("stream_scale", 1.15, 1.05), ("embedding_scale", 0.20, 0.05)):
        expected = torch.tensor([first + (last - first) * n / 11 for n in range(12)])
        assert torch.equal(model.get_parameter(f"routing.{name}"), expected)
        assert float(expected[0]) == pytest.approx(first, rel=U32)
        assert float(expected[-1]) == pytest.approx(last, rel=U32)
    assert model.get_parameter("routing.backout_scale").tolist() == pytest.approx([0.2], rel=U32)
    single = build({}, config=small(layers=1, value_embeddings="none")).get_parameter("routing.stream_scale")
    assert single.tolist() == pytest.approx([1.15], rel=U32)


def test_tables_are_padded_and_logits_are_not(build: Build, tokens: Tensor):
    model = awake(build({}, config=small()))
    for name in ("embedding", "head", "layers.1.attention.value_embedding"):
        assert model.get_parameter(name).shape[0] == 64
    logits = model(tokens, torch.zeros_like(tokens))
    assert logits.shape[-1] == 37
    logits.square().mean().backward()
    gradient = model.get_parameter("head").grad
    assert gradient is not None
    assert torch.equal(gradient[37:], torch.zeros(27, 32))
    assert (gradient[:37].abs().amax(1) > 0).all()
    assert small(vocabulary_size=64).table_rows == 64


@pytest.mark.parametrize("group", [1, 4])
def test_every_parameter_gets_a_gradient(build: Build, tokens: Tensor, group: int):
    """Where no projection is zero; at the start the zeros of the projections hide what lies before them."""
    model = awake(build({}, config=small(query_heads_per_kv_head=group)))
    logits = model(tokens[:, :-1], torch.zeros_like(tokens[:, :-1]))
    functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name


def test_before_the_first_update_only_what_lies_behind_the_zero_projections_learns(build: Build, tokens: Tensor):
    model = build({}, config=small())
    logits = model(tokens[:, :-1], torch.zeros_like(tokens[:, :-1]))
    functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    still = {n.rpartition(".")[2] for n, p in model.named_parameters() if p.grad is None or not bool(p.grad.any())}
    assert still == {"query", "key", "value", "value_gate", "value_embedding", "up", "smear_gate"}


def test_a_routing_over_depth_takes_the_place_of_scales_and_backout(build: Build):
    plain = dict(build({}, config=small()).named_parameters())
    routed = dict(build({"routing": {"name": "block-attnres", "blocks": 2}}, config=small()).named_parameters())
    own = {"routing.stream_scale", "routing.embedding_scale", "routing.backout_scale"}
    assert own <= set(plain)
    assert not own & set(routed)
    assert set(plain) - own <= set(routed)
    for name in set(plain) - own:
        assert torch.equal(plain[name], routed[name]), name


def test_roles_are_those_of_the_originals_optimiser_groups(build: Build):
    roles = {name: declared.role for name, declared in declarations(build({}, config=small())).items()}
    of_layer_1 = {name.removeprefix("layers.1."): role for name, role in roles.items() if name.startswith("layers.1.")}
    matrices = ("query", "key", "value", "output", "value_gate")
    assert of_layer_1 == {
        "attention.value_embedding": Role.VALUE_EMBEDDING,
        **{f"attention.{name}": Role.MATRIX for name in matrices},
        **{f"mlp.{name}": Role.MATRIX for name in ("up", "down")},
    }
    assert {name: role for name, role in roles.items() if not name.startswith("layers.")} == {
        "embedding": Role.EMBEDDING,
        "head": Role.HEAD,
        "smear_gate": Role.SHORTCUT,
        "smear_scale": Role.SHORTCUT,
        "routing.stream_scale": Role.STREAM_SCALE,
        "routing.embedding_scale": Role.EMBEDDING_SCALE,
        "routing.backout_scale": Role.SHORTCUT,
    }
