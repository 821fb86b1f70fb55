"""The passes of `exclude_self.py` in Triton, for CUDA tensors; the equations and the rule of passing rows are there.

A program takes a few tokens of one key-value head: their values stay in registers while the query heads that share them
pass by, so that every number is read once and written once, and nothing is kept but y and v. Axes are addressed by
strides, for y is usually a transposed view of what attention returns. The gradient of a strength per head is summed
within a program and then over programs, always in the same order.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from paribus.kernels import gpu

TILE = 2048
"""numbers of a tile of tokens: 16 registers for each of the 128 threads of a program, of which there are four tiles"""
MOST_WIDTH = 2048


def trial(device: torch.device) -> None:
    y = torch.ones(1, 1, 1, 1, 16, device=device)
    excluded(y, y, 1.0, 0.0)


def excluded(y: Tensor, v: Tensor, strength: float | Tensor, relative_eps: float) -> Tensor:
    """y [batch time kv_head group head_width] without `strength` of its projection on v, by dense rows."""
    z = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    grid, sizes = _sizes(y, strength, relative_eps)
    with torch.cuda.device_of(y):
        _forward[grid](y, v, z, *y.stride()[:4], *v.stride()[:3], *z.stride()[:4], **sizes)
    return z


def gradients(
    y: Tensor,
    v: Tensor,
    strength: float | Tensor,
    grad_z: Tensor,
    relative_eps: float,
    *,
    of_v: bool,
    of_strength: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(of y, of v, of the strengths [kv_head group 1])"""
    batch, time, kv_heads, group, width = y.shape
    grad_y = torch.empty_like(y)
    grad_v = torch.empty((batch, time, kv_heads, 1, width), dtype=v.dtype, device=v.device) if of_v else None
    grid, sizes = _sizes(y, strength, relative_eps)
    by_program = torch.empty((grid[0], kv_heads, group, 1), device=y.device) if of_strength else None
    with torch.cuda.device_of(y):
        _backward[grid](
            y, v, grad_z, grad_y, grad_v, by_program,
            *y.stride()[:4], *v.stride()[:3], *grad_z.stride()[:4], *grad_y.stride()[:4],
            kv_heads=kv_heads, **sizes,
        )  # fmt: skip
    return grad_y, grad_v, None if by_program is None else by_program.sum(0)


def _sizes(y: Tensor, strength: float | Tensor, relative_eps: float) -> tuple[tuple[int, int], dict[str, Any]]:
    """(programs, what both kernels are told)"""
    batch, time, kv_heads, group, width = y.shape
    columns = triton.next_power_of_2(width)
    rows = max(1, TILE // columns)
    strengths = strength.float().expand(kv_heads, group, 1) if isinstance(strength, Tensor) else None
    of_head, of_member = (0, 0) if strengths is None else strengths.stride()[:2]
    return (triton.cdiv(batch * time, rows), kv_heads), {
        "strengths": strengths,
        "strength": 1.0 if isinstance(strength, Tensor) else float(strength),
        "of_head": of_head,
        "of_member": of_member,
        "tokens": batch * time,
        "time": time,
        "group": group,
        "width": width,
        "relative_eps": relative_eps,
        "smallest": torch.finfo(torch.float32).tiny,
        "features": float(columns),
        "ROWS": rows,
        "COLUMNS": columns,
        "num_warps": 4,
        **gpu.OPTIONS,
    }


@triton.jit
@no_type_check
def _largest(x):
    """of a row's absolute values, and NaN where it holds one: the maximum alone would skip it"""
    return tl.max(tl.abs(x), 1) + tl.sum(x * 0.0, 1)


@triton.jit
@no_type_check
def _direction(v, smallest):
    """(w = v / max|v|, what it was divided by, max|v|, w . w)"""
    largest = _largest(v)
    divisor = tl.where(largest < smallest, smallest, largest)
    w = tl.div_rn(v, divisor[:, None] + tl.zeros_like(v))
    return w, divisor, largest, tl.sum(w * w, 1)


@triton.jit
@no_type_check
def _along(y, w, squared, passing, features):
    """y . w / w . w, zero where the row passes; no sum is larger than y's norm"""
    small = w * (1.0 / features)
    return tl.where(passing, 0.0, tl.div_rn(tl.sum(y * small, 1), squared) * features)


@triton.jit
@no_type_check
def _forward(
    y, v, z,
    y_batch, y_time, y_head, y_member, v_batch, v_time, v_head, z_batch, z_time, z_head, z_member,
    strengths, strength, of_head, of_member, tokens, time, group, width, relative_eps, smallest, features,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1).to(tl.int64)
    b, t = token // time, token % time
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (token < tokens)[:, None] & (column < width)
    from_v = (b * v_batch + t * v_time + head * v_head)[:, None] + column
    from_y = (b * y_batch + t * y_time + head * y_head)[:, None] + column
    to_z = (b * z_batch + t * z_time + head * z_head)[:, None] + column
    w, _, largest, squared = _direction(tl.load(v + from_v, mask=inside, other=0.0).to(tl.float32), smallest)
    for member in range(group):
        x = tl.load(y + from_y, mask=inside, other=0.0).to(tl.float32)
        passing = largest <= relative_eps * _largest(x)
        removed = _along(x, w, squared, passing, features)
        removed *= tl.load(strengths + head * of_head + member * of_member) if strengths is not None else strength
        left = x - removed[:, None] * w
        tl.store(z + to_z, left.to(z.dtype.element_ty), mask=inside)
        from_y += y_member
        to_z += z_member


@triton.jit
@no_type_check
def _backward(
    y, v, grad_z, grad_y, grad_v, grad_strength,
    y_batch, y_time, y_head, y_member, v_batch, v_time, v_head, z_batch, z_time, z_head, z_member,
    to_batch, to_time, to_head, to_member, kv_heads,
    strengths, strength, of_head, of_member, tokens, time, group, width, relative_eps, smallest, features,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """grad_v is dense, grad_strength is [program kv_head member]."""
    token = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1).to(tl.int64)
    b, t = token // time, token % time
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (token < tokens)[:, None] & (column < width)
    from_v = (b * v_batch + t * v_time + head * v_head)[:, None] + column
    from_y = (b * y_batch + t * y_time + head * y_head)[:, None] + column
    from_z = (b * z_batch + t * z_time + head * z_head)[:, None] + column
    to_y = (b * to_batch + t * to_time + head * to_head)[:, None] + column
    w, divisor, largest, squared = _direction(tl.load(v + from_v, mask=inside, other=0.0).to(tl.float32), smallest)
    of_v = tl.zeros((ROWS, COLUMNS), tl.float32)
    for member in range(group):
        x = tl.load(y + from_y, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grad_z + from_z, mask=inside, other=0.0).to(tl.float32)
        passing = largest <= relative_eps * _largest(x)
        along = _along(x, w, squared, passing, features)
        across = tl.where(passing, 0.0, tl.div_rn(tl.sum(g * w, 1), squared))
        s = tl.load(strengths + head * of_head + member * of_member) if strengths is not None else strength
        removed = across * s
        of_y = g - removed[:, None] * w
        tl.store(grad_y + to_y, of_y.to(grad_y.dtype.element_ty), mask=inside)
        if grad_v is not None:
            # y / |v| is bounded where 1 / |v| is not.
            scaled = tl.div_rn(along, divisor)
            part = tl.div_rn(x, divisor[:, None] + tl.zeros_like(x)) * -removed[:, None]
            part -= (scaled * s)[:, None] * g
            part += (2 * (scaled * removed))[:, None] * w
            of_v += tl.where(passing[:, None], 0.0, part)
        if grad_strength is not None:
            there = tl.where(token < tokens, along * across * squared, 0.0)
            place = (tl.program_id(0).to(tl.int64) * kv_heads + head) * group + member
            tl.store(grad_strength + place, -tl.sum(there, 0))
        from_y += y_member
        from_z += z_member
        to_y += to_member
    if grad_v is not None:
        to_v = ((token * kv_heads + head) * width)[:, None] + column
        tl.store(grad_v + to_v, of_v.to(grad_v.dtype.element_ty), mask=inside)
