"""Depth routes of single tokens, kept as they are: what a route's distance from itself in another seed is read from.

The positions are spread evenly over all counted ones, so that they come from many documents, and depend on the
documents alone: every arm and seed of a study keeps the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paribus.measure.probes import Scoring, counted
from paribus.mechanisms.contract import ROUTE

ROUTE_POSITIONS = 512
"""tokens whose routes are kept"""


@dataclass(frozen=True)
class Route:
    """What one role of one depth read mixed, token by token."""

    site: str
    layer: int
    role: str
    positions: NDArray[np.int64]
    """`[position]`: number of the token among all counted ones, in the order of the batches"""
    weights: NDArray[np.float32]
    """`[position source]`"""


class _RouteTap:
    """Keeps the depth routes of chosen tokens; everything else that is tapped is let go at once."""

    def __init__(self) -> None:
        self.chosen = torch.zeros(0, 0, dtype=torch.bool)
        self.found: dict[tuple[str, int, str], list[Tensor]] = {}

    def __call__(self, site: str, layer: int, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            if name.startswith(ROUTE):
                kept = tensor[self.chosen].float().cpu()
                self.found.setdefault((site, layer, name.removeprefix(ROUTE)), []).append(kept)


def depth_routes(model: nn.Module, batches: Sequence[Scoring], positions: int = ROUTE_POSITIONS) -> list[Route]:
    """Every depth route at `positions` counted tokens (all, where there are fewer); empty for a model without any."""
    total = sum(int(counted(batch.weight).count_nonzero()) for batch, _ in batches)
    wanted = torch.from_numpy(np.unique(np.linspace(0, total, min(positions, total), endpoint=False).astype(np.int64)))
    tap, begin = _RouteTap(), 0
    model.eval()
    with torch.no_grad():
        for batch, _ in batches:
            place = torch.nonzero(counted(batch.weight))
            here = wanted[(wanted >= begin) & (wanted < begin + len(place))] - begin
            begin += len(place)
            if not len(here):
                continue
            tap.chosen = torch.zeros_like(batch.weight, dtype=torch.bool)
            rows, columns = place[here.to(place.device)].unbind(1)
            tap.chosen[rows, columns] = True
            model(batch.tokens, batch.document, tap)
            if not tap.found:
                return []
    return [
        Route(*key, positions=wanted.numpy(), weights=torch.cat(pieces).numpy())
        for key, pieces in sorted(tap.found.items())
    ]
