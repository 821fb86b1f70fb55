"""The norm of the whole gradient, and shortening it (Pascanu, Mikolov and Bengio 1211.5063)."""

from collections.abc import Iterable

import torch
from torch import Tensor


def gradient_norm(parameters: Iterable[Tensor]) -> Tensor:
    """Euclidean norm of all gradients together, a float32 scalar on their device; parameters without one are left out.

    Squares are summed in float64, so that it does not depend on how a gradient is cut into tensors: sums in another
    order differ by 2^-53 of the whole, which rounding to float32 removes in all but one of millions of cases.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = [torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in gradients]
    return torch.stack(norms).square().sum().sqrt().float() if norms else torch.zeros(())


@torch.no_grad()
def clip_gradient(parameters: Iterable[Tensor], longest: float) -> Tensor:
    """Shorten all gradients by one factor, so that together they are no longer than `longest`. Returns their norm of
    before. Shorter gradients keep their bits. No host synchronisation."""
    parameters = list(parameters)
    norm = gradient_norm(parameters)
    factor = (longest / norm).clamp(max=1.0)
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
    return norm
