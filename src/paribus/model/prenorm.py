"""The PreNorm decoder, in the tensor's order: embed, normalise, (read, attend, write, read, MLP, write) x layers, head.

RMSNorm, rotary positions, SwiGLU, tied head; separate query, key and value matrices in every arm. Mechanisms enter by
value at four seams (`paribus.mechanisms.contract`); this file knows none of them by name.
Initial laws: hidden matrices N(0, 1/fan_in), output projections further divided by 2 * layers (residual growth,
GPT-2), embedding N(0, embedding_std^2), gains 1. The stream starts at unit RMS and is float32 throughout.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from torch import Tensor, nn
from torch.nn import functional

from paribus.kernels.precision import wide
from paribus.mechanisms.contract import (
    DepthRouting,
    MechanismConfig,
    Reads,
    Seam,
    Site,
    Tap,
    ValueMap,
    Values,
)
from paribus.model.backbone import Backbone, Rows, broken_contract, geometry_of, normed_reads, rotate
from paribus.model.config import PrenormConfig
from paribus.roles import ONES, DeclaredModule, Init, Role
from paribus.shapes import Heads, Logits, Stream


class Norm(DeclaredModule):
    """x / sqrt(mean(x^2) + eps) * gain."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.declare("gain", (width,), Role.GAIN, ONES)

    def forward(self, x: Stream) -> Stream:
        return functional.rms_norm(x, x.shape[-1:], self.get_parameter("gain"), self.eps)


class Attention(DeclaredModule):
    def __init__(self, config: PrenormConfig, output_map: nn.Module, value_map: nn.Module, mask: nn.Module) -> None:
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
        self, x: Reads, first_value: Heads | None, rows: Rows, layer: int, tap: Tap | None
    ) -> tuple[Stream, Heads]:
        """The sublayer's output and this layer's own value (layer 0's is what ValueMaps of later layers receive)."""
        q, k, own = self.project("query", x.q), self.project("key", x.k), self.project("value", x.v)
        v = cast(ValueMap, self.value_map)(own, own if first_value is None else first_value, rows.tokens)
        if not isinstance(v, Tensor) or v.shape != own.shape:
            raise broken_contract(self.value_map, layer, "[batch time kv_head head_width]", own, v)
        if self.config.qk_norm:
            q, k = (functional.rms_norm(t, t.shape[-1:], None, self.config.norm_eps) for t in (q, k))
        cos, sin = rows.phases(self.config.head_width, self.config.rotary_base)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed, allowed = rows.attend(layer, q, k, v, self.mask)
        # Query heads beside the key-value head that they share: views, whatever the size of a group.
        y = mixed.unflatten(2, (self.config.kv_heads, -1))
        values = Values(v.unsqueeze(3), own.unsqueeze(3))
        z = rows.mapped(layer, self.output_map, y, values)
        if not isinstance(z, Tensor) or z.shape != y.shape or z.dtype != y.dtype:
            raise broken_contract(self.output_map, layer, "[batch time kv_head group head_width]", y, z)
        if tap is not None:
            tap("attention", layer, q=q, k=k, **({} if allowed is None else {"allowed": allowed}))
            tap("attention output", layer, y=y, v=values.aggregated, z=z)
        return functional.linear(z.flatten(-3), self.get_parameter("output")), own


class Mlp(DeclaredModule):
    """SwiGLU (Shazeer 2002.05202): down(silu(gate x) * up x)."""

    def __init__(self, config: PrenormConfig) -> None:
        super().__init__()
        width, hidden = config.width, config.mlp_width
        for name in ("gate", "up"):
            self.declare(name, (hidden, width), Role.MATRIX, Init(std=width**-0.5))
        self.declare("down", (width, hidden), Role.MATRIX, Init(std=(hidden * 2 * config.layers) ** -0.5))

    def forward(self, x: Reads) -> Stream:
        gate, up = functional.linear(x.q, self.get_parameter("gate")), functional.linear(x.v, self.get_parameter("up"))
        return functional.linear(functional.silu(gate) * up, self.get_parameter("down"))


class Layer(nn.Module):
    def __init__(self, config: PrenormConfig, attention: Attention) -> None:
        super().__init__()
        self.attention_norm = Norm(config.width, config.norm_eps)
        self.attention = attention
        self.mlp_norm = Norm(config.width, config.norm_eps)
        self.mlp = Mlp(config)


class Prenorm(Backbone[PrenormConfig]):
    """Token ids -> logits."""

    def __init__(self, config: PrenormConfig, mechanisms: dict[Seam, MechanismConfig]) -> None:
        super().__init__(config, mechanisms)
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

    def logits(self, rows: Rows, tap: Tap | None) -> Logits:
        routing = cast(DepthRouting, self.routing)
        embedding = self.get_parameter("embedding")
        x0 = functional.embedding(rows.tokens, embedding)
        if self.config.normalise_embedding:
            x0 = functional.rms_norm(x0, x0.shape[-1:], None, self.config.norm_eps)
        memory = routing.open(x0)
        one = partial(self._layer, rows, tap)
        first_value = None
        for index in range(len(self.layers)):
            memory, first_value = self.one_layer(one, index, memory, first_value)
        return wide(functional.linear(self.output_norm(rows.asked(routing.close(memory, tap))), embedding))

    def _layer(
        self, rows: Rows, tap: Tap | None, index: int, memory: Any, first_value: Heads | None
    ) -> tuple[Any, Heads]:
        """Layer `index`: the memory that it leaves, and the first layer's value."""
        layer = cast(Sequence[Layer], self.layers)[index]
        routing = cast(DepthRouting, self.routing)
        reads = normed_reads(self.routing, layer.attention_norm, memory, index, Site.ATTENTION, tap)
        delta, own_value = layer.attention(reads, first_value, rows, index, tap)
        memory = routing.write(memory, delta, index, Site.ATTENTION)
        delta = layer.mlp(normed_reads(self.routing, layer.mlp_norm, memory, index, Site.MLP, tap))
        return routing.write(memory, delta, index, Site.MLP), own_value if first_value is None else first_value
