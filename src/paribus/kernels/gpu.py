"""Whether kernels in Triton take some tensors. They stand in files of their own, since builds of PyTorch for processors
come without Triton, and are imported where there is a CUDA tensor."""

import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from paribus.kernels import compiler

ALIGNMENT = 16
"""bytes, of the first number of a tensor: what the widest load wants"""
NARROW = (torch.float32, torch.bfloat16)
OPTIONS = {"enable_fp_fusion": True}
"""of every launch: a product and a sum in one rounding; named, because Triton's default is about to change"""


def takes(*tensors: Tensor | None) -> bool:
    """Whether all tensors are of one CUDA device, or of the CPU where Triton interprets its kernels
    (TRITON_INTERPRET=1), and kernels are wanted."""
    device = next(t.device for t in tensors if t is not None)
    if device.type != ("cpu" if compiler.interpreted() else "cuda") or compiler.switched_off():
        return False
    return all(t is None or t.device == device for t in tensors) and find_spec("triton") is not None


def dense(*tensors: Tensor | None, types: tuple[torch.dtype, ...] = (torch.float32,)) -> bool:
    """Whether kernels that are promised aligned, contiguous tensors can be given these."""
    return all(t is None or (t.dtype in types and t.is_contiguous() and t.data_ptr() % ALIGNMENT == 0) for t in tensors)


def made_dense(t: Tensor) -> Tensor:
    t = t.contiguous()
    return t if dense(t, types=(t.dtype,)) else t.clone()


@cache
def runs(trial: Callable[[torch.device], object], device: torch.device) -> bool:
    """Whether the kernels of a file run on the device: one of them is tried, once. Triton wants a compiler and Python's
    headers for what it calls a kernel with, and a device that it knows."""
    try:
        trial(device)
    except Exception as error:
        message = f"{trial.__module__} is computed with PyTorch operators, which are slower: {error}"
        warnings.warn(message, stacklevel=2)
        return False
    return True
