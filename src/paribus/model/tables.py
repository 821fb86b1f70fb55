"""Tables that follow from numbers alone, computed once and kept for the process.

A compiler that traces takes those that are kept as tensors given from outside, and computes in its graph those that are
not: whoever wants them given lets the model compute a row as it is written first.
"""

import torch
from torch import Tensor

from paribus.shapes import AllowedPairs

_phases: dict[tuple[int, int, float, str], tuple[Tensor, Tensor]] = {}
_pairs: dict[tuple[int, int, str], AllowedPairs] = {}

# Without inference mode: a training step may be the next to read what was first asked for while a text was written.


def rotary_phases(time: int, head_width: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin of position * base^(-2i/head_width), each [time, 1, head_width / 2], from float64."""
    key = (time, head_width, base, str(device))
    if key in _phases:
        return _phases[key]
    if torch.compiler.is_compiling():
        return _rotary_phases(time, head_width, base, device)
    with torch.inference_mode(False):
        _phases[key] = _rotary_phases(time, head_width, base, device)
    return _phases[key]


def window_pairs(time: int, earlier: int, device: torch.device) -> AllowedPairs:
    """[1 time time] pairs (query, key) with the key at the query's own position or up to `earlier` before it."""
    key = (time, earlier, str(device))
    if key in _pairs:
        return _pairs[key]
    if torch.compiler.is_compiling():
        return _window_pairs(time, earlier, device)
    with torch.inference_mode(False):
        _pairs[key] = _window_pairs(time, earlier, device)
    return _pairs[key]


def forget() -> None:
    """Compute them anew the next time."""
    _phases.clear()
    _pairs.clear()


def _rotary_phases(time: int, head_width: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    frequencies = base ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
    angles = torch.arange(time, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float()[:, None].to(device), angles.sin().float()[:, None].to(device)


def _window_pairs(time: int, earlier: int, device: torch.device) -> AllowedPairs:
    position = torch.arange(time, device=device)
    behind = position[:, None] - position
    return ((behind >= 0) & (behind <= earlier))[None]
