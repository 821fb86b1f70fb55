"""The passes of `exclude_self` on a CPU: calls of `exclude_self_cpu.c`, for float32 and bfloat16."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from paribus.kernels import compiler, passes

MOST_WIDTH = 1024
"""features of a head (`exclude_self_cpu.c`)"""


def library(y: Tensor, *further: Tensor) -> ctypes.CDLL | None:
    """What computes the exclusion, where it can take tensors like these; None where operators are to be used."""
    fits = y.shape[-1] <= MOST_WIDTH and all(t.device.type == "cpu" for t in (y, *further))
    return compiler.library(__file__) if fits else None


def excluded(kernel: ctypes.CDLL, y: Tensor, v: Tensor, strength: float | Tensor, features: float) -> Tensor:
    """z. The last axis of y and v lies together in memory; `features` is a power of two no less than its length."""
    z, strengths = torch.empty(y.shape, dtype=y.dtype), _strengths(y, strength)
    arguments = _Exclusion(
        **_of_both(y, v, strengths, features),
        z_stride=z.stride()[:4],
        y=y.data_ptr(),
        v=v.data_ptr(),
        z=z.data_ptr(),
    )
    passes.run(kernel.exclude_forward, arguments, y.shape[0] * y.shape[1])
    return z


def gradients(
    kernel: ctypes.CDLL,
    y: Tensor,
    v: Tensor,
    strength: float | Tensor,
    grad_z: Tensor,
    features: float,
    *,
    of_v: bool,
    of_strength: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(of y, of v, of the strength of each head [kv_head group 1]); the last axis lies together as for `excluded`."""
    batch, time, kv_heads, group, width = y.shape
    tokens, strengths = batch * time, _strengths(y, strength)
    grad_y = torch.empty_like(y)
    if grad_y.stride() != y.stride():  # of a y that overlaps itself or has gaps
        y = y.contiguous()
        grad_y = torch.empty_like(y)
    grad_v = torch.empty((batch, time, kv_heads, 1, width), dtype=v.dtype) if of_v else None
    by_part = torch.empty((passes.parts(tokens), kv_heads, group, 1)) if of_strength else None
    arguments = _Exclusion(
        **_of_both(y, v, strengths, features),
        z_stride=grad_z.stride()[:4],
        y=y.data_ptr(),
        v=v.data_ptr(),
        z=grad_y.data_ptr(),
        grad=grad_z.data_ptr(),
        grad_v=None if grad_v is None else grad_v.data_ptr(),
        grad_strength=None if by_part is None else by_part.data_ptr(),
    )
    passes.run(kernel.exclude_backward, arguments, tokens)
    return grad_y, grad_v, None if by_part is None else by_part.sum(0)


def _strengths(y: Tensor, strength: float | Tensor) -> Tensor:
    """[kv_head group], by view where it is a tensor of that type already."""
    if not isinstance(strength, Tensor):
        return torch.full((), strength).expand(y.shape[2:4])
    return strength.float().expand(*y.shape[2:4], 1)[..., 0]


def _of_both(y: Tensor, v: Tensor, strengths: Tensor, features: float) -> dict[str, Any]:
    """What forward and backward pass are told alike."""
    batch, time, kv_heads, group, width = y.shape
    return {
        "batch": batch,
        "time": time,
        "kv_heads": kv_heads,
        "group": group,
        "width": width,
        "part": passes.PART,
        "narrow_y": y.dtype == torch.bfloat16,
        "narrow_v": v.dtype == torch.bfloat16,
        "features": features,
        "y_stride": y.stride()[:4],
        "v_stride": v.stride()[:3],
        "strength_stride": strengths.stride(),
        "strength": strengths.data_ptr(),
    }


class _Exclusion(ctypes.Structure):
    """`struct exclusion`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "time", "kv_heads", "group", "width", "part")),
        *((name, ctypes.c_int32) for name in ("narrow_y", "narrow_v")),
        ("features", ctypes.c_float),
        ("y_stride", ctypes.c_int64 * 4),
        ("z_stride", ctypes.c_int64 * 4),
        ("v_stride", ctypes.c_int64 * 3),
        ("strength_stride", ctypes.c_int64 * 2),
        *((name, ctypes.c_void_p) for name in ("y", "v", "strength", "z", "grad", "grad_v", "grad_strength")),
    )
