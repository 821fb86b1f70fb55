"""Muon: momentum whose update is orthogonalised, one hidden matrix at a time (Jordan et al. 2024).

    m <- mu m + (1 - mu) g          g' = (1 - mu) g + mu m   (Nesterov)
    X = g' / |g'|_F,  five times:  A = X X^T,  X <- a X + (b A + c A A) X      (a, b, c) = (3.4445, -4.7750, 2.0315)
    w <- w (1 - lr wd) - lr scale(rows, columns) X

The quintic drives every singular value above 0.01 |g'|_F into [0.68, 1.14]: an approximate polar factor, in float32 or
in bfloat16.
Matrices of one shape are orthogonalised in one batched product; each stays its own orthogonalisation unit.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from paribus.optim.scale import SCALES
from paribus.shapes import Matrices

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
NORM_FLOOR = 1e-7
"""smallest Frobenius norm divided by; a zero gradient stays zero"""


def quintic(x: Matrices, a: float, b: float, c: float) -> Matrices:
    """One iteration, of matrices that are not tall: a s + b s^3 + c s^5 of every singular value s."""
    gram = x @ x.mT
    return torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)


def orthogonalise(matrices: Matrices) -> Matrices:
    """Approximate polar factor of each matrix: singular vectors kept, singular values near 1."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(NORM_FLOOR)
    for _ in range(ITERATIONS):
        x = quintic(x, *COEFFICIENTS)
    return x.mT if tall else x


def by_shape(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Matrices of one shape together, so that one batched product orthogonalises them."""
    found: dict[tuple[int, ...], list[Tensor]] = {}
    for parameter in parameters:
        found.setdefault(tuple(parameter.shape), []).append(parameter)
    yield from found.values()


def nesterov(parameter: Tensor, state: dict[str, Any], mu: float) -> Tensor:
    """The average of gradients, one update ahead. Keeps the average in `state` as `momentum`."""
    assert parameter.grad is not None, "every matrix receives a gradient"
    if "momentum" not in state:
        state["momentum"] = torch.zeros_like(parameter)
    momentum = state["momentum"].lerp_(parameter.grad, 1.0 - mu)
    return parameter.grad.lerp(momentum, mu)


def in_type(matrices: Matrices, compute: str) -> Matrices:
    """Rounded to bfloat16 where that is the type to compute in, otherwise as they are (float64 stays float64)."""
    return matrices.to(torch.bfloat16) if compute == "bfloat16" else matrices


class Muon(Optimizer):
    """Parameters are matrices [row = output feature, column]. State per parameter: `momentum`."""

    def __init__(
        self,
        parameters: Iterable[Any],
        lr: float,
        momentum: float,
        weight_decay: float,
        scale: str = "keller",
        compute: str = "float32",
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "scale": scale, "compute": compute}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert closure is None
        for group in self.param_groups:
            for parameters in by_shape(group["params"]):
                ahead = torch.stack([nesterov(p, self.state[p], group["momentum"]) for p in parameters])
                updates = orthogonalise(in_type(ahead, group["compute"])).to(ahead.dtype)
                size = -group["lr"] * SCALES[group["scale"]](*parameters[0].shape)
                for parameter, update in zip(parameters, updates.unbind(0), strict=True):
                    parameter.mul_(1.0 - group["lr"] * group["weight_decay"]).add_(update, alpha=size)
