"""The precision in which kernels and mechanisms compute, and gradients that must not leave its range.

Attention may run in bfloat16. Dot products, norms, running sums and depth sources do not: they are float32, and stay
float64 where the model is (exact laws are shown there).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def wide(t: Tensor) -> Tensor:
    """float32 or wider; the same tensor where it is that already."""
    return t.to(torch.promote_types(t.dtype, torch.float32))


def rescaled(t: Tensor, forwards: Tensor, backwards: Tensor) -> Tensor:
    """t * forwards, whose gradient is g * backwards. The factors are constants.

    For a stretch of arithmetic in other units: entered by 1/a and left by a, it has 1 for both backwards factors, where
    the chain rule would multiply a gradient by a first and divide by it at the end, and leave float32 in between.
    """
    return _Rescaled.apply(t, forwards, backwards)


class _Rescaled(Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, forwards: Tensor, backwards: Tensor) -> Tensor:
        ctx.save_for_backward(backwards)
        return t * forwards

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (the decorator's stub drops parameter names)
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor, None, None]:
        (backwards,) = ctx.saved_tensors
        return grad * backwards, None, None
