"""nanochat's Muon (github.com/karpathy/nanochat, April to July 2026): Muon with another orthogonalisation, a variance
per row or column, and a decay that asks the update.

    m <- mu m + (1 - mu) g          g' = (1 - mu) g + mu m   (Nesterov)
    g'_i <- g'_i rms_k |g'_k| / |g'_i|      for every row i  (MuonEq, 2603.28254; since July 2026)
    X = polar express of g'                                  (2505.16932)
    X <- X sqrt(min(rows, columns)) / |X|_F                  (Muon+, 2602.21545; since July 2026)
    s = mean of X^2 over the shorter side                    (NorMuon, 2510.05491)
    v <- beta2 v + (1 - beta2) s
    U = X v^(-1/2),  U <- U |X|_F / |U|_F
    w <- w - lr scale (U + wd w [U w >= 0])                  (cautious decay)

The variance is kept for each row of a tall or square matrix and for each column of a wide one. It starts at zero
without a correction, which the norm makes up for. Unlike Muon's, the decay is multiplied by the shape factor.
The original rounds g' to the type of the activations first; here `compute` says in which type X is made of it, and
everything behind it is in the parameters' own.
"""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from paribus.optim.muon import by_shape, in_type, nesterov
from paribus.optim.polar_express import polar_express
from paribus.optim.scale import SCALES
from paribus.shapes import Matrices

Norms = Float[Tensor, "matrix 1 1"]
Variances = Float[Tensor, "matrix _ _"]
"""[matrix row 1], of wide matrices [matrix 1 column]"""
FLOOR = 1e-10
"""smallest norm or variance divided by; a row or a matrix of zeros stays one"""


def norms(matrices: Matrices) -> Norms:
    """Frobenius norm of each matrix."""
    return matrices.norm(dim=(-2, -1), keepdim=True)


def with_equal_rows(matrices: Matrices) -> Matrices:
    """Every row of a matrix rescaled to the root mean square of its rows' norms, which keeps the Frobenius norm."""
    rows = matrices.norm(dim=-1, keepdim=True)
    return matrices * (rows.square().mean(dim=-2, keepdim=True).sqrt() / rows.clamp_min(FLOOR))


def with_unit_values(matrices: Matrices) -> Matrices:
    """Each matrix at the Frobenius norm of an exact polar factor: singular values of root mean square 1."""
    return matrices * (min(matrices.shape[-2:]) ** 0.5 / norms(matrices).clamp_min(FLOOR))


def mean_squares(matrices: Matrices) -> Variances:
    """Over the columns of matrices that are tall or square, over the rows of wide ones."""
    rows, columns = matrices.shape[-2:]
    return matrices.square().mean(dim=-1 if rows >= columns else -2, keepdim=True)


def with_equal_variance(matrices: Matrices, variance: Variances) -> Matrices:
    """Each row, or column, divided by the root of its `variance`; the Frobenius norm is that of before."""
    scaled = matrices * variance.clamp_min(FLOOR).rsqrt()
    return scaled * (norms(matrices) / norms(scaled).clamp_min(FLOOR))


class NanochatMuon(Optimizer):
    """Parameters are matrices [row = output feature, column]. State per parameter: `momentum` and `variance` ([row 1],
    of a wide matrix [1 column])."""

    def __init__(
        self,
        parameters: Iterable[Any],
        lr: float,
        momentum: float,
        weight_decay: float,
        *,
        beta2: float,
        row_equilibration: bool,
        unit_norm: bool,
        scale: str = "keller",
        compute: str = "float32",
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "beta2": beta2, "scale": scale}
        defaults |= {"row_equilibration": row_equilibration, "unit_norm": unit_norm, "compute": compute}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert closure is None
        for group in self.param_groups:
            for parameters in by_shape(group["params"]):
                ahead = torch.stack([nesterov(p, self.state[p], group["momentum"]) for p in parameters])
                rounded = in_type(ahead, group["compute"])
                if group["row_equilibration"]:
                    rounded = with_equal_rows(rounded)
                updates = polar_express(rounded)
                if group["unit_norm"]:
                    updates = with_unit_values(updates)
                updates = updates.to(ahead.dtype)
                updates = with_equal_variance(updates, self._variance(parameters, updates, group["beta2"]))
                size = group["lr"] * SCALES[group["scale"]](*parameters[0].shape)
                for parameter, update in zip(parameters, updates.unbind(0), strict=True):
                    decayed = parameter * (parameter * update >= 0)
                    parameter.add_(update.add(decayed, alpha=group["weight_decay"]), alpha=-size)

    def _variance(self, parameters: list[Tensor], updates: Matrices, beta2: float) -> Variances:
        squares = mean_squares(updates)
        for parameter, square in zip(parameters, squares.unbind(0), strict=True):
            state = self.state[parameter]
            if "variance" not in state:
                state["variance"] = torch.zeros_like(square)
            state["variance"].lerp_(square, 1.0 - beta2)
        return torch.stack([self.state[parameter]["variance"] for parameter in parameters])
