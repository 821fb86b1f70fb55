"""Removal of the component along a token's own value, per head:  z = y - s (y . u) u  with u = v / |v|, strength s.

Exclusive Self-Attention (Zhai, arXiv 2603.09078). Gradients for upstream g, written out below:

    dy = g - s (g.u) u      dv = -(s/|v|) [(g.u) y + (y.u) g - 2 (y.u)(g.u) u]      ds = -(y.u)(g.u)

Only the direction of v matters forwards, so v is divided by its largest element before anything is squared: no size
of v that its dtype holds overflows or fades. The size of y is free too: no sum is formed of it that is larger than y's
norm. Backwards 1/|v| can blow up: |dv| <= s |g| |y| / |v| (Cauchy-Schwarz on
the parts of y and g along u and across it). Hence one rule, RELATIVE_EPS, and no eps that removes a part.
"""

import ctypes
import math
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from paribus.kernels import exclude_self_cpu, gpu
from paribus.kernels.precision import rescaled, wide
from paribus.shapes import GroupedHeads, GroupValues, PerHead

RELATIVE_EPS = 2.0**-20
"""A row passes unchanged, forwards and backwards, where max|v| <= RELATIVE_EPS max|y|, and so where v is zero. For all
other rows |dv| < s |g| sqrt(head_width) / RELATIVE_EPS. A millionth: far below any value that attention aggregates
(bfloat16 resolves 2^-8), far above what float32 divides safely."""


def exclude_self(y: GroupedHeads, v: GroupValues, strength: float | Tensor) -> GroupedHeads:
    """Attention output y without `strength` of its projection on v, which broadcasts over y's group.

    `strength` is one number, or a tensor [kv_head group 1] (or what broadcasts like it) that receives a gradient.
    Dot products and subtraction are float32 (float64 stays float64); the result has y's dtype.
    """
    if torch.compiler.is_compiling():
        # Operators that a compiler fuses with what surrounds them, backwards as well.
        coefficient, u = own_component(y, v)
        return (wide(y) - strength * coefficient * u).to(y.dtype)
    return _ExcludeSelf.apply(y, v, strength)


def _largest(t: Tensor) -> Tensor:
    return t.abs().amax(-1, keepdim=True)


def _passing(y: Tensor, largest_v: Tensor) -> Tensor:
    """Rows that pass unchanged: [batch time kv_head group 1]."""
    return largest_v <= RELATIVE_EPS * _largest(y)


def _direction(v: Tensor, largest_v: Tensor) -> Tensor:
    """v with a largest element of 1; zero where v is zero."""
    return v / largest_v.clamp_min(torch.finfo(v.dtype).tiny)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True)


def _features(width: int) -> float:
    """The power of two that is no less than the width."""
    return 2.0 ** math.ceil(math.log2(width))


def _coefficient(y: Tensor, w: Tensor, squared: Tensor) -> Tensor:
    """y.w / w.w. A sum over features may leave float32 where no feature does: it is formed of w over a power of two
    that is no less than their number, which changes no bit."""
    features = _features(w.shape[-1])
    return _dot(y, w / features) / squared * features


class _ExcludeSelf(Function):
    """Keeps y and v, which attention's backward holds anyway. With w = v / max|v|, (y.u) u = along * w where
    along = y.w / w.w, and (g.u) u = across * w where across = g.w / w.w."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, v: Tensor, strength: float | Tensor) -> Tensor:
        of_strength = [strength] if isinstance(strength, Tensor) else []
        ctx.strength = strength
        ctx.save_for_backward(y, v, *of_strength)
        return _excluded(y, v, strength)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (the decorator's stub drops parameter names)
        ctx: Any, grad_z: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        y, v, *of_strength = ctx.saved_tensors
        _, of_v, of_s = ctx.needs_input_grad
        return _gradients(y, v, of_strength[0] if of_strength else ctx.strength, grad_z, of_v=of_v, of_strength=of_s)


def _excluded(y: Tensor, v: Tensor, strength: float | Tensor) -> Tensor:
    on_gpu = _triton(y, v, strength)
    if on_gpu is not None:
        return on_gpu.excluded(_with_whole_rows(y), _with_whole_rows(v), strength, RELATIVE_EPS)
    on_cpu = _on_cpu(y, v, strength)
    if on_cpu is not None:
        y, v = _with_whole_rows(y), _with_whole_rows(v)
        return exclude_self_cpu.excluded(on_cpu, y, v, strength, _features(y.shape[-1]))
    parts = _Parts.of(y, v)
    return torch.addcmul(wide(y), parts.along * strength, parts.w, value=-1.0).to(y.dtype)


def _gradients(
    y: Tensor, v: Tensor, strength: float | Tensor, grad_z: Tensor, *, of_v: bool, of_strength: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    on_gpu = _triton(y, v, strength, grad_z)
    if on_gpu is not None:
        y, v, grad_z = (_with_whole_rows(t) for t in (y, v, grad_z))
        of_y, of_values, by_head = on_gpu.gradients(
            y, v, strength, grad_z, RELATIVE_EPS, of_v=of_v, of_strength=of_strength
        )
        return of_y, of_values, _like(strength, by_head)
    on_cpu = _on_cpu(y, v, strength, grad_z)
    if on_cpu is None:
        return _gradients_by_operators(y, v, strength, grad_z, of_v=of_v, of_strength=of_strength)
    y, v, grad_z = (_with_whole_rows(t) for t in (y, v, grad_z))
    features = _features(y.shape[-1])
    of_y, of_values, by_head = exclude_self_cpu.gradients(
        on_cpu, y, v, strength, grad_z, features, of_v=of_v, of_strength=of_strength
    )
    return of_y, of_values, _like(strength, by_head)


def _like(strength: float | Tensor, by_head: Tensor | None) -> Tensor | None:
    """The gradient of the strength from those of the heads [kv_head group 1]."""
    if by_head is None or not isinstance(strength, Tensor):
        return None
    return by_head.sum_to_size(strength.shape).to(strength.dtype)


class _Parts(NamedTuple):
    """Of a row of y and its v, float32 or wider."""

    w: Tensor
    largest_v: Tensor
    squared: Tensor
    """w.w"""
    along: Tensor
    """y.w / w.w; zero where the row passes"""
    passing: Tensor

    @classmethod
    def of(cls, y: Tensor, v: Tensor) -> "_Parts":
        y, v = wide(y), wide(v)
        largest_v = _largest(v)
        passing = _passing(y, largest_v)
        w = _direction(v, largest_v)
        squared = _dot(w, w)
        return cls(w, largest_v, squared, _coefficient(y, w, squared).masked_fill_(passing, 0.0), passing)


def _gradients_by_operators(
    y: Tensor, v: Tensor, strength: float | Tensor, grad_z: Tensor, *, of_v: bool, of_strength: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    w, largest_v, squared, along, passing = _Parts.of(y, v)
    g = wide(grad_z)
    across = (_dot(g, w) / squared).masked_fill_(passing, 0.0)
    removed = across * strength
    grad_y = torch.addcmul(g, removed, w, value=-1.0)
    grad_v = grad_strength = None
    if of_v:
        # An infinite divisor makes a passing row exactly zero. y / |v| is bounded where 1 / |v| is not.
        scale = largest_v.clamp_min(torch.finfo(w.dtype).tiny).masked_fill(passing, torch.inf)
        along_scaled = along / scale
        grad_v = (wide(y) / scale).mul_(-removed)
        grad_v.addcmul_(g, along_scaled * strength, value=-1.0)
        grad_v.addcmul_(w, along_scaled * removed, value=2.0)
        grad_v = grad_v.sum_to_size(v.shape).to(v.dtype)
    if of_strength and isinstance(strength, Tensor):
        grad_strength = -(along * across * squared).sum_to_size(strength.shape).to(strength.dtype)
    return grad_y.to(y.dtype), grad_v, grad_strength


def _on_cpu(y: Tensor, v: Tensor, strength: float | Tensor, *further: Tensor) -> ctypes.CDLL | None:
    """The compiled exclusion, where it can take these tensors."""
    if not _regular(y, v, strength, *further):
        return None
    return exclude_self_cpu.library(y, v, *further, *((strength,) if isinstance(strength, Tensor) else ()))


def _triton(y: Tensor, v: Tensor, strength: float | Tensor, *further: Tensor) -> ModuleType | None:
    """The passes in Triton, where they can take these tensors."""
    tensors = (y, v, *further, *((strength,) if isinstance(strength, Tensor) else ()))
    if not gpu.takes(*tensors) or not _regular(y, v, strength, *further):
        return None
    from paribus.kernels import exclude_self_triton

    fits = y.shape[-1] <= exclude_self_triton.MOST_WIDTH and gpu.runs(exclude_self_triton.trial, y.device)
    return exclude_self_triton if fits else None


def _regular(y: Tensor, v: Tensor, strength: float | Tensor, *further: Tensor) -> bool:
    """One value a group, float32 or bfloat16, strengths per head or coarser."""
    if y.ndim != 5 or v.shape != (*y.shape[:3], 1, y.shape[4]):
        return False
    if isinstance(strength, Tensor) and (strength.ndim > 3 or strength.shape[-1:] not in ((), (1,))):
        return False
    tensors = (y, v, *further, *((strength,) if isinstance(strength, Tensor) else ()))
    return all(t.dtype in gpu.NARROW for t in tensors) and all(t.dtype == y.dtype for t in further)


def _with_whole_rows(t: Tensor) -> Tensor:
    """A tensor whose last axis lies together in memory; the others may lie as they like."""
    return t if t.stride(-1) == 1 else t.contiguous()


def own_component(y: GroupedHeads, v: GroupValues) -> tuple[Tensor, GroupValues]:
    """(y.u, u) by the rule of `exclude_self`, in float32 or wider and differentiable step by step: for maps that are
    built from XSA's coefficient y.u, [batch time kv_head group 1], which is zero on rows that pass."""
    y, v = wide(y), wide(v)
    largest_v = _largest(v.detach())  # u does not depend on this scale, so neither does its gradient
    u = _unit(_direction(v, largest_v), largest_v)
    return _dot(y, u).masked_fill(_passing(y.detach(), largest_v), 0.0), u


def _unit(w: Tensor, largest_v: Tensor) -> Tensor:
    """w over its norm; where v is zero, any direction, for its component is zeroed."""
    w = torch.where(largest_v > 0, w, torch.ones_like(w))
    return w / torch.linalg.vector_norm(w, dim=-1, keepdim=True)


def shrunk(y: GroupedHeads, v: GroupValues, strength: float, *, through_factor: bool) -> GroupedHeads:
    """y scaled to the norm that `exclude_self` leaves, |y - s c u| = |y| sqrt(1 - s (2 - s) cos^2(y, v)).

    Written with the norm of the remainder, whose derivative is bounded, and not with the root, whose derivative is
    infinite where nothing is left. At that point (a document's first token, s = 1) the remainder is rounding noise and
    so is its direction: a factor of at most RELATIVE_EPS counts as a constant. The factor does not depend on the sizes
    of y and v, so both are measured in units of their largest elements and no square or sum leaves float32. Which rows
    pass depends on both sizes, as in `exclude_self`; a y of zero, which has no direction to be scaled in, passes too.
    """
    y_wide, v_wide = wide(y), wide(v)
    tiny = torch.finfo(y_wide.dtype).tiny
    largest_y, largest_v = (_largest(t.detach()) for t in (y_wide, v_wide))
    passing = _passing(y_wide.detach(), largest_v) | (largest_y == 0)
    size_y, size_v = largest_y.clamp_min(tiny), largest_v.clamp_min(tiny)
    one = torch.ones_like(size_y)
    # |y| / |v| goes to the gradient of v alone; an infinite divisor makes that of a passing row exactly zero.
    towards_v = size_y / size_v.masked_fill(passing, torch.inf)
    scaled = rescaled(y_wide, size_y.reciprocal(), one)
    u = _unit(rescaled(v_wide.expand_as(y_wide), size_v.reciprocal(), towards_v), largest_v)
    safe = torch.where(passing, torch.ones_like(scaled), scaled)
    before = torch.linalg.vector_norm(safe, dim=-1, keepdim=True)
    after = torch.linalg.vector_norm(safe - strength * _dot(safe, u) * u, dim=-1, keepdim=True)
    factor = (after / before).masked_fill(passing, 1.0)
    if not through_factor:
        factor = factor.detach()
    factor = torch.where(factor > RELATIVE_EPS, factor, factor.detach())
    return rescaled(scaled * factor, size_y, one).to(y.dtype)


def exclude_self_reference(y: Tensor, v: Tensor, strength: float | Tensor) -> Tensor:
    """The slow float64 twin: one token and head at a time, written from the equation; differentiable by autograd."""
    strengths = torch.as_tensor(strength, dtype=torch.float64).expand(*y.shape[:-1], 1)
    rows, v = [], v.expand_as(y)
    for index in torch.cartesian_prod(*(torch.arange(size) for size in y.shape[:-1])).tolist():
        y_row, v_row = y[tuple(index)].double(), v[tuple(index)].double()
        if v_row.abs().max() > RELATIVE_EPS * y_row.abs().max():
            unit = v_row / v_row.norm()
            y_row = y_row - strengths[tuple(index)] * torch.dot(y_row, unit) * unit
        rows.append(y_row)
    return torch.stack(rows).reshape(y.shape)


def cosine(a: GroupedHeads, b: GroupedHeads | GroupValues) -> PerHead:
    """cos(a, b) per token and head in float64: [batch time kv_head group]. Zero where either vector is zero."""
    a, b = a.double(), b.double()
    norms = a.norm(dim=-1) * b.norm(dim=-1)
    return torch.where(norms > 0, (a * b).sum(-1) / norms.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
