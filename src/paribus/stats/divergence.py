"""How far two depth routes part: the Jensen-Shannon divergence per token, in numpy, of routes that were kept as rows.

    JS(p, q) = KL(p | m)/2 + KL(q | m)/2,  m = (p + q)/2        in nats, at most ln 2; divided by ln 2 it is in bits

Its null for a claim about roles is the same route in two seeds: how much a route moves when nothing but initial values
and batches change. Reads of a single source are left out, since their divergence is 0 by definition.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

NATS_PER_BIT = math.log(2.0)

RouteKey = tuple[str, int, str]
"""(site, layer, role)"""
Routes = Mapping[RouteKey, NDArray[np.floating]]
"""weights [position source] by route"""


@dataclass(frozen=True)
class RouteDistance:
    """One route in two seeds of one arm: JS per token, then averaged."""

    site: str
    layer: int
    role: str
    seeds: tuple[int, int]
    nats: float
    positions: int


def js_divergence(p: NDArray[np.floating], q: NDArray[np.floating]) -> NDArray[np.float64]:
    """JS in nats over the last axis. A weight of 0 contributes 0."""
    p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
    m = (p + q) / 2
    parts = np.zeros(m.shape)
    for a in (p, q):
        logs = np.log(np.divide(a, m, out=np.ones(m.shape), where=a > 0))
        parts += a * logs / 2
    return parts.sum(-1)


def between_seeds(routes: Mapping[int, Routes]) -> list[RouteDistance]:
    """Every route that two seeds have at the same positions and over equally many sources, for every pair of seeds."""
    found = []
    for one, other in combinations(sorted(routes), 2):
        for key in sorted(routes[one].keys() & routes[other].keys()):
            p, q = routes[one][key], routes[other][key]
            if p.shape != q.shape or p.shape[1] < 2:
                continue
            nats = float(js_divergence(p, q).mean())
            found.append(RouteDistance(*key, seeds=(one, other), nats=nats, positions=len(p)))
    return found
