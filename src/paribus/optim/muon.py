"""Muon: momentum whose update is orthogonalised, one hidden matrix at a time (Jordan et al. 2024).

    m <- mu m + (1 - mu) g          g' = (1 - mu) g + mu m   (Nesterov)
    X = g' / |g'|_F,  five times:  A = X X^T,  X <- a X + (b A + c A A) X      (a, b, c) = (3.4445, -4.7750, 2.0315)
    w <- w (1 - lr wd) - lr sqrt(max(1, rows / columns)) X

The quintic drives every singular value above 0.01 |g'|_F into [0.68, 1.14]: an approximate polar factor, in float32.
Matrices of one shape are orthogonalised in one batched product; each stays its own orthogonalisation unit.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from paribus.shapes import Matrices

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
NORM_FLOOR = 1e-7
"""smallest Frobenius norm divided by; a zero gradient stays zero"""


def orthogonalise(matrices: Matrices) -> Matrices:
    """Approximate polar factor of each matrix: singular vectors kept, singular values near 1."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(NORM_FLOOR)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def shape_factor(rows: int, columns: int) -> float:
    """Scale of the step, so that a tall matrix moves its larger output by as much per feature."""
    return max(1.0, rows / columns) ** 0.5


class Muon(Optimizer):
    """Parameters are matrices [row = output feature, column]. State per parameter: `momentum`."""

    def __init__(self, parameters: Iterable[Any], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert closure is None
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[Tensor]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(tuple(parameter.shape), []).append(parameter)
            for (rows, columns), parameters in by_shape.items():
                updates = orthogonalise(torch.stack([self._nesterov(p, group["momentum"]) for p in parameters]))
                scale = -group["lr"] * shape_factor(rows, columns)
                for parameter, update in zip(parameters, updates.unbind(0), strict=True):
                    parameter.mul_(1.0 - group["lr"] * group["weight_decay"]).add_(update, alpha=scale)

    def _nesterov(self, parameter: Tensor, mu: float) -> Tensor:
        assert parameter.grad is not None, "every matrix receives a gradient"
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(parameter.grad, 1.0 - mu)
        return parameter.grad.lerp(momentum, mu)
