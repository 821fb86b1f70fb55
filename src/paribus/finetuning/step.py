"""One update on conversations: the mean loss over all learnt tokens of the batch, however they are spread.

    loss = sum over learnt targets of -ln p / number of learnt targets of the whole batch

Every learnt token weighs the same, whichever row or micro-batch it is in. A micro-batch without one adds nothing and
is not run; a batch without one has no loss, and its update is not made: nothing moves, not even averages.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paribus.data.order import Batch
from paribus.optim.schedule import Moment
from paribus.train.step import Consumed, Gradient, apply_gradients, batch_digest, token_losses


class Updated(NamedTuple):
    """What an update was made from."""

    loss: Tensor | None
    """nats per learnt token; None where there was none, and no update"""
    targets: int
    """learnt tokens of the batch"""
    digest: Tensor
    """of the batch"""
    gradient: Gradient | None = None
    """None where there was no update"""


def update(
    model: nn.Module,
    optimisers: list[Optimizer],
    batch: Batch,
    step: int,
    moment: Moment,
    micro_batch_rows: int,
    gradient_clip_norm: float | None = None,
) -> Updated:
    """Apply update number `step` (from 0). Gradients of micro-batches add up to that of the one mean."""
    device = next(model.parameters()).device
    whole = Consumed.from_batch(batch, device)
    targets = int(batch.weight.sum(dtype="float64"))
    loss_sum = torch.zeros((), dtype=torch.float32, device=device)
    digest = torch.zeros((), dtype=torch.int64, device=device)
    for start in range(0, len(whole.tokens), micro_batch_rows):
        consumed = whole.rows(start, start + micro_batch_rows)
        digest = digest + batch_digest(consumed, step, start)
        if not batch.weight[start : start + micro_batch_rows].any():
            continue
        loss = (token_losses(model, consumed) * consumed.weight).sum() / targets
        loss.backward()
        loss_sum += loss.detach()
    if not targets:
        return Updated(None, 0, digest)
    return Updated(loss_sum, targets, digest, apply_gradients(model, optimisers, moment, gradient_clip_norm))
