"""What every backbone is: token ids -> logits through four seams, built without values.

The pieces that backbones share are functions on tensors: rotary phases, the attention mix, and the check of what a
mechanism hands back.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from paribus.errors import MechanismError
from paribus.mechanisms.contract import Geometry, MechanismConfig, Reads, Seam, Tap
from paribus.model.config import ModelConfig
from paribus.roles import DeclaredModule
from paribus.shapes import AllowedPairs, Documents, Heads, KvHeads, Logits, Stream, Tokens

Config = TypeVar("Config", bound=ModelConfig)


class Backbone(DeclaredModule, Generic[Config]):
    """Token ids -> logits. `paribus.roles.initialise` writes its values."""

    config: Config
    layers: nn.ModuleList
    """each with `attention`, whose seams are `output_map`, `value_map` and `mask`, and `mlp`"""
    routing: nn.Module

    def __init__(self, config: Config, mechanisms: dict[Seam, MechanismConfig]) -> None:
        super().__init__()
        self.config = config
        del mechanisms

    recompute = False
    """of each layer keep what it is given and compute the rest again in the backward pass: less memory, more time, the
    same bits"""

    def forward(self, tokens: Tokens, document: Documents, tap: Tap | None = None) -> Logits:
        """In the precision of the configuration, in which products are bfloat16 and everything that adds up is not."""
        if self.config.compute == "float32":
            return self.logits(tokens, document, tap)
        with torch.autocast(tokens.device.type, torch.bfloat16):
            return self.logits(tokens, document, tap)

    def logits(self, tokens: Tokens, document: Documents, tap: Tap | None) -> Logits:
        """The backbone itself, from the embedding to the head."""
        raise NotImplementedError

    def one_layer(self, layer: Callable[[int, Any, Any], tuple[Any, Any]], *arguments: Any) -> tuple[Any, Any]:
        """layer(*arguments), whose intermediate results are not kept where they are to be computed again."""
        if not (self.recompute and torch.is_grad_enabled()):
            return layer(*arguments)
        return checkpoint(layer, *arguments, use_reentrant=False, preserve_rng_state=False)


def geometry_of(config: ModelConfig, mechanisms: Mapping[Seam, MechanismConfig]) -> Geometry:
    """What mechanisms may know: the backbone, and which layers attend to more than the projected value."""
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
    added = mechanisms[Seam.VALUE_MAP].value_embedding_layers(bare)
    return replace(bare, value_embedding_layers=config.value_embedding_layers | added)


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


def on_each(function: Callable[[Stream], Stream], reads: Reads) -> Reads:
    """The function of each distinct read, once."""
    q = function(reads.q)
    k = q if reads.k is reads.q else function(reads.k)
    v = q if reads.v is reads.q else k if reads.v is reads.k else function(reads.v)
    return Reads(q, k, v)


def broken_contract(module: nn.Module, layer: int, axes: str, like: Tensor, returned: object) -> MechanismError:
    """What to say of a seam's module that returned something else than `like`, whose axes are named."""
    came = f"{list(returned.shape)}, {returned.dtype}" if isinstance(returned, Tensor) else type(returned).__name__
    return MechanismError(
        f"{type(module).__name__} of layer {layer} returned what the backbone cannot use",
        expected=f"{axes} = {list(like.shape)}, {like.dtype}",
        received=came,
        remedy="return a tensor of the shape and dtype of what came in (.to(y.dtype) after arithmetic in float32)",
    )
