"""One optimiser update: loss over the global batch, gradients, step, and the digest of what the model consumed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from paribus.data.order import Batch
from paribus.optim.clipping import clip_gradient
from paribus.optim.groups import set_schedule
from paribus.optim.schedule import Moment
from paribus.seeds import stream_key
from paribus.shapes import TokenLosses

_MIX_1, _MIX_2, _STRIDE = (value - (1 << 64) for value in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15))


@dataclass(frozen=True)
class Consumed:
    """A batch as tensors on the model's device. All fields [row time]; see `paribus.data.order.Batch`."""

    tokens: Tensor
    targets: Tensor
    weight: Tensor
    document: Tensor
    slice: Tensor | None = None

    @classmethod
    def from_batch(cls, batch: Batch, device: torch.device) -> "Consumed":
        arrays = (batch.tokens, batch.targets, batch.weight, batch.document, batch.slice)
        tokens, targets, weight, document, part = (torch.from_numpy(array).to(device) for array in arrays)
        return cls(tokens, targets, weight, document.long(), part.long())

    def rows(self, start: int, stop: int) -> "Consumed":
        tokens, targets, weight, document = (
            tensor[start:stop] for tensor in (self.tokens, self.targets, self.weight, self.document)
        )
        return Consumed(tokens, targets, weight, document, None if self.slice is None else self.slice[start:stop])


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64 on wrapping int64 (Steele, Lea and Flood 2014)."""
    x = (x ^ _shifted(x, 30)) * _MIX_1
    x = (x ^ _shifted(x, 27)) * _MIX_2
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """To the right, as if without a sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def batch_digest(consumed: Consumed, step: int, first_row: int) -> Tensor:
    """Sum over rows of a hash of the row's numbers keyed by (step, row): a scalar int64 on the batch's device.

    A sum does not depend on how rows are spread over micro-batches or devices; the key makes two rows that trade
    places, or two steps that do, change it. No host synchronisation.
    """
    time = consumed.tokens.shape[1]
    position = torch.arange(1, time + 1, device=consumed.tokens.device) * _STRIDE
    hashed = torch.zeros(len(consumed.tokens), dtype=torch.int64, device=consumed.tokens.device)
    fields = (consumed.tokens, consumed.targets, consumed.weight.view(torch.int32).long(), consumed.document)
    for salt, field in enumerate(fields):
        hashed = _mix(hashed + salt + _mix(field + position).sum(-1))
    row = torch.arange(first_row, first_row + len(hashed), device=hashed.device)
    key = stream_key("batch digest", step) >> 1  # fits int64
    return _mix(hashed + _mix(row * _STRIDE + key)).sum()


def token_losses(model: nn.Module, consumed: Consumed, tap: Any = None) -> TokenLosses:
    """Negative log-likelihood of each target in nats, float32 [row time]; masked positions are not zeroed.

    `tap` sees the model's named tensors, where one is given (`paribus.mechanisms.contract.Tap`).
    """
    logits = model(consumed.tokens, consumed.document, *(() if tap is None else (tap,)))
    return functional.cross_entropy(
        logits.float().flatten(0, 1), consumed.targets.flatten(), reduction="none"
    ).unflatten(0, consumed.targets.shape)


def _losses_of(model: nn.Module) -> Callable[[nn.Module, Consumed], TokenLosses]:
    """As the model asks for it (`paribus.model.backbone.Backbone.compiled`)."""
    if not getattr(model, "compiled", False):
        return token_losses
    from paribus.train.compiling import compiled_losses

    return compiled_losses()


class Updated(NamedTuple):
    """What an update was made from. On the model's device; nothing is synchronised."""

    loss: Tensor
    """mean over the global batch, nats per token"""
    digest: Tensor
    """of the batch"""
    by_slice: Tensor
    """summed loss of each slice in nats, float64 [slice]; empty where none is kept apart"""
    gradient_norm: Tensor | None
    """of all trained parameters together, before it was clipped; None where it is not"""
    gradient_size: Tensor
    """see `Gradient`"""


class Gradient(NamedTuple):
    """Of all parameters together, before it was clipped. On the model's device; nothing is synchronised."""

    norm: Tensor | None
    """None where it is not clipped"""
    size: Tensor
    """the norm where it is clipped, else the sum of the parameters' norms, which is as large or larger: float32, only
    to be asked whether it is finite. It is not where a value of the gradient is not, or where its squares add up beyond
    float32; no second moment and no norm of an optimiser is finite there either"""


def update(
    model: nn.Module,
    optimisers: list[Optimizer],
    batch: Batch,
    step: int,
    moment: Moment,
    micro_batch_rows: int,
    slices: int = 0,
    gradient_clip_norm: float | None = None,
) -> Updated:
    """Apply update number `step` (from 0). `slices` is how many values `batch.slice` has, 0 to keep none apart.

    Gradients of micro-batches add up to the gradient of the one weighted mean over the whole batch.
    """
    device = next(model.parameters()).device
    whole = Consumed.from_batch(batch, device)
    total_weight = whole.weight.sum()
    loss_sum = torch.zeros((), dtype=torch.float32, device=device)
    digest = torch.zeros((), dtype=torch.int64, device=device)
    by_slice = torch.zeros(slices, dtype=torch.float64, device=device)
    losses_of = _losses_of(model)
    for start in range(0, len(whole.tokens), micro_batch_rows):
        consumed = whole.rows(start, start + micro_batch_rows)
        digest = digest + batch_digest(consumed, step, start)
        losses = losses_of(model, consumed) * consumed.weight
        loss = losses.sum() / total_weight
        loss.backward()
        loss_sum += loss.detach()
        if slices and consumed.slice is not None:
            by_slice.index_add_(0, consumed.slice.flatten(), losses.detach().double().flatten())
    return Updated(loss_sum, digest, by_slice, *apply_gradients(model, optimisers, moment, gradient_clip_norm))


def apply_gradients(
    model: nn.Module, optimisers: list[Optimizer], moment: Moment, gradient_clip_norm: float | None
) -> Gradient:
    """Clip, step at this moment of the schedule, and drop the gradients.

    A gradient that is not finite is applied like any other: to know before would hold the device up, and the caller,
    who learns it with the loss, stops. What was before is had again from a checkpoint (`paribus.train.trouble`).
    """
    if gradient_clip_norm is None:
        groups = (group["params"] for optimiser in optimisers for group in optimiser.param_groups)
        gradients = [p.grad for group in groups for p in group if p.grad is not None]
        # As torch.nn.utils.get_total_norm without its grouping, which costs a small model a hundredth of its update.
        norms = torch._foreach_norm(gradients) if gradients else [torch.zeros(())]  # pyright: ignore[reportPrivateImportUsage] - no public name
        found = Gradient(None, torch.stack(norms).sum(dtype=torch.float32))
    else:
        norm = clip_gradient(model.parameters(), gradient_clip_norm)
        found = Gradient(norm, norm)
    set_schedule(optimisers, moment)
    for optimiser in optimisers:
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return found
