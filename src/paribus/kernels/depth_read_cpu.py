"""The passes of `depth_read` on a CPU: calls of `depth_read_cpu.c`, for dense tensors in float32."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paribus.kernels import compiler, passes

MOST_SOURCES = 256
"""that a read takes (`depth_read_cpu.c`)"""
NARROW = (torch.float32, torch.bfloat16)
"""types of what is added to a sum"""


def library(sources: int, *tensors: Tensor | None) -> ctypes.CDLL | None:
    """What computes reads of so many sources, where it can take these tensors; None where operators are to be used."""
    fits = sources <= MOST_SOURCES
    for t in tensors:
        fits = fits and (t is None or (t.dtype == torch.float32 and t.device.type == "cpu"))
    return compiler.library(__file__) if fits else None


def summed(kernel: ctypes.CDLL, delta: Tensor, running: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """(running + delta, its inverse root mean square [batch time 1])."""
    same = running is None and delta.dtype == torch.float32
    value = delta.view_as(delta) if same else passes.placed_apart(delta.shape)
    scale = torch.empty((*delta.shape[:-1], 1), dtype=torch.float32)
    tokens = scale.numel()
    arguments = _Sum(
        tokens=tokens,
        width=delta.shape[-1],
        part=passes.PART,
        eps=eps,
        narrow=delta.dtype == torch.bfloat16,
        running=_address(running),
        delta=delta.data_ptr(),
        value=None if same else value.data_ptr(),
        inverse_rms=scale.data_ptr(),
    )
    passes.run(kernel.sum_forward, arguments, tokens)
    return value, scale


def read(
    kernel: ctypes.CDLL,
    keyed: Tensor,
    scales: Sequence[Tensor],
    sources: Sequence[Tensor],
    norm_gain: Tensor | None = None,
    norm_eps: float | None = None,
) -> tuple[list[Tensor], Tensor, Tensor | None]:
    """(mixes, scores [batch time query source], None); with `norm_eps` what an RMSNorm makes of the mixes, and their
    inverse root mean squares [batch time query]."""
    queries = len(keyed)
    mixes = [passes.placed_apart(sources[0].shape) for _ in range(queries)]
    scores = torch.empty((*sources[0].shape[:-1], queries, len(sources)), dtype=torch.float32)
    inverse_mix = None if norm_eps is None else torch.empty(scores.shape[:-1], dtype=torch.float32)
    arguments = _Read(
        **_of_both(keyed, scales, sources, scores, norm_gain, inverse_mix),
        mix=passes.addresses(mixes),
        norm_eps=norm_eps or 0.0,
    )
    passes.run(kernel.read_forward, arguments, arguments.tokens)
    return mixes, scores, inverse_mix


def read_backward(
    kernel: ctypes.CDLL,
    keyed: Tensor,
    scales: Sequence[Tensor],
    sources: Sequence[Tensor],
    scores: Tensor,
    gradients: Sequence[Tensor],
    before: Sequence[Tensor | None],
    after: Sequence[Tensor],
    norm_gain: Tensor | None = None,
    inverse_mix: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The gradient of `keyed`, and of the norm's gain [width] where `inverse_mix` says that there is a norm. Those of
    the sources are written to `after`, on top of what is in `before`."""
    queries, width = keyed.shape
    parts = passes.parts(scales[0].numel())
    grad_keyed, rows, grad_gain = torch.empty((parts, queries, width), dtype=torch.float32), None, None
    if inverse_mix is not None:
        rows, grad_gain = torch.empty_like(grad_keyed), torch.empty((parts, width), dtype=torch.float32)
    arguments = _Read(
        **_of_both(keyed, scales, sources, scores, norm_gain, inverse_mix),
        grad_mix=passes.addresses(gradients),
        grad_before=passes.addresses(before),
        grad_after=passes.addresses(after),
        grad_keyed=grad_keyed.data_ptr(),
        grad_norm_gain=_address(grad_gain),
        rows=_address(rows),
    )
    passes.run(kernel.read_backward, arguments, arguments.tokens)
    return grad_keyed.sum(0), None if grad_gain is None else grad_gain.sum(0)


def _of_both(
    keyed: Tensor,
    scales: Sequence[Tensor],
    sources: Sequence[Tensor],
    scores: Tensor,
    norm_gain: Tensor | None,
    inverse_mix: Tensor | None,
) -> dict[str, Any]:
    """What forward and backward pass are told alike."""
    queries, width = keyed.shape
    return {
        "tokens": scales[0].numel(),
        "width": width,
        "queries": queries,
        "sources": len(sources),
        "part": passes.PART,
        "value": passes.addresses(sources),
        "inverse_rms": passes.addresses(scales),
        "keyed": keyed.data_ptr(),
        "scores": scores.data_ptr(),
        "inverse_mix": _address(inverse_mix),
        "norm_gain": _address(norm_gain),
    }


def _address(t: Tensor | None) -> int | None:
    return None if t is None else t.data_ptr()


class _Read(ctypes.Structure):
    """`struct read`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("tokens", "width", "queries", "sources", "part")),
        ("value", ctypes.POINTER(ctypes.c_void_p)),
        ("inverse_rms", ctypes.POINTER(ctypes.c_void_p)),
        ("keyed", ctypes.c_void_p),
        ("scores", ctypes.c_void_p),
        ("mix", ctypes.POINTER(ctypes.c_void_p)),
        ("grad_mix", ctypes.POINTER(ctypes.c_void_p)),
        ("grad_before", ctypes.POINTER(ctypes.c_void_p)),
        ("grad_after", ctypes.POINTER(ctypes.c_void_p)),
        *((name, ctypes.c_void_p) for name in ("grad_keyed", "inverse_mix", "norm_gain", "grad_norm_gain", "rows")),
        ("norm_eps", ctypes.c_float),
    )


class _Sum(ctypes.Structure):
    """`struct sum`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("tokens", "width", "part")),
        ("eps", ctypes.c_float),
        ("narrow", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("running", "delta", "value", "inverse_rms")),
    )
