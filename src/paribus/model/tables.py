"""Tables that follow from numbers alone, computed once and kept for the process.

`ALL` names them for a compiler: what they return may stand in a compiled graph as a constant.
"""

from functools import cache

import torch
from torch import Tensor

from paribus.shapes import AllowedPairs


def rotary_phases(time: int, head_width: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin of position * base^(-2i/head_width), each [time, 1, head_width / 2], from float64."""
    return _rotary_phases(time, head_width, base, device)


def window_pairs(time: int, earlier: int, device: torch.device) -> AllowedPairs:
    """[1 time time] pairs (query, key) with the key at the query's own position or up to `earlier` before it."""
    return _window_pairs(time, earlier, device)


ALL = (rotary_phases, window_pairs)


def forget() -> None:
    """Compute them anew the next time."""
    _rotary_phases.cache_clear()
    _window_pairs.cache_clear()


# A compiler looks through a cache into the function, so what is kept is one call further in. Without inference mode:
# a training step may be the next to read what was first asked for while a text was written.
@cache
@torch.inference_mode(False)
def _rotary_phases(time: int, head_width: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    frequencies = base ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
    angles = torch.arange(time, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float()[:, None].to(device), angles.sin().float()[:, None].to(device)


@cache
@torch.inference_mode(False)
def _window_pairs(time: int, earlier: int, device: torch.device) -> AllowedPairs:
    position = torch.arange(time, device=device)
    behind = position[:, None] - position
    return ((behind >= 0) & (behind <= earlier))[None]
