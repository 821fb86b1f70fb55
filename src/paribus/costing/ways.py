"""The ways in which the same update is computed. Each is timed and reported by itself, and against the first.

A way is a line of `WAYS`. What it needs to run goes into `within`, which every update of it is made in; what becomes of
the model before it runs, into `made`; and `missing` says why it cannot be had on this machine.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn

from paribus.errors import ParibusError, nearest
from paribus.kernels import compiler


@dataclass(frozen=True)
class Way:
    sentence: str
    """what computes, for the page"""
    made: Callable[[nn.Module], nn.Module] = lambda model: model
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    missing: Callable[[], str] = lambda: ""
    """why there is none of it here; empty where there is"""


WAYS: dict[str, Way] = {
    "eager": Way("operation by operation, as cells are trained in proof mode, mechanisms by compiled kernels"),
    "operators": Way(
        "the same with PyTorch operators in place of compiled kernels",
        within=compiler.operators,
        missing=lambda: "" if compiler.compiler() else "no C compiler is here, so eager is that already",
    ),
}
"""the first is what the others are compared with"""


def ways_of(names: Sequence[str]) -> dict[str, Way]:
    """The ways of these names in the table's order, the first always among them. ParibusError for one that is not."""
    for name in names:
        if name not in WAYS:
            raise ParibusError(
                f"updates are not computed in a way '{name}'",
                expected=", ".join(WAYS),
                received=name,
                remedy=nearest(name, WAYS),
            )
        if why := WAYS[name].missing():
            raise ParibusError(
                f"updates cannot be computed in the way '{name}' on this machine",
                expected=WAYS[name].sentence,
                received=why,
                remedy="leave it out, or install what is missing",
            )
    first = next(iter(WAYS))
    return {name: way for name, way in WAYS.items() if name in (first, *names)}
