"""What every backbone is: token ids -> logits through four seams, built without values.

The pieces that backbones share are functions on tensors (rotation, the attention mix, the check of what a
mechanism hands back) and the rows that a call is about. A layer asks `Rows` for what depends on where its tokens stand:
`WholeRows` begin at position 0, which is training and every measurement; `paribus.model.cache` continues rows.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from paribus.errors import MechanismError
from paribus.kernels.norm import Norm
from paribus.mechanisms.contract import (
    AttentionMask,
    DepthRouting,
    Geometry,
    MechanismConfig,
    NormingRouting,
    OutputMap,
    Reads,
    Seam,
    Site,
    Tap,
    Values,
)
from paribus.model.config import ModelConfig
from paribus.model.tables import rotary_phases, window_pairs
from paribus.roles import DeclaredModule
from paribus.shapes import (
    AllowedPairs,
    AskedStream,
    Documents,
    GroupedHeads,
    Heads,
    Keys,
    KvHeads,
    Logits,
    ReadPairs,
    Stream,
    Tokens,
)

Config = TypeVar("Config", bound=ModelConfig)


@runtime_checkable
class Rows(Protocol):
    """The tokens of one call, and what a layer needs to know of the row that each stands in. `layer` is the layer's
    index, under which rows that continue find what they keep."""

    @property
    def tokens(self) -> Tokens: ...

    @property
    def before(self) -> Tokens | None:
        """[batch 1] the token before each row's first one here, None where that is the first of the row."""
        ...

    def phases(self, head_width: int, base: float) -> tuple[Tensor, Tensor]:
        """`rotary_phases` of the tokens' positions, with an axis for the batch where positions differ."""
        ...

    def joined(self, mask: nn.Module) -> Tensor | None:
        """Whether a token may attend to the one before it, for every token that has one here or in `before`:
        [batch time], or [batch time - 1] where there is no `before`; None where all may."""
        ...

    def attend(
        self, layer: int, q: Heads, k: KvHeads, v: KvHeads, mask: nn.Module, window: int | None = None
    ) -> tuple[Heads, ReadPairs | None]:
        """The attention mix over each token's past, at most `window` earlier positions of it, and which pairs it was
        limited to."""
        ...

    def mapped(self, layer: int, output_map: nn.Module, y: GroupedHeads, values: Values) -> Any:
        """z of the layer's output map; see `broken_contract` for what is made of another answer."""
        ...

    def asked(self, x: Stream) -> AskedStream:
        """The positions whose logits are wanted: all, or one a row."""
        ...


@dataclass(frozen=True)
class WholeRows:
    """Rows from their first token on."""

    tokens: Tokens
    document: Documents
    before: None = None

    def phases(self, head_width: int, base: float) -> tuple[Tensor, Tensor]:
        return rotary_phases(self.tokens.shape[1], head_width, base, self.tokens.device)

    def joined(self, mask: nn.Module) -> Tensor | None:
        allowed = cast(AttentionMask, mask)(self.document)
        return None if allowed is None else allowed.diagonal(offset=-1, dim1=-2, dim2=-1)

    def attend(
        self, layer: int, q: Heads, k: KvHeads, v: KvHeads, mask: nn.Module, window: int | None = None
    ) -> tuple[Heads, AllowedPairs | None]:
        del layer
        allowed = cast(AttentionMask, mask)(self.document)
        if window is not None and window < q.shape[1] - 1:
            near = window_pairs(q.shape[1], window, q.device)
            allowed = near.expand(len(q), -1, -1) if allowed is None else allowed & near
        return attend(q, k, v, allowed), allowed

    def mapped(self, layer: int, output_map: nn.Module, y: GroupedHeads, values: Values) -> Any:
        del layer
        return cast(OutputMap, output_map)(y, values, self.document)

    def asked(self, x: Stream) -> AskedStream:
        return x


RowsOfCall = TypeVar("RowsOfCall", bound=Rows)


@runtime_checkable
class Past(Protocol[RowsOfCall]):
    """What is kept of rows that are continued; `paribus.model.cache.Cache` is one. It is named here by what a backbone
    asks of it, so that training does not depend on how it is kept."""

    def appended(self, tokens: Tokens, lengths: Tensor | None, *, last_only: bool) -> RowsOfCall:
        """The tokens as rows that stand behind what is kept."""
        ...

    def advance(self, rows: RowsOfCall) -> None:
        """The rows have passed through every layer: they are past from now on."""
        ...


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

    compiled = False
    """its updates come from one compiled graph of the whole model (`paribus.train.compiling`)"""
    recompute = False
    """of each layer keep what it is given and compute the rest again in the backward pass: less memory, more time, the
    same bits"""

    def forward(self, tokens: Tokens, document: Documents, tap: Tap | None = None) -> Logits:
        """In the precision of the configuration, in which products are bfloat16 and everything that adds up is not."""
        with self.precision(tokens.device):
            return self.logits(WholeRows(tokens, document), tap)

    @torch.no_grad()
    def extend(
        self, tokens: Tokens, cache: Past[Any], lengths: Tensor | None = None, *, last_only: bool = False
    ) -> Tensor:
        """Logits [batch time vocab] of tokens that stand behind what the cache holds of their rows, which keeps them.

        Of row i the first `lengths[i]` tokens are taken, all where None; logits of the others mean nothing. Every row
        is one document from position 0, and any split of it into calls gives the logits of `forward` on the whole up to
        rounding. With `last_only` they are those at each row's last token alone, [batch vocab]. ParibusError for tokens
        that do not fit the cache.
        """
        rows = cache.appended(tokens, lengths, last_only=last_only)
        with self.precision(tokens.device):
            logits = self.logits(rows, None)
        cache.advance(rows)
        return logits.squeeze(1) if last_only else logits

    def precision(self, device: torch.device) -> AbstractContextManager[Any]:
        """What a forward pass runs in: autocast to bfloat16 where the configuration asks for it and none is on yet."""
        if self.config.compute == "float32" or torch.is_autocast_enabled(device.type):
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16)

    def logits(self, rows: Rows, tap: Tap | None) -> Logits:
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


def rotate(heads: Heads, cos: Tensor, sin: Tensor) -> Heads:
    """Rotate feature pairs (i, i + head_width/2) by the position's phases."""
    a, b = heads.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


def attend(q: Heads, k: Keys, v: Keys, allowed: ReadPairs | None, *, causal: bool = True) -> Heads:
    """softmax(q . k / sqrt(head_width)) v over earlier positions, and over `allowed` pairs only where that is given.

    k and v may have fewer heads than q: query head h reads key-value head h // (heads / kv_heads). Without `causal` all
    keys are read where no pairs are given: those of one query that is the row's last.
    """
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    if allowed is None:
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
    else:
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed[:, None], enable_gqa=grouped)
    return mixed.transpose(1, 2)


def on_each(function: Callable[[Stream], Stream], reads: Reads) -> Reads:
    """The function of each distinct read, once."""
    q = function(reads.q)
    k = q if reads.k is reads.q else function(reads.k)
    v = q if reads.v is reads.q else k if reads.v is reads.k else function(reads.v)
    return Reads(q, k, v)


def normed_reads(routing: nn.Module, norm: Any, memory: Any, layer: int, site: Site, tap: Tap | None) -> Reads:
    """What a sublayer's norm (`paribus.kernels.norm.Norm`, or a module with its fields) makes of what it reads, in the
    pass of the read where the routing offers that."""
    if offers_normed_reads(routing):
        return cast(NormingRouting, routing).read_normed(memory, layer, site, tap, Norm(norm.gain, norm.eps))
    return on_each(norm, cast(DepthRouting, routing).read(memory, layer, site, tap))


def offers_normed_reads(routing: nn.Module) -> bool:
    """Whether who has the last word on `read` has it on `read_normed` too: a subclass that reads otherwise, or a
    watcher on the instance, would be passed over by the inherited one."""
    for owner in (routing, *type(routing).__mro__):
        if "read_normed" in vars(owner):
            return True
        if "read" in vars(owner):
            return False
    return False


def broken_contract(module: nn.Module, layer: int, axes: str, like: Tensor, returned: object) -> MechanismError:
    """What to say of a seam's module that returned something else than `like`, whose axes are named."""
    came = f"{list(returned.shape)}, {returned.dtype}" if isinstance(returned, Tensor) else type(returned).__name__
    return MechanismError(
        f"{type(module).__name__} of layer {layer} returned what the backbone cannot use",
        expected=f"{axes} = {list(like.shape)}, {like.dtype}",
        received=came,
        remedy="return a tensor of the shape and dtype of what came in (.to(y.dtype) after arithmetic in float32)",
    )
