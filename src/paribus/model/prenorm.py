"""The PreNorm decoder, in the tensor's order: embed, normalise, (read, attend, write, read, MLP, write) x layers, head.

RMSNorm, rotary positions, SwiGLU, tied head; separate query, key and value matrices in every arm. Mechanisms enter by
value at four seams (`paribus.mechanisms.contract`); this file knows none of them by name.
Initial laws: hidden matrices N(0, 1/fan_in), output projections further divided by 2 * layers (residual growth,
GPT-2), embedding N(0, embedding_std^2), gains 1. The stream starts at unit RMS and is float32 throughout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from paribus.errors import MechanismError
from paribus.mechanisms.contract import (
    AttentionMask,
    DepthRouting,
    Geometry,
    MechanismConfig,
    OutputMap,
    Reads,
    Seam,
    Site,
    Tap,
    ValueMap,
    Values,
)
from paribus.model.config import ModelConfig
from paribus.roles import ONES, DeclaredModule, Init, Role
from paribus.shapes import AllowedPairs, Documents, Heads, KvHeads, Logits, Stream, Tokens


@cache
def rotary_phases(time: int, head_width: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin of position * base^(-2i/head_width), each [time, 1, head_width / 2], from float64."""
    frequencies = base ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
    angles = torch.arange(time, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float()[:, None].to(device), angles.sin().float()[:, None].to(device)


def rotate(heads: Heads, cos: Tensor, sin: Tensor) -> Heads:
    """Rotate feature pairs (i, i + head_width/2) by the position's phases."""
    a, b = heads.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Norm(DeclaredModule):
    """x / sqrt(mean(x^2) + eps) * gain."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.declare("gain", (width,), Role.GAIN, ONES)

    def forward(self, x: Stream) -> Stream:
        return functional.rms_norm(x, x.shape[-1:], self.get_parameter("gain"), self.eps)


class Attention(DeclaredModule):
    def __init__(self, config: ModelConfig, output_map: nn.Module, value_map: nn.Module, mask: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.output_map, self.value_map, self.mask = output_map, value_map, mask
        inner = config.heads * config.head_width
        for name, heads in (("query", config.heads), ("key", config.kv_heads), ("value", config.kv_heads)):
            self.declare(name, (heads * config.head_width, config.width), Role.MATRIX, Init(std=config.width**-0.5))
        self.declare("output", (config.width, inner), Role.MATRIX, Init(std=(inner * 2 * config.layers) ** -0.5))

    def project(self, name: str, x: Stream) -> Heads:
        return functional.linear(x, self.get_parameter(name)).unflatten(-1, (-1, self.config.head_width))

    def forward(
        self, x: Reads, first_value: Heads | None, tokens: Tokens, document: Documents, layer: int, tap: Tap | None
    ) -> tuple[Stream, Heads]:
        """The sublayer's output and this layer's own value (layer 0's is what ValueMaps of later layers receive)."""
        q, k, own = self.project("query", x.q), self.project("key", x.k), self.project("value", x.v)
        v = cast(ValueMap, self.value_map)(own, own if first_value is None else first_value, tokens)
        if not isinstance(v, Tensor) or v.shape != own.shape:
            raise _broken_contract(self.value_map, layer, "[batch time kv_head head_width]", own, v)
        if self.config.qk_norm:
            q, k = (functional.rms_norm(t, t.shape[-1:], None, self.config.norm_eps) for t in (q, k))
        cos, sin = rotary_phases(q.shape[1], self.config.head_width, self.config.rotary_base, q.device)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        allowed = cast(AttentionMask, self.mask)(document)
        # Query heads beside the key-value head that they share: views, whatever the size of a group.
        y = attend(q, k, v, allowed).unflatten(2, (self.config.kv_heads, -1))
        values = Values(v.unsqueeze(3), own.unsqueeze(3))
        z = cast(OutputMap, self.output_map)(y, values, document)
        if not isinstance(z, Tensor) or z.shape != y.shape or z.dtype != y.dtype:
            raise _broken_contract(self.output_map, layer, "[batch time kv_head group head_width]", y, z)
        if tap is not None:
            tap("attention", layer, q=q, k=k, **({} if allowed is None else {"allowed": allowed}))
            tap("attention output", layer, y=y, v=values.aggregated, z=z)
        return functional.linear(z.flatten(-3), self.get_parameter("output")), own


def _broken_contract(module: nn.Module, layer: int, axes: str, like: Tensor, returned: object) -> MechanismError:
    came = f"{list(returned.shape)}, {returned.dtype}" if isinstance(returned, Tensor) else type(returned).__name__
    return MechanismError(
        f"{type(module).__name__} of layer {layer} returned what the backbone cannot use",
        expected=f"{axes} = {list(like.shape)}, {like.dtype}",
        received=came,
        remedy="return a tensor of the shape and dtype of what came in (.to(y.dtype) after arithmetic in float32)",
    )


def attend(q: Heads, k: KvHeads, v: KvHeads, allowed: AllowedPairs | None) -> Heads:
    """softmax(q . k / sqrt(head_width)) v over earlier positions, and over `allowed` pairs only where that is given.

    k and v may have fewer heads than q: query head h reads key-value head h // (heads / kv_heads).
    """
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    if allowed is None:
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    else:
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed[:, None], enable_gqa=grouped)
    return mixed.transpose(1, 2)


class Mlp(DeclaredModule):
    """SwiGLU (Shazeer 2002.05202): down(silu(gate x) * up x)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, hidden = config.width, config.mlp_width
        for name in ("gate", "up"):
            self.declare(name, (hidden, width), Role.MATRIX, Init(std=width**-0.5))
        self.declare("down", (width, hidden), Role.MATRIX, Init(std=(hidden * 2 * config.layers) ** -0.5))

    def forward(self, x: Reads) -> Stream:
        gate, up = functional.linear(x.q, self.get_parameter("gate")), functional.linear(x.v, self.get_parameter("up"))
        return functional.linear(functional.silu(gate) * up, self.get_parameter("down"))


class Layer(nn.Module):
    def __init__(self, config: ModelConfig, attention: Attention) -> None:
        super().__init__()
        self.attention_norm = Norm(config.width, config.norm_eps)
        self.attention = attention
        self.mlp_norm = Norm(config.width, config.norm_eps)
        self.mlp = Mlp(config)


def normed(norm: nn.Module, reads: Reads) -> Reads:
    """The norm of each distinct read, once."""
    q = norm(reads.q)
    k = q if reads.k is reads.q else norm(reads.k)
    v = q if reads.v is reads.q else k if reads.v is reads.k else norm(reads.v)
    return Reads(q, k, v)


class Prenorm(DeclaredModule):
    """Token ids -> logits. Built without values; `paribus.roles.initialise` writes them."""

    def __init__(self, config: ModelConfig, mechanisms: dict[Seam, MechanismConfig]) -> None:
        super().__init__()
        self.config = config
        geometry = geometry_of(config, mechanisms)
        self.declare(
            "embedding", (config.vocabulary_size, config.width), Role.EMBEDDING, Init(std=config.embedding_std)
        )
        self.layers = nn.ModuleList()
        for index in range(config.layers):
            seams = [mechanisms[s].build(geometry, index) for s in (Seam.OUTPUT_MAP, Seam.VALUE_MAP, Seam.MASK)]
            self.layers.append(Layer(config, Attention(config, *seams)))
        self.routing = mechanisms[Seam.ROUTING].build(geometry, -1)
        self.output_norm = Norm(config.width, config.norm_eps)

    def forward(self, tokens: Tokens, document: Documents, tap: Tap | None = None) -> Logits:
        routing = cast(DepthRouting, self.routing)
        embedding = self.get_parameter("embedding")
        x0 = functional.embedding(tokens, embedding)
        memory = routing.open(functional.rms_norm(x0, x0.shape[-1:], None, self.config.norm_eps))
        first_value = None
        for index, layer in enumerate(cast(Sequence[Layer], self.layers)):
            reads = normed(layer.attention_norm, routing.read(memory, index, Site.ATTENTION, tap))
            delta, own_value = layer.attention(reads, first_value, tokens, document, index, tap)
            first_value = own_value if first_value is None else first_value
            memory = routing.write(memory, delta, index, Site.ATTENTION)
            delta = layer.mlp(normed(layer.mlp_norm, routing.read(memory, index, Site.MLP, tap)))
            memory = routing.write(memory, delta, index, Site.MLP)
        return functional.linear(self.output_norm(routing.close(memory, tap)), embedding)


def geometry_of(config: ModelConfig, mechanisms: Mapping[Seam, MechanismConfig]) -> Geometry:
    """What mechanisms may know: the backbone, and which layers a ValueMap gives more than the projected value."""
    bare = Geometry(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        head_width=config.head_width,
        context_length=config.context_length,
        norm_eps=config.norm_eps,
        kv_heads=config.kv_heads,
        vocabulary_size=config.vocabulary_size,
    )
    return replace(bare, value_embedding_layers=mechanisms[Seam.VALUE_MAP].value_embedding_layers(bare))
