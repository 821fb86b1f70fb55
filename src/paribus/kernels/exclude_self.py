"""Removal of the component along a token's own value, per head:  z = y - strength * (y . v) / |v|^2 * v.

Exclusive Self-Attention (Zhai, arXiv 2603.09078). Gradients with u = v/|v| and upstream g:
dy = g - s (g.u) u,   dv = -(s/|v|) [(g.u) y + (y.u) g - 2 (y.u)(g.u) u].   Only 1/|v| can blow up.
"""

import torch
from torch import Tensor

from paribus.shapes import Heads, PerHead

NORM_FLOOR = 1e-12
"""Smallest |v| that is divided by; below it the removal fades to nothing (the paper's listing clamps there too)."""


def exclude_self(y: Heads, v: Heads, strength: float) -> Heads:
    """Attention output y without `strength` of its projection on v. Dot products and subtraction in float32.

    y, v: [batch time head head_width]; the result has y's dtype. A row whose v is zero passes unchanged.
    """
    y_full, v_full = (t.to(torch.promote_types(t.dtype, torch.float32)) for t in (y, v))
    squared_norm = v_full.square().sum(-1, keepdim=True).clamp_min(NORM_FLOOR**2)
    coefficient = (y_full * v_full).sum(-1, keepdim=True) / squared_norm
    return torch.addcmul(y_full, coefficient, v_full, value=-strength).to(y.dtype)


def exclude_self_reference(y: Tensor, v: Tensor, strength: float) -> Tensor:
    """The slow float64 twin: one token and head at a time, written from the equation."""
    z = torch.empty(y.shape, dtype=torch.float64)
    for index in torch.cartesian_prod(*(torch.arange(size) for size in y.shape[:-1])).tolist():
        y_row, v_row = y[tuple(index)].double(), v[tuple(index)].double()
        norm = v_row.norm()
        unit = v_row / norm if norm > NORM_FLOOR else torch.zeros_like(v_row)
        z[tuple(index)] = y_row - strength * torch.dot(y_row, unit) * unit
    return z


def cosine(a: Heads, b: Heads) -> PerHead:
    """cos(a, b) per token and head in float64: [batch time head]. Zero where either vector is zero."""
    a, b = a.double(), b.double()
    norms = a.norm(dim=-1) * b.norm(dim=-1)
    return torch.where(norms > 0, (a * b).sum(-1) / norms.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
