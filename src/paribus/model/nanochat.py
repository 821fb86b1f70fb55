"""The nanochat decoder, in the tensor's order: embed, normalise, smear, (scale, attend, MLP) x layers, backout, head.

Karpathy's nanochat as of April to July 2026 (its model did not change between them). Beside the plain decoder it has
value embeddings with gates, QK-norm with a gain, sliding windows, a squared-ReLU MLP, an untied head with a softcap,
and shortcuts from the tokens: the previous token's embedding (smear), the embedding before each layer, the middle of
the network taken out at its end (backout). Mechanisms enter at the four seams; a routing over depth takes the place
of stream scales, embedding scales and backout, which are this backbone's residual path.

Unlike the original, the stream is float32 throughout, as in every backbone here, and the norm's eps is a number of
its own. Every constant is a field of `paribus.model.config.NanochatConstants`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from paribus.kernels.norm import Norm
from paribus.kernels.precision import wide
from paribus.mechanisms import IDENTITY
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
from paribus.model.config import NanochatConfig
from paribus.roles import ZEROS, DeclaredModule, Init, Role
from paribus.shapes import Heads, Logits, Stream, Tokens


def spread(half_width: float) -> Init:
    """Uniform around zero."""
    return Init.uniform(-half_width, half_width)


def ramp(first: float, last: float, layers: int) -> Init:
    """One number a layer, linear from the first to the last."""
    return Init(tuple(first + (last - first) * index / max(1, layers - 1) for index in range(layers)))


class ResidualMemory(NamedTuple):
    """What the residual path carries."""

    stream: Stream
    """already scaled for the layer that reads it"""
    embedding: Stream
    middle: Stream | None
    """the stream behind the middle layer, once it is there"""


class Residuals(DeclaredModule):
    """Before layer i the stream becomes stream_scale_i * stream + embedding_scale_i * embedding; after the last layer
    backout_scale times the stream behind layer `layers // 2` is subtracted."""

    def __init__(self, config: NanochatConfig) -> None:
        super().__init__()
        self.layers = config.layers
        scales = ramp(config.stream_scale_first, config.stream_scale_last, config.layers)
        shares = ramp(config.embedding_scale_first, config.embedding_scale_last, config.layers)
        self.declare("stream_scale", (config.layers,), Role.STREAM_SCALE, scales)
        self.declare("embedding_scale", (config.layers,), Role.EMBEDDING_SCALE, shares)
        self.declare("backout_scale", (1,), Role.SHORTCUT, Init(config.backout_initial))

    def _before(self, layer: int, stream: Stream, embedding: Stream) -> Stream:
        if layer == self.layers:
            return stream
        return self.get_parameter("stream_scale")[layer] * stream + (
            self.get_parameter("embedding_scale")[layer] * embedding
        )

    def open(self, x0: Stream) -> ResidualMemory:
        embedding = wide(x0)
        return ResidualMemory(self._before(0, embedding, embedding), embedding, None)

    def read(self, memory: ResidualMemory, layer: int, site: Site, tap: Tap | None) -> Reads:
        del layer, site, tap
        return Reads.shared(memory.stream)

    def write(self, memory: ResidualMemory, delta: Stream, layer: int, site: Site) -> ResidualMemory:
        stream = memory.stream + delta
        if site is Site.ATTENTION:
            return memory._replace(stream=stream)
        middle = stream if layer == self.layers // 2 else memory.middle
        return ResidualMemory(self._before(layer + 1, stream, memory.embedding), memory.embedding, middle)

    def close(self, memory: ResidualMemory, tap: Tap | None) -> Stream:
        del tap
        assert memory.middle is not None, "every network has a middle layer"
        return memory.stream - self.get_parameter("backout_scale") * memory.middle

    def source_lists(self) -> list[dict[str, Any]]:
        sites = [(layer, site) for layer in range(self.layers) for site in (Site.ATTENTION, Site.MLP)]
        return [
            {"layer": layer, "site": str(site), "sources": ["stream"]}
            for layer, site in [*sites, (self.layers, Site.OUTPUT)]
        ]


class Attention(DeclaredModule):
    def __init__(self, config: NanochatConfig, layer: int, seams: Sequence[nn.Module]) -> None:
        super().__init__()
        self.config, self.window = config, config.window(layer)
        self.output_map, self.value_map, self.mask = seams
        self.embeds = layer in config.value_embedding_layers
        values = config.kv_heads * config.head_width
        law = spread(config.projection_gain * (3 / config.width) ** 0.5)
        for name, heads in (("query", config.heads), ("key", config.kv_heads), ("value", config.kv_heads)):
            self.declare(name, (heads * config.head_width, config.width), Role.MATRIX, law)
        self.declare("output", (config.width, config.heads * config.head_width), Role.MATRIX, ZEROS)
        if self.embeds:
            self.declare("value_embedding", (config.table_rows, values), Role.VALUE_EMBEDDING, law)
            gate = Init.uniform(0.0, config.gate_initial_max)
            self.declare("value_gate", (config.kv_heads, config.value_gate_channels), Role.MATRIX, gate)

    def project(self, name: str, x: Stream) -> Heads:
        return functional.linear(x, self.get_parameter(name)).unflatten(-1, (-1, self.config.head_width))

    def with_embedding(self, own: Heads, x: Stream, tokens: Tokens) -> Heads:
        """The projected value plus the token's own vector, as much of it as the layer's input lets in, head by head."""
        if not self.embeds:
            return own
        gate = functional.linear(x[..., : self.config.value_gate_channels], self.get_parameter("value_gate"))
        gate = (self.config.value_gate_scale * gate.sigmoid()).unsqueeze(-1)
        vector = functional.embedding(tokens, self.get_parameter("value_embedding")).view_as(own)
        return own + gate.to(own.dtype) * vector.to(own.dtype)

    def forward(
        self, x: Reads, first_value: Heads | None, rows: Rows, layer: int, tap: Tap | None
    ) -> tuple[Stream, Heads]:
        """The sublayer's output and this layer's own value (layer 0's is what ValueMaps of later layers receive)."""
        q, k, own = self.project("query", x.q), self.project("key", x.k), self.project("value", x.v)
        embedded = self.with_embedding(own, x.v, rows.tokens)
        v = cast(ValueMap, self.value_map)(embedded, own if first_value is None else first_value, rows.tokens)
        if not isinstance(v, Tensor) or v.shape != own.shape:
            raise broken_contract(self.value_map, layer, "[batch time kv_head head_width]", own, v)
        # By minus the position's phase, as in nanochat: weights of its checkpoints depend on the sense of rotation.
        cos, sin = rows.phases(self.config.head_width, self.config.rotary_base)
        q, k = (self.config.qk_gain * self._normed(rotate(t, cos, -sin)) for t in (q, k))
        mixed, allowed = rows.attend(layer, q, k, v, self.mask, self.window)
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

    def _normed(self, heads: Heads) -> Heads:
        return functional.rms_norm(heads, heads.shape[-1:], None, self.config.norm_eps)


class Mlp(DeclaredModule):
    """down(relu(up x)^2) (So et al. 2109.08668)."""

    def __init__(self, config: NanochatConfig) -> None:
        super().__init__()
        law = spread(config.mlp_up_gain * (3 / config.width) ** 0.5)
        self.declare("up", (config.mlp_width, config.width), Role.MATRIX, law)
        self.declare("down", (config.width, config.mlp_width), Role.MATRIX, ZEROS)

    def forward(self, x: Reads) -> Stream:
        hidden = functional.linear(x.only, self.get_parameter("up")).relu().square()
        return functional.linear(hidden, self.get_parameter("down"))


class Layer(nn.Module):
    def __init__(self, attention: Attention, mlp: Mlp) -> None:
        super().__init__()
        self.attention, self.mlp = attention, mlp


class Nanochat(Backbone[NanochatConfig]):
    """Token ids -> logits."""

    def __init__(self, config: NanochatConfig, mechanisms: dict[Seam, MechanismConfig]) -> None:
        super().__init__(config, mechanisms)
        geometry = geometry_of(config, mechanisms)
        table = (config.table_rows, config.width)
        self.declare("embedding", table, Role.EMBEDDING, Init(std=config.embedding_std))
        self.declare("head", table, Role.HEAD, Init(std=config.head_std))
        gate = Init.uniform(0.0, config.gate_initial_max)
        self.declare("smear_gate", (1, config.smear_channels), Role.SHORTCUT, gate)
        self.declare("smear_scale", (1,), Role.SHORTCUT, ZEROS)
        self.norm = Norm(None, config.norm_eps)
        self.layers = nn.ModuleList()
        for index in range(config.layers):
            seams = [mechanisms[s].build(geometry, index) for s in (Seam.OUTPUT_MAP, Seam.VALUE_MAP, Seam.MASK)]
            self.layers.append(Layer(Attention(config, index, seams), Mlp(config)))
        plain = mechanisms[Seam.ROUTING].name == IDENTITY[Seam.ROUTING]
        self.routing = Residuals(config) if plain else mechanisms[Seam.ROUTING].build(geometry, -1)

    def smeared(self, rows: Rows) -> Stream:
        """The normalised embedding of each token, which a share of the previous token's joins, where layer 0 may attend
        to that token."""
        tokens = rows.tokens if rows.before is None else torch.cat((rows.before, rows.tokens), dim=1)
        x = self.norm(wide(functional.embedding(tokens, self.get_parameter("embedding"))))
        gate = functional.linear(x[:, 1:, : self.config.smear_channels], self.get_parameter("smear_gate")).sigmoid()
        joined = self.get_parameter("smear_scale") * gate * x[:, :-1]
        joins = rows.joined(cast(Sequence[Layer], self.layers)[0].attention.mask)
        if joins is not None:
            joined = joined * joins.unsqueeze(-1)
        following = x[:, 1:] + joined
        return torch.cat((x[:, :1], following), dim=1) if rows.before is None else following

    def logits(self, rows: Rows, tap: Tap | None) -> Logits:
        routing = cast(DepthRouting, self.routing)
        memory = routing.open(self.smeared(rows))
        one = partial(self._layer, rows, tap)
        first_value = None
        for index in range(len(self.layers)):
            memory, first_value = self.one_layer(one, index, memory, first_value)
        logits = functional.linear(self.norm(rows.asked(routing.close(memory, tap))), self.get_parameter("head"))
        logits = wide(logits[..., : self.config.vocabulary_size])
        return self.config.logit_softcap * torch.tanh(logits / self.config.logit_softcap)

    def _layer(
        self, rows: Rows, tap: Tap | None, index: int, memory: Any, first_value: Heads | None
    ) -> tuple[Any, Heads]:
        """Layer `index`: the memory that it leaves, and the first layer's value."""
        layer = cast(Sequence[Layer], self.layers)[index]
        routing = cast(DepthRouting, self.routing)
        reads = normed_reads(self.routing, self.norm, memory, index, Site.ATTENTION, tap)
        delta, own_value = layer.attention(reads, first_value, rows, index, tap)
        memory = routing.write(memory, delta, index, Site.ATTENTION)
        delta = layer.mlp(normed_reads(self.routing, self.norm, memory, index, Site.MLP, tap))
        return routing.write(memory, delta, index, Site.MLP), own_value if first_value is None else first_value
