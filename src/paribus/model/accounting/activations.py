"""Memory of a training step in closed form: what autograd keeps of one token until the backward pass.

Counted tensor by tensor as the backbones' files compute, with an attention kernel that keeps queries, keys, values, its
result, one number a head and the mask where it is given one. (A kernel that forms attention weights keeps
heads * context_length numbers more.) Left out is what no token has for itself: parameters, their copies in bfloat16,
their gradients, rotary phases; the batch; and what an operation holds only while it runs, the largest of which are the
logits and their gradient, vocabulary_size numbers each.

Where the kernel of a depth read does what the norm behind it does, in the same pass (`normed_reads`), what was read and
the norm's result before its gain are not kept either: a statistic is.

In bfloat16 every matrix product keeps a copy of its input, where in float32 those that read one tensor share it.
"""

from dataclasses import dataclass
from functools import singledispatch

from paribus.mechanisms import IDENTITY
from paribus.mechanisms.contract import Seam
from paribus.model.accounting.flops import window
from paribus.model.accounting.parameters import Mechanisms, plain_residuals
from paribus.model.backbone import geometry_of
from paribus.model.config import ModelConfig, NanochatConfig, PrenormConfig

FLOAT32, BFLOAT16, BOOL = 4, 2, 1


@dataclass(frozen=True)
class Activations:
    """Bytes of one token by place, no tensor twice."""

    embedding: float
    """before the first layer"""
    layers: tuple[float, ...]
    """within each layer, beside what it is given"""
    memory: float
    """the residual path where layers begin, and what of it the last read or the backout needs besides"""
    first_value: float
    """the first layer's value, kept for its own sake only where layers are computed again: they all take it"""
    head: float
    """behind the last layer: final norm, head, loss"""

    @property
    def everything(self) -> float:
        """Where nothing is computed twice."""
        return self.embedding + sum(self.layers) + self.memory + self.head

    @property
    def behind_the_forward_pass(self) -> float:
        """Where layers keep what they are given and are computed again on the way back, before that begins."""
        return self.embedding + self.memory + self.first_value + self.head

    @property
    def with_layers_recomputed(self) -> float:
        """An upper bound of what such a step holds at one time: the head's part is gone before the last layer is
        computed again, and a layer's before the one below it."""
        return self.behind_the_forward_pass - self.head + max(self.head, *self.layers)


@dataclass(frozen=True)
class _Backbone:
    """Bytes of one token that a backbone keeps."""

    embedding: float
    norm: int
    """of a sublayer's norm, beside its input and its result"""
    mlp_inputs: int
    """matrix products that read the result of the MLP's norm"""
    mlp: int
    """behind them"""
    head: int
    """`Activations.head`, but for the norm and its result"""
    residual_memory: int
    """of its own residual path: `Activations.memory`"""
    residual_layers: tuple[int, ...]
    """the same within each layer: what its sublayers read"""
    values: tuple[int, ...]
    """for the value embedding of each layer"""


def number_of(config: ModelConfig) -> int:
    """Bytes of one number of what matrix products and attention return."""
    return FLOAT32 if config.compute == "float32" else BFLOAT16


def activation_bytes_per_token(
    config: ModelConfig, mechanisms: Mechanisms, *, activation_checkpointing: bool = False, normed_reads: bool = False
) -> float:
    """Bytes of one token that are kept for the backward pass. With activation checkpointing (each layer keeps what it
    is given and is computed again) at most this at one time."""
    kept = activations(config, mechanisms, normed_reads=normed_reads)
    return kept.with_layers_recomputed if activation_checkpointing else kept.everything


def activations(config: ModelConfig, mechanisms: Mechanisms, *, normed_reads: bool = False) -> Activations:
    """What is kept of one token, by place."""
    masked = mechanisms[Seam.MASK].name != IDENTITY[Seam.MASK]
    own = backbone_activations(config, masked=masked)
    geometry, number = geometry_of(config, mechanisms), number_of(config)
    added = {seam: mechanism.kept_for_backward(geometry, number) for seam, mechanism in mechanisms.items()}
    routing, plain = added[Seam.ROUTING], plain_residuals(mechanisms)
    in_pass = routing.normed_reads if normed_reads else 0
    layers = []
    for layer in range(config.layers):
        # Another residual path hands its sublayers tensors that are no part of its memory.
        read = own.residual_layers[layer] if plain else (routing.reads - in_pass) * FLOAT32 * config.width
        norms = (routing.reads - in_pass) * own.norm + in_pass * FLOAT32
        norms += _inputs(config, routing.reads, 3 + own.mlp_inputs)
        pairs = number * config.context_length if masked or window(config, layer) is not None else 0
        sublayers = _attention(config) + pairs + own.values[layer] + own.mlp
        layers.append(read + norms + sublayers + sum(kept.layers.get(layer, 0.0) for kept in added.values()))
    return Activations(
        embedding=own.embedding,
        layers=tuple(layers),
        memory=float(own.residual_memory) if routing.memory is None else routing.memory,
        first_value=float(number * config.kv_heads * config.head_width * (config.layers > 1)),
        head=own.head
        + own.norm
        + _inputs(config, 1, 1)
        + sum(kept.layers.get(config.layers, 0.0) for kept in added.values()),
    )


def _inputs(config: ModelConfig, tensors: int, products: int) -> int:
    """So many normalised tensors, read by so many matrix products."""
    return config.width * (FLOAT32 * tensors if config.compute == "float32" else BFLOAT16 * products)


def _attention(config: ModelConfig) -> int:
    """Queries and keys before their norm and its number a head, in float32, and what the kernel keeps."""
    queries, values = config.heads * config.head_width, config.kv_heads * config.head_width
    kernel = number_of(config) * (2 * queries + 2 * values) + FLOAT32 * config.heads
    normed = not isinstance(config, PrenormConfig) or config.qk_norm
    return kernel + normed * FLOAT32 * (queries + values + config.heads + config.kv_heads)


@singledispatch
def backbone_activations(config: ModelConfig, *, masked: bool) -> _Backbone:
    """What a backbone keeps; `masked` says whether a mechanism masks attention."""
    del masked
    raise NotImplementedError(f"the activations of the backbone '{config.backbone}' have no closed form")


@backbone_activations.register
def prenorm_activations(config: PrenormConfig, *, masked: bool) -> _Backbone:
    """A norm with gain keeps its statistic and its result before the gain. SwiGLU keeps gate and up, the gate behind
    silu, and the product. The residual path keeps each sublayer's input."""
    del masked
    stream, number = FLOAT32 * config.width, number_of(config)
    return _Backbone(
        embedding=float(stream + FLOAT32),
        norm=FLOAT32 + stream,
        mlp_inputs=2,
        mlp=4 * number * config.mlp_width,
        head=stream + FLOAT32 * config.vocabulary_size,
        residual_memory=config.layers * stream,
        residual_layers=(stream,) * config.layers,
        values=(0,) * config.layers,
    )


@backbone_activations.register
def nanochat_activations(config: NanochatConfig, *, masked: bool) -> _Backbone:
    """A norm keeps its statistic. The MLP keeps the relu and its square; the head the capped logits and the loss. The
    residual path keeps, beside each sublayer's input, the embedding and each layer's output before it is scaled, the
    middle one for the backout too."""
    stream, number = FLOAT32 * config.width, number_of(config)
    layers, time = config.layers, config.context_length
    # Smear keeps the embedding, and of all but a row's first token the gate's input and the gate before and behind the
    # scale; where attention is masked also the mask.
    smear = stream + (number * (config.smear_channels + 1) + FLOAT32) * (time - 1) / time + masked * BOOL * time
    # A value embedding keeps the token's vector, the gate before and behind its scale, and a copy of the gate's input.
    embedded = number * config.kv_heads * (config.head_width + 2)
    embedded += number * config.value_gate_channels * (config.compute != "float32")
    unscaled = (layer not in (layers - 1, layers // 2) for layer in range(layers))
    return _Backbone(
        embedding=stream + FLOAT32 + smear,
        norm=FLOAT32,
        mlp_inputs=1,
        mlp=2 * number * config.mlp_width,
        head=stream + 2 * FLOAT32 * config.vocabulary_size,
        residual_memory=(layers + 2) * stream,
        residual_layers=tuple(stream + stream * kept for kept in unscaled),
        values=tuple(embedded * (layer in config.value_embedding_layers) for layer in range(layers)),
    )
