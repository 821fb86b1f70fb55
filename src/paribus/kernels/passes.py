"""Calls of compiled kernels: a pass over the tokens of some tensors, spread over threads in parts of a fixed size."""

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count, pairwise

import torch
from torch import Tensor

Pass = Callable[..., None]

LARGE_BYTES = 2**16
"""from which on a tensor is placed apart"""
PAGE_BYTES = 4096
APART_BYTES = 33 * 64
"""33 cache lines: neighbours lie half a page apart, and none meets another for 64 tensors"""

PART = 128
"""tokens whose sums are formed together: the same whatever the number of threads, and so are the sums"""


def parts(tokens: int) -> int:
    return -(-tokens // PART)


def run(one: Pass, arguments: ctypes.Structure, tokens: int) -> None:
    """Call a pass on all parts, on as many threads as PyTorch uses; ctypes lets go of the interpreter's lock."""
    total = parts(tokens)
    threads = min(torch.get_num_threads(), total)
    where = ctypes.byref(arguments)
    if threads == 1:
        one(where, ctypes.c_int64(0), ctypes.c_int64(total))
        return
    edges = [total * i // threads for i in range(threads + 1)]
    spans = [(ctypes.c_int64(a), ctypes.c_int64(b)) for a, b in pairwise(edges)]
    waiting = [_helpers().submit(one, where, *span) for span in spans[1:]]
    one(where, *spans[0])
    for helper in waiting:
        helper.result()


@cache
def _helpers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), "paribus-kernel")


_turns = count()


def placed_apart(shape: Sequence[int]) -> Tensor:
    """An uninitialised float32 tensor that does not start at the same place of a page as the ones before it.

    Streams of a power of two numbers are whole pages, and so begin alike: a token's rows of nine of them want the same
    few lines of the first-level cache, which holds eight. Measured: a read of nine sources takes up to twice as long.
    """
    size = math.prod(shape)
    if size * 4 < LARGE_BYTES:
        return torch.empty(shape, dtype=torch.float32)
    room = torch.empty(size + PAGE_BYTES // 4, dtype=torch.float32)
    offset = (next(_turns) * APART_BYTES - room.data_ptr()) % PAGE_BYTES // 4
    return room[offset : offset + size].view(shape)


def addresses(tensors: Sequence[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    """float *[]; NULL for None. A structure of C that is given it keeps it alive, but not the tensors."""
    return (ctypes.c_void_p * len(tensors))(*(None if t is None else t.data_ptr() for t in tensors))
