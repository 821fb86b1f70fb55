"""Calls of compiled kernels: a pass over the tokens of some tensors, spread over threads in parts of a fixed size."""

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

Pass = Callable[..., None]

PART = 128
"""tokens whose sums are formed together: the same whatever the number of threads, and so are the sums"""


def parts(tokens: int) -> int:
    return -(-tokens // PART)


def run(one: Pass, arguments: ctypes.Structure, tokens: int) -> None:
    """Call a pass on all parts, on as many threads as PyTorch uses; ctypes lets go of the interpreter's lock."""
    count = parts(tokens)
    threads = min(torch.get_num_threads(), count)
    where = ctypes.byref(arguments)
    if threads == 1:
        one(where, ctypes.c_int64(0), ctypes.c_int64(count))
        return
    edges = [count * i // threads for i in range(threads + 1)]
    spans = [(ctypes.c_int64(a), ctypes.c_int64(b)) for a, b in pairwise(edges)]
    waiting = [_helpers().submit(one, where, *span) for span in spans[1:]]
    one(where, *spans[0])
    for helper in waiting:
        helper.result()


@cache
def _helpers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), "paribus-kernel")


def addresses(tensors: Sequence[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    """float *[]; NULL for None."""
    return (ctypes.c_void_p * len(tensors))(*(None if t is None else t.data_ptr() for t in tensors))
