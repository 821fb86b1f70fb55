"""The ways in which the same update is computed. Each is timed and reported by itself, and against the first.

A way is a line of `WAYS`. What it needs to run goes into `within`, which every update of it is made in; what becomes of
the model before it runs, into `made`; and `missing` says why it cannot be had on this machine.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Way:
    sentence: str
    """what computes, for the page"""
    made: Callable[[nn.Module], nn.Module] = lambda model: model
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    missing: Callable[[], str] = lambda: ""
    """why there is none of it here; empty where there is"""


WAYS: dict[str, Way] = {
    "eager": Way("operation by operation, as cells are trained in proof mode"),
}
"""the first is what the others are compared with"""


def ways_here() -> dict[str, Way]:
    """Those that this machine has."""
    return {name: way for name, way in WAYS.items() if not way.missing()}
